/* SPDX-License-Identifier: Apache-2.0 */
/* The door between the files of ringred-bench. The program sees the library's public headers only:
 * what it measures is what a client gets. */
#ifndef BENCH_H
#define BENCH_H

#include <ringred/ringred.h>

#include <stdbool.h>
#include <stdio.h>

#define BENCH_SETTINGS 32
#define BENCH_SIZES    128
#define BENCH_TYPES    18
#define BENCH_COMMS    64
#define BENCH_OPS      11
#define BENCH_WIDEST   16 /* bytes of the largest element */

enum bench_collective {
    BENCH_ALLREDUCE,
    BENCH_REDUCE,
    BENCH_BROADCAST,
    BENCH_ALLGATHER,
    BENCH_GATHER,
    BENCH_REDUCE_SCATTER,
    BENCH_SCATTER,
    BENCH_ALLTOALL,
    BENCH_BARRIER,
    BENCH_ALLGATHERV,
    BENCH_GATHERV,
    BENCH_REDUCE_SCATTERV,
    BENCH_SCATTERV,
    BENCH_ALLTOALLV,
    BENCH_COLLECTIVES
};
enum bench_content {
    BENCH_NOTHING,
    BENCH_ONE,
    BENCH_PARTS
}; /* of a buffer: parts are one per rank */
enum bench_root { BENCH_NO_ROOT, BENCH_FROM_ROOT, BENCH_TO_ROOT };
enum bench_place { BENCH_OUT_OF_PLACE = 1, BENCH_IN_PLACE = 2 };

/* What is to be known of a collective. */
struct bench_row {
    const char *name;
    enum bench_content send, recv;
    enum bench_root root;
    bool reduces, uneven, in_place;
    int crossings; /* how often the data crosses between ranks: busbw = algbw * crossings * (n - 1)
                    * / n; 0: busbw = algbw */
};

/* What the command line asks for. */
struct bench_options {
    enum bench_collective collective;
    const struct bench_row *row; /* of that collective */
    int ranks;                   /* local ranks to start; 0: the environment says who we are */
    int child, child_fd; /* set in the ranks that a parent bench started; child is -1 elsewhere */
    const char *transport;
    const char *json;          /* NULL: no file */
    size_t sizes[BENCH_SIZES]; /* bytes */
    int size_count;
    int32_t types[BENCH_TYPES], ops[BENCH_OPS];
    int type_count, op_count;
    bool all_types, all_ops; /* pairs that do not exist are left out, else refused */
    int root;
    int places;       /* set of enum bench_place */
    double uneven;    /* parts are between 1 - this and 1 + this of their mean */
    double seconds;   /* time for one measured point; 0: count iterations instead */
    double compute_s; /* length of the computation beside a call; 0: that of the call */
    int iterations, warmups;
    int together; /* calls timed as one; 0: chosen from their length */
    int cycles;   /* how often the whole sweep is run */
    int comms;    /* communicators that the call is made on at once */
    bool check, percentiles, symmetric, no_pin, asynchronous, overlap;
    const char *settings[BENCH_SETTINGS + 1]; /* "name=value", ended by NULL */
    int setting_count;
};

/* One measured shape of call and the buffers it runs on. Counts are elements. */
struct bench_point {
    size_t bytes; /* of the longer buffer, as nccl-tests counts them */
    size_t count; /* of one part; of uneven ones the mean */
    size_t width; /* bytes of an element */
    int32_t type, op;
    bool in_place;
    size_t sends, recvs; /* of each buffer */
    size_t own, before;  /* of this rank's part, and of the parts before it */
    void *send, *recv;   /* in place these lie in one another */
    struct bench_point *others; /* [comms - 1] the same on the other communicators; NULL: there is one */
};

struct bench_result {
    double median, p10, p90, p99, mean, worst; /* microseconds of one call, of the slowest rank */
    double compute, both, hidden; /* overlap: microseconds of the computation alone and beside the
                                   * call, and the share of the call's time that this saved */
    long calls;
    double wrong; /* elements, all checks together; -1: not checked */
};

struct bench_rank {
    const struct bench_options *options;
    ringred_comm *comm;
    ringred_comm *others[BENCH_COMMS]; /* [comms - 1] */
    int rank, size;
    size_t *parts; /* elements of each rank's part at the present point */
};

/* options.c: returns false after saying on stderr what is wrong; sets *help where help was asked
 * for. */
bool bench_parse(struct bench_options *o, int argc, char **argv, bool *help);
void bench_help(FILE *out);
/* Says on stderr what is wrong; false. */
__attribute__((format(printf, 1, 2))) bool bench_complain(const char *format, ...);

