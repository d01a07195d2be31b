/* SPDX-License-Identifier: Apache-2.0 */
/* See coll.h. */
#include "coll.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 64
#define WINDOW 4096 /* elements that are worked out at a time */

void coll_setup_text(const struct coll_setup *s, char *text, size_t room)
{
    int used = snprintf(text, room, "%d ranks", s->ranks);

    for (int i = 0; i < COLL_SETTINGS && s->setting[i] && (size_t)used < room; i++)
        used += snprintf(text + used, room - (size_t)used, " %s", s->setting[i]);
}

/* A letter for each rank: equal ones share a host. */
static const char *letters_of(const char *setting)
{
    return strncmp(setting, "hosts=", 6) == 0 ? setting + 6 : NULL;
}

const uint8_t *coll_hosts(const struct coll_setup *s, uint8_t *host)
{
    const char *letters = NULL;
    int hosts = 0, each = 0;

    for (int i = 0; i < COLL_SETTINGS && s->setting[i]; i++) {
        if (strcmp(s->setting[i], "numerics=portable") == 0 || strcmp(s->setting[i], "transport=tcp") == 0)
            return NULL;
        if (strncmp(s->setting[i], "ranks_per_host=", 15) == 0)
            each = atoi(s->setting[i] + 15);
        letters = letters_of(s->setting[i]) ? letters_of(s->setting[i]) : letters;
    }
    for (int r = 0; (letters || each) && r < s->ranks; r++) {
        const int first = letters ? (int)(strchr(letters, letters[r]) - letters) : r / each * each;
        host[r] = first == r ? (uint8_t)hosts++ : host[first];
    }
    return letters || each ? host : NULL;
}

void coll_each(const struct coll_setup *setups, size_t n, void (*run)(struct rank *me), int deadline_s)
{
    for (size_t i = 0; i < n; i++) {
        char text[200];

        coll_setup_text(&setups[i], text, sizeof text);
        printf("             %s\n", text);
        fflush(stdout); /* the ranks are forks */
        ranks_run(&(struct ranks_plan){ .size = setups[i].ranks, .run = run,
                                        .argument = (void *)(uintptr_t)&setups[i], .deadline_s = deadline_s });
    }
}

/* ---- communicators ---- */

ringred_comm *coll_open(struct rank *me, const struct coll_setup *setup)
{
    return coll_open_choosing(me, setup, NULL, NULL);
}

ringred_comm *coll_open_choosing(struct rank *me, const struct coll_setup *setup, ringred_choose_fn choose, void *context)
{
    ringred_config config;

    ringred_config_init(&config, sizeof config);
    config.choose = choose;
    config.choose_context = context;
    return coll_open_with(me, setup, &config);
}

int32_t coll_try(struct rank *me, const struct coll_setup *setup, const ringred_config *wishes, ringred_comm **comm,
                 ringred_error *why)
{
    const char *settings[COLL_SETTINGS + 2] = { "timeout=20" };
    char host[] = "host=?";
    ringred_unique_id id;
    ringred_config config;

    ringred_config_init(&config, sizeof config);
    if (wishes)
        config = *wishes;
    memset(&id, 0, sizeof id);
    ringred_error_init(why);
    if (!config.id) {
        if (me->rank == 0)
            rank_check_msg(ringred_unique_id_create(&id, why) == 0, "no unique id: %s", why->text);
        ranks_pass(me, &id, sizeof id);
        config.id = &id;
    }
    config.rank = me->rank;
    config.size = me->size;
    for (int i = 0; i < COLL_SETTINGS && setup->setting[i]; i++) {
        const char *letters = letters_of(setup->setting[i]);
        host[5] = letters ? letters[me->rank] : host[5];
        settings[i + 1] = letters ? host : setup->setting[i];
    }
    config.settings = settings;
    return ringred_comm_create(&config, comm, why);
}

ringred_comm *coll_open_with(struct rank *me, const struct coll_setup *setup, const ringred_config *wishes)
{
    ringred_comm *comm = NULL;
    ringred_error why;
    char text[200];

    int32_t rc = coll_try(me, setup, wishes, &comm, &why);
    coll_setup_text(setup, text, sizeof text);
    rank_check_msg(rc == 0, "%s: no communicator: %d, %s", text, why.code, why.text);
    rank_check_int(ringred_comm_rank(comm), me->rank);
    rank_check_int(ringred_comm_size(comm), me->size);
    return comm;
}

void coll_close(ringred_comm *comm)
{
    rank_check_int(ringred_comm_destroy(comm), 0);
}

void coll_must(ringred_comm *comm, int32_t rc, const char *what)
{
    ringred_error error;

    if (rc == 0)
        return;
    ringred_error_init(&error);
    (void)ringred_comm_error(comm, &error); /* the sentence only adds to the status */
    rank_check_msg(rc == 0, "%s: %d (%s): %s", what, rc, ringred_status_text(rc), error.text);
}

/* ---- buffers ---- */

