/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of the boot room: in text and on the wire, root lists, sockets that listen. */
#include "boot/addr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

/* ---- one address ---- */

void rr_address_write(const struct rr_address *a, unsigned char to[RR_ADDRESS_BYTES])
{
    to[0] = a->family;
    to[1] = a->loopback;
    memcpy(to + 2, &a->port, 2);
    memcpy(to + 4, a->ip, 16);
}

void rr_address_read(struct rr_reader *r, struct rr_address *a)
{
    a->family = rr_read_u8(r);
    a->loopback = rr_read_u8(r) != 0;
    a->port = rr_read_u16(r);
    rr_read_bytes(r, a->ip, sizeof a->ip);
    a->scope = 0;
    if (a->family != RR_FAMILY_IP4 && a->family != RR_FAMILY_IP6)
        memset(a, 0, sizeof *a);
}

static socklen_t unix_sock(const struct rr_address *a, struct sockaddr_un *to)
{
    static const char digits[] = "0123456789abcdef";
    const char *prefix = "ringred-";
    size_t used = 1 + strlen(prefix); /* the leading zero makes the name abstract: never a file */

    to->sun_family = AF_UNIX;
    memcpy(to->sun_path + 1, prefix, strlen(prefix));
    for (size_t i = 0; i < sizeof a->ip; i++) {
        to->sun_path[used++] = digits[a->ip[i] >> 4];
        to->sun_path[used++] = digits[a->ip[i] & 15];
    }
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + used);
}

socklen_t rr_address_sock(const struct rr_address *a, struct sockaddr_storage *to)
{
    memset(to, 0, sizeof *to);
    if (a->family == RR_FAMILY_UNIX)
        return unix_sock(a, (struct sockaddr_un *)to);
    if (a->family == RR_FAMILY_IP4) {
        struct sockaddr_in *in = (struct sockaddr_in *)to;
        in->sin_family = AF_INET;
        in->sin_port = htons(a->port);
        memcpy(&in->sin_addr, a->ip, 4);
        return sizeof *in;
    }
    struct sockaddr_in6 *in = (struct sockaddr_in6 *)to;
    in->sin6_family = AF_INET6;
    in->sin6_port = htons(a->port);
    memcpy(&in->sin6_addr, a->ip, 16);
    in->sin6_scope_id = a->scope;
    return sizeof *in;
}

void rr_address_of(const struct sockaddr *from, struct rr_address *a)
{
    struct sockaddr_in in;
    struct sockaddr_in6 in6;

    memset(a, 0, sizeof *a);
    if (from->sa_family == AF_INET) {
        memcpy(&in, from, sizeof in);
        a->family = RR_FAMILY_IP4;
        a->port = ntohs(in.sin_port);
        memcpy(a->ip, &in.sin_addr, 4);
        a->loopback = a->ip[0] == 127;
    } else if (from->sa_family == AF_INET6) {
        memcpy(&in6, from, sizeof in6);
        a->port = ntohs(in6.sin6_port);
        bool mapped = IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr);
        a->family = mapped ? RR_FAMILY_IP4 : RR_FAMILY_IP6;
        memcpy(a->ip, in6.sin6_addr.s6_addr + (mapped ? 12 : 0), mapped ? 4 : 16);
        a->loopback = mapped ? a->ip[0] == 127 : IN6_IS_ADDR_LOOPBACK(&in6.sin6_addr) != 0;
        a->scope = IN6_IS_ADDR_LINKLOCAL(&in6.sin6_addr) ? in6.sin6_scope_id : 0;
    }
}

bool rr_address_is_link_local(const struct rr_address *a)
{
    return a->family == RR_FAMILY_IP6 && a->ip[0] == 0xfe && (a->ip[1] & 0xc0) == 0x80;
}

bool rr_address_same_ip(const struct rr_address *a, const struct rr_address *b)
{
    return a->family == b->family && memcmp(a->ip, b->ip, sizeof a->ip) == 0;
}

const char *rr_address_text(const struct rr_address *a, char text[RR_ADDRESS_TEXT])
{
    char ip[INET6_ADDRSTRLEN] = "?", name[IF_NAMESIZE];

    if (a->family == RR_FAMILY_UNIX)
        return "a local socket";
    inet_ntop(a->family == RR_FAMILY_IP6 ? AF_INET6 : AF_INET, a->ip, ip, sizeof ip);
    if (a->family != RR_FAMILY_IP6)
        snprintf(text, RR_ADDRESS_TEXT, "%s:%u", ip, a->port);
    else if (a->scope && if_indextoname(a->scope, name))
        snprintf(text, RR_ADDRESS_TEXT, "[%.24s%%%s]:%u", ip, name, a->port);
    else
        snprintf(text, RR_ADDRESS_TEXT, "[%s]:%u", ip, a->port);
    return text;
}

/* ---- root lists ---- */

uint16_t rr_root_port(const struct rr_root *root, int k)
{
    int port = root->port + k;

    return (uint16_t)(port > 65535 ? port - 16 : port);
}

static bool parse_decimal(const char **at, int most, int *number)
{
    const char *from = *at;

    for (*number = 0; **at >= '0' && **at <= '9'; (*at)++) {
        *number = *number * 10 + (**at - '0');
        if (*number > most)
            return false;
    }
    return *at > from;
}

