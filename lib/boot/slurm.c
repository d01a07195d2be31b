/* SPDX-License-Identifier: Apache-2.0 */
/* Slurm: a task of a step that srun has started. The variables of the job serve only where the step has none
 * of its own; a batch script without srun is one process, whatever its job was promised. */
#include "boot/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEP_LEAST_SPECIAL 0xfffffff0L /* the batch script, interactive shells and the like have such numbers */
#define HOSTS_MOST         1000000L

/* ---- lists of hosts: a[1-3,07]b[0-1],c ---- */

/* Decimal digits at *at; false where there are none, or more than nine. */
static bool digits(const char **at, const char *end, long *number, int *width)
{
    *number = 0;
    for (*width = 0; *at < end && **at >= '0' && **at <= '9'; (*at)++, (*width)++)
        *number = *width < 9 ? *number * 10 + (**at - '0') : 0;
    return *width > 0 && *width <= 9;
}

/* One range "3", "01-17" of a bracket; moves past it and the comma behind it. */
static bool next_range(const char **at, const char *end, long *low, long *high, int *width)
{
    int other;

    if (!digits(at, end, low, width))
        return false;
    *high = *low;
    if (*at < end && **at == '-') {
        (*at)++;
        if (!digits(at, end, high, &other) || *high < *low)
            return false;
    }
    if (*at < end && **at != ',')
        return false;
    if (*at < end)
        return ++*at < end; /* something follows a comma */
    return true;
}

/* How many numbers a bracket's inside stands for, at most HOSTS_MOST; 0: it is none. */
static long bracket_count(const char *at, const char *end)
{
    long count = 0, low, high;
    int width;

    while (at < end) {
        if (!next_range(&at, end, &low, &high, &width))
            return 0;
        count += high - low + 1;
        if (count > HOSTS_MOST)
            return 0;
    }
    return count;
}

/* The nth number of a bracket as it is written in a name. */
static void bracket_text(const char *at, const char *end, long nth, struct rr_text *t)
{
    long low, high;
    int width;

    while (at < end && next_range(&at, end, &low, &high, &width)) {
        if (nth <= high - low) {
            rr_text_add(t, "%0*ld", width, low + nth);
            return;
        }
        nth -= high - low + 1;
    }
}

/* The inside of the bracket that begins at `at`; NULL: it does not end. */
static const char *bracket_end(const char *at, const char *end)
{
    return memchr(at, ']', (size_t)(end - at));
}

/* How many hosts an item stands for; 0: it makes no sense. */
static long item_count(const char *at, const char *end)
{
    long count = at < end;

    while (at < end) {
        const char *close = *at == '[' ? bracket_end(at, end) : at;
        if (!close || *at == ']' || (unsigned char)*at <= ' ')
            return 0;
        if (*at == '[')
            count *= bracket_count(at + 1, close);
        if (count <= 0 || count > HOSTS_MOST)
            return 0;
        at = close + 1;
    }
    return count;
}

static bool item_text(const char *at, const char *end, long nth, long count, char host[RR_HOST_BYTES])
{
    struct rr_text t = { host, RR_HOST_BYTES, 0 };

    for (; at < end; at++) {
        if (*at != '[') {
            rr_text_add(&t, "%c", *at);
            continue;
        }
        const char *close = bracket_end(at, end);
        count /= bracket_count(at + 1, close); /* not 0: item_count has seen it */
        bracket_text(at + 1, close, nth / count, &t);
        nth %= count;
        at = close;
    }
    return t.used < RR_HOST_BYTES;
}

/* Where the item at `at` ends: at a comma outside brackets, or at the end. */
static const char *item_end(const char *at)
{
    bool inside = false;

    for (; *at && (inside || *at != ','); at++)
        inside = *at == '[' || (inside && *at != ']');
    return at;
}

bool rr_slurm_host(const char *list, long nth, char host[RR_HOST_BYTES])
{
    for (const char *at = list; nth >= 0;) {
        const char *end = item_end(at);
        long count = item_count(at, end);
        if (count == 0)
            return false;
        if (nth < count)
            return item_text(at, end, nth, count, host);
        nth -= count;
        if (!*end)
            return false;
        at = end + 1;
    }
    return false;
}

/* ---- tasks of nodes: 2(x3),1 ---- */

bool rr_slurm_tasks(const char *text, int node, int *here, int *all)
{
    const char *at = text, *end = text + strlen(text);
    long tasks, times, nodes = 0, sum = 0;
    int width;

    *here = -1;
    while (at < end) {
        times = 1;
        if (!digits(&at, end, &tasks, &width))
            return false;
        if (end - at > 2 && at[0] == '(' && at[1] == 'x') {
            at += 2;
            if (!digits(&at, end, &times, &width) || at == end || *at++ != ')')
                return false;
        }
        if (node >= nodes && node < nodes + times)
            *here = (int)tasks;
        nodes += times;
        sum += tasks * times; /* below 10^18: nothing can overflow */
        if (nodes > HOSTS_MOST || sum > INT32_MAX || (at < end && (*at++ != ',' || at == end)))
            return false;
    }
    *all = (int)sum;
    return nodes > 0;
}

/* ---- the process ---- */

