/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs over several hosts: lists of hosts, and what one ringred-run tells another of its part of the job: notes of
 * "NAME BYTES", a line end, and so many bytes. */
#include "run.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define NOTE_MOST      (1 << 20) /* bytes */
#define ARGUMENTS_MOST 4096
#define ROOTS_MOST     8
#define ROOT_BYTES     255 /* of the setting root */

/* ---- lists of hosts ---- */

static int count_of(const struct run_host *hosts)
{
    int n = 0;

    while (hosts[n].slots)
        n++;
    return n;
}

static void add_host(struct run_host *hosts, const char *name, size_t length, int slots)
{
    int n = count_of(hosts);

    if (length == 0 || length >= sizeof hosts->name || *name == '-' || n == HOSTS_MOST) {
        say("%s", n == HOSTS_MOST ? "there are too many hosts"
                                  : "a host has no name, one that begins with -, or one too long");
        exit(EXIT_SYSTEM);
    }
    for (int i = 0; i < n; i++)
        if (strlen(hosts[i].name) == length && strncmp(hosts[i].name, name, length) == 0) {
            say("host %s is listed twice: give it all its ranks at once", hosts[i].name);
            exit(EXIT_SYSTEM);
        }
    snprintf(hosts[n].name, sizeof hosts[n].name, "%.*s", (int)length, name);
    hosts[n].slots = slots;
}

/* One entry: name, name:slots, [address], [address]:slots. */
static void add_entry(struct run_host *hosts, char *entry)
{
    char *name = entry, *end = *entry == '[' ? strchr(entry, ']') : NULL, *colon;
    int slots = 1;

    if (end) {
        name = entry + 1;
        *end = 0;
        colon = end[1] == ':' ? end + 1 : NULL;
    } else {
        colon = strrchr(entry, ':');
    }
    if (colon) {
        slots = (int)number(colon + 1, "the number of ranks behind a host", 1, RANKS_MOST);
        *colon = 0;
    }
    add_host(hosts, name, strlen(name), slots);
}

int run_hosts_list(struct run_host *hosts, const char *text)
{
    char *copy = strdup(text), *at = copy, *entry;

    must(copy != NULL, "make room for the hosts");
    while ((entry = strsep(&at, ",")) != NULL)
        add_entry(hosts, entry);
    free(copy);
    return count_of(hosts);
}

/* "name", "name:2", "name slots=2"; # begins a remark. */
int run_hosts_file(struct run_host *hosts, const char *path)
{
    char line[1024], slots[16];
    FILE *f = fopen(path, "re");

    if (!f) {
        say("cannot read %s: %s", path, strerror(errno));
        exit(EXIT_SYSTEM);
    }
    for (int n = 1; fgets(line, sizeof line, f); n++) {
        char *at = line, *name, *more;
        line[strcspn(line, "#\r\n")] = 0;
        at += strspn(at, " \t");
        name = strsep(&at, " \t");
        more = at ? at + strspn(at, " \t") : at;
        if (!*name)
            continue;
        if (more && *more && sscanf(more, "slots=%15[0-9]", slots) != 1) {
            say("%s:%d: \"%s\" is not slots=N", path, n, more);
            exit(EXIT_SYSTEM);
        }
        if (more && *more)
            add_host(hosts, name, strlen(name), (int)number(slots, "slots", 1, RANKS_MOST));
        else
            add_entry(hosts, name);
    }
    fclose(f);
    return count_of(hosts);
}

int run_hosts_fill(struct run_host *hosts, int *count, int ranks)
{
    int room = 0, given = 0;

    for (int i = 0; i < *count; i++)
        room += hosts[i].slots;
    if (*count == 0 || ranks > room || room > RANKS_MOST) {
        if (*count == 0)
            say("there is no host in the list");
        else
            say("the hosts have room for %d ranks, not for %d", room, ranks > room ? ranks : RANKS_MOST);
        exit(EXIT_SYSTEM);
    }
    ranks = ranks ? ranks : room;
    for (int i = 0; i < *count; i++) {
        hosts[i].first = given;
        hosts[i].ranks = ranks - given < hosts[i].slots ? ranks - given : hosts[i].slots;
        given += hosts[i].ranks;
    }
    while (hosts[*count - 1].ranks == 0)
        --*count;
    return ranks;
}

