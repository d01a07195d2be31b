/* SPDX-License-Identifier: Apache-2.0 */
/* Part of the transport room's door: plug-ins of strangers, transports and teams. */
#ifndef RR_PLUGIN_H
#define RR_PLUGIN_H

#include "boot/boot.h"

#include <ringred/team.h>
#include <ringred/transport.h>

#include <limits.h>

struct rr_transport;

/* The setting transport, read. */
struct rr_wires {
    bool shm;                      /* ranks of a host share memory */
    char name[16];                 /* of what reaches the others; "": nothing may */
    const ringred_transport *by;   /* a plug-in's; NULL: tcp, or nothing */
};
int rr_wires_read(const char *text, struct rr_wires *wires, ringred_error *why); /* ESETTING, and as find */

/* ---- loading, of all kinds (loader.c) ---- */
enum rr_plugin_kind { RR_PLUGIN_TRANSPORT, RR_PLUGIN_TEAM };

/* What may stand in the settings transport and team, and in the name of a file. */
bool rr_plugin_is_name(const char *name);
const char *rr_plugin_folders(void); /* with colons */
struct rr_loaded {
    void *entry;                   /* the function that it exports */
    const char *name;              /* as it was asked for */
    char file[PATH_MAX];
};
/* Loads libringred-NAME.so. ESETTING: there is none; EUNSUPPORTED: it cannot be loaded; EVERSION: it is none of ours. */
int rr_plugin_load(enum rr_plugin_kind kind, const char *name, struct rr_loaded *loaded, ringred_error *why);
/* What all tables have: their size, 0 if there is none, and a name. least: bytes of the first release's. EVERSION. */
int rr_plugin_check(const struct rr_loaded *loaded, uint32_t size, const char *calls_itself, size_t least,
                    ringred_error *why);
/* Both: the same, and EVERSION if its table is wrong. */
int rr_plugin_find(const char *name, const ringred_transport **by, ringred_error *why);
int rr_team_find(const char *name, const ringred_team **by, ringred_error *why);
/* {...} for each that lies in the folders, with commas; listed: so many stand before them. */
void rr_plugins_describe(enum rr_plugin_kind kind, int listed, struct rr_text *text);

/* What the library offers a plug-in. The caller sets rank, ranks, rails and secret, and keeps the rest for as long. */
struct rr_plugin_host {
    ringred_host table;
    const struct rr_settings *settings;
    const struct rr_log *log;
    struct rr_interrupt interrupt;
    unsigned char secret[32];
};
void rr_plugin_host_init(struct rr_plugin_host *host, const struct rr_settings *settings, const struct rr_log *log,
                         struct rr_interrupt interrupt);

/* ---- lanes (plugin.c) ---- */
struct rr_plugin {
    const ringred_transport *by;
    int ranks, me, rails;
    struct rr_boot *boot;
    const struct rr_settings *settings; /* these three as long as the transport */
    const struct rr_log *log;
    struct rr_interrupt interrupt;
    int64_t deadline_ns;
    void *self;                         /* NULL */
};
/* Lanes to all ranks with wanted[r] (symmetric), and links over them. Collective over the job. */
int rr_plugin_open(struct rr_plugin *p, const uint8_t *wanted, struct rr_transport **transport, ringred_error *why);

/* ---- teams (team.c) ---- */

/* What a rank says before a communicator gets a team. */
struct rr_team_offer {
    int32_t bytes;                 /* of rank 0's id, of others 0; < 0: a status, and why */
    char text[RINGRED_ADDRESS_MOST];
};

/* The team of a communicator, seen from one of its ranks. */
struct rr_crew {
    struct rr_plugin_host host;
    const ringred_team *by;
    void *self;                    /* NULL: not open */
    int fd;                        /* to sleep on; -1: none */
    bool busy, aborted;            /* these five the owner's of progress */
    int64_t gone_ns;               /* since when a rank is gone while it is at work; 0: none is */
    ringred_error lost;            /* it has lost a rank and does not know which; code 0: it has not */
    int64_t lost_ns;
    struct rr_crew *next;          /* of the family's */
};
int rr_crew_id(const struct rr_crew *crew, void *id, ringred_error *why); /* on rank 0. Its bytes, or < 0 */
/* Collective over the ranks of the host table. Its descriptor goes into the epoll set. */
int rr_crew_open(struct rr_crew *crew, const struct rr_team_offer *first, int epoll, int64_t deadline_ns,
                 ringred_error *why);
int rr_crew_start(struct rr_crew *crew, const ringred_team_call *call, ringred_error *why);
int rr_crew_test(struct rr_crew *crew, ringred_error *why);
void rr_crew_abort(struct rr_crew *crew);
void rr_crew_close(struct rr_crew *crew, int epoll); /* frees it; works on NULL and half-made ones */

#endif
