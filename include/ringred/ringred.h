/* SPDX-License-Identifier: Apache-2.0 */
/* libringred: collective communication between processes.
 *
 * Conventions, stated once:
 *  - Every function returns an int32_t status unless it says otherwise (types.h). Outputs are
 *    written only when the status is 0.
 *  - Counts are elements, never bytes. Times are int64_t nanoseconds; -1 is for ever, 0 is "try".
 *  - Buffers stay the caller's; from the start of a call to its completion the library reads and
 *    writes them, and nobody else may.
 *  - send == recv means in place. Any other overlap of the two is an error.
 *  - Structs begin with struct_size and are filled by their init function before use, which is given sizeof the struct: a
 *    later library has more fields than the program that calls it, and writes no further than the program knows.
 *  - The library never prints, exits, aborts or installs signal handlers. */
#ifndef RINGRED_H
#define RINGRED_H

#include <stddef.h>
#include <stdint.h>

#include <ringred/types.h>
#include <ringred/version.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define RINGRED_API __attribute__((visibility("default")))
#else
#define RINGRED_API
#endif

#define RINGRED_SECOND ((int64_t)1000000000)
#define RINGRED_FOREVER ((int64_t)-1)

typedef struct ringred_comm ringred_comm;
typedef struct ringred_request ringred_request;

/* ---- errors ---- */

/* What went wrong, in numbers and in one sentence. This struct never grows. */
typedef struct ringred_error {
    uint32_t struct_size;
    int32_t code;       /* the status */
    int32_t rank;       /* the rank at fault, -1 where no single rank is */
    int32_t system;     /* errno of the failed system call, or 0 */
    char transport[16]; /* "shm", "tcp", ... or "" */
    char text[488];     /* one sentence, always terminated */
} ringred_error;

RINGRED_API void ringred_error_init(ringred_error *error);

/* A static description of a status code; never NULL. */
RINGRED_API const char *ringred_status_text(int32_t status);

/* ---- configuration ---- */

/* Names one job to be, and carries its key: whoever holds it can join. Made by one process, passed
 * to the others by any private means. */
typedef struct ringred_unique_id {
    unsigned char bytes[256];
} ringred_unique_id;

/* Opens a rendezvous in this process and writes its id. The caller must become rank 0 of the
 * communicator that is made with it. */
RINGRED_API int32_t ringred_unique_id_create(ringred_unique_id *id, ringred_error *why);

/* Log levels. */
#define RINGRED_LOG_NONE 0
#define RINGRED_LOG_ERROR 1
#define RINGRED_LOG_WARN 2
#define RINGRED_LOG_INFO 3
#define RINGRED_LOG_TRACE 4

typedef void (*ringred_log_fn)(void *context, int32_t level, const char *line);

/* A call, and what the library would run it by. */
typedef struct ringred_choice {
    uint32_t struct_size;
    int32_t ranks, hosts;        /* ranks that do not share memory count as hosts of their own */
    int32_t type, op;            /* 0 where there is none */
    int32_t root;                /* -1 where there is none */
    uint64_t bytes;              /* of one part */
    const char *collective;      /* "allreduce" */
    const char *algorithm;       /* a name of ringred-info --algorithms */
    uint64_t segment;            /* bytes; 0: chosen */
} ringred_choice;

/* May write another algorithm and another segment (1 KiB to 64 MiB; rounded down to a power of two). What it
 * answers must depend on what all ranks know and be the same on all of them: where it is not, all get EMISMATCH.
 * A name that there is not for the collective, or that these ranks, the type or the setting numerics do not
 * allow, is refused: the call returns EINVAL, and nothing has changed. Called by each start of a collective with
 * equal parts, of every communicator of the job and of their making, in the thread that starts it and maybe in
 * several at once; no lock of the library is held; it must not use the communicator. */
typedef void (*ringred_choose_fn)(void *context, ringred_choice *choice);

/* ---- handing on a unique id by means of the caller's own ----
 * Where neither the launcher nor the caller says where rank 0 is, rank 0 makes a unique id and hands it to the others by
 * one of these; rank and size come from the config, or from the launcher. What passes through them carries the job's
 * key: they must be private to the job. They are called in the thread that makes the communicator, before anything
 * else of the network is used, and no lock of the library is held. */

