/* SPDX-License-Identifier: Apache-2.0 */
/* What the sockets of this process may use: the interfaces of this machine, those of them that the setting
 * interface allows, and the ports of the setting port_range. Every socket of the library but the local
 * ones and loopback probes is opened here, so that both settings hold for all of them. */
#include "boot/addr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- comparing ---- */

/* Equal where the mask has ones? */
static bool same_network(const struct rr_address *a, const struct rr_address *b, const unsigned char *mask)
{
    size_t bytes = a->family == RR_FAMILY_IP4 ? 4 : 16;

    for (size_t i = 0; i < bytes; i++)
        if ((a->ip[i] ^ b->ip[i]) & mask[i])
            return false;
    return a->family == b->family;
}

bool rr_nic_is_near(const struct rr_nic *nic, const struct rr_address *a)
{
    return nic->address.loopback == a->loopback && nic->mask.family == a->family &&
           same_network(a, &nic->address, nic->mask.ip);
}

const struct rr_nic *rr_net_find(const struct rr_net *net, const struct rr_address *a)
{
    for (int i = 0; net && i < net->count; i++) {
        const struct rr_nic *nic = &net->nic[i];
        if (rr_address_same_ip(&nic->address, a) && (!a->scope || a->scope == nic->index))
            return nic;
    }
    return NULL;
}

int rr_net_near(const struct rr_net *net, struct rr_address *list, int n)
{
    int near = 0;

    for (int i = 0; i < n; i++) {
        struct rr_address a = list[i];
        bool is_near = false;
        for (int k = 0; k < net->count && !a.loopback; k++)
            is_near = is_near || (net->nic[k].taken && rr_nic_is_near(&net->nic[k], &a));
        if (!is_near || rr_net_find(net, &a))
            continue;
        for (int k = i; k > near; k--)
            list[k] = list[k - 1];
        list[near++] = a;
    }
    return near;
}

/* ---- which interfaces there are ---- */

static bool read_nic(const struct ifaddrs *a, struct rr_nic *nic)
{
    memset(nic, 0, sizeof *nic);
    if (!a->ifa_addr || !(a->ifa_flags & IFF_UP))
        return false;
    rr_address_of(a->ifa_addr, &nic->address);
    if (nic->address.family == RR_FAMILY_NONE)
        return false;
    if (a->ifa_netmask)
        rr_address_of(a->ifa_netmask, &nic->mask);
    nic->mask.family = nic->address.family; /* IPv6 masks may look like any address */
    if (a->ifa_netmask && nic->address.family == RR_FAMILY_IP6)
        memcpy(nic->mask.ip, &((const struct sockaddr_in6 *)(const void *)a->ifa_netmask)->sin6_addr, 16);
    snprintf(nic->name, sizeof nic->name, "%.15s", a->ifa_name);
    char device[IF_NAMESIZE];
    snprintf(device, sizeof device, "%.*s", (int)strcspn(nic->name, ":"), nic->name); /* "eth0:1" is on eth0 */
    nic->index = if_nametoindex(device);
    return true;
}

static int list_nics(struct rr_net *net, ringred_error *why)
{
    struct ifaddrs *all;
    size_t most = 0;

    if (getifaddrs(&all) < 0)
        return rr_fail(why, RINGRED_ESYSTEM, -1, errno, "cannot list the network interfaces");
    for (const struct ifaddrs *a = all; a; a = a->ifa_next)
        most++;
    net->nic = rr_alloc(most ? most : 1, sizeof *net->nic);
    for (const struct ifaddrs *a = all; net->nic && a; a = a->ifa_next)
        net->count += read_nic(a, &net->nic[net->count]);
    freeifaddrs(all);
    return net->nic ? 0 : rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for %zu network interfaces", most);
}

/* ---- the setting interface ---- */

/* "10.0.0.0/8", or one address. */
static bool read_prefix(const char *word, struct rr_address *a, unsigned char mask[16])
{
    char text[INET6_ADDRSTRLEN];
    size_t n = strcspn(word, "/");
    const char *slash = word[n] ? word + n + 1 : NULL;
    char *end = NULL;

    memset(a, 0, sizeof *a);
    if (n >= sizeof text)
        return false;
    memcpy(text, word, n);
    text[n] = 0;
    bool is_ip4 = inet_pton(AF_INET, text, a->ip) == 1;
    if (!is_ip4 && inet_pton(AF_INET6, text, a->ip) != 1)
        return false;
    a->family = is_ip4 ? RR_FAMILY_IP4 : RR_FAMILY_IP6;
    long most = is_ip4 ? 32 : 128, bits = slash ? strtol(slash, &end, 10) : most;
    if (slash && (end == slash || *end || bits < 0 || bits > most))
        return false;
    for (int i = 0; i < 16; i++)
        mask[i] = (unsigned char)(bits >= 8 * (i + 1) ? 255 : bits <= 8 * i ? 0 : 255 << (8 * (i + 1) - bits));
    return true;
}

static bool is_meant(const struct rr_nic *nic, const char *word)
{
    struct rr_address a;
    unsigned char mask[16];

    return read_prefix(word, &a, mask) ? same_network(&nic->address, &a, mask) : strcmp(nic->name, word) == 0;
}

