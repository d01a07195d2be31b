/* SPDX-License-Identifier: Apache-2.0 */
/* What a reunion decides from what it knows, without any other rank: its source is a part of this program. */
#include "boot/reunion.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define RANKS 10
#define EACH (RR_FAIL_BYTES + RANKS + sizeof(ringred_unique_id))

static void nothing_known(void *context, uint8_t *fate)
{
    (void)context, (void)fate;
}

static struct room {
    struct rr_reunion u;
    struct rr_reunion_call call;
    struct rr_meeting m;
    struct rr_settings settings;
    struct rr_log log;
    struct mate mate[RANKS];
    unsigned char said[RANKS][EACH], heard[RANKS][EACH], go[EACH];
} room;

static struct rr_meeting *prepare(int me, int size)
{
    memset(&room, 0, sizeof room);
    room.u = (struct rr_reunion){ .holders = 1, .rank = me, .size = size };
    room.call = (struct rr_reunion_call){ .log = &room.log, .settings = &room.settings, .look = nothing_known };
    room.m = (struct rr_meeting){ .u = &room.u, .call = &room.call, .mate = room.mate, .go = room.go };
    for (int r = 0; r < size; r++) {
        rr_line_init(&room.mate[r].out, -1, r);
        rr_line_init(&room.mate[r].in, -1, r);
        room.mate[r].said = room.said[r];
        room.mate[r].heard = room.heard[r];
    }
    return &room.m;
}

static void forget_doubts(void)
{
    for (int i = 0; i < room.u.doubts; i++)
        rr_free(room.u.doubt[i].in);
}

/* ---- doubt ---- */

/* Of `size` ranks (the first `old` of them those of the reunion) one communicator is in doubt; the ranks in `here` would
 * go on, those in `dead` are. */
static int try_to_go_on(int size, int old, unsigned here, unsigned dead)
{
    struct rr_meeting *m = prepare(3, RANKS);
    int member[RANKS];

    for (int r = 0; r < RANKS; r++) {
        member[r] = r;
        m->go[r] = here >> r & 1;
        m->mate[r].fate = dead >> r & 1 ? RR_FATE_DEAD : 0;
    }
    assert_int_equal(rr_reunion_doubt(m->u, size == old ? member : NULL, size, NULL), 0);
    int rc = check_doubts(m);
    forget_doubts();
    return rc;
}

static void test_who_is_in_doubt_goes_on_with_a_majority_of_it_only(void **state)
{
    (void)state;
    /* six of ten may have gone on; four others come back, and three of the six: a majority of all, half of the six */
    assert_int_equal(try_to_go_on(6, 6, 0x3f8, 0), RINGRED_EPARTITION);
    assert_non_null(strstr(room.m.failure.text, "a communicator of 6 ranks was made, of which 3 are here"));
    assert_int_equal(try_to_go_on(6, 6, 0x3fc, 0), 0);           /* four of the six */
    assert_int_equal(try_to_go_on(6, 6, 0x3c9, 0), RINGRED_EPARTITION); /* two of them */
    assert_int_equal(try_to_go_on(6, 6, 0x3cb, 0), 0);           /* three, rank 0 among them */
    assert_int_equal(try_to_go_on(6, 6, 0x3c8, 0x037), 0);       /* one, and the others are dead */
    assert_int_equal(try_to_go_on(6, 6, 0x3c8, 0x036), RINGRED_EPARTITION); /* all but one of them */
    /* all ten and ten new ones: the new ones are nowhere to be seen */
    assert_int_equal(try_to_go_on(20, RANKS, 0x3fe, 0), RINGRED_EPARTITION);
    assert_int_equal(try_to_go_on(20, RANKS, 0x3ff, 0), 0);
    assert_int_equal(try_to_go_on(21, RANKS, 0x3ff, 0), RINGRED_EPARTITION);
}

static void test_doubts_have_a_bound(void **state)
{
    struct rr_meeting *m = prepare(0, 2);
    const int member[] = { 0, 1 };
    ringred_error why;

    (void)state;
    for (int i = 0; i < RR_DOUBTS; i++)
        assert_int_equal(rr_reunion_doubt(m->u, member, 2, &why), 0);
    m->go[0] = m->go[1] = 1;
    assert_int_equal(check_doubts(m), 0);
    assert_int_equal(rr_reunion_doubt(m->u, member, 2, &why), RINGRED_EPARTITION);
    assert_int_equal(check_doubts(m), RINGRED_EPARTITION); /* from now on it never knows */
    forget_doubts();
}