/* Everybody's bytes to everybody, in the order of ranks: all has room for size * bytes. Blocks; called once on each
 * rank. Returns 0, or anything else if it failed. */
typedef int32_t (*ringred_allgather_fn)(void *context, const void *mine, size_t bytes, void *all);

/* Names with bytes, which all ranks of the job share: a store like torch's, etcd, a folder. One serves for making one
 * communicator: for the next, let context lead to names of its own. Filled by its init function before use; it stays
 * the caller's, and is not used after ringred_comm_create has returned. */
typedef struct ringred_store {
    uint32_t struct_size;
    uint32_t reserved; /* 0 */
    void *context;
    /* Rank 0 calls it once. Returns 0, or anything else if it failed. */
    int32_t (*set)(void *context, const char *key, const void *value, size_t bytes);
    /* The others call it once, maybe before set. Waits until the name is there, for at most timeout_ns (-1: for ever).
     * Writes at most room bytes, and returns how many the value has; negative if it failed or the time was over. */
    int64_t (*get)(void *context, const char *key, void *value, size_t room, int64_t timeout_ns);
} ringred_store;
RINGRED_API void ringred_store_init(ringred_store *store, size_t size);

/* How a communicator is made. All fields may be left as ringred_config_init wrote them: then the
 * launcher's environment decides (docs/USER.md lists what is recognised). */
typedef struct ringred_config {
    uint32_t struct_size;
    int32_t rank;                /* -1: from the environment */
    int32_t size;                /* -1: from the environment */
    int32_t reserved;            /* 0 */
    const char *root;            /* "host:port" where rank 0 listens; NULL: from the environment */
    const ringred_unique_id *id; /* instead of root; NULL: none */
    const void *key;             /* the job's secret; NULL: from the environment */
    size_t key_bytes;
    int64_t timeout_ns;          /* of making the communicator; 0: setting init_timeout */
    const char *const *settings; /* "name=value" strings, ended by NULL; they override RINGRED_* variables */
    ringred_log_fn log;          /* NULL: no callback */
    void *log_context;
    ringred_choose_fn choose;    /* NULL: the library chooses */
    void *choose_context;

    /* Asked at least every 50 ms while a call that sets up or tears down waits for other ranks (create, split, group,
     * op_create, destroy; not while a launcher passes on where rank 0 is): not 0 ends it with EINTERRUPTED. NULL: none. It
     * must not call this library. */
    int32_t (*interrupt)(void *context);
    void *interrupt_context;
    ringred_allgather_fn allgather; /* instead of root and id: hands on an id; NULL: none */
    void *allgather_context;
    const ringred_store *store;  /* or this; NULL: none */
} ringred_config;

RINGRED_API void ringred_config_init(ringred_config *config, size_t size);

/* ---- communicators ---- */

/* Makes the communicator of all ranks of the job. Blocks until all have arrived or the time is over
 * (looking up a host name may take the resolver's own time, and the caller's allgather or store theirs). config NULL: everything from the
 * environment. why may be NULL. EINVAL, ESETTING, EUNSUPPORTED, ENOMEM, ELIMIT, ESYSTEM, ECONFIG,
 * ETIMEOUT, EPEER, EWIRE, EAUTH, EVERSION, EINTERRUPTED, EINTERNAL. */
RINGRED_API int32_t ringred_comm_create(const ringred_config *config, ringred_comm **comm, ringred_error *why);

/* ---- communicators made from others ----
 * They use the links, the shared memory and the progress of the communicator that they come from: making one opens
 * nothing and takes a few KiB. Operations on different communicators are independent: ranks may start them in
 * different orders, and different threads may use them. What fails breaks all communicators of a job; errors name
 * ranks as the job does, and ringred_comm_error gives them as the communicator does. They may be destroyed in any
 * order; the links go with the last.
 * Both calls are collective over comm and block; on a rank that belongs to no new communicator *part is NULL.
 * EINVAL, ENOMEM, ELIMIT (nothing is changed, on all ranks of the new communicator), EINTERRUPTED (the job's
 * communicators are broken), and as collectives. */

