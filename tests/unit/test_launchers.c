/* SPDX-License-Identifier: Apache-2.0 */
/* The table of launchers: what each is recognised by, from its documentation; which comes first where several
 * are there; and what is refused, with the sentence. Then what they are made of: lists of hosts, PMI-1. */
#include "boot/launch.h"

#include "boot/inside.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define NONE (-1)

extern char **environ;

static struct rr_settings settings;
static struct rr_launch launch;
static ringred_error why;

static bool is_a_launchers(const char *variable)
{
    static const char *const starts[] = { "RINGRED_", "OMPI_",     "PMI_",        "PMIX_",  "MPI_LOCAL", "SLURM_",
                                          "SM_",      "AWS_BATCH", "PET_",        "JAX_",   "JOB_",      "TORCHELASTIC_",
                                          "GROUP_",   "MASTER_",   "TRAINING_",   "RANK=",  "LOCAL_",    "WORLD_SIZE=" };

    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (strncmp(variable, starts[i], strlen(starts[i])) == 0)
            return true;
    return false;
}

static void forget_all(void)
{
    char name[256];

    for (char **e = environ; *e;) {
        if (!is_a_launchers(*e)) {
            e++;
            continue;
        }
        snprintf(name, sizeof name, "%.*s", (int)strcspn(*e, "="), *e);
        unsetenv(name);
        e = environ;
    }
}

/* "A=1 B=2": these and no other variable that a launcher knows. */
static void remember(const char *variables)
{
    char copy[1024], *at = copy, *word;

    forget_all();
    snprintf(copy, sizeof copy, "%s", variables);
    while ((word = strsep(&at, " ")) != NULL) {
        char *equals = strchr(word, '=');
        if (!equals)
            continue;
        *equals = 0;
        assert_int_equal(setenv(word, equals + 1, 1), 0);
    }
}

static int find_with(const char *variables)
{
    remember(variables);
    memset(&why, 0, sizeof why);
    int rc = rr_settings_load(&settings, NULL, &why);
    return rc < 0 ? rc : rr_launch_find(NULL, &settings, &launch, &why);
}

#define ROOT " RINGRED_ROOT=h:1"
#define OMPI(rank, size) "OMPI_COMM_WORLD_RANK=" rank " OMPI_COMM_WORLD_SIZE=" size " "
#define STEP(rank, size) \
    "SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_PROCID=" rank " SLURM_STEP_NUM_TASKS=" size " SLURM_NTASKS=" size " "
#define TORCH(rank, size) "RANK=" rank " WORLD_SIZE=" size " "
#define AGENT(rank, size) "TORCHELASTIC_RUN_ID=x GROUP_RANK=" rank " GROUP_WORLD_SIZE=" size " "
#define MASTER "MASTER_ADDR=m MASTER_PORT=29500 "
#define BATCH(node, nodes, main) \
    "AWS_BATCH_JOB_NODE_INDEX=" node " AWS_BATCH_JOB_NUM_NODES=" nodes " AWS_BATCH_JOB_MAIN_NODE_INDEX=" main " "
#define MAIN_IP "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS"

