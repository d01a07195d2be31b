/* SPDX-License-Identifier: Apache-2.0 */
/* Visits every state that a small concurrent system can reach. A system is a few actors over one block
 * of bytes; a move of an actor is one atomic step. States are told apart by their bytes (a 128-bit
 * hash of them), so a system must keep everything that matters there and nothing else. */
#ifndef EXPLORE_H
#define EXPLORE_H

#include <stdbool.h>
#include <stddef.h>

#define EXPLORE_TEXT 512

struct system {
    const char *name;
    size_t bytes;               /* of a state */
    int moves;                  /* of an actor or its choices: 0 .. moves - 1 are tried in each state */
    /* Does a move on *state. false: it is not possible there. What must not be is said in wrong. */
    bool (*move)(void *state, int move, char wrong[EXPLORE_TEXT]);
    /* No move leads out of *state: is that as it should be? (else: a deadlock, what sleeps stays asleep) */
    bool (*may_end)(const void *state);
};

struct explored {
    long states, moves, ends;
    char wrong[EXPLORE_TEXT];   /* "" or what was found, with the moves that lead there */
};

/* Depth first; stops at the first thing wrong. */
void explore(const struct system *system, const void *initial, struct explored *result);

#endif