/* One for each color; ranks in order of key, and of their rank in comm where keys are equal. */
#define RINGRED_NO_COLOR (-1)
RINGRED_API int32_t ringred_comm_split(ringred_comm *comm, int32_t color, int32_t key, ringred_comm **part);

/* The ranks of a list (of comm, each once), in its order; all that are named must give the same list. A rank that
 * belongs to none gives an empty one. Several lists that share no rank may be given at once. */
RINGRED_API int32_t ringred_comm_group(ringred_comm *comm, const int32_t *ranks, int32_t count, ringred_comm **part);

/* ---- communicators of other sizes ----
 * Both make a communicator by a rendezvous of its own, with links and memory of its own, configured as comm was; comm
 * stays as it is and is still to be destroyed. timeout_ns: of the whole; 0: the setting init_timeout; -1: for ever. why
 * may be NULL. Both block, and ask config.interrupt. */

/* Of those that are left of comm, which is broken by it if it is not broken yet, also at the others; each rank that
 * lives calls it, and all that succeed have the same members, in the order of their ranks. Ranks whose death the kernel
 * proves (the process has ended, nobody listens any more where it did), or whose machine has answered nothing for
 * peer_timeout, are not waited for; those that may still come are for half of the time. One that is lost meanwhile is
 * left out, too. ranks: NULL, or room for as many as comm has: what each new rank was called in comm. comm has all ranks
 * of its job: one that was split from another is refused.
 * EPARTITION: those that came are no majority (half of the ranks without rank 0 is none), and not all others are proved
 * dead; or the others have gone on without this rank. EINVAL, EBUSY, EFORKED, and as ringred_comm_create; after a
 * failure it may be called again. A rank that is lost in the very end may leave a communicator that is broken from the
 * start: its first operation says so, and it can be shrunk in turn. */
RINGRED_API int32_t ringred_comm_shrink(ringred_comm *comm, int64_t timeout_ns, ringred_comm **smaller, int32_t *ranks,
                                        ringred_error *why);

/* Of comm's ranks, which keep their numbers, and of those that make theirs with ringred_comm_create, this id, this size
 * and a rank from comm's size up, before, after or meanwhile. Collective over comm. id: made by rank 0 of comm
 * (ringred_unique_id_create), which hands it to the newcomers; it counts there alone, and carries the key. After a
 * failure comm is as it was, unless it broke, as it does where this rank cannot know whether others have the larger one (it failed
 * in the last step): then those that are left can shrink comm. comm has all ranks of its job. EINVAL, EBUSY, EFORKED, as collectives, and as ringred_comm_create. */
RINGRED_API int32_t ringred_comm_grow(ringred_comm *comm, const ringred_unique_id *id, int32_t size, int64_t timeout_ns,
                                      ringred_comm **larger, ringred_error *why);

/* Says goodbye to the peers and frees everything. Works in any state, in any order across ranks, and
 * on NULL; comm is gone whatever the status. Callbacks (ringred_start) that are still owed come first, with
 * EABORTED. EPEER and the like tell of an operation that had failed; EINTERRUPTED: not all was delivered. */
RINGRED_API int32_t ringred_comm_destroy(ringred_comm *comm);

/* Breaks the communicator here and at every peer. Any thread may call it, at any time. */
RINGRED_API int32_t ringred_comm_abort(ringred_comm *comm);

RINGRED_API int32_t ringred_comm_rank(const ringred_comm *comm);       /* or a negative status */
RINGRED_API int32_t ringred_comm_size(const ringred_comm *comm);
RINGRED_API int32_t ringred_comm_local_rank(const ringred_comm *comm); /* among the ranks of this host */
RINGRED_API int32_t ringred_comm_local_size(const ringred_comm *comm);

/* The failure that broke the communicator; if it is not broken, why the latest call was refused;
 * code 0 if there is neither. */
RINGRED_API int32_t ringred_comm_error(const ringred_comm *comm, ringred_error *error);

/* What the communicator is made of and, for a call of `bytes` bytes of each part (of float32, sums, root 0),
 * which plan would run, as JSON
 * text in the caller's buffer (cut to `room` bytes, always terminated). Not collective. Returns the
 * bytes that the whole text needs, without the terminator, or a negative status. */
