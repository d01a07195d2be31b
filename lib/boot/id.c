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
#include <unistd.h>

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
    int count;
    struct made {
        unsigned char job[RR_JOB_BYTES];
        int fd;
    } made[IDS];
} table = { .mutex = PTHREAD_MUTEX_INITIALIZER };

static int table_add(const unsigned char job[RR_JOB_BYTES], int fd)
{
    int rc = RINGRED_ELIMIT;

    pthread_mutex_lock(&table.mutex);
    if (table.count < IDS) {
        struct made *m = &table.made[table.count++];
        memcpy(m->job, job, RR_JOB_BYTES);
        m->fd = fd;
        rc = 0;
    }
    pthread_mutex_unlock(&table.mutex);
    return rc;
}

int rr_unique_id_listener(const unsigned char job[RR_JOB_BYTES])
{
    int fd = -1;

    pthread_mutex_lock(&table.mutex);
    for (int i = 0; i < table.count; i++)
        if (memcmp(table.made[i].job, job, RR_JOB_BYTES) == 0)
            fd = table.made[i].fd;
    pthread_mutex_unlock(&table.mutex);
    return fd;
}

int rr_unique_id_keep(const unsigned char job[RR_JOB_BYTES])
{
    int fd = -1;

    pthread_mutex_lock(&table.mutex);
    for (int i = 0; i < table.count && fd < 0; i++)
        if (memcmp(table.made[i].job, job, RR_JOB_BYTES) == 0) {
            fd = table.made[i].fd;
            table.made[i] = table.made[--table.count];
        }
    pthread_mutex_unlock(&table.mutex);
    return fd;
}

void rr_unique_id_spent(int listener)
{
    pthread_mutex_lock(&table.mutex);
    for (int i = 0; i < table.count; i++)
        if (table.made[i].fd == listener) {
            close(listener);
            table.made[i] = table.made[--table.count];
            break;
        }
    pthread_mutex_unlock(&table.mutex);
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
    memcpy(at + 12, launch->key, RR_KEY_BYTES);
    memcpy(at + 44, launch->job, RR_JOB_BYTES);
    memcpy(at + 60, &net, 8);
    for (int i = 0; i < n; i++)
        rr_address_write(&a[i], at + 68 + i * RR_ADDRESS_BYTES);
    crypto_shorthash(at + ID_CHECKED, at, ID_CHECKED,
                     magic /* no secret: against truncated copies */);
}

int rr_unique_id_open(const struct rr_settings *settings, ringred_unique_id *id, ringred_error *why)
{
    bool picked = rr_setting_text(settings, RR_SET_INTERFACE)[0] != 0;
    struct rr_address a[ID_ADDRESSES];
    struct rr_launch launch;
    uint64_t host, net;
    uint16_t port = 0;
    int n, fd;

    if (sodium_init() < 0)
        return rr_fail(why, RINGRED_ESYSTEM, -1, errno, "there is no source of random numbers");
    n = rr_interfaces(settings, a, ID_ADDRESSES, why);
    RR_TRY(n);
    fd = picked ? rr_listen(&a[0]) : rr_listen_any(&port);
    if (fd < 0)
        return rr_fail(why, RINGRED_ESYSTEM, -1, -fd, "cannot listen for the other ranks");
    n = picked ? 1 : n;
    for (int i = 0; i < n && !picked; i++)
        a[i].port = port;
    randombytes_buf(launch.key, sizeof launch.key);
    randombytes_buf(launch.job, sizeof launch.job);
    if (table_add(launch.job, fd) < 0) {
        close(fd);
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