/* ---- notes ---- */

/* A reader that has gone shows by its end. */
static void send_bytes(int fd, const void *from, size_t bytes)
{
    const char *at = from;

    while (bytes > 0) {
        ssize_t n = write(fd, at, bytes);
        if (n < 0 && errno != EINTR)
            return;
        at += n > 0 ? n : 0;
        bytes -= n > 0 ? (size_t)n : 0;
    }
}

static void send_note(int fd, const char *name, const void *bytes, size_t n)
{
    char head[64];

    send_bytes(fd, head, (size_t)snprintf(head, sizeof head, "%s %zu\n", name, n));
    send_bytes(fd, bytes, n);
}

static void send_text(int fd, const char *name, const char *text)
{
    send_note(fd, name, text, strlen(text));
}

static void send_number(int fd, const char *name, long long v)
{
    char text[32];

    snprintf(text, sizeof text, "%lld", v);
    send_text(fd, name, text);
}

void run_part_send(int fd, const struct run_part *part)
{
    send_text(fd, "host", part->host);
    send_number(fd, "first", part->first);
    send_number(fd, "ranks", part->ranks);
    send_number(fd, "size", part->size);
    send_number(fd, "grace", part->grace_ns / 1000000000);
    send_note(fd, "key", part->key, sizeof part->key);
    send_text(fd, "directory", part->directory);
    for (int i = 0; i < part->extras; i++)
        send_text(fd, "env", part->extra[i]);
    for (char **a = part->command; *a; a++)
        send_text(fd, "argument", *a);
}

void run_root_send(int fd, const char *root)
{
    send_text(fd, "root", root);
}

static bool read_bytes(int fd, void *to, size_t bytes)
{
    char *at = to;

    while (bytes > 0) {
        ssize_t n = read(fd, at, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

/* The body, with a zero behind it, to be freed; NULL at the end, or where it is no note. */
static char *read_note(int fd, char name[16], size_t *bytes)
{
    char head[64], *body;
    size_t n = 0;

    do
        if (n == sizeof head || !read_bytes(fd, &head[n], 1))
            return NULL;
    while (head[n++] != '\n');
    head[n - 1] = 0;
    if (sscanf(head, "%15s %zu", name, bytes) != 2 || *bytes > NOTE_MOST)
        return NULL;
    body = calloc(*bytes + 1, 1);
    if (body && read_bytes(fd, body, *bytes))
        return body;
    free(body);
    return NULL;
}

static void keep_text(char *to, size_t room, const char *body, const char *name)
{
    if (strlen(body) < room) {
        memcpy(to, body, strlen(body) + 1);
        return;
    }
    say("the %s of the job is too long", name);
    exit(EXIT_SYSTEM);
}

/* Whether the note was taken over, and is not to be freed. */
static bool take_note(struct run_part *p, const char *name, char *body, size_t bytes, int *arguments)
{
    if (strcmp(name, "host") == 0)
        keep_text(p->host, sizeof p->host, body, name);
    else if (strcmp(name, "directory") == 0)
        keep_text(p->directory, sizeof p->directory, body, name);
    else if (strcmp(name, "root") == 0)
        keep_text(p->root, sizeof p->root, body, name);
    else if (strcmp(name, "first") == 0)
        p->first = (int)number(body, "first", 0, RANKS_MOST);
    else if (strcmp(name, "ranks") == 0)
        p->ranks = (int)number(body, "ranks", 1, RANKS_MOST);
    else if (strcmp(name, "size") == 0)
        p->size = (int)number(body, "size", 1, RANKS_MOST);
    else if (strcmp(name, "grace") == 0)
        p->grace_ns = number(body, "grace", 0, 86400) * 1000000000;
    else if (strcmp(name, "key") == 0 && bytes == KEY_BYTES)
        memcpy(p->key, body, bytes);
    else if (strcmp(name, "env") == 0 && p->extras < EXTRAS_MOST && strchr(body, '='))
        return p->extra[p->extras++] = body, true;
    else if (strcmp(name, "argument") == 0 && *arguments < ARGUMENTS_MOST)
        return p->command[(*arguments)++] = body, true;
    return false;
}

void run_part_read(int fd, struct run_part *p)
{
    char name[16] = "", *body = NULL;
    size_t bytes;
    int arguments = 0;

    memset(p, 0, sizeof *p);
    p->command = calloc(ARGUMENTS_MOST + 1, sizeof *p->command);
    must(p->command != NULL, "make room for the command");
    while (strcmp(name, "root") != 0 && (body = read_note(fd, name, &bytes)) != NULL)
        if (!take_note(p, name, body, bytes, &arguments)) {
            explicit_bzero(body, bytes);
            free(body);
        }
    if (body && p->ranks && arguments && p->first + p->ranks <= p->size)
        return;
    if (fd == 0 && !body && arguments) /* whoever began has given up meanwhile, and said why */
        exit(EXIT_SYSTEM);
    say("--agent is not for users: another ringred-run starts it, and tells it what to do");
    exit(EXIT_SYSTEM);
}

/* ---- the root ---- */

static int listen_any(int *port)
{
    struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT };
    struct sockaddr_in in4 = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY) };
    socklen_t n = sizeof in6;
    int zero = 0, fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd >= 0 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero) == 0 &&
        bind(fd, (struct sockaddr *)&in6, sizeof in6) == 0 && getsockname(fd, (struct sockaddr *)&in6, &n) == 0) {
        *port = ntohs(in6.sin6_port);
    } else { /* a machine without IPv6 */
        n = sizeof in4;
        if (fd >= 0)
            close(fd);
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        must(fd >= 0 && bind(fd, (struct sockaddr *)&in4, sizeof in4) == 0 &&
                 getsockname(fd, (struct sockaddr *)&in4, &n) == 0,
             "open a socket for the root");
        *port = ntohs(in4.sin_port);
    }
    must(listen(fd, 4096) == 0, "listen for the ranks");
    return fd;
}