RINGRED_API int64_t ringred_comm_describe(ringred_comm *comm, const char *collective, uint64_t bytes,
                                          char *text, size_t room);

/* What this rank did last, as JSON text like that of ringred_comm_describe: status and error, the last operations and the
 * state of each, and for one that waits whom it waits for and who has not come to it, as far as this rank knows
 * (docs/USER.md, "When a job hangs"). Blocks never; any thread may call it, whatever others do with the communicator but destroy
 * it, also after a failure. EINVAL, EFORKED. */
RINGRED_API int64_t ringred_comm_dump(ringred_comm *comm, char *text, size_t room);

/* The same of another process of this machine, which need not run: it may hang or be stopped. which: of the jobs that
 * it belongs to, from 0 up; all communicators of one are told of. The caller must be allowed to look at the process, as debuggers
 * are. After a failure the text is a sentence that says why: EINVAL: there is none; ESYSTEM, EVERSION, EWIRE, ENOMEM. */
RINGRED_API int64_t ringred_dump_process(int32_t pid, int32_t which, char *text, size_t room);

/* ---- memory ---- */

/* Memory that the peers on this host can reach: the fastest to reduce from. Not collective. Zeroed,
 * aligned to 4096 bytes. It outlives the communicator; ringred_free gives it back. After an
 * operation on it has failed, mates that are still in that operation may yet write to it: use it again
 * when they have destroyed their communicators. ENOMEM, EINVAL, EFORKED. */
RINGRED_API int32_t ringred_alloc(ringred_comm *comm, size_t bytes, void **memory);
/* NULL is fine; EINVAL if it is not ours; EFORKED in a fork of the process that it belongs to. */
RINGRED_API int32_t ringred_free(void *memory);

/* ---- operators of the caller's ---- */

/* result[i] = left[i] (operator) right[i] for count whole elements, one behind the other at any address. left holds what
 * comes from lower ranks; result may be left or right itself, and else overlaps neither. It must be associative, need
 * not be commutative, must give the same bits on every rank for the same bits, and may call nothing of this library. It
 * runs inside calls of any thread, or on the progress thread, also for elements that are another rank's. */
typedef void (*ringred_op_fn)(void *context, const void *left, const void *right, void *result, size_t count);

/* Makes an operator over elements of element_bytes (1 to 1,048,576) bytes each. Collective over comm, and blocks: all
 * ranks make the same operators in the same order, each with its own function and context. *op is the same number on
 * all ranks; it is known to comm alone, lives as long, and goes with type RINGRED_BYTES, whose count then is of such
 * elements, in allreduce, reduce, reduce_scatter and reduce_scatterv. Partial results are joined along the tree of all
 * sums (docs/ARCHITECTURE.md), in the order of ranks, under every setting. Elements so large that no piece of a stage
 * has room for one are refused by those calls with ELIMIT. EINVAL (also if element_bytes differs between ranks), ELIMIT
 * (more than 64), ENOMEM: nothing is changed, on all ranks that came so far; and as collectives. */
RINGRED_API int32_t ringred_op_create(ringred_comm *comm, ringred_op_fn fn, void *context, size_t element_bytes,
                                      int32_t *op);

/* ---- collectives ----
 * All ranks must make the same calls in the same order, with the same count, type, operator and
 * root; disagreement is reported on every rank as EMISMATCH. count is the elements of one part: of the
 * whole buffer, or, where a buffer holds a part for each rank, of each part; parts lie one behind the
 * other in the order of ranks. The blocking forms wait for the result. The _start forms return at once
 * with a request; work moves inside ringred_wait, ringred_test and later calls, and with the setting
 * progress=thread by itself, too: then callbacks may come from that thread, which all signals are blocked for. Statuses: EINVAL (also a type
 * that the operator does not take: docs/NUMBERS.md), EBUSY, EFORKED, ELIMIT, ENOMEM (the first use of a
 * collective, or of a root), EPEER, ETIMEOUT (setting timeout; blocking forms), EMISMATCH, EABORTED,
 * EWIRE, EINTERNAL. After a failure of -3xx or below the contents of recv are undefined. */

