/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the boot room share: the poll set, the gate (who comes), the dial (whom to
 * reach), the line (notes to and from the root), and the boot object that holds them. */
#ifndef RR_BOOT_INSIDE_H
#define RR_BOOT_INSIDE_H

#include "boot/addr.h"
#include "boot/hand.h"

#include <poll.h>

#define RR_BOOT_STRANGERS 64 /* unproved connections per gate */
#define RR_DIAL_CANDIDATES 48 /* ways to reach a rank that a dial keeps in mind */
#define RR_DIAL_RACE       8  /* of them tried at once */
#define RR_DIAL_EXTRA      64 /* sockets beyond one for each dial, all together */

/* ---- polls: everything that one turn of the loop waits for ---- */

struct rr_polls {
    struct pollfd *at;
    int used, room;
    int64_t wake_ns; /* the earliest time somebody wants to act */
};
int rr_polls_add(struct rr_polls *p, int fd, short events); /* an index for rr_polls_ready */
bool rr_polls_ready(const struct rr_polls *p, int index);   /* index -1: false */
void rr_polls_wake(struct rr_polls *p, int64_t when_ns);

/* ---- gate: listeners for one purpose, and those who have not yet proved who they are ---- */

struct rr_gate {
    int listener[RR_ADDRESSES], at[RR_ADDRESSES];
    int listeners;
    bool open;     /* takes part in the loop */
    bool borrowed; /* the listeners are not ours to close */
    int limited;   /* errno that kept all newcomers out, and nobody to throw out */
    struct rr_badge badge;
    int64_t pause_ns; /* full of newcomers: accept again from then on */
    struct rr_guest {
        struct rr_hand hand;
        int at;
        int64_t since_ns;
    } guest[RR_BOOT_STRANGERS];
    /* those who could not prove themselves; for the log and for the final sentence */
    long strangers;
    enum rr_verdict worst;
    int version;
    char last[160];
};

/* Called with each proved connection, which becomes the callee's. */
typedef void rr_admit(void *context, int fd, int rank, int stream, const struct rr_seal *seal);

void rr_gate_polls(struct rr_gate *g, struct rr_polls *p);
void rr_gate_turn(struct rr_gate *g, const struct rr_polls *p, const struct rr_log *log,
                  rr_admit *admit, void *context);
void rr_gate_shut(struct rr_gate *g); /* the listeners stay; NULL is fine */
void rr_gate_free(struct rr_gate *g); /* NULL is fine */

/* ---- dial: reaches one rank by whichever of its addresses it proves to be at ---- */

enum rr_dial_state { RR_DIAL_TRYING, RR_DIAL_DONE, RR_DIAL_FATAL };

/* One way to reach it. */
struct rr_candidate {
    struct rr_address to;
    const struct rr_nic *from; /* comes from this address alone; NULL: the system chooses */
    enum rr_verdict verdict;   /* of the last try that has ended */
    int system;
};

struct rr_dial {
    enum rr_dial_state state;
    struct rr_badge badge;
    int peer;
    const struct rr_roots *roots; /* looked up anew now and then; NULL: the candidates are fixed */
    const struct rr_net *net;     /* what sockets may use; NULL: anything */
    const char *inside, *outside; /* congestion control, by where it goes; NULL: the system's */
    const char *problem;          /* of the last look-up */
    bool strict;                  /* one host:port was named: if nobody else is there, a wrong version or key is final */
    int *extra;                   /* sockets under way beyond one for each dial; NULL: not counted */
    struct rr_candidate at[RR_DIAL_CANDIDATES];
    int count, next, round;
    int64_t again_ns; /* when the next candidate may begin */
    bool answered;    /* some machine has, if only by a refusal */
    struct rr_try {
        struct rr_hand hand;
        int of; /* the candidate */
        int at;
    } try[RR_DIAL_RACE];
    /* done: the candidate that proved itself, and the try; fatal: whose verdict it is */
    int chosen, winner;
    int version, system;
};
void rr_dial_init(struct rr_dial *d, const struct rr_badge *badge, int peer);
void rr_dial_aim(struct rr_dial *d, const struct rr_address *list, int n); /* these addresses */
void rr_dial_polls(struct rr_dial *d, struct rr_polls *p);
void rr_dial_turn(struct rr_dial *d, const struct rr_polls *p);
/* Done: the proved descriptor, now the caller's, and what seals it. */
int rr_dial_take(struct rr_dial *d, struct rr_seal *seal);
void rr_dial_story(const struct rr_dial *d, struct rr_text *t); /* "10.0.0.1:80: refused, ..." */
void rr_dial_again(struct rr_dial *d);                          /* the one reached was no use */
void rr_dial_drop(struct rr_dial *d);                           /* NULL is fine */

/* ---- line: notes between a rank and the root, on a proved connection ---- */

