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
    uint32_t scope;       /* link-local: the number of my interface that leads there; never on the wire */
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

bool rr_address_is_link_local(const struct rr_address *a); /* IPv6, of use on one wire only */

/* ---- what the sockets of this process may use (net.c) ---- */

/* One address of one interface that is up. */
struct rr_nic {
    struct rr_address address, mask;
    uint32_t index;
    bool taken; /* the setting interface allows it */
    char name[16];
};

struct rr_net {
    struct rr_nic *nic;
    int count;
    bool picked;          /* the setting interface says which to use */
    uint16_t least, most; /* ports of the setting port_range; 0: any */
};

/* Reads both settings. ESETTING names the interfaces there are if one is unknown. */
int rr_net_open(const struct rr_settings *settings, struct rr_net *net, ringred_error *why);
void rr_net_close(struct rr_net *net);
/* The addresses that peers may try, loopback first; how many. */
int rr_net_addresses(const struct rr_net *net, struct rr_address *to, int room);
const struct rr_nic *rr_net_find(const struct rr_net *net, const struct rr_address *a); /* NULL: not mine */
bool rr_nic_is_near(const struct rr_nic *nic, const struct rr_address *a); /* on one network */
/* How many of the addresses come first that lie on networks which this machine's interfaces are on, and are
 * not its own (two hosts may have a bridge of one number each): they are moved to the front, in their order. */
int rr_net_near(const struct rr_net *net, struct rr_address *list, int n);

/* A listening socket, non-blocking, close-on-exec and owned (rr_fd_socket): a fork that kept it would seem to listen for
 * this rank. Or -errno. Port 0: chosen, and written to a. */
int rr_net_listen(const struct rr_net *net, struct rr_address *a);
int rr_net_listen_any(const struct rr_net *net, uint16_t *port); /* on all addresses of all families */
/* Begins to connect, from that interface's address alone if it is not NULL. The socket or -errno. congestion: a
 * name for the socket before it connects; NULL: the system's. */
int rr_net_dial(const struct rr_net *net, const struct rr_address *to, const struct rr_nic *from,
                const char *congestion);
/* A connection that was accepted keeps to the interface of its address, if that is picked. */
void rr_net_keep(const struct rr_net *net, int fd);
/* After EADDRINUSE: ", all of port_range 20000-20003: 20000 by process 17 (x), ...", or "" without a range. */
void rr_net_busy(const struct rr_net *net, struct rr_text *t);

/* Without regard to port_range: what the caller has chosen. */
int rr_listen(struct rr_address *a);
int rr_listen_any(uint16_t *port);

int rr_close_failed(int fd); /* after a call that failed: -errno of that call. -1 is fine */

/* What tells whether two ranks share a host, and whether they share its network. */
void rr_identity(const struct rr_settings *settings, int rank, uint64_t *host, uint64_t *net);

/* "pid 17 (name)" of who listens on the port, or "" if it cannot be known. */
void rr_port_holder(uint16_t port, char *text, size_t room);

#endif