/* recv[i] = the sum (or another operator) over the ranks of send[i]; the same bits on every rank. */
RINGRED_API int32_t ringred_allreduce(ringred_comm *comm, const void *send, void *recv, size_t count, int32_t type,
                                      int32_t op);
RINGRED_API int32_t ringred_allreduce_start(ringred_comm *comm, const void *send, void *recv, size_t count,
                                            int32_t type, int32_t op, ringred_request **request);

/* The same on rank root only; recv counts there only. */
RINGRED_API int32_t ringred_reduce(ringred_comm *comm, const void *send, void *recv, size_t count, int32_t type,
                                   int32_t op, int32_t root);
RINGRED_API int32_t ringred_reduce_start(ringred_comm *comm, const void *send, void *recv, size_t count, int32_t type,
                                         int32_t op, int32_t root, ringred_request **request);

/* send holds a part of count elements for each rank; recv = the sum over the ranks of the part for this
 * one. In place: recv == send + rank * count elements. */
RINGRED_API int32_t ringred_reduce_scatter(ringred_comm *comm, const void *send, void *recv, size_t count, int32_t type,
                                           int32_t op);
RINGRED_API int32_t ringred_reduce_scatter_start(ringred_comm *comm, const void *send, void *recv, size_t count,
                                                 int32_t type, int32_t op, ringred_request **request);

/* recv on every rank = send of rank root. send is read on the root only; recv is written on every
 * rank, the root included unless send == recv there. */
RINGRED_API int32_t ringred_broadcast(ringred_comm *comm, const void *send, void *recv, size_t count, int32_t type,
                                      int32_t root);
RINGRED_API int32_t ringred_broadcast_start(ringred_comm *comm, const void *send, void *recv, size_t count,
                                            int32_t type, int32_t root, ringred_request **request);

/* recv holds a part for each rank: recv[r * count + i] = rank r's send[i]. In place: send == recv + rank *
 * count elements. */
RINGRED_API int32_t ringred_allgather(ringred_comm *comm, const void *send, void *recv, size_t count, int32_t type);
RINGRED_API int32_t ringred_allgather_start(ringred_comm *comm, const void *send, void *recv, size_t count,
                                            int32_t type, ringred_request **request);

/* The same on rank root only; recv counts there only. */
RINGRED_API int32_t ringred_gather(ringred_comm *comm, const void *send, void *recv, size_t count, int32_t type,
                                   int32_t root);
RINGRED_API int32_t ringred_gather_start(ringred_comm *comm, const void *send, void *recv, size_t count, int32_t type,
                                         int32_t root, ringred_request **request);

/* send on the root holds a part for each rank; recv = the part for this one. send counts on the root only.
 * In place there: recv == send + root * count elements. */
RINGRED_API int32_t ringred_scatter(ringred_comm *comm, const void *send, void *recv, size_t count, int32_t type,
                                    int32_t root);
RINGRED_API int32_t ringred_scatter_start(ringred_comm *comm, const void *send, void *recv, size_t count, int32_t type,
                                          int32_t root, ringred_request **request);

/* send and recv hold a part for each rank: part r of recv = what rank r has in its part for this one. */
RINGRED_API int32_t ringred_alltoall(ringred_comm *comm, const void *send, void *recv, size_t count, int32_t type);
RINGRED_API int32_t ringred_alltoall_start(ringred_comm *comm, const void *send, void *recv, size_t count, int32_t type,
                                           ringred_request **request);

/* Parts of unequal length, in elements; places: where each part begins in its buffer, NULL: one behind the
 * other in the order of ranks. The arrays are the caller's again when the call returns, also of the _start
 * forms. counts must be the same on all ranks; rank r's send has counts[r] elements. In place: send is this
 * rank's part of recv. */
RINGRED_API int32_t ringred_allgatherv(ringred_comm *comm, const void *send, size_t count, void *recv,
                                       const size_t *counts, const size_t *places, int32_t type);
RINGRED_API int32_t ringred_allgatherv_start(ringred_comm *comm, const void *send, size_t count, void *recv,
                                             const size_t *counts, const size_t *places,
                                             int32_t type, ringred_request **request);

/* gatherv: counts and places count on the root only; scatterv: send, too. A rank whose count differs from
 * what the root has for it is reported as EMISMATCH; where a rank's own two figures differ, its call is
 * refused. In place as the calls with equal parts: a vector of one part is this rank's part of the other. */
