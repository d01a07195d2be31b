/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of launchers: lines of NAME=VALUE. Either they make no sense, and a sentence says so, or they tell a place that
 * there can be. */
#include "fuzz.h"

/* PMIx would load a library: fuzz_pmix has that. */
#define rr_pmix_look no_pmix
#include "boot/launch.c"
#include "boot/launchers.c"

#define LINES 24

extern char **environ;

int no_pmix(const struct rr_settings *s, struct rr_place *p, ringred_error *why)
{
    (void)s, (void)why;
    snprintf(p->note, sizeof p->note, "not here");
    return 0;
}

static void must(bool claim)
{
    if (!claim)
        abort();
}

static void look(const struct rr_settings *s)
{
    static char described[1 << 16];
    struct rr_text t = { described, sizeof described, 0 };
    struct view *v = rr_alloc(1, sizeof *v);
    struct rr_launch launch;
    ringred_error why = { 0 };

    must(v != NULL);
    look_at_all(s, v);
    int rc = find(NULL, s, -1, v, &launch, &why);
    if (rc < 0)
        must(why.code == rc && why.text[0] && memchr(why.text, 0, sizeof why.text));
    else
        must(launch.rank >= 0 && launch.rank < launch.size && launch.size <= RR_RANKS_MOST &&
             launch.local_rank >= -1 && memchr(launch.root, 0, sizeof launch.root));
    const ringred_config config = { .rank = 1, .size = 4, .root = NULL };
    (void)find(&config, s, -1, v, &launch, &why); /* what a caller says goes first */
    rr_free(v);
    rr_launch_describe(s, &t);
    must(t.used < sizeof described && t.used > 2 && described[0] == '{');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct rr_settings *s = malloc(sizeof *s);
    char *text = malloc(bytes + 1), *line[LINES + 1], **kept = environ, *at = text;
    ringred_error why = { 0 };
    int n = 0;

    must(s && text);
    memcpy(text, data, bytes);
    text[bytes] = 0;
    while (n < LINES && at) {
        line[n++] = at;
        at = strchr(at, '\n');
        if (at)
            *at++ = 0;
    }
    line[n] = NULL;
    environ = line;
    int rc = rr_settings_load(s, NULL, &why);
    if (rc == 0)
        look(s);
    environ = kept;
    free(text);
    free(s);
    return 0;
}

size_t fuzz_seed(int which, uint8_t *to, size_t room)
{
    static const char *const seeds[] = {
        "RINGRED_RANK=1\nRINGRED_SIZE=4\nRINGRED_LOCAL_RANK=1\nRINGRED_LOCAL_SIZE=2\nRINGRED_ROOT=10.0.0.1:29400+3",
        "RANK=3\nWORLD_SIZE=4\nLOCAL_RANK=1\nLOCAL_WORLD_SIZE=2\nMASTER_ADDR=node0\nMASTER_PORT=29500\nTORCHELASTIC_RUN_ID=x\n"
        "GROUP_RANK=1\nGROUP_WORLD_SIZE=2\nTORCHELASTIC_USE_AGENT_STORE=True\nTORCHELASTIC_RESTART_COUNT=1",
        "OMPI_COMM_WORLD_RANK=1\nOMPI_COMM_WORLD_SIZE=2\nPMIX_RANK=1\nPMIX_NAMESPACE=n\nOMPI_COMM_WORLD_LOCAL_RANK=1\n"
        "OMPI_COMM_WORLD_LOCAL_SIZE=2",
        "OMPI_COMM_WORLD_RANK=1\nOMPI_COMM_WORLD_SIZE=2\nMASTER_ADDR=::1\nMASTER_PORT=9\nRANK=1\nWORLD_SIZE=2",
        "PMI_RANK=1\nPMI_SIZE=2\nPMI_FD=9\nMPI_LOCALRANKID=0\nMPI_LOCALNRANKS=1",
        "PMI_RANK=1\nPMI_SIZE=2\nPMI_PORT=h:9",
        "SLURM_STEP_ID=0\nSLURM_PROCID=3\nSLURM_STEP_NUM_TASKS=4\nSLURM_LOCALID=1\nSLURM_NODEID=1\nSLURM_STEP_TASKS_PER_NODE=2(x2)\n"
        "SLURM_STEP_NODELIST=n[1-2]\nSLURM_JOB_ID=77\nSLURM_STEP_NUM_NODES=2",
        "SLURM_STEP_ID=0\nSLURM_PROCID=0\nSLURM_NTASKS=1\nSLURM_HET_SIZE=2",
        "SLURM_STEPID=0\nSLURM_PROCID=0\nSLURM_NTASKS=2\nSLURM_JOBID=7\nSLURM_JOB_NODELIST=a,b\nRANK=0\nWORLD_SIZE=4",
        "SM_HOSTS=[\"algo-1\",\"algo-2\"]\nSM_CURRENT_HOST=algo-2\nTRAINING_JOB_NAME=j",
        "SM_HOSTS=[\"algo-1\"]", "SM_HOSTS=[]\nSM_CURRENT_HOST=x", "SM_HOSTS=[\"a\"]\nSM_CURRENT_HOST=x",
        "AWS_BATCH_JOB_NODE_INDEX=1\nAWS_BATCH_JOB_NUM_NODES=3\nAWS_BATCH_JOB_MAIN_NODE_INDEX=2\n"
        "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS=10.0.0.3\nAWS_BATCH_JOB_ID=abc#1",
        "AWS_BATCH_JOB_NODE_INDEX=0\nAWS_BATCH_JOB_NUM_NODES=3\nAWS_BATCH_JOB_MAIN_NODE_INDEX=0",
        "AWS_BATCH_JOB_NODE_INDEX=5\nAWS_BATCH_JOB_NUM_NODES=3",
        "JAX_PROCESS_ID=1\nJAX_NUM_PROCESSES=2\nJAX_COORDINATOR_ADDRESS=c:1234", "JAX_PROCESS_ID=1\nJAX_NUM_PROCESSES=2",
        "JAX_PROCESS_ID=1\nJAX_NUM_PROCESSES=2\nJAX_COORDINATOR_ADDRESS=c:x",
        "PET_NODE_RANK=1\nPET_NNODES=2\nPET_NPROC_PER_NODE=1\nPET_MASTER_ADDR=m\nPET_MASTER_PORT=23456",
        "PET_NODE_RANK=1\nPET_NNODES=2\nPET_NPROC_PER_NODE=8", "PET_NODE_RANK=1\nPET_NNODES=1:2",
        "PET_NODE_RANK=1\nPET_NNODES=2\nPET_MASTER_ADDR=m",
        "JOB_COMPLETION_INDEX=2\nRINGRED_SIZE=4\nRINGRED_ROOT=r:1", "JOB_COMPLETION_INDEX=2", "RINGRED_SIZE=1\nRINGRED_RANK=-1",
        "RANK=1\nWORLD_SIZE=2\nSLURM_STEP_ID=0\nSLURM_PROCID=0\nSLURM_NTASKS=3\nPMI_RANK=0\nPMI_SIZE=9",
        "RINGRED_ROOT=r:1\nRINGRED_KEY=a key of the job's", "RANK=1", "RANK=7\nWORLD_SIZE=2", "WORLD_SIZE=5000\nRANK=1",
        "RANK=1\nWORLD_SIZE=2\nLOCAL_RANK=4\nLOCAL_WORLD_SIZE=4\nMASTER_ADDR=a",
    };

    if (which >= (int)(sizeof seeds / sizeof *seeds) || room < 1024)
        return 0;
    memcpy(to, seeds[which], strlen(seeds[which]));
    return strlen(seeds[which]);
}
