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

enum bench_collective { BENCH_ALLREDUCE, BENCH_BROADCAST };
enum bench_place { BENCH_OUT_OF_PLACE = 1, BENCH_IN_PLACE = 2 };

/* What the command line asks for. */
struct bench_options {
    enum bench_collective collective;
    int ranks;           /* local ranks to start; 0: the environment says who we are */
    int child, child_fd; /* set in the ranks that a parent bench started; child is -1 elsewhere */
    const char *transport;
    const char *json;          /* NULL: no file */
    size_t sizes[BENCH_SIZES]; /* bytes */
    int size_count;
    int32_t types[2], ops[2];
    int type_count, op_count;
    int root;
    int places;     /* set of enum bench_place */
    double seconds; /* time for one measured point; 0: count iterations instead */
    int iterations, warmups;
    int together; /* calls timed as one; 0: chosen from their length */
    int cycles;   /* how often the whole sweep is run */
    bool check, percentiles, symmetric, no_pin, asynchronous;
    const char *settings[BENCH_SETTINGS + 1]; /* "name=value", ended by NULL */
    int setting_count;
};

/* One measured shape of call and the buffers it runs on. */
struct bench_point {
    size_t bytes, count, width;
    int32_t type, op;
    bool in_place;
    void *send, *recv; /* equal when in place */
};

struct bench_result {
    double median, p10, p90, p99, mean, worst; /* microseconds of one call, of the slowest rank */
    long calls;
    double wrong; /* elements, all checks together; -1: not checked */
};

struct bench_rank {
    const struct bench_options *options;
    ringred_comm *comm;
    int rank, size;
};

/* options.c: returns false after saying on stderr what is wrong; sets *help where help was asked
 * for. */
bool bench_parse(struct bench_options *o, int argc, char **argv, bool *help);
void bench_help(FILE *out);
const char *bench_type_name(int32_t type); /* nccl-tests' name: "float" */
const char *bench_type_long(int32_t type); /* "float32" */
const char *bench_op_name(int32_t op);

/* local.c: starts o->ranks copies of this program and waits for them; the exit code of the run. */
int bench_start_ranks(const struct bench_options *o, int argc, char **argv);
/* In such a copy: pins it, makes or receives the job's id. False after saying what failed. */
bool bench_join_parent(const struct bench_options *o, ringred_unique_id *id);

/* values.c: numbers that depend on rank and position, whose sums and averages are exact. */
void bench_fill(const struct bench_rank *r, const struct bench_point *p);
size_t bench_count_wrong(const struct bench_rank *r, const struct bench_point *p);

/* measure.c: statuses as the library's. */
int bench_measure(const struct bench_rank *r, const struct bench_point *p,
                  struct bench_result *result);
/* Replaces each number by the largest that any rank has. */
int bench_largest(const struct bench_rank *r, double *numbers, int count);

/* memory.c */
void *bench_memory(const struct bench_rank *r, size_t bytes); /* NULL after saying why on stderr */
void bench_memory_free(const struct bench_rank *r, void *memory);

/* report.c: rank 0's output. */
struct bench_report {
    FILE *json; /* NULL: none */
    int rows;
    double busbw_sum, wrong;
    long points;
};
bool bench_report_open(struct bench_report *report, const struct bench_rank *r);
void bench_report_row(struct bench_report *report, const struct bench_rank *r,
                      const struct bench_point *p, const struct bench_result *out,
                      const struct bench_result *in);
bool bench_report_close(struct bench_report *report, const struct bench_rank *r);

#endif
