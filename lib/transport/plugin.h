/* SPDX-License-Identifier: Apache-2.0 */
/* Part of the transport room's door: transports of strangers. */
#ifndef RR_PLUGIN_H
#define RR_PLUGIN_H

#include "boot/boot.h"

#include <ringred/transport.h>

struct rr_transport;

/* The setting transport, read. */
struct rr_wires {
    bool shm;                      /* ranks of a host share memory */
    char name[16];                 /* of what reaches the others; "": nothing may */
    const ringred_transport *by;   /* a plug-in's; NULL: tcp, or nothing */
};
int rr_wires_read(const char *text, struct rr_wires *wires, ringred_error *why); /* ESETTING, and as find */

/* What may stand in the setting transport, and in the name of a file. */
bool rr_plugin_is_name(const char *name);
const char *rr_plugin_folders(void); /* with colons */
/* Loads libringred-NAME.so. ESETTING: there is none; EUNSUPPORTED: it cannot be loaded; EVERSION: it is none of ours. */
int rr_plugin_find(const char *name, const ringred_transport **by, ringred_error *why);
void rr_plugins_describe(struct rr_text *text); /* ,{...} for each that lies in the folders */

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

#endif