RINGRED_API int32_t ringred_gatherv(ringred_comm *comm, const void *send, size_t count, void *recv,
                                    const size_t *counts, const size_t *places, int32_t type,
                                    int32_t root);
RINGRED_API int32_t ringred_gatherv_start(ringred_comm *comm, const void *send, size_t count, void *recv,
                                          const size_t *counts, const size_t *places,
                                          int32_t type, int32_t root, ringred_request **request);

RINGRED_API int32_t ringred_scatterv(ringred_comm *comm, const void *send, const size_t *counts,
                                     const size_t *places, void *recv, size_t count,
                                     int32_t type, int32_t root);
RINGRED_API int32_t ringred_scatterv_start(ringred_comm *comm, const void *send, const size_t *counts,
                                           const size_t *places, void *recv, size_t count,
                                           int32_t type, int32_t root,
                                           ringred_request **request);

/* counts must be the same on all ranks; parts lie one behind the other in send. */
RINGRED_API int32_t ringred_reduce_scatterv(ringred_comm *comm, const void *send, void *recv,
                                            const size_t *counts, int32_t type, int32_t op);
RINGRED_API int32_t ringred_reduce_scatterv_start(ringred_comm *comm, const void *send, void *recv,
                                                  const size_t *counts, int32_t type,
                                                  int32_t op, ringred_request **request);

/* send_counts[r] elements go to rank r, whose recv_counts[this rank] must be the same. Not in place. */
RINGRED_API int32_t ringred_alltoallv(ringred_comm *comm, const void *send, const size_t *send_counts,
                                      const size_t *send_places, void *recv,
                                      const size_t *recv_counts, const size_t *recv_places,
                                      int32_t type);
RINGRED_API int32_t ringred_alltoallv_start(ringred_comm *comm, const void *send, const size_t *send_counts,
                                            const size_t *send_places, void *recv,
                                            const size_t *recv_counts,
                                            const size_t *recv_places, int32_t type,
                                            ringred_request **request);

/* Many vectors in one request: vector i is send[i], recv[i], counts[i] elements of types[i], and becomes what a call of
 * its own would make of it, to the bit (numerics=fast aside). Vectors may be of mixed types, empty, in place
 * (send[i] == recv[i]); no two may overlap. Up to 1,048,576. Those of a type travel together, read and written where they
 * lie; those of up to 4 KiB go through 1 MiB of memory that the library keeps. The arrays are the caller's again when the call returns,
 * also of the _start forms; the vectors when the request has ended. All ranks give the same counts and types in the
 * same order; if they do not, it is EMISMATCH before anything is summed. send counts where there is something to read
 * (broadcast: on the root), recv where there is something to write (reduce: on the root); it may be NULL elsewhere, as
 * all arrays if n is 0. */
RINGRED_API int32_t ringred_allreduce_list(ringred_comm *comm, const void *const *send, void *const *recv,
                                           const size_t *counts, const int32_t *types, size_t n, int32_t op);
RINGRED_API int32_t ringred_allreduce_list_start(ringred_comm *comm, const void *const *send, void *const *recv,
                                                 const size_t *counts, const int32_t *types, size_t n, int32_t op,
                                                 ringred_request **request);
RINGRED_API int32_t ringred_reduce_list(ringred_comm *comm, const void *const *send, void *const *recv,
                                        const size_t *counts, const int32_t *types, size_t n, int32_t op,
                                        int32_t root);
RINGRED_API int32_t ringred_reduce_list_start(ringred_comm *comm, const void *const *send, void *const *recv,
                                              const size_t *counts, const int32_t *types, size_t n, int32_t op,
                                              int32_t root, ringred_request **request);
RINGRED_API int32_t ringred_broadcast_list(ringred_comm *comm, const void *const *send, void *const *recv,
                                           const size_t *counts, const int32_t *types, size_t n, int32_t root);
RINGRED_API int32_t ringred_broadcast_list_start(ringred_comm *comm, const void *const *send, void *const *recv,
                                                 const size_t *counts, const int32_t *types, size_t n, int32_t root,
                                                 ringred_request **request);