/* "10.0.0.1:4711" of an address that other hosts may reach; false: it is none. */
static bool address_text(const struct ifaddrs *a, int family, int port, char *to, size_t room)
{
    char ip[INET6_ADDRSTRLEN];

    if (!a->ifa_addr || a->ifa_addr->sa_family != family || !(a->ifa_flags & IFF_UP) || (a->ifa_flags & IFF_LOOPBACK))
        return false;
    if (family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, a->ifa_addr, sizeof in);
        snprintf(to, room, "%s:%d", inet_ntop(family, &in.sin_addr, ip, sizeof ip), port);
        return true;
    }
    struct sockaddr_in6 in6;
    memcpy(&in6, a->ifa_addr, sizeof in6);
    if (IN6_IS_ADDR_LINKLOCAL(&in6.sin6_addr))
        return false;
    snprintf(to, room, "[%s]:%d", inet_ntop(family, &in6.sin6_addr, ip, sizeof ip), port);
    return true;
}

int run_open_root(char *root, size_t room)
{
    static const int families[] = { AF_INET, AF_INET6 };
    struct ifaddrs *all = NULL;
    int port, fd = listen_any(&port), count = 0;
    size_t used = 0;
    char one[80];

    must(getifaddrs(&all) == 0, "list the network interfaces");
    room = room < ROOT_BYTES + 1 ? room : ROOT_BYTES + 1;
    root[0] = 0;
    for (int f = 0; f < 2; f++)
        for (struct ifaddrs *a = all; a; a = a->ifa_next) {
            if (count == ROOTS_MOST || !address_text(a, families[f], port, one, sizeof one) ||
                used + strlen(one) + 2 > room)
                continue;
            used += (size_t)snprintf(root + used, room - used, "%s%s", used ? "," : "", one);
            count++;
        }
    if (count == 0)
        snprintf(root, room, "127.0.0.1:%d", port);
    freeifaddrs(all);
    return fd;
}
