/* SPDX-License-Identifier: Apache-2.0 */
/* The door of the base room: what every other room may use. It knows nobody. */
#ifndef RR_BASE_H
#define RR_BASE_H

#include <ringred/ringred.h>

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RR_LIKELY(x) __builtin_expect(!!(x), 1)
#define RR_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define RR_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define RR_LINE 64 /* bytes of a cache line on every platform we run on */

/* Passes a failure on; for places with nothing to undo. */
#define RR_TRY(expression)            \
    do {                              \
        int rr_try_rc = (expression); \
        if (rr_try_rc < 0)            \
            return rr_try_rc;         \
    } while (0)

/* ---- memory: zeroed; every allocation of the library comes from here, so a test can fail the nth ---- */
void *rr_alloc(size_t count, size_t bytes);               /* NULL: no memory, or the product overflows */
void *rr_alloc_aligned(size_t alignment, size_t bytes);   /* bytes is rounded up to the alignment */
void rr_free(void *memory);
/* Makes allocation number `nth` from now fail (1: the next), and all after it if `from_there`; 0: none. */
void rr_alloc_fail_after(long nth, bool from_there);
long rr_alloc_count(void); /* allocations so far in this process */

/* A struct of a caller's, as long as he knows it: what he knows of ours (which begins with struct_size), then zeros. */
void rr_struct_init(void *his, size_t size, const void *ours, size_t our_size);
bool rr_struct_is_newer(const void *his, size_t his_size, size_t our_size); /* it says something that we do not know */

/* ---- vectors that lie in many places (pieces.c) ---- */
struct rr_piece {
    char *at;
    size_t end;                 /* bytes of the vector up to the end of this piece; more than before it */
};
struct rr_pieces {
    const struct rr_piece *piece;
    size_t n;
};
/* Somewhere in a vector: at an address, or `from` bytes behind the front of its pieces. */
struct rr_spot {
    char *at;
    const struct rr_pieces *pieces; /* NULL: all that follows lies at `at` */
    size_t from;
};
/* The address, and in *bytes no more than lies there in a row. */
char *rr_spot_run(const struct rr_spot *spot, size_t *bytes);
void rr_spot_put(struct rr_spot to, const void *from, size_t bytes);
void rr_spot_get(struct rr_spot from, void *to, size_t bytes);
static inline struct rr_spot rr_spot_behind(struct rr_spot w, size_t bytes)
{
    if (w.pieces)
        w.from += bytes;
    else
        w.at += bytes;
    return w;
}

/* ---- the caller's word that a set-up call shall end ---- */
#define RR_INTERRUPT_NS 50000000 /* it is asked for at least this often */
struct rr_interrupt {
    int32_t (*fn)(void *context); /* NULL: there is none */
    void *context;
    const char *reason; /* why there is one; NULL: the caller wants it so */
};
static inline bool rr_is_interrupted(const struct rr_interrupt *i)
{
    return i->fn && i->fn(i->context) != 0;
}

/* ---- forks and descriptors (fork.c) ---- */
/* How often this process's line has forked since the library was first used: an object made under another
 * number belongs to a parent. */
uint32_t rr_forks(void);
/* A descriptor that lives on: a forked child closes its copy. Returns fd; -1 for -1, or, fd closed and errno ENOMEM,
 * when there is no memory for it. It may be owned already. */
int rr_fd_own(int fd);
void rr_fd_close(int fd); /* of rr_fd_own, or any; -1 is fine */
/* Sockets of which no fork of another thread can keep a copy: stream, non-blocking, and owned from the first moment.
 * listener must not block. -1: errno says why. */
int rr_fd_socket(int family);
int rr_fd_accept(int listener);
bool rr_fd_has_ended(int fd); /* of a socket: its other end has closed it, or it has failed; nothing is read */

/* Bytes that a file may have (RLIMIT_FSIZE). Beyond them the kernel would not refuse, but end the process by a signal. */
uint64_t rr_file_limit(void);