/* Returns when every rank has called it. */
RINGRED_API int32_t ringred_barrier(ringred_comm *comm);
RINGRED_API int32_t ringred_barrier_start(ringred_comm *comm, ringred_request **request);

/* ---- any of these calls, with options ----
 * One struct says which collective it is and what else is wanted of it; fields that the collective does not have are
 * left as the init function wrote them. New options become new fields at its end. */

#define RINGRED_ALLREDUCE ((int32_t)513)
#define RINGRED_REDUCE ((int32_t)514)
#define RINGRED_REDUCE_SCATTER ((int32_t)515)
#define RINGRED_BROADCAST ((int32_t)516)
#define RINGRED_ALLGATHER ((int32_t)517)
#define RINGRED_GATHER ((int32_t)518)
#define RINGRED_SCATTER ((int32_t)519)
#define RINGRED_ALLTOALL ((int32_t)520)
#define RINGRED_BARRIER ((int32_t)521)
#define RINGRED_REDUCE_SCATTERV ((int32_t)522)
#define RINGRED_ALLGATHERV ((int32_t)523)
#define RINGRED_GATHERV ((int32_t)524)
#define RINGRED_SCATTERV ((int32_t)525)
#define RINGRED_ALLTOALLV ((int32_t)526)

#define RINGRED_BY_SETTING INT64_MIN /* of a timeout: as the settings say */

/* The operation has ended with this status. Called once, inside a call of this library that any thread makes, or on
 * the progress thread, with no lock held; it may start operations, and must not wait for any nor destroy the
 * communicator. */
typedef void (*ringred_done_fn)(void *context, int32_t status);

typedef struct ringred_call {
    uint32_t struct_size;
    int32_t collective;          /* RINGRED_ALLREDUCE, ... */
    const void *send;
    void *recv;
    size_t count;                /* elements of one part; of this rank's own part of allgatherv, gatherv, scatterv */
    int32_t type, op, root;
    int32_t reserved;            /* 0 */
    const size_t *send_counts;   /* of scatterv, alltoallv, reduce_scatterv: elements of each part; else NULL */
    const size_t *send_places;   /* where each begins, in elements; NULL: one behind the other */
    const size_t *recv_counts;   /* of allgatherv, gatherv, alltoallv */
    const size_t *recv_places;
    /* Of sums and averages of floats and complex numbers: what they are multiplied by, once, before the one
     * rounding (in float32 for floats of 8 and 16 bits, in their own precision for the others). The same on all ranks,
     * finite and not 0; 1: nothing is done. */
    double scale;
    int64_t timeout_ns;          /* of ringred_run, which breaks the communicator when it is over */
    ringred_done_fn done;        /* of ringred_start, instead of a request; NULL: none */
    void *done_context;
} ringred_call;

RINGRED_API void ringred_call_init(ringred_call *call, size_t size, int32_t collective);

/* As the blocking form of that collective, and as its _start form. The struct is the caller's again when they return.
 * With `done`, request is NULL: nobody waits for it, and the operation moves inside other calls, ringred_poll among
 * them, or by the progress thread. Statuses as collectives; EVERSION: the struct has fields that are newer than this
 * library. */
RINGRED_API int32_t ringred_run(ringred_comm *comm, const ringred_call *call);
RINGRED_API int32_t ringred_start(ringred_comm *comm, const ringred_call *call, ringred_request **request);

/* ---- messages from one rank to another ----
 * A message has a type, a count and a tag; tags are from 0 up. Those from one rank to another with one tag are received
 * in the order in which their sends were started, by receives in the order in which these were. They are no
 * collectives: each moves by itself. send returns when the buffer may be used again: a message of up to 32 KiB may
 * wait at its receiver (16 of them, or 128 KiB, for each sender), a longer one waits at its sender until it is
 * received. A rank does not send to itself. Statuses as collectives; EMISMATCH also where what comes is of another
 * type, or longer than there is room for. */
#define RINGRED_ANY_SOURCE ((int32_t)-1)

/* What came. Filled by its init function before use, written when the receive has ended; it must live until then. */
typedef struct ringred_message {
    uint32_t struct_size;
    int32_t source, tag;
    int32_t reserved; /* 0 */
    size_t count;     /* elements, at most those of the receive */
} ringred_message;
RINGRED_API void ringred_message_init(ringred_message *message, size_t size);

