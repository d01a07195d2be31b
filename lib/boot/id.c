/* SPDX-License-Identifier: Apache-2.0 */
/* Unique ids: a listener opened before anybody knows of it, and a text of 256 bytes that says where
 * it is and carries a fresh key. The listener waits in a small table until rank 0 makes its
 * communicator. */
#include "boot/inside.h"

#include <errno.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#define IDS          64
#define ID_CHECKED   240 /* bytes under the check sum */
#define ID_ADDRESSES 8
#define ID_CHECK     8

#define MAGIC_BYTES 8
/* padded with zeros to the length of a crypto_shorthash key */
static const unsigned char magic[crypto_shorthash_KEYBYTES] = { 'r', 'i', 'n', 'g',
                                                                'r', 'e', 'd', '#' };

/* Ids made here and not yet used. Guarded by the mutex. */
static struct {
    pthread_mutex_t mutex;
    uint32_t forks; /* of the process that made them: a fork has closed its copies */
    int count;
    struct made {
        unsigned char job[RR_JOB_BYTES];
        int fd[ID_ADDRESSES], fds;
        bool kept; /* it serves more than once */
    } made[IDS];
} table = { .mutex = PTHREAD_MUTEX_INITIALIZER };

static void lock_table(void)
{
    pthread_mutex_lock(&table.mutex);
    if (table.forks != rr_forks())
        table.count = 0;
    table.forks = rr_forks();
}

static int table_add(const struct made *made)
{
    int rc = RINGRED_ELIMIT;

    lock_table();
    if (table.count < IDS) {
        table.made[table.count++] = *made;
        rc = 0;
    }
    pthread_mutex_unlock(&table.mutex);
    return rc;
}

int rr_unique_id_listener(const unsigned char job[RR_JOB_BYTES])
{
    int fd = -1;

    lock_table();
    for (int i = 0; i < table.count; i++)
        if (!table.made[i].kept && memcmp(table.made[i].job, job, RR_JOB_BYTES) == 0)
            fd = table.made[i].fd[0];
    pthread_mutex_unlock(&table.mutex);
    return fd;
}

int rr_unique_id_keep(const unsigned char job[RR_JOB_BYTES])
{
    int fd = -1;

    lock_table();
    for (int i = 0; i < table.count && fd < 0; i++)
        if (!table.made[i].kept && memcmp(table.made[i].job, job, RR_JOB_BYTES) == 0) {
            fd = table.made[i].fd[0];
            table.made[i].kept = true;
        }
    pthread_mutex_unlock(&table.mutex);
    return fd;
}

int rr_unique_id_listeners(int listener, int fd[RR_ADDRESSES])
{
    int n = 1;

    fd[0] = listener;
    lock_table();
    for (int i = 0; i < table.count; i++)
        if (table.made[i].fd[0] == listener) {
            n = table.made[i].fds;
            memcpy(fd, table.made[i].fd, (size_t)n * sizeof *fd);
        }
    pthread_mutex_unlock(&table.mutex);
    return n;
}

static void close_all(const struct made *made)
{
    for (int i = 0; i < made->fds; i++)
        rr_fd_close(made->fd[i]);
}

void rr_unique_id_spent(int listener)
{
    lock_table();
    for (int i = 0; i < table.count; i++)
        if (table.made[i].fd[0] == listener && !table.made[i].kept) {
            close_all(&table.made[i]);
            table.made[i] = table.made[--table.count];
            break;
        }
    pthread_mutex_unlock(&table.mutex);
}

void rr_unique_id_drop(const ringred_unique_id *id)
{
    int fd = rr_unique_id_listener(id->bytes + RR_ID_JOB);

    if (fd >= 0)
        rr_unique_id_spent(fd);
}

/* id: magic 8, version 2, count 2, key 32, job 16, network 8, addresses 8 x 20, zero, check 8 at
 * 240 */
static void write_id(const struct rr_launch *launch, uint64_t net, const struct rr_address *a,
                     int n, ringred_unique_id *id)
{
    unsigned char *at = id->bytes;
    uint16_t version = RR_WIRE_VERSION, count = (uint16_t)n;

    memset(at, 0, sizeof id->bytes);
    memcpy(at, magic, MAGIC_BYTES);
    memcpy(at + 8, &version, 2);
    memcpy(at + 10, &count, 2);
    memcpy(at + RR_ID_KEY, launch->key, RR_KEY_BYTES);
    memcpy(at + RR_ID_JOB, launch->job, RR_JOB_BYTES);
    memcpy(at + 60, &net, 8);
    for (int i = 0; i < n; i++)
        rr_address_write(&a[i], at + 68 + i * RR_ADDRESS_BYTES);
    crypto_shorthash(at + ID_CHECKED, at, ID_CHECKED,
                     magic /* no secret: against truncated copies */);
}

/* One listener for all addresses, or one for each where the setting interface has picked them. Those that cannot be
 * listened on are dropped; *n is what is left. 0, or the last errno. */