/* ---- time ---- */
int64_t rr_now_ns(void);                                  /* CLOCK_MONOTONIC */
/* A counter of the CPU's that goes on evenly and costs half of what the clock does. */
static inline uint64_t rr_ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks;
    __asm__ __volatile__("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#endif
}
int64_t rr_deadline(int64_t timeout_ns);                  /* now + timeout; INT64_MAX for -1 */
int rr_deadline_ms(int64_t deadline_ns, int most_ms);     /* what is left, for poll: 0..most_ms */

/* ---- failures: the finder writes the sentence, everybody above passes the code on ---- */
/* Fills *why (NULL is fine) and returns code. system is 0 or an errno, whose text is appended. */
int rr_fail(ringred_error *why, int code, int rank, int system, const char *format, ...) RR_PRINTF(5, 6);

/* ---- log ---- */
struct rr_log {
    int level;                                            /* RINGRED_LOG_*: lines above it are dropped */
    ringred_log_fn line;                                  /* NULL: to stderr if the setting log asks for it */
    void *context;
    int rank;                                             /* -1 until known */
};
void rr_log(const struct rr_log *log, int level, const char *format, ...) RR_PRINTF(3, 4);

/* ---- bytes from outside: cannot read past the end; `bad` once anything was short ---- */
struct rr_reader {
    const unsigned char *at, *end;
    bool bad;
};
uint8_t rr_read_u8(struct rr_reader *r);
uint16_t rr_read_u16(struct rr_reader *r);                /* little-endian, as on the wire */
uint32_t rr_read_u32(struct rr_reader *r);
uint64_t rr_read_u64(struct rr_reader *r);
void rr_read_bytes(struct rr_reader *r, void *to, size_t bytes);

/* ---- a growing JSON or log text in a fixed room, as snprintf counts ---- */
struct rr_text {
    char *at;
    size_t room, used;                                    /* used may exceed room: what it would need */
};
void rr_text_add(struct rr_text *t, const char *format, ...) RR_PRINTF(2, 3);
void rr_text_tame(char *text); /* another process's, which may end up on a terminal: control bytes become '?' */
void rr_text_add_json(struct rr_text *t, const char *string); /* quoted and escaped; what is not UTF-8 is replaced */

/* How many letters to change, add or drop to make one word of the other, whose letters are small. */
size_t rr_word_distance(const char *a, const char *b);