static void test_launchers_are_found_by_their_documented_variables(void **state)
{
    (void)state;
    static const struct {
        const char *variables;
        int rank, size, local_rank, local_size;
        const char *source, *root;
    } rows[] = {
        { OMPI("1", "4") "OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_RANK=1 PMIX_NAMESPACE=n" ROOT, 1, 4, 1,
          2, "Open MPI", "h:1" },
        { "PMI_RANK=0 PMI_SIZE=2 PMI_FD=7 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2" ROOT, 0, 2, 0, 2, "PMI-1", "h:1" },
        { STEP("5", "7") "SLURM_LOCALID=1 SLURM_NODEID=2 SLURM_STEP_TASKS_PER_NODE=2(x3),1 SLURM_STEP_NODELIST=n[08-11] "
                         "SLURM_STEP_NUM_NODES=4 SLURM_JOB_NODELIST=other[1-9]",
          5, 7, 1, 2, "Slurm", "n08:61657+7" },
        { STEP("1", "2") "SLURM_STEP_NODELIST=n3 SLURM_STEP_NUM_NODES=1", 1, 2, NONE, NONE, "Slurm", "127.0.0.1:61657+7" },
        { "SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_NTASKS=9 SLURM_STEP_NODELIST=a,b", 1,
          2, NONE, NONE, "Slurm", "a:61657+7" },
        { "SM_HOSTS=[\"algo-1\",\"algo-2\"] SM_CURRENT_HOST=algo-2", 1, 2, 0, 1, "SageMaker", "algo-1:29400+7" },
        { "SM_HOSTS=[\"algo-1\"] SM_CURRENT_HOST=algo-1", 0, 1, 0, 1, "SageMaker", "" },
        { BATCH("0", "3", "0"), 0, 3, 0, 1, "AWS Batch", "0.0.0.0:29400+7" },
        { BATCH("1", "3", "0") MAIN_IP "=10.0.0.9", 1, 3, 0, 1, "AWS Batch", "10.0.0.9:29400+7" },
        { BATCH("1", "3", "2") MAIN_IP "=10.0.0.9", 2, 3, 0, 1, "AWS Batch", "10.0.0.9:29400+7" },
        { "JAX_PROCESS_ID=1 JAX_NUM_PROCESSES=2 JAX_COORDINATOR_ADDRESS=job-0.svc:6666", 1, 2, 0, 1, "Kubeflow",
          "job-0.svc:6667+7" },
        { "PET_NODE_RANK=1 PET_NNODES=2 PET_NPROC_PER_NODE=1 PET_MASTER_ADDR=job-0 PET_MASTER_PORT=29400", 1, 2, 0, 1,
          "Kubeflow", "job-0:29401+7" },
        { "JOB_COMPLETION_INDEX=2 RINGRED_SIZE=4 RINGRED_ROOT=job-0:29400", 2, 4, NONE, NONE, "Kubernetes", "job-0:29400" },
        { TORCH("1", "2") MASTER, 1, 2, NONE, NONE, "torchrun", "m:29500+8" },
        /* what looks like a launcher, and starts no ranks */
        { "SLURM_JOB_ID=7 SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_LOCALID=0", 0, 1, NONE, NONE, "single", "" },
        { "SLURM_JOB_ID=7 SLURM_STEP_ID=4294967291 SLURM_NTASKS=4 SLURM_PROCID=0", 0, 1, NONE, NONE, "single", "" },
        { "JOB_COMPLETION_INDEX=2", 0, 1, NONE, NONE, "single", "" },
        { "PET_NODE_RANK=1 PET_NNODES=2 PET_NPROC_PER_NODE=4", 0, 1, NONE, NONE, "single", "" },
        { "PET_NODE_RANK=1 PET_NNODES=1:4", 0, 1, NONE, NONE, "single", "" },
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int rc = find_with(rows[i].variables);
        if (rc != 0 || launch.rank != rows[i].rank || launch.size != rows[i].size ||
            launch.local_rank != rows[i].local_rank || launch.local_size != rows[i].local_size ||
            strcmp(launch.source, rows[i].source) != 0 || strcmp(launch.root, rows[i].root) != 0)
            fail_msg("%s: %d %s: rank %d of %d, local %d of %d, %s, %s", rows[i].variables, rc, why.text, launch.rank,
                     launch.size, launch.local_rank, launch.local_size, launch.source, launch.root);
    }
}

static void test_where_several_agree_the_nearest_is_taken(void **state)
{
    (void)state;
    static const struct {
        const char *variables;
        int rank, size;
        const char *source, *root;
    } rows[] = {
        { "RINGRED_RANK=0 RINGRED_SIZE=1 " OMPI("3", "4"), 0, 1, "ringred-run", "" },
        /* an agent of torchrun in each task, whatever number the rendezvous gave it */
        { TORCH("9", "16") AGENT("1", "2") MASTER STEP("1", "2"), 9, 16, "torchrun", "m:29500+8" },
        { TORCH("9", "16") AGENT("1", "2") MASTER STEP("0", "2"), 9, 16, "torchrun", "m:29500+8" },
        { TORCH("9", "16") AGENT("1", "2") MASTER OMPI("1", "2") "PMIX_RANK=1", 9, 16, "torchrun", "m:29500+8" },
        { TORCH("9", "16") AGENT("1", "2") MASTER "SM_HOSTS=[\"a\",\"b\"] SM_CURRENT_HOST=b", 9, 16, "torchrun", "m:29500+8" },
        /* mpirun's daemons are tasks of a step of their own; or mpirun runs in a batch script */
        { OMPI("3", "8") STEP("1", "2") ROOT, 3, 8, "Open MPI", "h:1" },
        { OMPI("3", "8") "SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_NTASKS=8" ROOT, 3, 8, "Open MPI", "h:1" },
        { "PMI_RANK=3 PMI_SIZE=8 " STEP("1", "2") ROOT, 3, 8, "PMI-1", "h:1" },
        { OMPI("1", "4") "SM_HOSTS=[\"a\",\"b\"] SM_CURRENT_HOST=a" ROOT, 1, 4, "Open MPI", "h:1" },
        /* variables that a job's script has made of srun's: rank 0's host is Slurm's to tell */
        { TORCH("1", "2") STEP("1", "2") "SLURM_STEP_NODELIST=n[1-2]", 1, 2, "torchrun", "n1:61657+7" },
        /* each task has started two ranks */
        { TORCH("3", "4") MASTER STEP("1", "2"), 3, 4, "torchrun", "m:29500+8" },
        { TORCH("3", "4") MASTER BATCH("1", "2", "0"), 3, 4, "torchrun", "m:29500+8" },
        /* Kubeflow's PyTorchJob */
        { TORCH("1", "2") MASTER "PET_NODE_RANK=1 PET_NNODES=2", 1, 2, "torchrun", "m:29500+8" },
        /* a half of something else further away does not matter */
        { TORCH("1", "2") MASTER "SM_HOSTS=[]", 1, 2, "torchrun", "m:29500+8" },
        { OMPI("0", "1") "PMI_RANK=0", 0, 1, "Open MPI", "" },
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int rc = find_with(rows[i].variables);
        if (rc != 0 || launch.rank != rows[i].rank || launch.size != rows[i].size ||
            strcmp(launch.source, rows[i].source) != 0 || strcmp(launch.root, rows[i].root) != 0)
            fail_msg("%s: %d %s: rank %d of %d, %s, %s", rows[i].variables, rc, why.text, launch.rank, launch.size,
                     launch.source, launch.root);
    }
}

