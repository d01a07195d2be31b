/* SPDX-License-Identifier: Apache-2.0 */
/* The table of launchers, in order of precedence, and the simple ones of them. What stands nearer to the
 * process comes first: our own variables, which override everything; then what starts processes one by one
 * (torchrun, mpirun); then Slurm's steps, whose tasks may be the daemons of an mpirun; then what starts a
 * container or a host, in which any of the others may run. */
#include "boot/launch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* torchrun's store usually holds MASTER_PORT: rank 0 then listens on one of the ports behind it */
#define TORCH_MORE_PORTS 8

/* ---- variables ---- */

bool rr_is_given(const struct rr_settings *s, enum rr_setting which)
{
    return strcmp(s->value[which].origin, "default") != 0;
}

int rr_env_number(const char *name, long least, long most, int *to, ringred_error *why)
{
    const char *text = getenv(name);
    char *end;
    long v;

    if (!text)
        return 0;
    errno = 0;
    v = strtol(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || v < least || v > most)
        return rr_fail(why, RINGRED_ESETTING, -1, 0, "%s is \"%.32s\", which is not a number from %ld to %ld", name,
                       text, least, most);
    *to = (int)v;
    return 1;
}

int rr_env_pair(const char *rank, const char *size, struct rr_place *p, ringred_error *why)
{
    const char *r = getenv(rank), *n = getenv(size);

    if (!r && !n) {
        snprintf(p->note, sizeof p->note, "%s and %s are not set", rank, size);
        return 0;
    }
    if (!r || !n)
        return rr_fail(why, RINGRED_ESETTING, -1, 0, "%s is set (%.32s), but %s is not", r ? rank : size, r ? r : n,
                       r ? size : rank);
    RR_TRY(rr_env_number(rank, 0, INT32_MAX, &p->rank, why));
    return rr_env_number(size, 1, INT32_MAX, &p->size, why);
}

static int local_pair(const char *rank, const char *size, struct rr_place *p, ringred_error *why)
{
    RR_TRY(rr_env_number(rank, 0, INT32_MAX, &p->local_rank, why));
    RR_TRY(rr_env_number(size, 1, INT32_MAX, &p->local_size, why));
    return 1;
}

/* ---- our own variables, or settings of the same names ---- */

/* A given setting must be a number from `least`: -1 is only for "not given". */
static int own_number(const struct rr_settings *s, enum rr_setting which, int least, int *to, ringred_error *why)
{
    if (!rr_is_given(s, which))
        return 0;
    *to = (int)rr_setting(s, which);
    return *to >= least ? 0
                        : rr_fail(why, RINGRED_ESETTING, -1, 0, "the setting %s is %d; it begins at %d",
                                  rr_setting_name(which), *to, least);
}

static int own_look(const struct rr_settings *s, struct rr_place *p, ringred_error *why)
{
    bool rank = rr_is_given(s, RR_SET_RANK), size = rr_is_given(s, RR_SET_SIZE);

    if (!rank && (!size || getenv("JOB_COMPLETION_INDEX"))) {
        snprintf(p->note, sizeof p->note,
                 size ? "RINGRED_SIZE is set, and RINGRED_RANK is not: JOB_COMPLETION_INDEX is there for it"
                      : "RINGRED_RANK and RINGRED_SIZE are not set");
        return 0;
    }
    RR_TRY(own_number(s, RR_SET_RANK, 0, &p->rank, why));
    RR_TRY(own_number(s, RR_SET_SIZE, 1, &p->size, why));
    RR_TRY(own_number(s, RR_SET_LOCAL_RANK, 0, &p->local_rank, why));
    RR_TRY(own_number(s, RR_SET_LOCAL_SIZE, 1, &p->local_size, why));
    return 1;
}

/* ---- torchrun, and whoever sets its variables ---- */

static int torch_look(const struct rr_settings *s, struct rr_place *p, ringred_error *why)
{
    (void)s;
    int rc = rr_env_pair("RANK", "WORLD_SIZE", p, why);

    if (rc <= 0)
        return rc;
    if (getenv("TORCHELASTIC_RUN_ID")) {
        RR_TRY(rr_env_number("GROUP_RANK", 0, INT32_MAX, &p->group_rank, why));
        RR_TRY(rr_env_number("GROUP_WORLD_SIZE", 1, INT32_MAX, &p->group_size, why));
    }
    return local_pair("LOCAL_RANK", "LOCAL_WORLD_SIZE", p, why);
}

