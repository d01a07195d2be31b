/* SPDX-License-Identifier: Apache-2.0 */
/* The door of the sim room: runs the plans of all ranks in virtual time.
 *
 * The plans are those that the engine runs. A step runs when its dependencies are met; each rank does one
 * thing at a time, and ranks of a host share its CPUs; messages of one direction between two ranks travel
 * one behind the other; what is under way shares the wires max-min fairly. No clock, no system call, no
 * randomness: equal questions have equal answers. */
#ifndef RR_SIM_H
#define RR_SIM_H

#include "algo/algo.h"

#define RR_SIM_RANKS 4096 /* the most that are simulated together */

/* A machine: equal hosts and a wire between each and a switch that never blocks. Rates are bytes of
 * payload in a second; 0: as much as one likes. */
struct rr_machine {
    double latency_s;          /* from the last byte's leaving a host to its being there */
    double send_s, recv_s;     /* what a message costs a CPU at either end */
    double rate, flow;         /* of a host each way; of one stream */
    double slow_rate;          /* of host slow_host, where that is not negative */
    int slow_host;
    int streams;               /* between two ranks of different hosts */
    double buffer_bytes;       /* what a socket takes before the wire has had it; as much again waits unread */
    double header_bytes;       /* that travel with each message */
    double loop_rate, loop_s;  /* of a message between two ranks of one host, and its latency */
    double signal_s;           /* until another rank sees a counter in shared memory */
    double copy, reduce;       /* of a rank: copied; read by a sum */
    int cpus, all_cpus;        /* of a host; of all hosts together, where they are pretended ones. 0: no limit */
};

struct rr_sim {
    enum rr_algo algo;
    int hosts, per_host, root; /* ranks of a host are neighbours */
    size_t count, segment, element_bytes; /* as in struct rr_case */
    bool in_place;
    const struct rr_machine *machine;
};

struct rr_simulated {
    double seconds;            /* until the last rank is done */
    double *rank_s;            /* [ranks] */
    double *out, *in;          /* [hosts] bytes over each wire, headers and all */
    double busiest;            /* how full the fullest wire was, of 1; 0 without a rate */
    double messages;
    size_t steps;              /* of all plans together */
};

/* EINVAL: the algorithm cannot be done with these hosts; ENOMEM; EINTERNAL: the plans wait for each other. */
int rr_simulate(const struct rr_sim *sim, struct rr_simulated *result, ringred_error *why);
void rr_simulated_free(struct rr_simulated *result);

/* The least time that any algorithm needs for its bytes to leave or enter the busiest host; bytes: of a part. */
double rr_sim_least(enum rr_collective what, const struct rr_sim *sim, double bytes);

/* ---- questions: "name=value name=value ..." (question.c has the one table of them) ---- */
enum rr_sim_value {
    RR_SIM_NODES, RR_SIM_PER_HOST, RR_SIM_BYTES, RR_SIM_ELEMENT, RR_SIM_SEGMENT, RR_SIM_ROOT, RR_SIM_IN_PLACE,
    RR_SIM_RATE, RR_SIM_FLOW, RR_SIM_EFFICIENCY, RR_SIM_STREAMS, RR_SIM_LATENCY, RR_SIM_SEND, RR_SIM_RECV,
    RR_SIM_BUFFER, RR_SIM_HEADER, RR_SIM_LOOP_RATE, RR_SIM_LOOP_LATENCY, RR_SIM_SIGNAL, RR_SIM_COPY,
    RR_SIM_REDUCE, RR_SIM_CPUS, RR_SIM_ALL_CPUS, RR_SIM_SLOW_HOST, RR_SIM_SLOW_RATE, RR_SIM_DETAIL,
    RR_SIM_VALUES
};

struct rr_question {
    enum rr_collective what;
    char algorithm[256];       /* names with commas, "auto" or "all" */
    double value[RR_SIM_VALUES]; /* seconds, bytes, bytes in a second */
};

/* EINVAL with a sentence: an unknown name (and the nearest), a value that is none or out of range. */
int rr_question_read(const char *text, struct rr_question *q, ringred_error *why);
/* The machine that was asked about; streams 0: one. */
struct rr_machine rr_question_machine(const struct rr_question *q);
/* {"nodes":8,"latency_s":5e-05,...}: all that was assumed. */
void rr_question_print(const struct rr_question *q, struct rr_text *t);

#endif
