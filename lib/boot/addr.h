/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of the boot room: of this machine, in text, on the wire, and to listen on. */
#ifndef RR_BOOT_ADDR_H
#define RR_BOOT_ADDR_H

#include "boot/boot.h"

#include <sys/socket.h>

#define RR_ADDRESSES     16 /* most addresses that a rank offers */
#define RR_ADDRESS_BYTES 20 /* of one on the wire */
#define RR_ROOTS         8  /* most entries of a root list */
#define RR_BACKLOG       4096

enum rr_family { RR_FAMILY_NONE = 0, RR_FAMILY_IP4 = 4, RR_FAMILY_IP6 = 6, RR_FAMILY_UNIX = 1 };

struct rr_address {
    uint8_t family;
    uint8_t loopback;
    uint16_t port;
    unsigned char ip[16]; /* RR_FAMILY_UNIX: what the abstract name is made of */
};

/* One entry of a root list: host:port, or host:port+n for that port and the n after it. */
struct rr_root {
    char host[256];
    uint16_t port, more;
};

struct rr_roots {
    struct rr_root at[RR_ROOTS];
    int count;
    bool numeric; /* no name in it: asks no resolver */
};

/* The k-th port of a root; those beyond 65535 go on 16 below where they would be. */
uint16_t rr_root_port(const struct rr_root *root, int k);
int rr_roots_parse(const char *text, struct rr_roots *roots, ringred_error *why);
bool rr_host_is_numeric(const char *host);
bool rr_roots_are_loopback(const struct rr_roots *roots);
/* Looks the names up. Returns how many addresses it found, at most `room`; 0: none yet, *problem
 * says why. */
int rr_roots_resolve(const struct rr_roots *roots, struct rr_address *to, int room,
                     const char **problem);

void rr_address_write(const struct rr_address *a, unsigned char to[RR_ADDRESS_BYTES]);
void rr_address_read(struct rr_reader *r, struct rr_address *a); /* family NONE if it is none */
socklen_t rr_address_sock(const struct rr_address *a, struct sockaddr_storage *to);
void rr_address_of(const struct sockaddr *from, struct rr_address *a);
bool rr_address_same_ip(const struct rr_address *a, const struct rr_address *b);
#define RR_ADDRESS_TEXT 64
const char *rr_address_text(const struct rr_address *a,
                            char text[RR_ADDRESS_TEXT]); /* with the port */

/* Addresses of this machine's interfaces, or of those that the setting names; loopback first.
 * Returns the number. ESETTING names the interfaces there are if one is unknown. */
int rr_interfaces(const struct rr_settings *settings, struct rr_address *to, int room,
                  ringred_error *why);

/* How many of the addresses come first that lie on networks which this machine's interfaces are on, and are
 * not its own: they are moved to the front, in their order. */
int rr_addresses_near(struct rr_address *list, int n);

/* A listening socket, non-blocking and close-on-exec, or -errno. Port 0: chosen, and written to a.
 */
int rr_listen(struct rr_address *a);
int rr_listen_any(uint16_t *port); /* on all addresses of all families that there are */
/* Begins to connect, from the address `from` if it is not NULL. The socket or -errno. */
/* congestion: a name for the socket before it connects; NULL: the system's. */
int rr_socket_dial(const struct rr_address *a, const struct rr_address *from,
                   const char *congestion);

/* What tells whether two ranks share a host, and whether they share its network. */
void rr_identity(const struct rr_settings *settings, int rank, uint64_t *host, uint64_t *net);

/* "pid 17 (name)" of who listens on the port, or "" if it cannot be known. */
void rr_port_holder(uint16_t port, char *text, size_t room);

#endif