/* ---- settings (settings.c has the one table of them) ---- */
enum rr_setting {
    RR_SET_TRANSPORT,        /* auto | shm | tcp */
    RR_SET_TEAM,             /* name of a plug-in that runs whole collectives; "": none */
    RR_SET_ALGORITHM,        /* auto, or a lane or plan by name (settings.c) */
    RR_SET_TUNING,           /* file with a table of measured choices; "": none */
    RR_SET_NUMERICS,         /* canonical | portable | fast */
    RR_SET_SEGMENT,          /* bytes, 0: chosen */
    RR_SET_HOST,             /* text: ranks with another one count as being on another host */
    RR_SET_RANKS_PER_HOST,   /* pretend that each n ranks in turn share a host; 0: as it really is */
    RR_SET_INTERFACE,        /* network interfaces to use, names or addresses with commas; "": any that works */
    RR_SET_PORT_RANGE,       /* ports to use, "20000-20100"; "": any */
    RR_SET_KEY,              /* the job's key as text, at least 16 bytes */
    RR_SET_KEY_FILE,         /* or a file of mode 0600 or stricter that holds it */
    RR_SET_KEY_FD,           /* or a descriptor to read it from; launchers use it */
    RR_SET_REQUIRE_KEY,      /* 1: refuse to start without a key */
    RR_SET_INIT_TIMEOUT,     /* seconds */
    RR_SET_TIMEOUT,          /* seconds that a blocking collective may take; -1: for ever */
    RR_SET_PEER_TIMEOUT,     /* seconds of silence of a peer's kernel */
    RR_SET_STALL_WARNING,    /* seconds without a move, after which a line says who is missing */
    RR_SET_DUMP_DIR,         /* folder where a rank says what it did last when its communicator breaks; "": none */
    RR_SET_LINGER,           /* seconds that destroy waits for what peers have not read */
    RR_SET_TCP_CONGESTION,   /* auto (probe) | system | a name the kernel knows */
    RR_SET_TCP_STREAMS,      /* connections to a rank of another host; 0: chosen */
    RR_SET_TCP_ENCRYPTION,   /* off | on | chacha20: without AES-256-GCM */
    RR_SET_STAGE,            /* bytes of shared stage per rank */
    RR_SET_HEAP,             /* most bytes of ringred_alloc memory per rank; 0: this host's memory */
    RR_SET_SPIN,             /* microseconds to spin or yield before sleeping; -1: chosen */
    RR_SET_PROGRESS,         /* caller | thread */
    RR_SET_PROGRESS_CPUS,    /* CPUs of the progress thread, "0-3,7"; "": those of whoever made it */
    RR_SET_LOG,              /* none | error | warn | info | trace: lines on stderr */
    RR_SET_TRACE,            /* file name for a Chrome trace; %r is the rank; "": none */
    RR_SET_FAULT,            /* what the decorator `faulty` does; "": nothing (docs/TESTING.md) */
    RR_SET_RANK,             /* rank, size, ... of RINGRED_* launchers */
    RR_SET_SIZE,
    RR_SET_LOCAL_RANK,
    RR_SET_LOCAL_SIZE,
    RR_SET_ROOT,
    RR_SET_ROOT_FD,          /* a listening socket that the launcher has opened for rank 0 */
    RR_SET_CONFIG,           /* file with settings; "": none */
    RR_SETTINGS
};

struct rr_settings {
    struct rr_setting_value {
        int64_t number;
        char text[256];
        char origin[288];    /* "default", "environment", "argument", or "file:line" */
    } value[RR_SETTINGS];
};

/* Defaults, then the file that the setting config names, then RINGRED_* variables, then the "name=value"
 * strings. An unknown RINGRED_ variable or name, or a value out of range, is ESETTING with the nearest name or
 * the range. */
int rr_settings_load(struct rr_settings *s, const char *const *arguments, ringred_error *why);
int rr_settings_set(struct rr_settings *s, const char *name, const char *value, const char *origin,
                    ringred_error *why);
/* The setting of that name, or ESETTING with the nearest. */
int rr_setting_find(const char *name, ringred_error *why);
/* Lines "name = value" of a file (settings_file.c). `own`: nobody else can read it, so that it may have secrets. */
int rr_settings_read(struct rr_settings *s, const char *path, const char *text, size_t bytes, bool own,
                     ringred_error *why);
int rr_settings_read_file(struct rr_settings *s, const char *path, ringred_error *why);
const char *rr_setting_name(enum rr_setting which);
const char *rr_setting_help(enum rr_setting which);
/* A JSON array of {name, value, origin, type, range, default, text}. The key itself is never shown. */
void rr_settings_describe(const struct rr_settings *s, struct rr_text *t);

static inline int64_t rr_setting(const struct rr_settings *s, enum rr_setting which)
{
    return s->value[which].number;
}
static inline const char *rr_setting_text(const struct rr_settings *s, enum rr_setting which)
{
    return s->value[which].text;
}

static inline size_t rr_round_up(size_t n, size_t to) /* to: a power of two */
{
    return (n + to - 1) & ~(to - 1);
}

/* No load from here on is done before those above: atomic_thread_fence(memory_order_acquire), which the thread sanitizer
 * does not know. */
static inline void rr_loads_before(void)
{
#if defined(__aarch64__)
    __asm__ __volatile__("dmb ishld" ::: "memory");
#else
    __asm__ __volatile__("" ::: "memory"); /* x86 keeps loads in order */
#endif
}

static inline void rr_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("isb" ::: "memory");
#endif
}

#endif