/* "lo (127.0.0.1, ::1), eth0 (10.0.0.1)" */
static void list_present(const struct rr_net *net, struct rr_text *t)
{
    for (int i = 0; i < net->count; i++) {
        const struct rr_nic *nic = &net->nic[i];
        bool seen = false;
        for (int k = 0; k < i && !seen; k++)
            seen = strcmp(net->nic[k].name, nic->name) == 0;
        if (seen)
            continue;
        if (t->used + 80 > t->room) {
            rr_text_add(t, ", ...");
            return;
        }
        rr_text_add(t, "%s%s (", t->used ? ", " : "", nic->name);
        const char *comma = "";
        for (int k = i; k < net->count && t->used + 60 < t->room; k++) {
            char ip[INET6_ADDRSTRLEN] = "?";
            if (strcmp(net->nic[k].name, nic->name) != 0)
                continue;
            inet_ntop(net->nic[k].address.family == RR_FAMILY_IP4 ? AF_INET : AF_INET6, net->nic[k].address.ip, ip,
                      sizeof ip);
            rr_text_add(t, "%s%s", comma, ip);
            comma = ", ";
        }
        rr_text_add(t, ")");
    }
}

static int pick_word(struct rr_net *net, const char *word, ringred_error *why)
{
    char present[300] = "";
    struct rr_text t = { present, sizeof present, 0 };
    bool found = false;

    for (int i = 0; i < net->count; i++)
        if (is_meant(&net->nic[i], word))
            found = net->nic[i].taken = true;
    if (found)
        return 0;
    list_present(net, &t);
    return rr_fail(why, RINGRED_ESETTING, -1, 0,
                   "there is no network interface or address \"%.64s\" that is up (setting interface); there are: %s",
                   word, present);
}

static int pick(struct rr_net *net, const char *list, ringred_error *why)
{
    net->picked = *list != 0;
    for (int i = 0; i < net->count; i++)
        net->nic[i].taken = !net->picked;
    for (const char *at = list; net->picked && at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        char word[256];
        snprintf(word, sizeof word, "%.*s", (int)strcspn(at, ","), at);
        RR_TRY(pick_word(net, word, why));
    }
    return net->count ? 0
                      : rr_fail(why, RINGRED_ESETTING, -1, 0, "no network interface has an address");
}

/* ---- the setting port_range ---- */

static int read_ports(struct rr_net *net, const char *text, ringred_error *why)
{
    char *end = NULL;
    long least, most;

    if (!*text)
        return 0;
    least = strtol(text, &end, 10);
    most = *end == '-' && end > text ? strtol(end + 1, &end, 10) : least;
    if (*end || end == text || end[-1] == '-' || least < 1 || most < least || most > 65535)
        return rr_fail(why, RINGRED_ESETTING, -1, 0,
                       "port_range is \"%.32s\", which is not two ports, 1 to 65535, the lower one first: 20000-20100",
                       text);
    net->least = (uint16_t)least;
    net->most = (uint16_t)most;
    return 0;
}

void rr_net_busy(const struct rr_net *net, struct rr_text *t)
{
    int told = 0;

    if (!net->least)
        return;
    rr_text_add(t, ": no port of port_range %u-%u is free", net->least, net->most);
    for (int p = net->least; p <= net->most && told < 3; p++) {
        char holder[64];
        rr_port_holder((uint16_t)p, holder, sizeof holder);
        if (*holder)
            rr_text_add(t, "%s%d by %s", told++ ? ", " : "; ", p, holder);
    }
}

/* ---- opening ---- */

int rr_net_open(const struct rr_settings *settings, struct rr_net *net, ringred_error *why)
{
    int rc;

    memset(net, 0, sizeof *net);
    rc = read_ports(net, rr_setting_text(settings, RR_SET_PORT_RANGE), why);
    if (rc == 0)
        rc = list_nics(net, why);
    if (rc == 0)
        rc = pick(net, rr_setting_text(settings, RR_SET_INTERFACE), why);
    if (rc < 0)
        rr_net_close(net);
    return rc;
}

void rr_net_close(struct rr_net *net)
{
    rr_free(net->nic);
    memset(net, 0, sizeof *net);
}

/* Link-local ones only where there is nothing else: on a host of many containers each of their interfaces has
 * one, and none of these leads to a peer. */
int rr_net_addresses(const struct rr_net *net, struct rr_address *to, int room)
{
    enum { LOOPBACK, ORDINARY, LINK_LOCAL, KINDS };
    int n = 0, ordinary = 0;

    for (int kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < net->count && n < (kind == LOOPBACK && room > 2 ? 2 : room); i++) {
            const struct rr_address *a = &net->nic[i].address;
            int is = a->loopback ? LOOPBACK : rr_address_is_link_local(a) ? LINK_LOCAL : ORDINARY;
            if (!net->nic[i].taken || is != kind || (kind == LINK_LOCAL && ordinary))
                continue;
            to[n++] = *a;
            ordinary += kind == ORDINARY;
        }
    return n;
}

/* ---- sockets ---- */

