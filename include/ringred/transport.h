/* SPDX-License-Identifier: Apache-2.0 */
/* For authors of transports: how ranks of different hosts are reached.
 *
 * A plug-in is a shared object that exports one function, RINGRED_TRANSPORT_ENTRY, which returns a table of functions.
 * With the setting transport=NAME the library loads "libringred-NAME.so", from a folder of RINGRED_PLUGIN_PATH (with
 * colons) or else from $libdir/ringred; ranks then reach all others through it, with transport=shm,NAME those of other
 * hosts. The library's own TCP sockets, and its streams in shared memory, are behind the same table. `ringred-conform NAME`
 * tests a plug-in.
 *
 * A transport carries bytes. Between each two ranks it has one lane, or as many as the library asks for (rails); a lane
 * is a pipe each way that keeps order and loses nothing. What the bytes mean, who may be the peer, credits, and what
 * happens to operations when a lane breaks, is the library's: the first bytes of each lane are its proof that both
 * ends know the job's key. A fabric that delivers out of order, or bytes again, puts that right below this table.
 *
 * Threads. The library calls a transport from one thread at a time, which need not be the same one each time;
 * transports of different communicators are independent. No function may wait, but for connect and close, nor call
 * back into libringred other than through the host table; after open and connect none may allocate per message.
 *
 * Statuses are the library's (types.h). Where a function can fail it gets a ringred_error, which host->fail fills. */
#ifndef RINGRED_TRANSPORT_H
#define RINGRED_TRANSPORT_H

#include <ringred/ringred.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RINGRED_RAILS_MOST 16
#define RINGRED_ADDRESS_MOST 1024 /* bytes */

/* A piece of memory. */
typedef struct ringred_span {
    void *bytes;
    size_t length;
} ringred_span;

/* What the library offers. It stays valid from open to the end of close; it grows at its end. */
typedef struct ringred_host {
    uint32_t struct_size;
    int32_t rank, ranks;
    int32_t rails;         /* lanes to each peer that the library will use, at most RINGRED_RAILS_MOST */
    int64_t peer_timeout_ns; /* of silence of a peer's machine, after which it counts as lost; -1: never */
    void *context;         /* of the functions below */
    void (*log)(void *context, int32_t level, const char *line);
    /* Fills *why with one sentence, and returns code. why may be NULL. rank -1: none is at fault; system: errno or 0. */
    int32_t (*fail)(ringred_error *why, int32_t code, int32_t rank, int32_t system, const char *text);
    int64_t (*now_ns)(void); /* the clock of all deadlines: CLOCK_MONOTONIC */
    /* The value of a setting of the library as text, valid for as long as the host table; NULL: there is none of that
     * name. Options of the plug-in's own are variables of its own. */
    const char *(*setting)(void *context, const char *name);
    /* 32 bytes that all ranks of the job have, and nobody else where the job has a key; others for each label. */
    void (*secret)(void *context, const char *label, unsigned char secret[32]);
    /* Descriptors that a forked child must not keep; both return what they get. close_descriptor closes it; what
     * another library will close must not be given. All that a transport opens must be close-on-exec, else a program
     * that the caller starts keeps the lanes of the dead open. */
    int32_t (*own_descriptor)(void *context, int32_t fd);
    void (*close_descriptor)(void *context, int32_t fd);
    /* The caller of the library wants to stop: connect and close ask about every 50 ms, and end early. */
    int32_t (*is_interrupted)(void *context);
} ringred_host;

