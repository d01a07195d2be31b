/* SPDX-License-Identifier: Apache-2.0 */
/* Machines that others run: SageMaker, AWS Batch, Kubeflow, indexed jobs of Kubernetes. Each starts one process of
 * a container and says which of how many containers it is in; that process is a rank unless it starts others. */
#include "boot/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SAGEMAKER_FILE "/opt/ml/input/config/resourceconfig.json"
#define NAMES_MOST     65536

/* ---- as much of JSON as they use ---- */

static const char *skip_blanks(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r'))
        at++;
    return at;
}

/* Past the string that begins at `at`, whose text goes to *from and *length. NULL: it is none. An escape in it is
 * left as it is: names of hosts and members have none. */
static const char *read_string(const char *at, const char *end, const char **from, size_t *length)
{
    if (at >= end || *at != '"')
        return NULL;
    *from = ++at;
    while (at < end && *at != '"')
        at += *at == '\\' && end - at > 1 ? 2 : 1;
    if (at >= end)
        return NULL;
    *length = (size_t)(at - *from);
    return at + 1;
}

/* Past any value. NULL: it does not end. */
static const char *skip_value(const char *at, const char *end)
{
    const char *from;
    size_t length;
    int depth = 0;

    do {
        at = skip_blanks(at, end);
        if (at >= end)
            return NULL;
        if (*at == '"') {
            at = read_string(at, end, &from, &length);
            if (!at)
                return NULL;
            continue;
        }
        depth += *at == '[' || *at == '{' ? 1 : *at == ']' || *at == '}' ? -1 : 0;
        if (depth == 0 && *at != ']' && *at != '}') {
            while (at < end && *at != ',' && *at != ']' && *at != '}')
                at++;
            return at;
        }
        at++;
    } while (depth > 0);
    return at;
}

const char *rr_json_member(const char *text, size_t length, const char *name, size_t *bytes)
{
    const char *end = text + length, *at = skip_blanks(text, end), *key, *after;
    size_t n;

    if (at >= end || *at != '{')
        return NULL;
    for (at = skip_blanks(at + 1, end); at < end && *at == '"'; at = skip_blanks(at, end)) {
        at = read_string(at, end, &key, &n);
        at = at ? skip_blanks(at, end) : end;
        if (at >= end || *at != ':')
            return NULL;
        at = skip_blanks(at + 1, end);
        after = at < end ? skip_value(at, end) : NULL;
        if (!after)
            return NULL;
        if (n == strlen(name) && memcmp(key, name, n) == 0) {
            *bytes = (size_t)(after - at);
            return at;
        }
        at = skip_blanks(after, end);
        if (at < end && *at == ',')
            at = skip_blanks(at + 1, end);
    }
    return NULL;
}

int rr_json_names(const char *text, size_t bytes, const char *wanted, int *where, char first[RR_HOST_BYTES])
{
    const char *end = text + bytes, *at = skip_blanks(text, end), *name;
    size_t n;
    int count = 0;

    *where = -1;
    if (at >= end || *at != '[')
        return -1;
    for (at = skip_blanks(at + 1, end); at < end && *at == '"' && count < NAMES_MOST; count++) {
        at = read_string(at, end, &name, &n);
        if (!at || n == 0 || n >= RR_HOST_BYTES)
            return -1;
        if (count == 0)
            snprintf(first, RR_HOST_BYTES, "%.*s", (int)n, name);
        if (*where < 0 && n == strlen(wanted) && memcmp(name, wanted, n) == 0)
            *where = count;
        at = skip_blanks(at, end);
        if (at < end && *at == ',')
            at = skip_blanks(at + 1, end);
        else
            return count + 1 < NAMES_MOST && at < end && *at == ']' ? count + 1 : -1;
    }
    return -1;
}

/* ---- SageMaker ---- */

/* A place from a list of hosts and the name of this one; `from` says where they come from. */
static int sagemaker_place(const char *hosts, size_t bytes, const char *current, const char *from, struct rr_place *p,
                           char first[RR_HOST_BYTES], ringred_error *why)
{
    p->size = rr_json_names(hosts, bytes, current, &p->rank, first);
    if (p->size < 1)
        return rr_fail(why, RINGRED_ESETTING, -1, 0,
                       "%s has hosts %.*s, which is no list such as [\"algo-1\",\"algo-2\"]",
                       from, (int)(bytes < 120 ? bytes : 120), hosts);
    if (p->rank < 0)
        return rr_fail(why, RINGRED_ESETTING, -1, 0,
                       "%s has hosts %.*s, but this one is %.64s, which is not among them",
                       from, (int)(bytes < 120 ? bytes : 120), hosts, current);
    p->local_rank = 0;
    p->local_size = 1;
    return 1;
}

