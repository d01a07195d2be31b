/* SPDX-License-Identifier: Apache-2.0 */
/* ringred-conform, inside: ranks that are forked for one test, what they share, and the host table that they give a
 * plug-in. */
#ifndef CONFORM_H
#define CONFORM_H

#include <ringred/team.h>
#include <ringred/transport.h>

#include <stdatomic.h>
#include <stdbool.h>

#define RANKS 4

extern int conform_limit_s; /* for a test; a third of it for what has to come, a sixth for a sleeper */
extern const char *conform_name;

/* What ranks of one test share. */
struct hall {
    _Atomic int arrived, failed;
    char text[300];
    int32_t bytes[RANKS];
    unsigned char address[RANKS][RINGRED_ADDRESS_MOST];
    _Atomic int flag[RANKS];
    ringred_unique_id id;
};

struct me {
    int rank, ranks, rails;
    struct hall *hall;
    ringred_host host;
    void *self;
    uint8_t wanted[RANKS];
    int gates;
};

struct conform_test {
    const char *text;
    void (*run)(struct me *m);
    int ranks, rails;
    int dies; /* rank that ends by a signal; -1: none */
};

/* Fails the test, with the first words that are said, and ends this rank. */
__attribute__((format(printf, 2, 3))) _Noreturn void conform_broken(struct me *m, const char *format, ...);
#define MUST(claim, ...)                    \
    do {                                    \
        if (!(claim))                       \
            conform_broken(m, __VA_ARGS__); \
    } while (0)

int64_t conform_now_ns(void);
void conform_meet(struct me *m);    /* all ranks have come here */
void conform_furnish(struct me *m); /* the host table */
/* Opens, uses and closes, some times over: nothing stays open, and all that is opened is close-on-exec. */
void conform_leave_nothing_open(struct me *m, void (*open_and_use)(struct me *m), void (*close)(struct me *m));

/* Through the library: a communicator of all ranks, another NULL or a setting, too; rc is 0. */
ringred_comm *conform_library_open(struct me *m, const char *setting, const char *another);
void conform_must(struct me *m, ringred_comm *comm, int32_t rc, const char *what);

/* ---- teams (conform_team.c) ---- */
extern const struct conform_test conform_team_tests[];
extern const int conform_team_tests_made;
/* false: it is no whole table of that name. */
bool conform_team_load(void *entry);
int32_t conform_team_usable(ringred_error *why);

#endif
