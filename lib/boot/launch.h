/* SPDX-License-Identifier: Apache-2.0 */
/* What the files that find a process's place in its job share: the table of launchers, what each says, and
 * the ways in which ranks hand on a unique id. Bytes of variables, files and servers come from outside:
 * every parser of them here is bounded by the length that it is given. */
#ifndef RR_BOOT_LAUNCH_H
#define RR_BOOT_LAUNCH_H

#include "boot/boot.h"

/* Where rank 0 listens if a launcher tells its host alone; and how many ports behind one will do. */
#define RR_ROOT_PORT  29400
#define RR_ROOT_MORE  7
#define RR_HOST_BYTES 256

/* A key-value space that the ranks of a launcher share. */
enum rr_exchange { RR_EXCHANGE_NONE, RR_EXCHANGE_PMI, RR_EXCHANGE_PMIX };

/* What one launcher says of this process. */
struct rr_place {
    int rank, size, local_rank, local_size; /* -1: not said */
    int group_rank, group_size; /* of the agent that started this process among the agents; -1: none */
    enum rr_exchange exchange;
    char note[200]; /* why it was not recognised, or what else there is to know */
};

struct rr_launcher {
    const char *name;
    const char *const *variables; /* that say rank and size, for sentences; ended by NULL */
    bool per_node;                /* it starts one process of a host or a container, which may start others */
    bool nests; /* its processes may descend from tasks of Slurm or from a container that count otherwise */
    /* 1: recognised, 0: not, and note says why; ESETTING: its variables make no sense */
    int (*look)(const struct rr_settings *settings, struct rr_place *p, ringred_error *why);
    /* Where rank 0 is, into launch; NULL: nothing says so. Not asked where a key-value space serves. */
    int (*root)(const struct rr_place *p, struct rr_launch *launch, ringred_error *why);
};

/* In order of precedence; launchers.c says why. */
#define RR_LAUNCHERS 10
extern const struct rr_launcher rr_launchers[RR_LAUNCHERS];

/* ---- variables ---- */
bool rr_is_given(const struct rr_settings *s, enum rr_setting which);
/* 0 if it is not set, 1 if it is, into *to; ESETTING where it is no number from least to most. */
int rr_env_number(const char *name, long least, long most, int *to, ringred_error *why);
/* Rank and size: 1 if both are there; 0 if neither is, with a note; half of them is refused. */
int rr_env_pair(const char *rank, const char *size, struct rr_place *p, ringred_error *why);

/* ---- what names rank 0 and the job (launch.c) ---- */
int rr_take_root(struct rr_launch *launch, const char *text, ringred_error *why);
/* host:port and `more` ports behind it; then the job's name from a label and words, some of which may be NULL. */
int rr_take_host(struct rr_launch *launch, const char *host, int port, int more, ringred_error *why);
void rr_name_job(struct rr_launch *launch, const char *label, const char *const *words, int count);

/* ---- Slurm (slurm.c) ---- */
int rr_slurm_look(const struct rr_settings *s, struct rr_place *p, ringred_error *why);
int rr_slurm_root(const struct rr_place *p, struct rr_launch *launch, ringred_error *why);
/* The nth host of a list such as "a[1-3,07],b"; false: there is none, or it is no such list. */
bool rr_slurm_host(const char *list, long nth, char host[RR_HOST_BYTES]);
/* Of "2(x3),1": how many tasks node `node` has (-1: no such node), and all together. False: no such list. */
bool rr_slurm_tasks(const char *text, int node, int *here, int *all);

/* ---- machines that others run (cloud.c) ---- */
int rr_sagemaker_look(const struct rr_settings *s, struct rr_place *p, ringred_error *why);
int rr_sagemaker_root(const struct rr_place *p, struct rr_launch *launch, ringred_error *why);
int rr_batch_look(const struct rr_settings *s, struct rr_place *p, ringred_error *why);
int rr_batch_root(const struct rr_place *p, struct rr_launch *launch, ringred_error *why);
int rr_kubeflow_look(const struct rr_settings *s, struct rr_place *p, ringred_error *why);
int rr_kubeflow_root(const struct rr_place *p, struct rr_launch *launch, ringred_error *why);
int rr_index_look(const struct rr_settings *s, struct rr_place *p, ringred_error *why);
/* Of a JSON list of strings: how many there are, where `wanted` is among them (-1: nowhere), and the first.
 * -1: it is no such list. */
int rr_json_names(const char *text, size_t bytes, const char *wanted, int *at, char first[RR_HOST_BYTES]);
/* The value of a member of a JSON object, whose length goes to *bytes; NULL: none. */
const char *rr_json_member(const char *text, size_t length, const char *name, size_t *bytes);
/* What a resourceconfig.json says. */
int rr_sagemaker_file(const char *text, size_t bytes, struct rr_place *p, char first[RR_HOST_BYTES],
                      ringred_error *why);

/* ---- PMI-1 over a socket (pmi.c) ---- */
/* Rank 0's text to all ranks of the launcher, once in a process. */
int rr_pmi_share(int rank, char *text, size_t room, int64_t deadline_ns, ringred_error *why);
/* The same over a descriptor; `joined`: somebody in this process has begun and will end the conversation. */
int rr_pmi_talk(int fd, bool joined, int rank, char *text, size_t room, int64_t deadline_ns, ringred_error *why);
/* The value of a word name=value of a line; false: not there, or longer than the room. */
bool rr_pmi_value(const char *line, const char *name, char *to, size_t room);

/* ---- PMIx (pmix.c) ---- */
int rr_pmix_look(const struct rr_settings *s, struct rr_place *p, ringred_error *why);
int rr_pmix_share(int rank, char *text, size_t room, int64_t deadline_ns, ringred_error *why);

/* ---- handing on a unique id (exchange.c) ---- */
/* Through the launcher's key-value space: once in a process; what is made with it is used for all communicators. */
int rr_exchange_space(enum rr_exchange how, const struct rr_settings *settings, int64_t deadline_ns,
                      struct rr_launch *launch, ringred_error *why);
/* Through config.allgather or config.store: for one communicator. */
int rr_exchange_own(const ringred_config *config, const struct rr_settings *settings, int64_t deadline_ns,
                    struct rr_launch *launch, ringred_error *why);
/* Reads an id into launch; rank 0 gets the listener that waits for it. */
int rr_take_id(const ringred_unique_id *id, struct rr_launch *launch, ringred_error *why);

#endif