static void test_what_makes_no_sense_is_refused_in_one_sentence(void **state)
{
    (void)state;
    static const struct {
        const char *variables, *sentence;
    } rows[] = {
        /* halves */
        { "RANK=1", "RANK is set (1), but WORLD_SIZE is not" },
        { "WORLD_SIZE=2", "WORLD_SIZE is set (2), but RANK is not" },
        { "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_RANK is set (1), but OMPI_COMM_WORLD_SIZE is not" },
        { "PMI_SIZE=4", "PMI_SIZE is set (4), but PMI_RANK is not" },
        { "SLURM_STEP_ID=0 SLURM_NTASKS=2", "SLURM_STEP_ID is set, but SLURM_PROCID is not" },
        { "SLURM_STEP_ID=0 SLURM_PROCID=0", "SLURM_STEP_ID is set, but SLURM_STEP_NUM_TASKS and SLURM_NTASKS are not" },
        { "SM_HOSTS=[\"a\"]", "SM_HOSTS is set ([\"a\"]), but SM_CURRENT_HOST is not" },
        { "SM_CURRENT_HOST=a", "SM_CURRENT_HOST is set (a), but SM_HOSTS is not" },
        { "AWS_BATCH_JOB_NODE_INDEX=0", "AWS_BATCH_JOB_NODE_INDEX is set (0), but AWS_BATCH_JOB_NUM_NODES is not" },
        { "JAX_PROCESS_ID=0", "JAX_PROCESS_ID is set (0), but JAX_NUM_PROCESSES is not" },
        { "PET_NNODES=2", "PET_NNODES is set (2), but PET_NODE_RANK is not" },
        /* bad numbers */
        { "RANK=-1 WORLD_SIZE=2", "RANK is \"-1\", which is not a number from 0 to 2147483647" },
        { "RANK= WORLD_SIZE=2", "RANK is \"\", which is not a number from 0" },
        { "RANK=+1 WORLD_SIZE=2", "RANK is \"+1\", which is not a number" },
        { OMPI("1x", "2"), "OMPI_COMM_WORLD_RANK is \"1x\", which is not a number" },
        { OMPI("1", "0"), "OMPI_COMM_WORLD_SIZE is \"0\", which is not a number from 1" },
        { "PMI_RANK=0 PMI_SIZE=99999999999", "PMI_SIZE is \"99999999999\", which is not a number from 1 to 2147483647" },
        { "PMI_RANK=0 PMI_SIZE=2 PMI_FD=-1", "PMI_FD is \"-1\", which is not a number" },
        { STEP("x", "2"), "SLURM_PROCID is \"x\", which is not a number" },
        { TORCH("0", "2") "MASTER_ADDR=h MASTER_PORT=70000", "MASTER_PORT is \"70000\", which is not a number from 1 to 65535" },
        /* impossible places */
        { OMPI("4", "4"), "Open MPI (OMPI_COMM_WORLD_RANK=4, OMPI_COMM_WORLD_SIZE=4) says: rank 4 of 4: ranks go from 0 to 3" },
        { STEP("2", "2"), "says: rank 2 of 2: ranks go from 0 to 1" },
        { OMPI("0", "2") "OMPI_COMM_WORLD_LOCAL_RANK=2 OMPI_COMM_WORLD_LOCAL_SIZE=2",
          "local rank 2 of 2 contradicts rank 0 of 2" },
        { OMPI("0", "2") "OMPI_COMM_WORLD_LOCAL_SIZE=3", "local rank -1 of 3 contradicts rank 0 of 2" },
        { OMPI("0", "2") "PMIX_RANK=1", "OMPI_COMM_WORLD_RANK is 0, but PMIX_RANK is 1: which of them is this process?" },
        { STEP("0", "4") "SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_STEP_TASKS_PER_NODE=2(x3)",
          "SLURM_STEP_TASKS_PER_NODE is \"2(x3)\", which contradicts local task 0 of node 0, or 4 tasks in all" },
        { STEP("0", "4") "SLURM_LOCALID=2 SLURM_NODEID=0 SLURM_STEP_TASKS_PER_NODE=2(x2)",
          "which contradicts local task 2 of node 0" },
        { STEP("0", "4") "SLURM_LOCALID=0 SLURM_NODEID=2 SLURM_STEP_TASKS_PER_NODE=2(x2)", "of node 2, or 4 tasks in all" },
        { STEP("0", "4") "SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_STEP_TASKS_PER_NODE=2(x", "which is no list such as 2(x3),1" },
        { STEP("0", "4") "SLURM_HET_SIZE=2", "SLURM_HET_SIZE is 2: the components of a heterogeneous job" },
        { "SM_HOSTS=[\"a\",\"b\"] SM_CURRENT_HOST=c", "SM_HOSTS has hosts [\"a\",\"b\"], but this one is c" },
        { "SM_HOSTS=a,b SM_CURRENT_HOST=a", "SM_HOSTS has hosts a,b, which is no list such as" },
        { BATCH("3", "3", "0"), "AWS_BATCH_JOB_NODE_INDEX is 3" },
        { BATCH("0", "3", "3"), "AWS_BATCH_JOB_MAIN_NODE_INDEX 3, but AWS_BATCH_JOB_NUM_NODES is 3" },
        { "JOB_COMPLETION_INDEX=4 RINGRED_SIZE=4" ROOT, "Kubernetes (JOB_COMPLETION_INDEX=4, RINGRED_SIZE=4) says: rank 4 of 4" },
        /* contradictions */
        { TORCH("0", "2") MASTER OMPI("3", "4"),
          "torchrun says rank 0 of 2 (RANK=0, WORLD_SIZE=2), but Open MPI says rank 3 of 4 (OMPI_COMM_WORLD_RANK=3, "
          "OMPI_COMM_WORLD_SIZE=4)" },
        { TORCH("0", "4") MASTER OMPI("3", "4"), "torchrun says rank 0 of 4" },
        { TORCH("0", "4") AGENT("0", "1") MASTER OMPI("0", "2"), "but Open MPI says rank 0 of 2" },
        { OMPI("0", "2") "PMI_RANK=1 PMI_SIZE=2", "Open MPI says rank 0 of 2" },
        { TORCH("0", "3") MASTER STEP("1", "2"), "but Slurm says rank 1 of 2 (SLURM_PROCID=1" },
        { TORCH("0", "4") MASTER STEP("1", "2"), "but Slurm says rank 1 of 2" },
        { TORCH("1", "2") MASTER "SM_HOSTS=[\"a\",\"b\"] SM_CURRENT_HOST=a", "but SageMaker says rank 0 of 2" },
        { TORCH("1", "2") MASTER BATCH("0", "2", "0"), "but AWS Batch says rank 0 of 2" },
        { STEP("1", "2") "SM_HOSTS=[\"a\",\"b\"] SM_CURRENT_HOST=a", "Slurm says rank 1 of 2" },
        /* where is rank 0? */
        { TORCH("0", "2") "MASTER_PORT=1", "MASTER_ADDR is not set: where is rank 0?" },
        { OMPI("0", "2"), "set root (RINGRED_ROOT) to host:port; PMIX_RANK and PMIX_NAMESPACE are not both set" },
        { "PMI_RANK=0 PMI_SIZE=2 PMI_PORT=h:1", "PMI_FD is not set: no key-value space (PMI_PORT is not spoken)" },
        { STEP("0", "2"), "SLURM_STEP_NODELIST is not set: where is rank 0?" },
        { STEP("0", "2") "SLURM_STEP_NODELIST=n[1-", "SLURM_STEP_NODELIST is \"n[1-\", which is no list of hosts" },
        { BATCH("1", "2", "0"), MAIN_IP " is not set: where is rank 0?" },
        { "JAX_PROCESS_ID=0 JAX_NUM_PROCESSES=2", "JAX_COORDINATOR_ADDRESS is not set: where is rank 0?" },
        { "JAX_PROCESS_ID=0 JAX_NUM_PROCESSES=2 JAX_COORDINATOR_ADDRESS=h:x", "\"h:x\", which is not host:port" },
        { "PET_NODE_RANK=0 PET_NNODES=2 PET_MASTER_ADDR=h", "PET_MASTER_PORT is not set: where is rank 0?" },
        { "JOB_COMPLETION_INDEX=0 RINGRED_SIZE=2", "set root (RINGRED_ROOT) to host:port" },
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int rc = find_with(rows[i].variables);
        if (rc != RINGRED_ESETTING || !strstr(why.text, rows[i].sentence))
            fail_msg("%s: %d %s, not \"%s\"", rows[i].variables, rc, why.text, rows[i].sentence);
    }
    assert_int_equal(find_with(OMPI("0", "5000") ROOT), RINGRED_ELIMIT);
    print_message("%zu broken or contradictory environments\n", sizeof rows / sizeof *rows);
}