/* types.c: nccl-tests' names where it has one ("float"), and the library's ("float32"). */
const char *bench_type_name(int32_t type);
const char *bench_type_long(int32_t type);
const char *bench_op_name(int32_t op);
size_t bench_width(int32_t type);
bool bench_is_pair(int32_t type, int32_t op);
/* A name, several with commas, or all. False after saying what is wrong. */
bool bench_parse_types(struct bench_options *o, const char *text);
bool bench_parse_ops(struct bench_options *o, const char *text);

void bench_list_types(FILE *out); /* and operators */

/* collective.c */
const struct bench_row *bench_row_of(const char *name); /* NULL: unknown */
enum bench_collective bench_collective_of(const struct bench_row *row);
void bench_list_collectives(FILE *out); /* names with commas */
/* Lays out a call on buffers of about so many bytes; count 0: too few for one element each. */
void bench_shape(const struct bench_rank *r, struct bench_point *p, size_t bytes);
/* Elements of rank `from`'s part for rank `to`, and of those before it in `from`'s buffer. */
size_t bench_part(const struct bench_rank *r, const struct bench_point *p, int from, int to);
size_t bench_before(const struct bench_rank *r, const struct bench_point *p, int from, int to);
int bench_call(const struct bench_rank *r, const struct bench_point *p);
int bench_start(const struct bench_rank *r, const struct bench_point *p, ringred_request **request);

/* simulate.c: the other command, with its own flags; the exit code of the run. */
int bench_simulate(int argc, char **argv);

/* tune.c: one more command; all of the program's arguments. */
int bench_tune(int argc, char **argv);

/* fusion.c: the gradients of a model; all of the program's arguments. */
int bench_fusion(int argc, char **argv);

/* models.c: the gradients of a model, by name or from a file; float32, in the order of the model. */
struct bench_tensor {
    char name[80];
    size_t count;
};
struct bench_model {
    const char *name;
    struct bench_tensor *tensor;
    size_t n, room, elements;
};
bool bench_model_load(struct bench_model *m, const char *name); /* false after saying what is wrong */

/* main.c: what the library says of a call that failed; false. */
bool bench_say_failure(const struct bench_rank *r, int rc);
/* Makes the communicator that the options ask for; choose NULL: none. False after saying
 * why not. */
bool bench_open(const struct bench_options *o, ringred_choose_fn choose, void *context,
                ringred_comm **comm);

/* local.c: starts o->ranks copies of this program and waits for them; the exit code of the run. */
int bench_start_ranks(const struct bench_options *o, int argc, char **argv);
/* In such a copy: pins it, makes or receives the job's id. False after saying what failed. */
bool bench_join_parent(const struct bench_options *o, ringred_unique_id *id);

/* numbers.c: elements as numbers. Integers and truth values use `whole`, modulo 2^64; floats `re`.
 */
struct bench_number {
    double re, im;
    uint64_t whole;
};
/* The number that rank `rank` of n has in class k of positions, for this reduction. */
struct bench_number bench_number_of(int32_t type, int32_t op, int n, int rank, unsigned k);
/* What the reduction of that class over n ranks must give. */
struct bench_number bench_reduced(int32_t type, int32_t op, int n, unsigned k);
void bench_encode(int32_t type, struct bench_number x, void *element);
uint64_t bench_mix(uint64_t a, uint64_t b); /* scrambled bits */

/* values.c: fills buffers with values that depend on rank and position, and checks results. */
void bench_fill(const struct bench_rank *r, const struct bench_point *p);
size_t bench_count_wrong(const struct bench_rank *r, const struct bench_point *p);

/* measure.c: statuses as the library's. */
int bench_measure(const struct bench_rank *r, const struct bench_point *p,
                  struct bench_result *result);
/* Replaces each number by the largest that any rank has. */
int bench_largest(const struct bench_rank *r, double *numbers, int count);

/* compute.c: work for the CPU that touches no memory to speak of. */
long bench_work_for(double seconds); /* how much takes about so long, alone */
void bench_work(long amount);
double bench_now(void); /* seconds */

/* memory.c */
void *bench_memory(const struct bench_rank *r, size_t bytes); /* NULL after saying why on stderr */
void bench_memory_free(const struct bench_rank *r, void *memory);

/* report.c: rank 0's output. */
struct bench_report {
    FILE *json; /* NULL: none */
    int rows;
    double busbw_sum, wrong;
    long points;
    const char *cipher;   /* of connections, as ringred_comm_describe calls it; "none" */
};
bool bench_report_open(struct bench_report *report, const struct bench_rank *r);
/* Says which of the operators asked for this type does not take, if any. */
void bench_report_skipped(const struct bench_options *o, int32_t type);
void bench_report_row(struct bench_report *report, const struct bench_rank *r,
                      const struct bench_point *p, const struct bench_result *out,
                      const struct bench_result *in);
bool bench_report_close(struct bench_report *report, const struct bench_rank *r);

#endif
