/* SPDX-License-Identifier: Apache-2.0 */
/* Plug-ins with mistakes that must be found, one for each number. */
#define RINGRED_TRANSPORT_ENTRY_OF_UNIX
#include "../../examples/plugin/unix.c"

#define STRING_(x) #x
#define STRING(x) STRING_(x)

static ringred_transport wrong;

#if MISTAKE == 1 /* bytes of two sends change places */
static int64_t wrong_send(void *self, int32_t peer, int32_t rail, const ringred_span *part, int32_t parts, int32_t *system)
{
    ringred_span turned[4];

    for (int32_t i = 0; i < parts && i < 4; i++)
        turned[i] = part[parts - 1 - i];
    return unix_send(self, peer, rail, turned, parts < 4 ? parts : 4, system);
}
#elif MISTAKE == 2 /* a byte is lost, rarely */
static int64_t wrong_send(void *self, int32_t peer, int32_t rail, const ringred_span *part, int32_t parts, int32_t *system)
{
    static int calls;
    ringred_span rest = *part;

    if (++calls % 50 || rest.length < 2)
        return unix_send(self, peer, rail, part, parts, system);
    rest.bytes = (char *)rest.bytes + 1;
    rest.length--;
    const int64_t k = unix_send(self, peer, rail, &rest, 1, system);
    return k > 0 ? k + 1 : k;
}
#elif MISTAKE == 3 /* the end of a lane is not told */
static int64_t wrong_recv(void *self, int32_t peer, int32_t rail, const ringred_span *part, int32_t parts, int32_t *system)
{
    const int64_t k = unix_recv(self, peer, rail, part, parts, system);

    return k < 0 ? 0 : k;
}
#elif MISTAKE == 4 /* sleepers are not woken */
static int32_t wrong_watch(void *self, int32_t epoll, ringred_error *why)
{
    (void)self;
    (void)epoll;
    (void)why;
    return 0;
}
#elif MISTAKE == 9 /* progress takes bytes in, of which then nothing tells */
static unsigned char kept[64];
static size_t have;

static void wrong_progress(void *self)
{
    const ringred_span part = { kept, sizeof kept };
    int32_t system;
    const int64_t k = have ? 0 : unix_recv(self, ((struct self *)self)->host->rank ^ 1, 0, &part, 1, &system);

    have += k > 0 ? (size_t)k : 0;
}

static int64_t wrong_recv(void *self, int32_t peer, int32_t rail, const ringred_span *part, int32_t parts, int32_t *system)
{
    const size_t k = have < part->length ? have : part->length;

    if (!have)
        return unix_recv(self, peer, rail, part, parts, system);
    memcpy(part->bytes, kept, k);
    memmove(kept, kept + k, have -= k);
    return (int64_t)k;
}

static int32_t wrong_watch(void *self, int32_t epoll, ringred_error *why)
{
    struct epoll_event event = { .events = EPOLLIN | EPOLLET };
    const int fd = *lane(self, ((struct self *)self)->host->rank ^ 1, 0);

    (void)why;
    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) ? RINGRED_ESYSTEM : 0;
}
#endif

__attribute__((visibility("default"))) const ringred_transport *
#if MISTAKE == 5 /* another interface */
ringred_transport_7(void);
const ringred_transport *ringred_transport_7(void)
#else
RINGRED_TRANSPORT_ENTRY(void);
const ringred_transport *RINGRED_TRANSPORT_ENTRY(void)
#endif
{
    wrong = table;
    wrong.name = "broken" STRING(MISTAKE);
#if MISTAKE <= 2
    wrong.send = wrong_send;
#elif MISTAKE == 3
    wrong.recv = wrong_recv;
#elif MISTAKE == 4
    wrong.watch = wrong_watch;
#elif MISTAKE == 6 /* a function is missing */
    wrong.drained = NULL;
#elif MISTAKE == 7 /* a table of an interface that never was */
    wrong.struct_size = 16;
#elif MISTAKE == 8 /* the name of another */
    wrong.name = "unix";
#elif MISTAKE == 9
    wrong.progress = wrong_progress;
    wrong.recv = wrong_recv;
    wrong.watch = wrong_watch;
#endif
    return &wrong;
}