typedef struct ringred_transport {
    uint32_t struct_size;
    uint32_t reserved;     /* 0 */
    const char *name;      /* as in the setting; lower-case letters, digits, '-' and '_', at most 15 */
    const char *text;      /* what it is, in one line */

    /* Can it be used on this machine? 0, or EUNSUPPORTED and why not. May be called at any time, also with host NULL:
     * then it writes the sentence into why->text itself. */
    int32_t (*usable)(const ringred_host *host, ringred_error *why);

    /* ---- making lanes: on every rank at about the same time ---- */

    /* *self is handed to all functions below. */
    int32_t (*open)(const ringred_host *host, void **self, ringred_error *why);
    /* Where peers find this rank: up to RINGRED_ADDRESS_MOST bytes, which the library takes to all ranks. Returns their
     * number or a status. */
    int32_t (*address)(void *self, void *to, ringred_error *why);
    /* Makes the lanes to every other rank r with wanted[r] (it wants us, too): address[r] has bytes[r] bytes from there.
     * Waits until all are there or the deadline is over (ETIMEOUT); names the rank that could not be reached. */
    int32_t (*connect)(void *self, const uint8_t *wanted, const void *const *address, const int32_t *bytes,
                       int64_t deadline_ns, ringred_error *why);

    /* ---- lanes ---- */

    /* Takes bytes off the front of the parts, in order. > 0: so many; 0: none for now; EPEER: never any more, and why
     * (an errno) in *system. A call that took less is made again with the rest, and the same memory: a transport that
     * sends from where the bytes lie may take nothing until they are gone. Memory of what was taken is the library's. */
    int64_t (*send)(void *self, int32_t peer, int32_t rail, const ringred_span *part, int32_t parts, int32_t *system);
    /* Fills the parts from the front. > 0: so many bytes; 0: none have come; EPEER: no more will come: *system is an errno, or
     * 0 if the peer has finished. A call that found nothing is mostly made again with the same memory, but need not be. */
    int64_t (*recv)(void *self, int32_t peer, int32_t rail, const ringred_span *part, int32_t parts, int32_t *system);
    /* No more will be sent on a lane: its peer's recv ends with EPEER and 0 once it has had everything. */
    void (*finish)(void *self, int32_t peer, int32_t rail);
    /* A lane is broken for both ends at once. */
    void (*reset)(void *self, int32_t peer, int32_t rail);
    /* Has the peer's machine all that was sent on a lane, or can it get no more? 0; PENDING. Bytes that still come may be
     * dropped: it is asked before close alone. */
    int32_t (*drained)(void *self, int32_t peer, int32_t rail);
    /* Nanoseconds for which a peer's machine has owed an answer: 0 where none is due. NULL: lanes break by themselves. */
    int64_t (*silence)(void *self, int32_t peer);
    /* Several rails: bytes that were taken and wait in this machine; for how many microseconds the lane ever had any.
     * The library gives slow rails less by them. NULL, -1: unknown. */
    int64_t (*queued)(void *self, int32_t peer, int32_t rail);
    int64_t (*busy_us)(void *self, int32_t peer, int32_t rail);

    /* ---- waiting ---- */

    /* Puts everything that tells of news (bytes, room, the end of a lane) into an epoll set, edge-triggered, once. */
    int32_t (*watch)(void *self, int32_t epoll, ringred_error *why);
    /* About to sleep in that set: 0: what comes from now on will tell, even if progress or recv of another lane has
     * taken it in before we sleep; PENDING: look again first. NULL: it always tells. */
    int32_t (*arm)(void *self);
    /* Does work that lanes need beside send and recv. Called after each send, recv and drained that got nothing done,
     * and while the caller is outside the library perhaps not at all. NULL: none. */
    void (*progress)(void *self);

    /* Bytes that were sent should go out until the deadline (drained was asked before); frees everything. NULL is not
     * passed. */
    void (*close)(void *self, int64_t deadline_ns);
} ringred_transport;

/* The entry of a plug-in. Its name carries the number of this interface: RINGRED_PLUGIN_ABI_VERSION. The table must stay
 * valid; a shorter one than the library's has NULL in what is missing. */
#define RINGRED_TRANSPORT_ENTRY ringred_transport_1
typedef const ringred_transport *(*ringred_transport_entry)(void);

#ifdef __cplusplus
}
#endif

#endif
