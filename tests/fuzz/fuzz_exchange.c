/* SPDX-License-Identifier: Apache-2.0 */
/* What comes back where rank 0 has put a unique id: byte 0: from a store of the caller's, from an allgather of the
 * caller's, or through a launcher's key-value space. Of a store, bytes 1 and 2 are how much it says there is, byte 3 the
 * status. */
#include "fuzz.h"

#include "boot/exchange.c"
#define magic id_magic
#include "boot/id.c"
#undef magic

#include <stdlib.h>
#include <sys/socket.h>

struct answer {
    const uint8_t *at;
    size_t bytes;
    int64_t says;
    int32_t status;
};

static void must(bool claim)
{
    if (!claim)
        abort();
}

static int32_t set(void *context, const char *key, const void *value, size_t bytes)
{
    (void)key, (void)value, (void)bytes;
    return ((struct answer *)context)->status;
}

static int64_t get(void *context, const char *key, void *value, size_t room, int64_t timeout_ns)
{
    const struct answer *a = context;

    (void)key, (void)timeout_ns;
    memcpy(value, a->at, a->bytes < room ? a->bytes : room);
    return a->status ? a->status : a->says;
}

static int32_t allgather(void *context, const void *mine, size_t bytes, void *all)
{
    const struct answer *a = context;

    (void)mine;
    memset(all, 0, 2 * bytes);
    memcpy(all, a->at, a->bytes < 2 * bytes ? a->bytes : 2 * bytes);
    return a->status;
}

static void own(const uint8_t *data, size_t bytes, bool by_store, int rank)
{
    static struct rr_settings settings;
    struct answer a = { data + 3, bytes - 3, (int64_t)(data[0] | data[1] << 8) - 512, (int8_t)data[2] };
    union {
        ringred_store store;
        unsigned char room[256]; /* of a newer caller */
    } u = { .store = { .struct_size = sizeof u.store, .context = &a, .set = set, .get = get } };
    ringred_config config = { .allgather = by_store ? NULL : allgather, .allgather_context = &a,
                              .store = by_store ? &u.store : NULL };
    struct rr_launch launch = { .rank = rank, .size = 2, .listener = -1 };
    ringred_error why = { 0 };

    if (a.status & 1 && by_store) { /* a table that is none */
        memset(u.room, data[1] & 2 ? 1 : 0, sizeof u.room);
        u.store = (ringred_store){ .struct_size = data[0], .set = data[1] & 1 ? set : NULL };
    }
    int rc = rr_exchange_own(&config, &settings, rr_deadline(0), &launch, &why);
    must(rc == 0 ? launch.has_key && launch.root[0] : rc < 0 && why.code == rc && why.text[0]);
    if (launch.listener >= 0)
        rr_unique_id_spent(launch.listener);
}

/* What is kept for all communicators of a process: here it ends with one. */
static void forget(void)
{
    while (table.count)
        close_all(&table.made[--table.count]);
    shared.listener = -1;
}

/* A server of PMI-1 that has said all beforehand. */
static void space(const uint8_t *data, size_t bytes, int rank)
{
    static struct rr_settings settings;
    struct rr_launch launch = { .rank = rank, .size = 2, .listener = -1 };
    ringred_error why = { 0 };
    char number[16];
    int pair[2];

    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    must(bytes == 0 || send(pair[1], data, bytes, MSG_NOSIGNAL) == (ssize_t)bytes);
    must(shutdown(pair[1], SHUT_WR) == 0);
    snprintf(number, sizeof number, "%d", pair[0]);
    setenv("PMI_FD", number, 1);
    shared.tried = false; /* as in a process of its own */
    memset(&shared.failure, 0, sizeof shared.failure);
    int rc = rr_exchange_space(RR_EXCHANGE_PMI, &settings, rr_deadline(RINGRED_SECOND), &launch, &why);
    must(rc == 0 ? launch.has_key && launch.root[0] : rc < 0 && why.code == rc && why.text[0]);
    ringred_error again = { 0 };
    must(rr_exchange_space(RR_EXCHANGE_PMI, &settings, rr_deadline(RINGRED_SECOND), &launch, &again) == rc);
    shared.forks++; /* and in a child of it */
    must(rr_exchange_space(RR_EXCHANGE_PMI, &settings, rr_deadline(RINGRED_SECOND), &launch, &again) == RINGRED_EFORKED);
    forget();
    close(pair[0]);
    close(pair[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes < 4 || bytes > 65536 || sodium_init() < 0)
        return 0;
    if (data[0] % 3 == 2)
        space(data + 1, bytes - 1, data[0] >= 128 ? 0 : 1);
    else
        own(data + 1, bytes - 1, data[0] % 3 == 0, data[0] >= 128 ? 0 : 1);
    return 0;
}

/* ---- what a rank 0 would have put there ---- */

size_t fuzz_seed(int which, uint8_t *to, size_t room)
{
    const struct rr_launch launch = { .rank = 0 };
    const struct rr_address a = { .family = RR_FAMILY_IP4, .port = 4000, .ip = { 10, 1 } };
    ringred_unique_id id;
    char text[ID_TEXT];

    if (which > 8 || room < 4096 || sodium_init() < 0)
        return 0;
    memset(to, 0, 4);
    to[2] = 3; /* 768 - 512: 256 bytes */
    write_id(&launch, 0, &a, 1, &id);
    memcpy(to + 4, &id, sizeof id);
    switch (which) {
    case 0:
        return 4 + sizeof id;
    case 1:
        to[0] = 1;
        return 4 + sizeof id;
    case 2: /* rank 0's own part */
        to[0] = 130;
        return 4 + sizeof id;
    case 3:
        to[3] = 0xfe;
        return 4 + sizeof id;
    case 4: /* rank 0 could not */
        memset(to + 4, 0, sizeof id);
        return 4 + sizeof id;
    case 5: /* a table that is none */
        to[3] = 1;
        to[1] = (uint8_t)sizeof(ringred_store);
        return 4 + sizeof id;
    case 6: /* rank 0 of a store */
        to[0] = 129;
        return 4 + sizeof id;
    case 7: /* rank 0 of a space */
        to[0] = 128;
        return 1 + (size_t)snprintf((char *)to + 1, room - 1,
                                    "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\ncmd=maxes vallen_max=1024\n"
                                    "cmd=my_kvsname kvsname=k\ncmd=put_result rc=0\ncmd=put_result rc=0\n"
                                    "cmd=barrier_out rc=0\ncmd=finalize_ack rc=0\n");
    default:
        to[0] = 2;
        sodium_bin2hex(text, sizeof text, id.bytes, sizeof id);
        return 1 + (size_t)snprintf((char *)to + 1, room - 1,
                                    "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\ncmd=maxes vallen_max=1024\n"
                                    "cmd=my_kvsname kvsname=k\ncmd=barrier_out rc=0\ncmd=get_result rc=0 value=512\n"
                                    "cmd=get_result rc=0 value=%s\ncmd=finalize_ack rc=0\n", text);
    }
}