static void test_a_caller_who_gives_rank_and_size_has_decided(void **state)
{
    (void)state;
    ringred_config c = { .struct_size = sizeof c, .rank = 1, .size = 2, .root = "r:1" };

    remember(TORCH("0", "2") OMPI("3", "4"));
    assert_int_equal(rr_settings_load(&settings, NULL, &why), 0);
    assert_int_equal(rr_launch_find(&c, &settings, &launch, &why), 0);
    assert_string_equal(launch.source, "arguments");
    c.root = NULL; /* nobody who agrees says where rank 0 is */
    assert_int_equal(rr_launch_find(&c, &settings, &launch, &why), RINGRED_ESETTING);
    remember(STEP("1", "2") "SLURM_STEP_NODELIST=n[1-2] SLURM_LOCALID=0");
    assert_int_equal(rr_launch_find(&c, &settings, &launch, &why), 0);
    assert_string_equal(launch.root, "n1:61657+7");
    assert_int_equal(launch.local_rank, 0);
}

static void test_jobs_of_slurm_differ_by_job_step_and_restart(void **state)
{
    (void)state;
    static const char *const others[] = {
        "SLURM_JOB_ID=8 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_NODELIST=a",
        "SLURM_JOB_ID=7 SLURM_STEP_ID=1 SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_NODELIST=a",
        STEP("0", "2") "SLURM_STEP_NODELIST=a SLURM_RESTART_COUNT=1",
        STEP("0", "2") "SLURM_STEP_NODELIST=b",
    };
    unsigned char job[RR_JOB_BYTES];

    assert_int_equal(find_with(STEP("1", "2") "SLURM_STEP_NODELIST=a"), 0);
    memcpy(job, launch.job, sizeof job);
    assert_int_equal(find_with(STEP("0", "2") "SLURM_STEP_NODELIST=a"), 0);
    assert_memory_equal(job, launch.job, sizeof job);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_int_equal(find_with(others[i]), 0);
        assert_memory_not_equal(job, launch.job, sizeof job);
    }
}

