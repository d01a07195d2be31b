/* SPDX-License-Identifier: Apache-2.0 */
/* Who this process is to others: the host it runs on, its network, and who else holds a port. */
#include "boot/addr.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Reads the beginning of a file as a text; an empty one if it cannot be read. */
static size_t read_file(const char *path, char *to, size_t room)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, to, room - 1);

    if (fd >= 0)
        close(fd);
    to[n > 0 ? n : 0] = 0;
    return n > 0 ? (size_t)n : 0;
}

static void hash_namespace(crypto_generichash_state *s, const char *path)
{
    struct stat st = { 0 };
    uint64_t id[2];

    (void)stat(path, &st); /* no /proc: all zero, and the boot id cannot be read either */
    id[0] = st.st_dev;
    id[1] = st.st_ino;
    crypto_generichash_update(s, (const unsigned char *)id, sizeof id);
}

static uint64_t machine;
static pthread_once_t machine_known = PTHREAD_ONCE_INIT;

static void find_machine(void)
{
    char boot[64] = "";

    if (read_file("/proc/sys/kernel/random/boot_id", boot, sizeof boot) > 0)
        crypto_generichash((unsigned char *)&machine, sizeof machine, (unsigned char *)boot,
                           sizeof boot, NULL, 0);
    else
        randombytes_buf(&machine, sizeof machine);
}

uint64_t rr_machine_hash(void)
{
    pthread_once(&machine_known, find_machine);
    return machine;
}

void rr_identity(const struct rr_settings *settings, int rank, uint64_t *host, uint64_t *net)
{
    const char *text = rr_setting_text(settings, RR_SET_HOST);
    int64_t per_host = rr_setting(settings, RR_SET_RANKS_PER_HOST);
    int64_t pretended = per_host > 0 ? rank / per_host : -1;
    uint64_t kernel = rr_machine_hash();
    crypto_generichash_state s;
    unsigned char hash[16];

    crypto_generichash_init(&s, NULL, 0, sizeof hash);
    crypto_generichash_update(&s, (const unsigned char *)&kernel, sizeof kernel);
    hash_namespace(&s, "/proc/self/ns/net");
    crypto_generichash_state with_pids = s;
    crypto_generichash_final(&s, hash, sizeof hash);
    memcpy(net, hash, sizeof *net);

    hash_namespace(&with_pids, "/proc/self/ns/pid");
    crypto_generichash_update(&with_pids, (const unsigned char *)text, strlen(text) + 1);
    crypto_generichash_update(&with_pids, (const unsigned char *)&pretended, sizeof pretended);
    crypto_generichash_final(&with_pids, hash, sizeof hash);
    memcpy(host, hash, sizeof *host);
}

/* ---- who holds a port ---- */

/* The inode of the socket that listens on the port, 0 if none is seen. */
static unsigned long listening_inode(const char *table, uint16_t port)
{
    FILE *f = fopen(table, "re");
    char line[512];
    unsigned long inode = 0;

    while (f && !inode && fgets(line, sizeof line, f)) {
        unsigned local, state;
        unsigned long seen;
        const char *colon = strchr(line, ':');
        if (colon &&
            sscanf(colon + 1, " %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s %*s %*s %lu",
                   &local, &state, &seen) == 3 &&
            local == port && state == 10 /* listening */)
            inode = seen;
    }
    if (f)
        fclose(f);
    return inode;
}

static bool process_holds(const char *pid, const char *link)
{
    char path[64], target[64];
    DIR *d;
    bool holds = false;

    snprintf(path, sizeof path, "/proc/%.20s/fd", pid);
    d = opendir(path);
    if (!d)
        return false;
    for (struct dirent *e = readdir(d); e && !holds; e = readdir(d)) {
        ssize_t n = readlinkat(dirfd(d), e->d_name, target, sizeof target - 1);
        if (n <= 0)
            continue;
        target[n] = 0;
        holds = strcmp(target, link) == 0;
    }
    closedir(d);
    return holds;
}

void rr_port_holder(uint16_t port, char *text, size_t room)
{
    char link[64], path[64], name[64];
    unsigned long inode = listening_inode("/proc/net/tcp", port);
    DIR *d = NULL;
    bool other = false; /* this process may have inherited the socket: another holder says more */

    *text = 0;
    if (!inode)
        inode = listening_inode("/proc/net/tcp6", port);
    snprintf(link, sizeof link, "socket:[%lu]", inode);
    if (inode)
        d = opendir("/proc");
    for (struct dirent *e = d ? readdir(d) : NULL; e && !other; e = readdir(d)) {
        if (!isdigit((unsigned char)e->d_name[0]) || !process_holds(e->d_name, link))
            continue;
        snprintf(path, sizeof path, "/proc/%.20s/comm", e->d_name);
        read_file(path, name, sizeof name);
        name[strcspn(name, "\n")] = 0;
        snprintf(text, room, "process %.20s (%s)", e->d_name, name);
        other = strtol(e->d_name, NULL, 10) != getpid();
    }
    if (d)
        closedir(d);
}
