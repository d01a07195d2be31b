/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators on paper: just what choosing looks at, for ranks that need not be there. A part of the core
 * room's own, for simulate.c and explain.c. */
#ifndef RR_PAPER_H
#define RR_PAPER_H

#include "core/core.h"
#include "sim/sim.h"

struct paper {
    ringred_comm comm;
    struct rr_family family;
    struct rr_plans plans;
    struct rr_shared shared;
    struct rr_choice *choice[RR_ALGOS]; /* NULL: not possible */
    struct rr_choice there;
};

/* settings NULL: nothing is wished. Takes the table. NULL: no memory. */
struct paper *rr_paper_new(const struct rr_question *q, const struct rr_settings *settings, struct rr_tuning *tuning);
void rr_paper_free(struct paper *paper);

/* How the question's call goes with an algorithm there; segment: bytes, 0: chosen. */
int rr_paper_sim(const struct paper *paper, const struct rr_question *q, enum rr_algo algo, size_t segment,
                 struct rr_sim *sim, ringred_error *why);

/* ---- figures of this machine (cost.c) ---- */
struct rr_figures {
    double copy, reduce;       /* bytes in a second, copied; read by a float32 sum of two */
    double signal_s;           /* until another thread sees a flag */
    double message_s;          /* CPU time at each end of a small message over loopback */
    double loop_rate;          /* of large ones */
};
/* Takes at most 50 ms on a machine that has a CPU to spare, and starts a thread for some of them. What could not be
 * measured is 0. */
void rr_figures_measure(struct rr_figures *f);

/* What a lane takes, by the same figures. */
double rr_lane_cost(enum rr_lane lane, int ranks, double bytes, const struct rr_machine *m);

#endif