/* ---- what they are made of ---- */

static void test_lists_of_hosts_are_read_as_slurm_writes_them(void **state)
{
    (void)state;
    static const struct {
        const char *list;
        long nth;
        const char *host; /* NULL: there is none */
    } rows[] = {
        { "a", 0, "a" },
        { "a", 1, NULL },
        { "a,b", 1, "b" },
        { "n[1-3]", 2, "n3" },
        { "n[1-3,7]", 3, "n7" },
        { "n[08-10]", 2, "n10" },
        { "n[08-10]", 0, "n08" },
        { "n[1-2],m[5],x", 2, "m5" },
        { "n[1-2],m[5],x", 3, "x" },
        { "r[0-1]n[1-2]-ib", 0, "r0n1-ib" },
        { "r[0-1]n[1-2]-ib", 3, "r1n2-ib" },
        { "ip-10-0-0-[12,14]", 1, "ip-10-0-0-14" },
        { "", 0, NULL },
        { "n[", 0, NULL },
        { "n[]", 0, NULL },
        { "n[1-]", 0, NULL },
        { "n[3-1]", 0, NULL },
        { "n[1,]", 0, NULL },
        { "n[a]", 0, NULL },
        { "n]1", 0, NULL },
        { "a,,b", 1, NULL },
        { "a b", 0, NULL },
        { "n[1-9999999999]", 0, NULL },
        { "n[0-999999999]", 0, NULL },
        { "n[0-9999][0-9999]", 0, NULL },
    };
    char host[RR_HOST_BYTES], longest[400];

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool is = rr_slurm_host(rows[i].list, rows[i].nth, host);
        if (is != (rows[i].host != NULL) || (is && strcmp(host, rows[i].host) != 0))
            fail_msg("%s, %ld: %s", rows[i].list, rows[i].nth, is ? host : "none");
    }
    memset(longest, 'n', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    assert_false(rr_slurm_host(longest, 0, host));
}