static int listen_for_id(const struct rr_net *net, struct rr_address *a, int *n, struct made *made)
{
    int kept = 0, system = 0;
    uint16_t port = 0;

    if (!net->picked) {
        int fd = rr_net_listen_any(net, &port);
        for (int i = 0; i < *n; i++)
            a[i].port = port;
        made->fd[0] = fd;
        made->fds = fd >= 0;
        return fd < 0 ? -fd : 0;
    }
    for (int i = 0; i < *n; i++) {
        int fd = rr_net_listen(net, &a[i]);
        if (fd < 0) {
            system = -fd;
            continue;
        }
        a[kept++] = a[i];
        made->fd[made->fds++] = fd;
    }
    *n = kept;
    return kept ? 0 : system;
}

static int open_listeners(const struct rr_settings *settings, struct rr_address *a, int *n, struct made *made,
                          ringred_error *why)
{
    char busy[300] = "";
    struct rr_text t = { busy, sizeof busy, 0 };
    struct rr_net net;

    RR_TRY(rr_net_open(settings, &net, why));
    *n = rr_net_addresses(&net, a, ID_ADDRESSES);
    int system = listen_for_id(&net, a, n, made), rc = 0;
    if (system) {
        if (system == EADDRINUSE)
            rr_net_busy(&net, &t);
        rc = rr_fail(why, rr_system_code(system), -1, system, "cannot listen for the other ranks%s", busy);
    }
    rr_net_close(&net);
    return rc;
}

int rr_unique_id_open(const struct rr_settings *settings, ringred_unique_id *id, ringred_error *why)
{
    struct rr_address a[ID_ADDRESSES];
    struct made made = { .fds = 0 };
    struct rr_launch launch;
    uint64_t host, net;
    int n;

    if (sodium_init() < 0)
        return rr_fail(why, RINGRED_ESYSTEM, -1, errno, "there is no source of random numbers");
    RR_TRY(open_listeners(settings, a, &n, &made, why));
    randombytes_buf(launch.key, sizeof launch.key);
    randombytes_buf(launch.job, sizeof launch.job);
    memcpy(made.job, launch.job, RR_JOB_BYTES);
    if (table_add(&made) < 0) {
        close_all(&made);
        return rr_fail(why, RINGRED_ELIMIT, -1, 0, "%d unique ids wait to be used in this process",
                       IDS);
    }
    rr_identity(settings, 0, &host, &net);
    write_id(&launch, net, a, n, id);
    sodium_memzero(launch.key, sizeof launch.key);
    return 0;
}

/* The addresses that can be of use here, as a root list. */
static void write_roots(struct rr_reader *r, int count, bool same_net, char *root, size_t room)
{
    struct rr_text t = { root, room, 0 };
    char text[RR_ADDRESS_TEXT];
    struct rr_address a;

    for (int i = 0; i < count; i++) {
        rr_address_read(r, &a);
        if (a.family != RR_FAMILY_NONE && a.port && (!a.loopback || same_net))
            rr_text_add(&t, "%s%s", t.used ? "," : "", rr_address_text(&a, text));
    }
}

int rr_unique_id_read(const ringred_unique_id *id, struct rr_launch *launch, ringred_error *why)
{
    struct rr_reader r = { id->bytes, id->bytes + ID_CHECKED, false };
    unsigned char seen[MAGIC_BYTES], check[ID_CHECK];
    struct rr_settings *none = rr_alloc(1, sizeof *none);
    uint64_t host, net = 0;
    uint16_t version, count;

    if (!none)
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory to read a unique id");
    rr_identity(none, 0, &host, &net);
    rr_free(none);
    rr_read_bytes(&r, seen, sizeof seen);
    version = rr_read_u16(&r);
    count = rr_read_u16(&r);
    rr_read_bytes(&r, launch->key, RR_KEY_BYTES);
    rr_read_bytes(&r, launch->job, RR_JOB_BYTES);
    crypto_shorthash(check, id->bytes, ID_CHECKED, magic);
    if (memcmp(seen, magic, MAGIC_BYTES) != 0 ||
        memcmp(check, id->bytes + ID_CHECKED, ID_CHECK) != 0 || count == 0 || count > ID_ADDRESSES)
        return rr_fail(why, RINGRED_EINVAL, -1, 0,
                       "the unique id is damaged, or was not written by ringred_unique_id_create");
    if (version != RR_WIRE_VERSION)
        return rr_fail(why, RINGRED_EVERSION, -1, 0,
                       "the unique id was made for wire version %u, this library speaks %d",
                       version, RR_WIRE_VERSION);
    bool same_net = rr_read_u64(&r) == net;
    write_roots(&r, count, same_net, launch->root, sizeof launch->root);
    launch->has_key = true;
    if (!launch->root[0])
        return rr_fail(
            why, RINGRED_ECONFIG, 0, 0,
            "the process that made the unique id has only loopback addresses, and is on another "
            "network than this one");
    return 0;
}
