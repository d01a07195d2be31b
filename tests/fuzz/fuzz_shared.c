/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that a mate hands over, and what it says in it. Byte 0: the descriptors that come: bytes 1.. how many in a message, and what
 * each is; or the counters of a ring, 8 bytes each: nothing outside of the memory is looked at. */
#include "fuzz.h"

#include "transport/shm.c"
#define find find_ring
#include "transport/rings.c"
#undef find

#include <stdlib.h>

#define RANKS 3
#define HEAP  ((size_t)1 << 20)

static void must(bool claim)
{
    if (!claim)
        abort();
}

/* What may come: memory that can be mapped, or cannot. */
static int some_fd(uint8_t kind, size_t whole)
{
    static const unsigned seals[] = { F_SEAL_SHRINK, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, F_SEAL_GROW, 0 };
    const size_t sizes[] = { whole, HEAP, 4096, whole - 1, 0 };
    int pair[2], fd;

    if (kind % 8 == 7) {
        must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
        close(pair[1]);
        return pair[0];
    }
    if (kind % 8 == 6)
        return eventfd(0, EFD_CLOEXEC);
    fd = memfd_create("a mate's", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    must(fd >= 0 && ftruncate(fd, (off_t)sizes[kind / 8 % 5]) == 0);
    must(fcntl(fd, F_ADD_SEALS, seals[kind % 4]) == 0);
    return fd;
}

static void send_some(int socket, const int *fd, int n)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(8 * sizeof(int))];
    } room = { 0 };
    char byte = 1;
    struct iovec part = { &byte, 1 };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };

    if (n > 0) {
        message.msg_control = &room;
        message.msg_controllen = CMSG_SPACE(n * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(n * sizeof(int));
        memcpy(CMSG_DATA(c), fd, n * sizeof(int));
    }
    must(sendmsg(socket, &message, MSG_NOSIGNAL) == 1);
}

static int lowest_free(void)
{
    int fd = dup(0);

    must(fd >= 0);
    close(fd);
    return fd;
}

static void descriptors(const uint8_t *at, const uint8_t *end)
{
    int pair[2 * RANKS], before = lowest_free(), end_of[2];
    int16_t local[RANKS] = { 0, 1, 2 };
    struct rr_mate mate[RANKS] = { 0 };
    struct rr_shm m = { .ranks = RANKS };
    ringred_error why = { 0 };

    m.base = (struct rr_shared){ .locals = RANKS, .local = local, .me = 1, .mate = mate, .stage_bytes = 4096, .heap_bytes = HEAP };
    for (int i = 0; i < 2 * RANKS; i++)
        pair[i] = -1;
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, end_of) == 0);
    while (at < end) {
        int n = *at++ % 8, fd[8], have = 0;
        for (; have < n && at < end; have++)
            fd[have] = some_fd(*at++, whole_bytes(&m.base));
        send_some(end_of[1], fd, have);
        for (int i = 0; i < have; i++)
            close(fd[i]);
    }
    must(shutdown(end_of[1], SHUT_WR) == 0);
    pair[2] = eventfd(0, EFD_CLOEXEC);
    pair[3] = eventfd(0, EFD_CLOEXEC);
    int rc = follow(&m, end_of[0], pair, rr_deadline(RINGRED_SECOND), &why);
    must(rc == 0 ? m.segment != NULL : rc < 0 && why.code == rc && why.text[0]);
    for (int r = 0; rc == 0 && r < RANKS; r++)
        if (r != 1)
            map_heap(&m, r, pair[2 * r]);
    for (int r = 0; r < RANKS; r++)
        if (mate[r].heap)
            munmap(mate[r].heap, HEAP);
    if (m.segment)
        munmap(m.segment, m.segment_bytes);
    for (int i = 0; i < 2 * RANKS; i++)
        if (pair[i] >= 0)
            close(pair[i]);
    close(end_of[0]);
    close(end_of[1]);
    must(lowest_free() == before); /* nothing that came is left open */
}

/* ---- counters of a ring ---- */

static int touch(struct rr_shared *s, int peer, uint64_t offset, size_t bytes)
{
    (void)peer;
    must(offset <= s->heap_bytes && bytes <= s->heap_bytes - offset);
    return 0;
}

static void ring(const uint8_t *at, const uint8_t *end)
{
    struct rr_mate mate[RANKS] = { 0 };
    struct rr_shm m = { .ranks = RANKS };
    unsigned char *heap = aligned_alloc(4096, HEAP), *page = aligned_alloc(4096, rr_round_up(rr_page_bytes(RANKS), PAGE));
    uint64_t word[3] = { 0 };
    unsigned char got[300];
    const ringred_span part[2] = { { got, 100 }, { got + 100, 200 } };
    size_t n = (size_t)(end - at) < sizeof word ? (size_t)(end - at) : sizeof word;
    struct rr_host_page *host = aligned_alloc(4096, rr_round_up(sizeof *host, PAGE));

    must(heap && page && host);
    memset(host, 0, sizeof *host);
    memset(heap, 0x33, HEAP);
    memset(page, 0, rr_round_up(rr_page_bytes(RANKS), PAGE));
    memcpy(word, at, n);
    mate[1].page = mate[0].page = (struct rr_page *)(void *)page;
    mate[1].heap = (char *)heap;
    m.base = (struct rr_shared){ .me = 0, .mate = mate, .heap_bytes = HEAP, .touch = touch, .host = host };
    struct rr_rings r = { .shared = &m.base, .peer = 1 };
    word[0] = word[0] % 128 == 127 ? word[0] : word[0] & ~(uint64_t)127; /* mostly as such places are */
    atomic_store(where(&r, 1, 0), word[0] + 1);
    if (word[0] <= HEAP - sizeof(struct ring) && word[0] % 128 == 0) {
        struct ring *in = (struct ring *)(void *)(heap + word[0]);
        atomic_store(&in->written, word[1]);
        atomic_store(&in->read, word[2]);
    }
    for (int i = 0; i < 3; i++) {
        int64_t k = rr_rings_get(&r, part, 2);
        must(k >= 0 && k <= (int64_t)sizeof got);
    }
    free(host);
    free(page);
    free(heap);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes < 2 || bytes > 64)
        return 0;
    if (data[0] & 1)
        ring(data + 1, data + bytes);
    else
        descriptors(data + 1, data + bytes);
    return 0;
}

size_t fuzz_seed(int which, uint8_t *to, size_t room)
{
    static const uint8_t seeds[][26] = {
        { 6, 0, 5, 1, 9, 6, 9, 6 }, /* the segment, two heaps and two bells */
        { 4, 0, 2, 1, 9 },
        { 7, 0, 5, 3, 9, 6, 15, 6 },
        { 7, 0, 5, 25, 9, 6, 9, 6 },
        { 3, 0, 0, 1 },
        { 25, 1, 0, 0, 0, 0, 0, 0, 0, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 },
        { 25, 1, 0, 16, 0, 0, 0, 0, 0, 0, 80, 0, 1, 0, 0, 0, 0, 0, 0, 250, 0, 0, 0, 0, 0, 0 },
        { 25, 1, 0, 0, 0, 0, 0, 0, 0, 255, 80, 0, 9, 0, 0, 0, 0, 0, 0, 250, 0, 0, 0, 0, 0, 0 },
    };

    if (which >= (int)(sizeof seeds / sizeof *seeds) || room < 64)
        return 0;
    memcpy(to, seeds[which] + 1, seeds[which][0]);
    return seeds[which][0];
}