static const char *first_of(const char *a, const char *b, const char **name)
{
    *name = getenv(a) ? a : b;
    return getenv(*name);
}

/* Whether this is a task of a step that srun has started; the note says why not. */
static bool is_task(struct rr_place *p)
{
    const char *name, *step = first_of("SLURM_STEP_ID", "SLURM_STEPID", &name);

    if (!step && (getenv("SLURM_JOB_ID") || getenv("SLURM_JOBID")))
        snprintf(p->note, sizeof p->note,
                 "this is a job's script or shell, not a task of a step (SLURM_STEP_ID is not set): start ranks with "
                 "srun or mpirun");
    else if (!step)
        snprintf(p->note, sizeof p->note, "SLURM_STEP_ID is not set");
    else if (strtol(step, NULL, 10) >= STEP_LEAST_SPECIAL)
        snprintf(p->note, sizeof p->note, "step %.16s is a job's script or shell: start ranks with srun or mpirun",
                 step);
    else
        return true;
    return false;
}

/* Tasks of this node, if the step says so, and whether that can be true. */
static int local_tasks(struct rr_place *p, ringred_error *why)
{
    const char *list = getenv("SLURM_STEP_TASKS_PER_NODE");
    int node = -1, all = 0;

    RR_TRY(rr_env_number("SLURM_LOCALID", 0, INT32_MAX, &p->local_rank, why));
    RR_TRY(rr_env_number("SLURM_NODEID", 0, INT32_MAX, &node, why));
    if (!list || node < 0)
        return 1;
    if (!rr_slurm_tasks(list, node, &p->local_size, &all))
        return rr_fail(why, RINGRED_ESETTING, p->rank, 0,
                       "SLURM_STEP_TASKS_PER_NODE is \"%.100s\", which is no list such as 2(x3),1", list);
    if (all != p->size || p->local_size < 1 || p->local_rank >= p->local_size)
        return rr_fail(why, RINGRED_ESETTING, p->rank, 0,
                       "SLURM_STEP_TASKS_PER_NODE is \"%.100s\", which contradicts local task %d of node %d, or %d "
                       "tasks in all",
                       list, p->local_rank, node, p->size);
    return 1;
}

int rr_slurm_look(const struct rr_settings *s, struct rr_place *p, ringred_error *why)
{
    const char *name, *tasks = first_of("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", &name);
    int components = 1;

    (void)s;
    if (!is_task(p))
        return 0;
    RR_TRY(rr_env_number("SLURM_HET_SIZE", 0, INT32_MAX, &components, why));
    if (components > 1)
        return rr_fail(why, RINGRED_ESETTING, -1, 0,
                       "SLURM_HET_SIZE is %d: the components of a heterogeneous job count their tasks each for "
                       "itself; set RINGRED_RANK, RINGRED_SIZE and RINGRED_ROOT, or use mpirun",
                       components);
    if (!getenv("SLURM_PROCID") || !tasks)
        return rr_fail(why, RINGRED_ESETTING, -1, 0, "SLURM_STEP_ID is set, but %s not",
                       tasks ? "SLURM_PROCID is" : "SLURM_STEP_NUM_TASKS and SLURM_NTASKS are");
    RR_TRY(rr_env_number("SLURM_PROCID", 0, INT32_MAX, &p->rank, why));
    RR_TRY(rr_env_number(name, 1, INT32_MAX, &p->size, why));
    return local_tasks(p, why);
}

/* Two jobs, or two steps of a job, that share a node get ports of their own where they can. */
static int step_port(void)
{
    const char *name, *job = first_of("SLURM_JOB_ID", "SLURM_JOBID", &name);
    const char *step = first_of("SLURM_STEP_ID", "SLURM_STEPID", &name);
    unsigned long mixed = (job ? strtoul(job, NULL, 10) : 0) * 31 + (step ? strtoul(step, NULL, 10) : 0);

    return 61440 + (int)(mixed % 4088); /* above the ports that systems give out, and 7 below the last */
}

int rr_slurm_root(const struct rr_place *p, struct rr_launch *launch, ringred_error *why)
{
    const char *name, *list = first_of("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", &name);
    const char *words[] = { getenv("SLURM_JOB_ID"), getenv("SLURM_STEP_ID"), getenv("SLURM_RESTART_COUNT"), list };
    char host[RR_HOST_BYTES];
    int nodes = -1;

    RR_TRY(rr_env_number("SLURM_STEP_NUM_NODES", 1, INT32_MAX, &nodes, why));
    if (!list)
        return rr_fail(why, RINGRED_ESETTING, p->rank, 0, "SLURM_STEP_NODELIST is not set: where is rank 0?");
    if (!rr_slurm_host(list, 0, host))
        return rr_fail(why, RINGRED_ESETTING, p->rank, 0,
                       "%s is \"%.200s\", which is no list of hosts such as a[1-3],b", name, list);
    /* tasks of one node need no name that can be looked up */
    RR_TRY(rr_take_host(launch, nodes == 1 ? "127.0.0.1" : host, step_port(), RR_ROOT_MORE, why));
    rr_name_job(launch, "ringred Slurm", words, 4);
    return 0;
}