void coll_memory_open(struct coll_memory *m, ringred_comm *comm, size_t most)
{
    m->most = most;
    for (int i = 0; i < 2; i++) {
        void *window = NULL;

        m->plain[i] = malloc(most + 2 * GUARD + 64);
        rank_check(m->plain[i] != NULL);
        coll_must(comm, ringred_alloc(comm, most + 2 * GUARD + 64, &window), "ringred_alloc");
        rank_check((uintptr_t)window % 4096 == 0);
        m->window[i] = window;
    }
}

void coll_memory_close(struct coll_memory *m)
{
    for (int i = 0; i < 2; i++) {
        free(m->plain[i]);
        rank_check_int(ringred_free(m->window[i]), 0);
    }
}

/* A place for the buffer: own or library's memory, on a line, on an element, or on an odd byte. */
static unsigned char *place(struct coll_memory *m, int which, int type, struct numbers_random *mine)
{
    unsigned char *room = numbers_below(mine, 2) ? m->window[which] : m->plain[which];
    const size_t offset = numbers_below(mine, 64);

    switch (numbers_below(mine, 4)) {
    case 0:
        return room + GUARD + offset;
    case 1:
        return room + GUARD + offset / numbers_bytes(type) * numbers_bytes(type);
    default:
        return room + GUARD;
    }
}

static void guard(const struct coll_call *c)
{
    const size_t bytes = c->count * numbers_bytes(c->job.type);

    memset(c->recv - GUARD, 0xa5, GUARD);
    memset(c->recv + bytes, 0x5a, GUARD);
}

static void check_guard(const struct coll_call *c)
{
    const size_t bytes = c->count * numbers_bytes(c->job.type);

    for (size_t i = 0; i < GUARD; i++)
        rank_check_msg(c->recv[-1 - (ptrdiff_t)i] == 0xa5 && c->recv[bytes + i] == 0x5a,
                       "%s: wrote outside of recv", c->text);
}

void coll_prepare(struct coll_call *c, struct coll_memory *m, struct rank *me, struct numbers_random *mine)
{
    const bool in_place = numbers_below(mine, 2);
    const int type = c->job.type;

    rank_check(c->count * numbers_bytes(type) <= m->most);
    c->send = place(m, 0, type, mine);
    c->recv = in_place ? c->send : place(m, 1, type, mine);
    if (!in_place)
        memset(c->recv, 0xee, c->count * numbers_bytes(type));
    guard(c);
    numbers_fill(c->send, type, c->job.kind, c->job.seed, me->rank, 0, c->count);
    snprintf(c->text, sizeof c->text, "%zu of type %d, op %d, kind %d, root %d, seed 0x%llx, %s", c->count,
             type, c->job.op, (int)c->job.kind, c->root, (unsigned long long)c->job.seed,
             in_place ? "in place" : "out of place");
}

/* ---- what must have come out ---- */

static void check_send(const struct coll_call *c, int rank)
{
    const size_t bytes = numbers_bytes(c->job.type);
    unsigned char want[WINDOW * 8];
    char text[200];

    for (size_t i = 0; i < c->count && c->send != c->recv; i += WINDOW) {
        const size_t n = c->count - i < WINDOW ? c->count - i : WINDOW;

        numbers_fill(want, c->job.type, c->job.kind, c->job.seed, rank, i, n);
        rank_check_msg(numbers_differ(c->send + i * bytes, want, c->job.type, n, text, sizeof text) < 0,
                       "%s: send was written: from %zu, %s", c->text, i, text);
    }
}

/* The order of additions may differ by a few units in the last place of the largest partial sum. */
static double tolerance_of(const struct numbers_job *job)
{
    return job->ranks * job->ranks * 512 * (job->type == RINGRED_FLOAT32 ? 1.2e-7 : 2.3e-16);
}

static long compare(const struct coll_call *c, const void *got, const void *want, size_t n, char *text,
                    size_t room)
{
    if (c->exact)
        return numbers_differ(got, want, c->job.type, n, text, room);
    return numbers_stray(got, want, c->job.type, n, c->exact ? 0 : tolerance_of(&c->job), text, room);
}

void coll_check_allreduce(struct coll_call *c, struct rank *me)
{
    const size_t bytes = numbers_bytes(c->job.type);
    unsigned char want[WINDOW * 8];
    char text[200];

    for (size_t i = 0; i < c->count; i += WINDOW) {
        const size_t n = c->count - i < WINDOW ? c->count - i : WINDOW;

        numbers_expect(want, &c->job, i, n);
        rank_check_msg(compare(c, c->recv + i * bytes, want, n, text, sizeof text) < 0, "%s: from %zu, %s",
                       c->text, i, text);
    }
    check_send(c, me->rank);
    check_guard(c);
}

void coll_check_broadcast(struct coll_call *c, struct rank *me)
{
    const size_t bytes = numbers_bytes(c->job.type);
    unsigned char want[WINDOW * 8];
    char text[200];

    for (size_t i = 0; i < c->count; i += WINDOW) {
        const size_t n = c->count - i < WINDOW ? c->count - i : WINDOW;

        numbers_fill(want, c->job.type, c->job.kind, c->job.seed, c->root, i, n);
        rank_check_msg(numbers_differ(c->recv + i * bytes, want, c->job.type, n, text, sizeof text) < 0,
                       "%s: from %zu, %s", c->text, i, text);
    }
    check_send(c, me->rank);
    check_guard(c);
}