enum rr_note_kind {
    RR_NOTE_JOIN = 1, /* to the root: who I am */
    RR_NOTE_HERE,     /* from the root: counted; from now on its silence is its death */
    RR_NOTE_TABLE,    /* from the root: who all are */
    RR_NOTE_UP,       /* to the root: my part of an exchange */
    RR_NOTE_DOWN,     /* from the root: everybody's */
    RR_NOTE_FAIL,     /* either way: it has failed, and why */
    RR_NOTE_BYE,      /* either way: done, nothing has failed */
    /* between any two, in a reunion */
    RR_NOTE_VIEW,     /* what I know of everybody */
    RR_NOTE_GO,       /* who makes a communicator, and where */
    RR_NOTE_LEFT,     /* I have one */
    RR_NOTE_QUIT,     /* I have given up */
    RR_NOTE_BACK,     /* a round has come to nothing for me; and what I know of everybody */
};

#define RR_NOTE_HEAD  16 /* kind 4, step 4, bytes 8 */
#define RR_FAIL_BYTES 504

struct rr_note {
    uint32_t kind, step;
    uint64_t bytes;
};

enum rr_line_news {
    RR_LINE_QUIET,
    RR_LINE_HEADED, /* a head has come; somebody must say where its body goes */
    RR_LINE_WHOLE,  /* the body, too */
    RR_LINE_ENDED,  /* no more will come */
};

struct rr_line {
    int fd, at;    /* fd -1: none */
    int rank;      /* that proved itself at the other end */
    bool joined;   /* root: its entry is in; others: the root has said so */
    bool left;     /* said goodbye */
    bool heard;    /* root, after a failure: has come at all */
    bool given;    /* root: its part of the exchange in hand is in */
    bool answered; /* root: has been sent the answer of the exchange in hand */
    int system;    /* errno that ended it, 0: closed by the other end */
    unsigned char head[RR_NOTE_HEAD];
    size_t head_done, body_done;
    struct rr_note in;
    unsigned char *body;
    unsigned char fail[RR_FAIL_BYTES];
    unsigned char out_head[RR_NOTE_HEAD];
    const unsigned char *out;
    size_t out_bytes, out_done;
    bool sending;
    struct rr_line_seal *seal; /* NULL: it is not encrypted */
};

void rr_line_init(struct rr_line *l, int fd, int rank); /* fd -1: it is closed */
/* Of a proved connection. ENOMEM: closed again. */
int rr_line_open(struct rr_line *l, int fd, int rank, const struct rr_seal *seal);
void rr_line_close(struct rr_line *l);
enum rr_line_news rr_line_read(struct rr_line *l);
bool rr_line_wants_input(const struct rr_line *l);
void rr_line_next(struct rr_line *l); /* the note is used up */
/* The body is borrowed until it is sent. Only one note at a time. */
void rr_line_send(struct rr_line *l, enum rr_note_kind kind, uint32_t step, const void *body,
                  size_t bytes);
int rr_line_write(struct rr_line *l); /* 0: nothing left, PENDING, < 0: the line ended */

void rr_fail_write(const ringred_error *why, unsigned char to[RR_FAIL_BYTES]);
/* The code it tells of, or EWIRE. */
int rr_fail_read(const unsigned char *from, size_t bytes, ringred_error *why);

/* ---- what ranks tell the root about themselves, and the root everybody ---- */

struct rr_entry {
    struct rr_member member;
    uint64_t net;                            /* equal: each other's loopback can be reached */
    unsigned char local[16];                 /* names its abstract Unix socket */
    struct rr_address address[RR_ADDRESSES]; /* of its data listener, best first */
    int addresses;
};

#define RR_ENTRY_BYTES (8 + 8 + 4 + 64 + 16 + 4 + RR_ADDRESSES * RR_ADDRESS_BYTES)
#define RR_JOIN_BYTES  (4 + 4 + 8 + 16 + RR_ENTRY_BYTES) /* size, zero, ms left, release, entry */

struct rr_join {
    uint32_t size;
    uint64_t left_ms;
    char release[16]; /* of the library: another one may choose other plans for the same call */
    struct rr_entry entry;
};

/* The addresses by which a rank may be reached from network `net`, best first; how many. */
int rr_entry_ways(const struct rr_entry *e, uint64_t net, struct rr_address to[RR_ADDRESSES]);
void rr_entry_write(const struct rr_entry *e, unsigned char to[RR_ENTRY_BYTES]);
void rr_join_write(const struct rr_join *j, unsigned char to[RR_JOIN_BYTES]);
int rr_entry_read(struct rr_reader *r, struct rr_entry *e);                   /* 0 or EWIRE */
int rr_join_read(const unsigned char *from, size_t bytes, struct rr_join *j); /* 0 or EWIRE */
/* table: session, then an entry of each rank */
int rr_table_read(const unsigned char *from, size_t bytes, int size,
                  unsigned char session[RR_JOB_BYTES], struct rr_entry *entries);