static int torch_root(const struct rr_place *p, struct rr_launch *launch, ringred_error *why)
{
    const char *host = getenv("MASTER_ADDR"), *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
    const char *words[] = { host, getenv("MASTER_PORT"), getenv("TORCHELASTIC_RUN_ID"),
                            getenv("TORCHELASTIC_RESTART_COUNT") };
    int port = -1, held = agent && strcmp(agent, "True") == 0;

    (void)p;
    RR_TRY(rr_env_number("MASTER_PORT", 1, 65535, &port, why));
    if (!host || !*host || port < 0)
        return rr_fail(why, RINGRED_ESETTING, -1, 0, "%s is not set: where is rank 0?",
                       port < 0 ? "MASTER_PORT" : "MASTER_ADDR");
    RR_TRY(rr_take_host(launch, host, port + held, TORCH_MORE_PORTS - held, why));
    rr_name_job(launch, "ringred torchrun", words, 4);
    return 0;
}

/* ---- Open MPI ---- */

static int ompi_look(const struct rr_settings *s, struct rr_place *p, ringred_error *why)
{
    int other = -1, rc = rr_env_pair("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", p, why);

    (void)s;
    if (rc <= 0)
        return rc;
    RR_TRY(rr_env_number("PMIX_RANK", 0, INT32_MAX, &other, why));
    if (other >= 0 && other != p->rank)
        return rr_fail(why, RINGRED_ESETTING, p->rank, 0,
                       "OMPI_COMM_WORLD_RANK is %d, but PMIX_RANK is %d: which of them is this process?", p->rank,
                       other);
    if (other >= 0 && getenv("PMIX_NAMESPACE"))
        p->exchange = RR_EXCHANGE_PMIX;
    else
        snprintf(p->note, sizeof p->note, "PMIX_RANK and PMIX_NAMESPACE are not both set: no key-value space");
    return local_pair("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", p, why);
}

/* ---- PMI-1: MPICH, Hydra, Intel MPI, and srun --mpi=pmi2 ---- */

static int pmi_look(const struct rr_settings *s, struct rr_place *p, ringred_error *why)
{
    int fd = -1, rc = rr_env_pair("PMI_RANK", "PMI_SIZE", p, why);

    (void)s;
    if (rc <= 0)
        return rc;
    RR_TRY(rr_env_number("PMI_FD", 0, INT32_MAX, &fd, why));
    if (fd >= 0)
        p->exchange = RR_EXCHANGE_PMI;
    else
        snprintf(p->note, sizeof p->note, "PMI_FD is not set: no key-value space%s",
                 getenv("PMI_PORT") ? " (PMI_PORT is not spoken)" : "");
    return local_pair("MPI_LOCALRANKID", "MPI_LOCALNRANKS", p, why);
}

/* ---- the table ---- */

#define VARIABLES(...) (const char *const[]){ __VA_ARGS__, NULL }

const struct rr_launcher rr_launchers[RR_LAUNCHERS] = {
    { "ringred-run", VARIABLES("RINGRED_RANK", "RINGRED_SIZE"), false, true, own_look, NULL },
    { "torchrun", VARIABLES("RANK", "WORLD_SIZE"), false, false, torch_look, torch_root },
    { "Open MPI", VARIABLES("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), false, true, ompi_look, NULL },
    { "PMI-1", VARIABLES("PMI_RANK", "PMI_SIZE"), false, true, pmi_look, NULL },
    { "PMIx", VARIABLES("PMIX_RANK", "PMIX_NAMESPACE"), false, true, rr_pmix_look, NULL },
    { "Slurm", VARIABLES("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), false, false, rr_slurm_look,
      rr_slurm_root },
    { "SageMaker", VARIABLES("SM_CURRENT_HOST", "SM_HOSTS"), true, false, rr_sagemaker_look,
      rr_sagemaker_root },
    { "AWS Batch", VARIABLES("AWS_BATCH_JOB_NODE_INDEX", "AWS_BATCH_JOB_NUM_NODES", "AWS_BATCH_JOB_MAIN_NODE_INDEX"),
      true, false, rr_batch_look, rr_batch_root },
    { "Kubeflow", VARIABLES("JAX_PROCESS_ID", "JAX_NUM_PROCESSES", "PET_NODE_RANK", "PET_NNODES"), true, false,
      rr_kubeflow_look, rr_kubeflow_root },
    { "Kubernetes", VARIABLES("JOB_COMPLETION_INDEX", "RINGRED_SIZE"), true, false, rr_index_look, NULL },
};