int rr_sagemaker_file(const char *text, size_t length, struct rr_place *p, char first[RR_HOST_BYTES],
                      ringred_error *why)
{
    size_t named = 0, bytes = 0;
    const char *current = rr_json_member(text, length, "current_host", &named);
    const char *hosts = rr_json_member(text, length, "hosts", &bytes);
    char name[RR_HOST_BYTES];

    if (!current || !hosts || named < 3 || named - 2 >= sizeof name || *current != '"')
        return rr_fail(why, RINGRED_ESETTING, -1, 0, "%s has no current_host or no hosts", SAGEMAKER_FILE);
    snprintf(name, sizeof name, "%.*s", (int)(named - 2), current + 1);
    return sagemaker_place(hosts, bytes, name, SAGEMAKER_FILE, p, first, why);
}

/* From the file that every training container has; 0: there is none. */
static int sagemaker_by_file(struct rr_place *p, char first[RR_HOST_BYTES], ringred_error *why)
{
    int fd = open(SAGEMAKER_FILE, O_RDONLY | O_CLOEXEC), rc;
    size_t used = 0, room = 65536;
    char *text = fd >= 0 ? rr_alloc(room, 1) : NULL;
    ssize_t n = 1;

    if (fd < 0) {
        snprintf(p->note, sizeof p->note, "SM_HOSTS is not set, and there is no " SAGEMAKER_FILE);
        return 0;
    }
    while (text && used < room && (n = read(fd, text + used, room - used)) != 0 && (n > 0 || errno == EINTR))
        used += n > 0 ? (size_t)n : 0;
    if (text && n == 0)
        rc = rr_sagemaker_file(text, used, p, first, why);
    else
        rc = rr_fail(why, RINGRED_ESETTING, -1, n < 0 ? errno : 0, "cannot read all of %s", SAGEMAKER_FILE);
    rr_free(text);
    close(fd);
    return rc;
}

static int sagemaker_look(struct rr_place *p, char first[RR_HOST_BYTES], ringred_error *why)
{
    const char *hosts = getenv("SM_HOSTS"), *current = getenv("SM_CURRENT_HOST");

    if (!hosts && !current)
        return sagemaker_by_file(p, first, why);
    if (!hosts || !current)
        return rr_fail(why, RINGRED_ESETTING, -1, 0, "%s is set (%.64s), but %s is not",
                       hosts ? "SM_HOSTS" : "SM_CURRENT_HOST", hosts ? hosts : current,
                       hosts ? "SM_CURRENT_HOST" : "SM_HOSTS");
    return sagemaker_place(hosts, strlen(hosts), current, "SM_HOSTS", p, first, why);
}

int rr_sagemaker_look(const struct rr_settings *s, struct rr_place *p, ringred_error *why)
{
    char first[RR_HOST_BYTES];

    (void)s;
    return sagemaker_look(p, first, why);
}

int rr_sagemaker_root(const struct rr_place *p, struct rr_launch *launch, ringred_error *why)
{
    struct rr_place again = *p;
    char first[RR_HOST_BYTES];
    const char *words[] = { first, getenv("TRAINING_JOB_NAME") };

    RR_TRY(sagemaker_look(&again, first, why));
    RR_TRY(rr_take_host(launch, first, RR_ROOT_PORT, RR_ROOT_MORE, why));
    rr_name_job(launch, "ringred SageMaker", words, 2);
    return 0;
}

/* ---- AWS Batch, multi-node jobs ---- */

#define BATCH_ADDRESS "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS"

/* The main node, whose address the others are told, becomes rank 0; the others follow it in order. */
int rr_batch_look(const struct rr_settings *s, struct rr_place *p, ringred_error *why)
{
    int node = -1, main_node = 0;
    int rc = rr_env_pair("AWS_BATCH_JOB_NODE_INDEX", "AWS_BATCH_JOB_NUM_NODES", p, why);

    (void)s;
    if (rc <= 0)
        return rc;
    node = p->rank;
    RR_TRY(rr_env_number("AWS_BATCH_JOB_MAIN_NODE_INDEX", 0, INT32_MAX, &main_node, why));
    if (node >= p->size || main_node >= p->size)
        return rr_fail(why, RINGRED_ESETTING, -1, 0,
                       "AWS_BATCH_JOB_NODE_INDEX is %d and AWS_BATCH_JOB_MAIN_NODE_INDEX %d, but "
                       "AWS_BATCH_JOB_NUM_NODES is %d: nodes go from 0 to %d",
                       node, main_node, p->size, p->size - 1);
    p->rank = node >= main_node ? node - main_node : p->size - (main_node - node);
    p->local_rank = 0;
    p->local_size = 1;
    if (main_node)
        snprintf(p->note, sizeof p->note, "node %d is the main node, and so rank 0", main_node);
    return 1;
}

int rr_batch_root(const struct rr_place *p, struct rr_launch *launch, ringred_error *why)
{
    const char *address = getenv(BATCH_ADDRESS), *words[] = { getenv("AWS_BATCH_JOB_ID") };
    char id[128] = "";

    if (p->rank == 0)
        address = "0.0.0.0"; /* the main node is not told its own */
    if (!address || !*address)
        return rr_fail(why, RINGRED_ESETTING, p->rank, 0, BATCH_ADDRESS " is not set: where is rank 0?");
    RR_TRY(rr_take_host(launch, address, RR_ROOT_PORT, RR_ROOT_MORE, why));
    if (words[0]) { /* nodes have the job's id with #1, #2, ... behind it */
        snprintf(id, sizeof id, "%.*s", (int)strcspn(words[0], "#"), words[0]);
        words[0] = id;
    }
    rr_name_job(launch, "ringred AWS Batch", words, 1);
    return 0;
}