/* ---- the boot object ---- */

#define RR_SPARE_LINES 16 /* for ranks that turn out to be doubled or of another size */

struct rr_boot {
    int rank, size;
    bool is_root; /* a second rank 0 is not */
    const struct rr_log *log;
    struct rr_launch launch;
    struct rr_roots roots;
    char where[300];              /* the root in words */
    const char *inside, *outside; /* congestion control of data links; NULL: the system's */
    struct rr_net net;            /* what sockets may use */
    int extra;                    /* dials: sockets under way beyond one for each */
    int64_t started_ns, deadline_ns, asked_ns; /* asked: the caller, whether to go on */
    unsigned char session[RR_JOB_BYTES]; /* this communicator's: connections of two cannot mix */
    struct rr_entry *entry;              /* [size] */
    struct rr_line *line; /* root: [size + RR_SPARE_LINES], others: [1], to the root */
    int lines;
    struct rr_gate *meet, *data, *local;
    struct rr_dial *dial; /* [size]: to the root, then a connection each to whom I wire */
    int dials;
    struct rr_polls polls;
    uint32_t step;         /* exchanges so far */
    ringred_error failure; /* code 0: none */
    int *fd;               /* [size][streams] where proved data and local connections go while wiring */
    struct rr_seal *seal;  /* [size][streams] what seals data connections; NULL: nothing does */
    uint8_t offers;        /* of connections over TCP: RR_OFFERS_ */
    int streams;
    const uint8_t *want;   /* [size] how many */
    struct rr_gathering { /* everybody's part to the root, and its answer to all */
        enum rr_note_kind up, down;
        const void *mine;
        unsigned char *ups; /* root: room for up_bytes of each line */
        void *answer;       /* root: what to send down; others: where it goes */
        size_t up_bytes, down_bytes;
        int got; /* root: parts that are in, its own included */
        bool active, answering, done;
    } x;
};

/* loop.c */
int rr_boot_turn(struct rr_boot *b); /* waits for anything to happen, and handles it */
/* Turns until done says so or the boot has failed; expired writes the sentence when the time is
 * over. */
int rr_boot_loop(struct rr_boot *b, bool (*done)(const struct rr_boot *b),
                 int (*expired)(struct rr_boot *b, ringred_error *why), int64_t deadline_ns);
void rr_gathering_begin(struct rr_boot *b, const struct rr_gathering *x);
bool rr_gathering_is_done(const struct rr_boot *b);
/* Remembers the first failure and tells the others of it. Returns its code. */
int rr_boot_fail(struct rr_boot *b, const ringred_error *failure);
int rr_system_code(int system); /* of a failed system call: ELIMIT, ENOMEM, else ESYSTEM */
const char *rr_boot_period(const struct rr_boot *b, char text[32]); /* "60 s" */

/* meet.c: what the loop calls while ranks arrive */
void rr_meet_admit(void *boot, int fd, int rank, int stream, const struct rr_seal *seal);
int rr_meet_joined(struct rr_boot *b, struct rr_line *l, ringred_error *why); /* join is whole */
int rr_meet_dialled(struct rr_boot *b, struct rr_dial *d);                    /* done or fatal */

/* Where in an id they are. */
#define RR_ID_KEY 12
#define RR_ID_JOB 44
/* id.c: unique ids made in this process, until a communicator has been tried with them */
int rr_unique_id_read(const struct ringred_unique_id *id, struct rr_launch *launch,
                      ringred_error *why);
int rr_unique_id_listener(const unsigned char job[RR_JOB_BYTES]); /* the first; -1: not made here */
/* All that were opened for the id of that listener; a listener of anybody else's is the only one. */
int rr_unique_id_listeners(int listener, int fd[RR_ADDRESSES]);
void rr_unique_id_spent(int listener); /* closes them; any other descriptor is left alone */
void rr_unique_id_drop(const ringred_unique_id *id); /* the same, if it was made here */
/* It stays open, and the id serves more than once. -1: not made here. */
int rr_unique_id_keep(const unsigned char job[RR_JOB_BYTES]);

/* key.c: the secret, from wherever there is one; launch->job is known by then */
int rr_key_find(const ringred_config *config, const struct rr_settings *settings,
                struct rr_launch *launch, ringred_error *why);

/* wire.c: where proved connections go */
void rr_wire_admit(void *boot, int fd, int rank, int stream, const struct rr_seal *seal);
void rr_local_admit(void *boot, int fd, int rank, int stream, const struct rr_seal *seal);
int rr_wire_dialled(struct rr_boot *b, struct rr_dial *d);

#endif