static void test_tasks_of_nodes_are_counted(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int node, here, all;
        bool fine;
    } rows[] = {
        { "2(x3),1", 0, 2, 7, true },   { "2(x3),1", 3, 1, 7, true }, { "2(x3),1", 4, -1, 7, true },
        { "4", 0, 4, 4, true },         { "1,2,3", 2, 3, 6, true },   { "", 0, 0, 0, false },
        { "2(x", 0, 0, 0, false },      { "2(x3", 0, 0, 0, false },   { "2,", 0, 0, 0, false },
        { "(x3)", 0, 0, 0, false },     { "2(3)", 0, 0, 0, false },   { "a", 0, 0, 0, false },
        { "999999999(x999999999)", 0, 0, 0, false },
    };
    int here, all = 0;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool fine = rr_slurm_tasks(rows[i].text, rows[i].node, &here, &all);
        if (fine != rows[i].fine || (fine && (here != rows[i].here || all != rows[i].all)))
            fail_msg("%s, %d: %d %d %d", rows[i].text, rows[i].node, fine, here, all);
    }
}

static void test_sagemakers_file_says_what_its_variables_say(void **state)
{
    (void)state;
    static const char file[] = "{ \"current_host\" : \"algo-2\",\n \"current_instance_type\":\"ml.c5\", \"instance_groups\":"
                               "[{\"hosts\":[\"x\"],\"a\":[1,{\"b\":\"]}\"}]}], \"hosts\": [\"algo-1\", \"algo-2\"] }";
    static const char *const bad[] = { "", "{}", "[]", "{\"hosts\":[\"a\"]}", "{\"current_host\":\"a\",\"hosts\":[]}",
                                       "{\"current_host\":\"a\",\"hosts\":[\"b\"]}", "{\"current_host\":1,\"hosts\":[\"a\"]}",
                                       "{\"current_host\":\"a\",\"hosts\":[\"a\"", "{\"current_host\":\"a\"" };
    struct rr_place p = { .rank = -1 };
    char first[RR_HOST_BYTES];

    assert_int_equal(rr_sagemaker_file(file, sizeof file - 1, &p, first, &why), 1);
    assert_int_equal(p.rank, 1);
    assert_int_equal(p.size, 2);
    assert_string_equal(first, "algo-1");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(rr_sagemaker_file(bad[i], strlen(bad[i]), &p, first, &why), RINGRED_ESETTING);
}

/* ---- PMI-1 ---- */

/* A launcher of n ranks on socket pairs: answers whoever speaks, and holds a barrier until all are in it. */
struct server {
    int n, fd[4], other[4];
    int vallen_max;
    int wrong; /* the command (by its place in the conversation) that gets a wrong answer; 0: none */
    const char *answer;
    char key[8][32], value[8][1200];
    int pairs;
};