/* host:port, [ip6]:port, with +n behind it; up to the comma. */
static bool parse_root(const char *text, size_t length, struct rr_root *root)
{
    char entry[300];
    const char *host = entry, *at;
    char *end;
    int port, more = 0;

    if (length >= sizeof entry)
        return false;
    memcpy(entry, text, length);
    entry[length] = 0;
    end = strrchr(entry, ':');
    if (!end)
        return false;
    at = end + 1;
    *end = 0;
    if (*host == '[' && end > entry + 1 && end[-1] == ']') {
        host++;
        end[-1] = 0;
    } else if (strchr(host, ':')) {
        return false; /* an IPv6 address without brackets: where would its port begin? */
    }
    if (!*host || strlen(host) >= sizeof root->host || !parse_decimal(&at, 65535, &port) ||
        port == 0)
        return false;
    if (*at == '+' && (at++, !parse_decimal(&at, 15, &more)))
        return false;
    snprintf(root->host, sizeof root->host, "%s", host);
    root->port = (uint16_t)port;
    root->more = (uint16_t)more;
    return *at == 0;
}

bool rr_host_is_numeric(const char *host)
{
    char bare[INET6_ADDRSTRLEN];
    size_t n = strcspn(host, "%"); /* what follows is the interface of a link-local address */
    unsigned char ip[16];

    if (n >= sizeof bare)
        return false;
    memcpy(bare, host, n);
    bare[n] = 0;
    return (inet_pton(AF_INET, bare, ip) == 1 && !host[n]) || inet_pton(AF_INET6, bare, ip) == 1;
}

int rr_roots_parse(const char *text, struct rr_roots *roots, ringred_error *why)
{
    memset(roots, 0, sizeof *roots);
    roots->numeric = true;
    for (const char *at = text; at;) {
        const char *comma = strchr(at, ',');
        size_t length = comma ? (size_t)(comma - at) : strlen(at);
        if (roots->count == RR_ROOTS || !parse_root(at, length, &roots->at[roots->count]))
            return rr_fail(why, RINGRED_ESETTING, -1, 0,
                           "the root \"%.128s\" is not host:port (or [IPv6 address]:port), at most "
                           "%d of them with commas between",
                           text, RR_ROOTS);
        roots->numeric = roots->numeric && rr_host_is_numeric(roots->at[roots->count].host);
        roots->count++;
        at = comma ? comma + 1 : NULL;
    }
    return 0;
}

bool rr_roots_are_loopback(const struct rr_roots *roots)
{
    for (int i = 0; i < roots->count; i++) {
        const char *h = roots->at[i].host;
        if (strcmp(h, "localhost") != 0 && strcmp(h, "::1") != 0 &&
            !(strncmp(h, "127.", 4) == 0 && rr_host_is_numeric(h)))
            return false;
    }
    return true;
}

static int resolve(const struct rr_root *root, struct rr_address *to, int room,
                   const char **problem)
{
    struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM }, *found;
    int n = 0, rc;

    hints.ai_flags = rr_host_is_numeric(root->host) ? AI_NUMERICHOST : 0;
    rc = getaddrinfo(root->host, NULL, &hints, &found);
    if (rc) {
        *problem = gai_strerror(rc);
        return 0;
    }
    for (int k = 0; k <= root->more; k++)
        for (struct addrinfo *a = found; a && n < room; a = a->ai_next) {
            rr_address_of(a->ai_addr, &to[n]);
            to[n].port = rr_root_port(root, k);
            n += to[n].family != RR_FAMILY_NONE;
        }
    freeaddrinfo(found);
    return n;
}

int rr_roots_resolve(const struct rr_roots *roots, struct rr_address *to, int room,
                     const char **problem)
{
    int n = 0;

    *problem = "no address";
    for (int i = 0; i < roots->count && n < room; i++)
        n += resolve(&roots->at[i], to + n, room - n, problem);
    return n;
}

/* ---- sockets ---- */

int rr_close_failed(int fd)
{
    int system = errno;

    rr_fd_close(fd);
    return -system;
}

static int bind_and_listen(int fd, const struct sockaddr_storage *to, socklen_t n)
{
    int one = 1;

    if (fd < 0)
        return rr_close_failed(fd);
    if (to->ss_family != AF_UNIX && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) < 0)
        return rr_close_failed(fd);
    if (bind(fd, (const struct sockaddr *)to, n) < 0 || listen(fd, RR_BACKLOG) < 0)
        return rr_close_failed(fd);
    return fd;
}

static uint16_t port_of(int fd)
{
    struct sockaddr_storage s = { 0 };
    socklen_t n = sizeof s;
    struct rr_address a = { 0 };

    if (getsockname(fd, (struct sockaddr *)&s, &n) == 0)
        rr_address_of((struct sockaddr *)&s, &a);
    return a.port;
}

int rr_listen(struct rr_address *a)
{
    struct sockaddr_storage s;
    socklen_t n = rr_address_sock(a, &s);
    int one = 1, fd = rr_fd_socket(s.ss_family);

    if (fd >= 0 && a->family == RR_FAMILY_IP6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one,
                         sizeof one); /* keep to what was asked for */
    fd = bind_and_listen(fd, &s, n);
    if (fd >= 0 && a->family != RR_FAMILY_UNIX)
        a->port = port_of(fd);
    return fd;
}

int rr_listen_any(uint16_t *port)
{
    struct sockaddr_storage s;
    struct rr_address any = { .family = RR_FAMILY_IP6, .port = *port };
    socklen_t n = rr_address_sock(&any, &s);
    int zero = 0, fd = rr_fd_socket(AF_INET6);

    if (fd >= 0 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero) == 0)
        fd = bind_and_listen(fd, &s, n);
    else
        fd = rr_close_failed(fd);
    if (fd < 0 && fd != -EADDRINUSE) { /* a machine without IPv6 */
        any.family = RR_FAMILY_IP4;
        n = rr_address_sock(&any, &s);
        fd = bind_and_listen(rr_fd_socket(AF_INET), &s, n);
    }
    if (fd >= 0)
        *port = port_of(fd);
    return fd;
}