/* ---- what is said ---- */

static void test_only_who_decides_ends_it_for_all(void **state)
{
    struct rr_meeting *m = prepare(1, 4);
    const ringred_error no = { .code = RINGRED_EPARTITION, .rank = 0, .text = "they are no majority" };

    (void)state;
    for (int r = 0; r < 4; r++)
        m->mate[r].in.fd = m->mate[r].out.fd = 1000; /* all are here; none is used */
    m->mate[2].in.in.kind = RR_NOTE_FAIL;
    rr_fail_write(&no, m->mate[2].in.fail);
    hear(m, 2);
    assert_int_equal(m->failure.code, 0);
    assert_true(m->mate[2].quit);
    m->mate[0].in.in.kind = RR_NOTE_FAIL;
    rr_fail_write(&no, m->mate[0].in.fail);
    hear(m, 0);
    assert_int_equal(m->failure.code, RINGRED_EPARTITION);
}

static void test_who_is_in_doubt_asks_all_who_were_in_it(void **state)
{
    struct rr_meeting *m = prepare(0, 5);

    (void)state;
    m->failed = 3;
    memset(m->go, 1, 4); /* the last was not in it */
    m->mate[1].back = 3;
    m->mate[2].left = true;
    assert_false(is_clear(m));
    m->mate[3].back = 2;
    assert_false(is_clear(m));
    m->mate[3].fate = RR_FATE_DEAD;
    assert_true(is_clear(m));
}

static void test_what_matters_is_said_again_on_a_new_line(void **state)
{
    struct rr_meeting *m = prepare(0, 2);
    struct mate *p = &m->mate[1];
    int end[2], other[2];
    char text[1000];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, end), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, other), 0);
    assert_int_equal(rr_line_open(&p->out, end[0], 1, &(struct rr_seal){ 0 }), 0);
    m->mine = 7;
    m->round = 9; /* somebody speaks of a later one */
    p->due = RR_NOTE_GO;
    speak(m, 1);
    p->view = true;
    speak(m, 1);
    rr_line_close(&p->out);
    assert_int_equal(rr_line_open(&p->out, other[0], 1, &(struct rr_seal){ 0 }), 0);
    begin_to_speak(p);
    speak(m, 1);
    ssize_t n = recv(other[1], text, sizeof text, 0), view = 16 + m->u->size;
    assert_int_equal(n, view + 16 + (ssize_t)go_bytes(m->u));
    uint32_t head[2];
    memcpy(head, text, sizeof head);
    assert_int_equal(head[0], RR_NOTE_VIEW); /* what it knows of the others comes first: the rest may depend on it */
    memcpy(head, text + view, sizeof head);
    assert_int_equal(head[0], RR_NOTE_GO);
    assert_int_equal(head[1], 7);
    rr_line_close(&p->out);
    close(end[1]);
    close(other[1]);
}

static void test_an_id_is_hidden_by_the_key_of_those_who_have_it(void **state)
{
    struct rr_meeting *m = prepare(0, 2);
    ringred_unique_id id, hidden;

    (void)state;
    assert_true(sodium_init() >= 0);
    randombytes_buf(&id, sizeof id);
    randombytes_buf(m->u->key, sizeof m->u->key);
    hidden = id;
    rr_reunion_mask(m->u, &hidden);
    assert_memory_equal(hidden.bytes, id.bytes, RR_ID_KEY);
    assert_memory_not_equal(hidden.bytes + RR_ID_KEY, id.bytes + RR_ID_KEY, RR_KEY_BYTES);
    assert_memory_equal(hidden.bytes + RR_ID_JOB, id.bytes + RR_ID_JOB, sizeof id - RR_ID_JOB);
    rr_reunion_mask(m->u, &hidden);
    assert_memory_equal(&hidden, &id, sizeof id);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_is_in_doubt_goes_on_with_a_majority_of_it_only),
        cmocka_unit_test(test_doubts_have_a_bound),
        cmocka_unit_test(test_only_who_decides_ends_it_for_all),
        cmocka_unit_test(test_who_is_in_doubt_asks_all_who_were_in_it),
        cmocka_unit_test(test_what_matters_is_said_again_on_a_new_line),
        cmocka_unit_test(test_an_id_is_hidden_by_the_key_of_those_who_have_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