static void reply(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

/* false: goodbye. */
static bool serve_line(struct server *s, int fd, const char *line, int *waiting)
{
    char key[32] = "", text[1400], command[32] = "";

    (void)rr_pmi_value(line, "cmd", command, sizeof command);
    (void)rr_pmi_value(line, "key", key, sizeof key);
    if (strcmp(command, "init") == 0)
        reply(fd, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
    if (strcmp(command, "get_maxes") == 0) {
        snprintf(text, sizeof text, "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=%d\n", s->vallen_max);
        reply(fd, text);
    }
    if (strcmp(command, "get_my_kvsname") == 0)
        reply(fd, "cmd=my_kvsname kvsname=kvs_1_0\n");
    if (strcmp(command, "put") == 0) {
        snprintf(s->key[s->pairs], sizeof s->key[0], "%s", key);
        assert_true(rr_pmi_value(line, "value", s->value[s->pairs], sizeof s->value[0]));
        assert_true(strlen(s->value[s->pairs++]) < (size_t)s->vallen_max);
        reply(fd, "cmd=put_result rc=0 msg=success\n");
    }
    if (strcmp(command, "get") == 0) {
        int k = 0;
        while (k < s->pairs && strcmp(s->key[k], key) != 0)
            k++;
        snprintf(text, sizeof text, k < s->pairs ? "cmd=get_result rc=0 msg=success value=%s\n"
                                                 : "cmd=get_result rc=-1 msg=key_%s_not_found\n",
                 k < s->pairs ? s->value[k] : key);
        reply(fd, text);
    }
    *waiting += strcmp(command, "barrier_in") == 0;
    if (strcmp(command, "finalize") == 0)
        reply(fd, "cmd=finalize_ack rc=0\n");
    return strcmp(command, "finalize") != 0;
}

static void *serve(void *context)
{
    struct server *s = context;
    char line[4][2048];
    size_t used[4] = { 0 };
    int open = s->n, waiting = 0, said = 0;
    bool left[4] = { false };

    while (open > 0) {
        struct pollfd p[4];
        for (int i = 0; i < s->n; i++)
            p[i] = (struct pollfd){ .fd = left[i] ? -1 : s->fd[i], .events = POLLIN };
        if (poll(p, (nfds_t)s->n, -1) < 0)
            continue;
        for (int i = 0; i < s->n; i++) {
            if (!p[i].revents)
                continue;
            ssize_t n = recv(s->fd[i], line[i] + used[i], 1, 0);
            if (n <= 0) {
                left[i] = true;
                open--;
                continue;
            }
            if (line[i][used[i]++] != '\n')
                continue;
            line[i][used[i] - 1] = 0;
            used[i] = 0;
            if (++said == s->wrong) {
                if (s->answer)
                    reply(s->fd[i], s->answer);
                else
                    shutdown(s->fd[i], SHUT_RDWR);
                continue;
            }
            if (!serve_line(s, s->fd[i], line[i], &waiting))
                left[i] = (open--, true);
            for (int k = 0; waiting == s->n && k < s->n; k++)
                reply(s->fd[k], "cmd=barrier_out rc=0\n");
            waiting = waiting == s->n ? 0 : waiting;
        }
    }
    return NULL;
}

static void server_start(struct server *s, pthread_t *thread)
{
    for (int i = 0; i < s->n; i++) {
        int pair[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        s->fd[i] = pair[0];
        s->other[i] = pair[1];
    }
    assert_int_equal(pthread_create(thread, NULL, serve, s), 0);
}

static void server_end(struct server *s, pthread_t thread)
{
    for (int i = 0; i < s->n; i++)
        close(s->other[i]);
    assert_int_equal(pthread_join(thread, NULL), 0);
    for (int i = 0; i < s->n; i++)
        close(s->fd[i]);
}

struct talker {
    int fd, rank, rc;
    char text[600];
    ringred_error why;
};

static void *talk(void *context)
{
    struct talker *t = context;

    t->rc = rr_pmi_talk(t->fd, false, t->rank, t->text, sizeof t->text, rr_deadline(30 * RINGRED_SECOND), &t->why);
    return NULL;
}

static void test_a_text_goes_to_all_ranks_through_pmi(void **state)
{
    (void)state;
    static const int limits[] = { 1024, 100 };

    for (int k = 0; k < 2; k++) {
        struct server s = { .n = 3, .vallen_max = limits[k] };
        struct talker t[3] = { { 0 } };
        pthread_t thread, of[3];

        server_start(&s, &thread);
        for (int i = 0; i < 512; i++)
            t[0].text[i] = "0123456789abcdef"[(i * 7) % 16];
        for (int r = 0; r < 3; r++) {
            t[r].fd = s.other[r];
            t[r].rank = r;
            assert_int_equal(pthread_create(&of[r], NULL, talk, &t[r]), 0);
        }
        for (int r = 0; r < 3; r++)
            assert_int_equal(pthread_join(of[r], NULL), 0);
        for (int r = 0; r < 3; r++) {
            if (t[r].rc)
                fail_msg("rank %d: %d %s", r, t[r].rc, t[r].why.text);
            assert_string_equal(t[r].text, t[0].text);
        }
        server_end(&s, thread);
    }
}

static void test_a_launcher_that_answers_wrongly_is_told_of(void **state)
{
    (void)state;
    static const struct {
        int wrong, rank;
        const char *answer;
        int code;
        const char *words;
    } rows[] = {
        { 1, 0, NULL, RINGRED_ESYSTEM, "it has closed it" },
        { 1, 0, "cmd=response_to_init rc=-1 msg=too_old\n", RINGRED_ESYSTEM, "refused \"init\" (PMI-1): too_old" },
        { 2, 0, "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=8\n", RINGRED_EWIRE, "\"8\" bytes" },
        { 2, 0, "cmd=maxes\n", RINGRED_EWIRE, "\"\" bytes" },
        { 2, 0, "hello\n", RINGRED_EWIRE, "with \"hello\"" },
        { 3, 0, "cmd=my_kvsname\n", RINGRED_EWIRE, "has no name" },
        { 4, 0, "cmd=put_result rc=-1 msg=full\n", RINGRED_ESYSTEM, "full" },
        { 5, 1, "cmd=get_result rc=0 value=99999\n", RINGRED_EWIRE, "99999 bytes" },
        { 5, 1, "cmd=get_result rc=-1 msg=key_not_found\n", RINGRED_ESYSTEM, "key_not_found" },
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct server s = { .n = 1, .vallen_max = 1024, .wrong = rows[i].wrong, .answer = rows[i].answer };
        char text[64] = "some text";
        pthread_t thread;

        server_start(&s, &thread);
        int rc = rr_pmi_talk(s.other[0], false, rows[i].rank, text, sizeof text, rr_deadline(30 * RINGRED_SECOND), &why);
        if (rc != rows[i].code || !strstr(why.text, rows[i].words))
            fail_msg("%zu: %d %s", i, rc, why.text);
        server_end(&s, thread);
    }
}

static void test_a_silent_launcher_is_waited_for_in_bounds(void **state)
{
    (void)state;
    char text[64] = "x", flood[5000];
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_int_equal(rr_pmi_talk(pair[0], false, 0, text, sizeof text, rr_deadline(20000000), &why), RINGRED_ETIMEOUT);
    assert_non_null(strstr(why.text, "\"init\""));
    memset(flood, 'x', sizeof flood); /* a line without an end */
    assert_int_equal(send(pair[1], flood, sizeof flood, 0), sizeof flood);
    assert_int_equal(rr_pmi_talk(pair[0], false, 0, text, sizeof text, rr_deadline(30 * RINGRED_SECOND), &why),
                     RINGRED_ESYSTEM);
    close(pair[0]);
    close(pair[1]);
    remember("PMI_RANK=0 PMI_SIZE=2 PMI_FD=0");
    int kept = dup(0), null = open("/dev/null", O_RDONLY);
    dup2(null, 0);
    assert_int_equal(rr_pmi_share(0, text, sizeof text, rr_deadline(0), &why), RINGRED_ESETTING);
    assert_non_null(strstr(why.text, "PMI_FD is 0, which is not a socket"));
    dup2(kept, 0);
    close(kept);
    close(null);
}

/* ---- in words ---- */

static void test_the_description_says_what_was_looked_for(void **state)
{
    (void)state;
    static char text[16384];
    struct rr_text t = { text, sizeof text, 0 };

    remember(OMPI("1", "2") "PMIX_RANK=1 PMIX_NAMESPACE=n " STEP("0", "1"));
    assert_int_equal(rr_settings_load(&settings, NULL, &why), 0);
    rr_launch_describe(&settings, &t); /* speaks to nobody: there is no PMIx server here */
    assert_true(t.used < sizeof text);
    assert_non_null(strstr(text, "\"source\":\"Open MPI\",\"rank\":1,\"size\":2"));
    assert_non_null(strstr(text, "\"root\":\"PMIx key-value space\",\"key\":\"PMIx key-value space\""));
    assert_non_null(strstr(text, "{\"name\":\"torchrun\",\"recognised\":false,\"used\":false,\"variables\":[],\"note\":"
                                 "\"RANK and WORLD_SIZE are not set\"}"));
    assert_non_null(strstr(text, "\"name\":\"Slurm\",\"recognised\":true,\"used\":false"));
    assert_non_null(strstr(text, "\"OMPI_COMM_WORLD_RANK=1\",\"OMPI_COMM_WORLD_SIZE=2\""));
    assert_non_null(strstr(text, "not asked, since Open MPI comes before it"));
    remember("RANK=1");
    assert_int_equal(rr_settings_load(&settings, NULL, &why), 0);
    t.used = 0;
    rr_launch_describe(&settings, &t);
    assert_non_null(strstr(text, "{\"error\":\"RANK is set (1), but WORLD_SIZE is not\",\"launchers\":["));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_launchers_are_found_by_their_documented_variables),
        cmocka_unit_test(test_where_several_agree_the_nearest_is_taken),
        cmocka_unit_test(test_what_makes_no_sense_is_refused_in_one_sentence),
        cmocka_unit_test(test_a_caller_who_gives_rank_and_size_has_decided),
        cmocka_unit_test(test_jobs_of_slurm_differ_by_job_step_and_restart),
        cmocka_unit_test(test_lists_of_hosts_are_read_as_slurm_writes_them),
        cmocka_unit_test(test_tasks_of_nodes_are_counted),
        cmocka_unit_test(test_sagemakers_file_says_what_its_variables_say),
        cmocka_unit_test(test_a_text_goes_to_all_ranks_through_pmi),
        cmocka_unit_test(test_a_launcher_that_answers_wrongly_is_told_of),
        cmocka_unit_test(test_a_silent_launcher_is_waited_for_in_bounds),
        cmocka_unit_test(test_the_description_says_what_was_looked_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
