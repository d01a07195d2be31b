/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of measured choices, and the one place where it is decided what runs a call. A part of the core
 * room's door. */
#ifndef RR_TUNING_H
#define RR_TUNING_H

#include "algo/algo.h"
#include "base/base.h"
#include "engine/engine.h"

struct rr_call;

/* A way to run a call: a lane, or an algorithm. */
struct rr_way {
    enum rr_lane lane;
    enum rr_algo algo; /* without a lane */
};
const char *rr_way_name(struct rr_way way);
enum rr_collective rr_way_collective(struct rr_way way); /* not of a team, which does several */
bool rr_way_find(const char *name, struct rr_way *way); /* by a name that rr_way_name gives, but "team" */

/* ---- tables (tuning.c) ---- */
struct rr_tuning_range {
    uint64_t least, most;
};
struct rr_tuning_row {
    enum rr_collective what;
    int type, width;           /* 0: any; one of them at most */
    struct rr_tuning_range ranks, hosts, bytes;
    struct rr_way way;
    uint64_t segment;          /* bytes; 0: chosen */
    int line;
};
struct rr_tuning {
    uint64_t hash;             /* of what the rows say; never 0 */
    int rows;
    struct rr_tuning_row *row; /* the first that fits and can be used counts */
    _Atomic int held;          /* by so many more than who made it; nobody changes it */
};

/* ESETTING: what is wrong, in which line of `name`, and what would be right. */
int rr_tuning_parse(const char *text, size_t bytes, const char *name, struct rr_tuning **tuning, ringred_error *why);
int rr_tuning_load(const char *path, struct rr_tuning **tuning, ringred_error *why); /* "": NULL */
struct rr_tuning *rr_tuning_hold(struct rr_tuning *tuning); /* for another free; NULL is fine */
void rr_tuning_free(struct rr_tuning *tuning);
bool rr_tuning_fits(const struct rr_tuning_row *row, int ranks, int hosts); /* the layout */

/* ---- choosing (choose.c) ---- */
enum rr_rule { RR_BY_LIMITS, RR_BY_SETTING, RR_BY_TABLE, RR_BY_FUNCTION, RR_BY_TEAM };

struct rr_chosen {
    struct rr_way way;
    size_t segment;            /* bytes; 0: chosen as usual */
    enum rr_rule rule;
    int line;                  /* of the table */
    uint64_t code;             /* what ranks compare, above RR_ASK_COUNT, where a function or a team had a say; or 0 */
};

/* What a communicator chose last for a collective. */
struct rr_chosen_last {
    size_t count;
    int type, op;              /* type 0: nothing yet */
    struct rr_chosen chosen;
};

/* With starting taken, and no lock: the caller's function may be called. 0, or EINVAL: what that answered cannot
 * be done. */
int rr_choose(ringred_comm *comm, const struct rr_call *call, struct rr_chosen *chosen, ringred_error *why);
/* The same without the function and without memory, from any thread. */
void rr_choose_default(const ringred_comm *comm, const struct rr_call *call, struct rr_chosen *chosen);
/* Why a way cannot run any call on this communicator, or this one (call not NULL); NULL: it can. */
const char *rr_way_refusal(const ringred_comm *comm, struct rr_way way, const struct rr_call *call);
/* Tells the log of rows that are meant for this communicator and cannot be used. */
void rr_tuning_look(const ringred_comm *comm);

#endif