/* ---- Kubeflow: its JAX jobs, and its torch jobs where torchrun is not what runs ---- */

static int pet_look(struct rr_place *p, ringred_error *why)
{
    const char *processes = getenv("PET_NPROC_PER_NODE"), *nodes = getenv("PET_NNODES");
    int rc;

    if (nodes && processes && strcmp(processes, "1") != 0) {
        snprintf(p->note, sizeof p->note, "PET_NPROC_PER_NODE is \"%.16s\": torchrun is to start the ranks", processes);
        return 0;
    }
    if (nodes && strchr(nodes, ':')) {
        snprintf(p->note, sizeof p->note, "PET_NNODES is \"%.16s\": torchrun is to settle how many there are", nodes);
        return 0;
    }
    rc = rr_env_pair("PET_NODE_RANK", "PET_NNODES", p, why);
    if (rc == 0)
        snprintf(p->note, sizeof p->note,
                 "JAX_PROCESS_ID, JAX_NUM_PROCESSES, PET_NODE_RANK and PET_NNODES are not set");
    return rc;
}

int rr_kubeflow_look(const struct rr_settings *s, struct rr_place *p, ringred_error *why)
{
    int rc = rr_env_pair("JAX_PROCESS_ID", "JAX_NUM_PROCESSES", p, why);

    (void)s;
    if (rc == 0)
        rc = pet_look(p, why);
    if (rc > 0 && p->size > 0) {
        p->local_rank = 0;
        p->local_size = 1;
    }
    return rc;
}

/* The port that is named is JAX's own, or torch's: rank 0 takes one of those behind it. */
static int jax_root(struct rr_launch *launch, ringred_error *why)
{
    const char *text = getenv("JAX_COORDINATOR_ADDRESS"), *colon = text ? strrchr(text, ':') : NULL;
    const char *words[] = { text };
    char host[RR_HOST_BYTES];
    int port = RR_ROOT_PORT - 1;

    if (!text || !*text)
        return rr_fail(why, RINGRED_ESETTING, -1, 0, "JAX_COORDINATOR_ADDRESS is not set: where is rank 0?");
    if (colon) {
        char *end;
        long v = strtol(colon + 1, &end, 10);
        if (end == colon + 1 || *end || v < 1 || v > 65535)
            return rr_fail(why, RINGRED_ESETTING, -1, 0,
                           "JAX_COORDINATOR_ADDRESS is \"%.200s\", which is not host:port", text);
        port = (int)v;
    }
    snprintf(host, sizeof host, "%.*s", (int)(colon ? colon - text : (long)strlen(text)), text);
    RR_TRY(rr_take_host(launch, host, port + 1, RR_ROOT_MORE, why));
    rr_name_job(launch, "ringred JAX", words, 1);
    return 0;
}

int rr_kubeflow_root(const struct rr_place *p, struct rr_launch *launch, ringred_error *why)
{
    const char *host = getenv("PET_MASTER_ADDR"), *words[] = { host, getenv("PET_MASTER_PORT") };
    int port = -1;

    (void)p;
    if (getenv("JAX_PROCESS_ID"))
        return jax_root(launch, why);
    RR_TRY(rr_env_number("PET_MASTER_PORT", 1, 65535, &port, why));
    if (!host || !*host || port < 0)
        return rr_fail(why, RINGRED_ESETTING, -1, 0, "%s is not set: where is rank 0?",
                       port < 0 ? "PET_MASTER_PORT" : "PET_MASTER_ADDR");
    RR_TRY(rr_take_host(launch, host, port + 1, RR_ROOT_MORE, why));
    rr_name_job(launch, "ringred Kubeflow", words, 2);
    return 0;
}

/* ---- indexed jobs of Kubernetes: they tell the rank, and nothing else ---- */

int rr_index_look(const struct rr_settings *s, struct rr_place *p, ringred_error *why)
{
    int rc = rr_env_number("JOB_COMPLETION_INDEX", 0, INT32_MAX, &p->rank, why);

    if (rc < 0)
        return rc;
    if (rc == 0 || !rr_is_given(s, RR_SET_SIZE)) {
        snprintf(p->note, sizeof p->note,
                 rc ? "JOB_COMPLETION_INDEX is set, but nothing tells how many there are: set RINGRED_SIZE to the "
                      "Job's completions, and RINGRED_ROOT"
                    : "JOB_COMPLETION_INDEX is not set");
        p->rank = -1;
        return 0;
    }
    p->size = (int)rr_setting(s, RR_SET_SIZE);
    return p->size >= 1 ? 1 : rr_fail(why, RINGRED_ESETTING, -1, 0, "the setting size is %d; it begins at 1", p->size);
}