static int ports_of(const struct rr_net *net)
{
    return net && net->least ? net->most - net->least + 1 : 0;
}

/* The k-th port to try, so that jobs which share a range seldom ask for the same one. */
static uint16_t port_to_try(const struct rr_net *net, uint32_t start, int k)
{
    uint32_t n = (uint32_t)ports_of(net);

    return (uint16_t)(net->least + (start + (uint32_t)k) % n);
}

/* Another process has it, or it is not for this user: the next one of the range may do. */
static bool is_taken(int fd)
{
    return fd == -EADDRINUSE || fd == -EACCES;
}

int rr_net_listen(const struct rr_net *net, struct rr_address *a)
{
    int n = a->port || a->family == RR_FAMILY_UNIX ? 0 : ports_of(net), fd = -EADDRINUSE;
    uint32_t start = randombytes_random();

    if (!n)
        return rr_listen(a);
    for (int k = 0; k < n && is_taken(fd); k++) {
        a->port = port_to_try(net, start, k);
        fd = rr_listen(a);
    }
    a->port = fd < 0 ? 0 : a->port;
    return fd;
}

int rr_net_listen_any(const struct rr_net *net, uint16_t *port)
{
    int n = *port ? 0 : ports_of(net), fd = -EADDRINUSE;
    uint32_t start = randombytes_random();

    if (!n)
        return rr_listen_any(port);
    for (int k = 0; k < n && is_taken(fd); k++) {
        *port = port_to_try(net, start, k);
        fd = rr_listen_any(port);
    }
    *port = fd < 0 ? 0 : *port;
    return fd;
}

/* An address alone does not keep packets to its interface: routes do, and they may prefer another one. A peer on
 * this machine is reached by way of loopback, whatever its address. */
static void keep_to(int fd, const struct rr_net *net, const struct rr_nic *from, const struct rr_address *to)
{
    char device[16];

    if (from->address.loopback || rr_net_find(net, to))
        return;
    size_t n = strcspn(from->name, ":");
    memcpy(device, from->name, n);
    (void)setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, device, (socklen_t)n); /* may be forbidden: routes decide */
}

void rr_net_keep(const struct rr_net *net, int fd)
{
    struct sockaddr_storage here = { 0 }, there = { 0 };
    socklen_t a = sizeof here, b = sizeof there;
    struct rr_address mine, theirs;

    if (!net->picked || getsockname(fd, (struct sockaddr *)&here, &a) < 0 ||
        getpeername(fd, (struct sockaddr *)&there, &b) < 0)
        return;
    rr_address_of((struct sockaddr *)&here, &mine);
    rr_address_of((struct sockaddr *)&there, &theirs);
    const struct rr_nic *nic = rr_net_find(net, &mine);
    if (nic && nic->taken)
        keep_to(fd, net, nic, &theirs);
}

/* The source: an address, a port, both, or neither. */
static int bind_source(int fd, const struct rr_address *to, const struct rr_nic *from, uint16_t port)
{
    struct rr_address a = { .family = to->family };
    struct sockaddr_storage s;
    socklen_t n;
    int one = 1;

    if (from)
        a = from->address;
    a.port = port;
    a.scope = a.scope ? a.scope : to->scope && rr_address_is_link_local(&a) ? to->scope : 0;
    n = rr_address_sock(&a, &s);
    if (port)
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one); /* to other peers it may serve, too */
    else
        (void)setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one); /* spares ports */
    return bind(fd, (struct sockaddr *)&s, n);
}

static int dial(const struct rr_net *net, const struct rr_address *to, const struct rr_nic *from,
                const char *congestion, uint16_t port)
{
    struct sockaddr_storage s;
    socklen_t n = rr_address_sock(to, &s);
    int one = 1, fd = rr_fd_socket(s.ss_family);

    if (fd < 0)
        return rr_close_failed(fd);
    if (s.ss_family != AF_UNIX)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); /* slower without, not wrong */
    if (congestion)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion, (socklen_t)strlen(congestion));
    if (from)
        keep_to(fd, net, from, to);
    if ((from || port) && bind_source(fd, to, from, port) < 0) {
        if (port && errno == EACCES)
            errno = EADDRINUSE; /* not for this user: as good as taken */
        return rr_close_failed(fd);
    }
    if (connect(fd, (struct sockaddr *)&s, n) < 0 && errno != EINPROGRESS && errno != EINTR)
        return rr_close_failed(fd);
    return fd;
}

int rr_net_dial(const struct rr_net *net, const struct rr_address *to, const struct rr_nic *from,
                const char *congestion)
{
    int n = to->family == RR_FAMILY_UNIX ? 0 : ports_of(net), fd = -EADDRINUSE;

    if (!n)
        return dial(net, to, from, congestion, 0);
    uint32_t start = randombytes_random();
    for (int k = 0; k < n && (fd == -EADDRINUSE || fd == -EADDRNOTAVAIL); k++) {
        uint16_t port = port_to_try(net, start, k);
        if (n > 1 && port == to->port && rr_net_find(net, to))
            continue; /* it could meet itself */
        fd = dial(net, to, from, congestion, port);
    }
    return fd;
}