RINGRED_API int32_t ringred_send(ringred_comm *comm, const void *send, size_t count, int32_t type, int32_t dest,
                                 int32_t tag);
RINGRED_API int32_t ringred_send_start(ringred_comm *comm, const void *send, size_t count, int32_t type, int32_t dest,
                                       int32_t tag, ringred_request **request);

/* source: a rank, or RINGRED_ANY_SOURCE: of the messages that have come, the one that came first. message: NULL, or
 * where to say what came. */
RINGRED_API int32_t ringred_recv(ringred_comm *comm, void *recv, size_t count, int32_t type, int32_t source,
                                 int32_t tag, ringred_message *message);
RINGRED_API int32_t ringred_recv_start(ringred_comm *comm, void *recv, size_t count, int32_t type, int32_t source,
                                       int32_t tag, ringred_message *message, ringred_request **request);

/* ---- requests ----
 * RINGRED_PENDING (above 0): not done within timeout_ns, or at all yet (test); the request is still
 * running and may be waited for again. Anything else, 0 or a failure, is the operation's status: the
 * request has ended and is freed. wait with timeout 0 is test. */
RINGRED_API int32_t ringred_wait(ringred_request *request, int64_t timeout_ns);
RINGRED_API int32_t ringred_test(ringred_request *request);

/* ---- event loops ----
 * For programs that sleep in poll or epoll of their own: after starting something, and where the descriptor is
 * readable, call ringred_poll, which moves what is in flight; then test the requests, then sleep. Whatever ends
 * after that call, and any failure that is found, makes the descriptor readable; it may be so for no reason, too.
 * Both are about all communicators of the job, whichever of them is given. */

/* A descriptor to sleep on (POLLIN); the same each time; the library's, which closes it with the last communicator.
 * The first call opens three. ELIMIT, EFORKED, EINVAL. */
RINGRED_API int32_t ringred_comm_descriptor(ringred_comm *comm);

/* Moves what can be moved now, without waiting. 0: nothing is in flight; RINGRED_PENDING: something is, and the
 * descriptor (asked for before) tells when to call again. The failure that broke the communicator, if one did. */
RINGRED_API int32_t ringred_poll(ringred_comm *comm);

/* ---- about this library ---- */

RINGRED_API const char *ringred_version(void);       /* "0.1.0" */
RINGRED_API int32_t ringred_abi_version(void);
/* Build, CPU kernels, transports and why one is not usable, algorithms and what each costs, settings with
 * their values, where each came from, and the launcher that would be used: JSON text, as for
 * ringred_comm_describe. */
RINGRED_API int64_t ringred_describe(char *text, size_t room);

/* How long a collective would take on a machine that need not exist: its plans run in virtual time. The
 * question is "name=value name=value ...", such as
 *     collective=allreduce nodes=64 bytes=4M rate=10gbit latency=20us algorithm=twoshot,ring
 * docs/USER.md has all names and what they mean; what is not said is assumed, and the answer says all that
 * was. bytes: of one part, as in the formulas of ringred_describe. algorithm: names, auto (what a
 * communicator there would choose) or all. JSON text as for ringred_comm_describe; after a failure the text
 * is a sentence that says why. Needs no communicator, blocks for as long as it computes, may be called from
 * any thread. EINVAL: the question makes no sense; ENOMEM. */
RINGRED_API int64_t ringred_simulate(const char *question, char *text, size_t room);

/* Which algorithm and segment a call would run by, which rule decides it (a setting, the table, the limits of the
 * library), every other one with the time that it is expected to take, and why some cannot run it. A question as
 * for ringred_simulate, about ranks that need not exist, with type=float32 and op=sum, and measure=1 to measure
 * this machine first (50 ms; a thread is started for some of it); algorithm and segment are settings here.
 * settings: as in ringred_config, may be NULL. A function `choose` is not asked. Text and statuses as for
 * ringred_simulate, and ESETTING. */
RINGRED_API int64_t ringred_explain(const char *question, const char *const *settings, char *text, size_t room);

#ifdef __cplusplus
}
#endif

#endif
