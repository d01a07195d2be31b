/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of measured choices: what they may say, what is refused in which words, and what is chosen by them. */
#include "core/core.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TITLE "ringred-tuning 1\n"

static struct rr_tuning *parse(const char *text)
{
    struct rr_tuning *t = NULL;
    ringred_error why;

    if (rr_tuning_parse(text, strlen(text), "table", &t, &why) != 0)
        fail_msg("%s", why.text);
    return t;
}

static void refused(const char *text, const char *line, const char *word)
{
    struct rr_tuning *t = NULL;
    ringred_error why;

    assert_int_equal(rr_tuning_parse(text, strlen(text), "table", &t, &why), RINGRED_ESETTING);
    assert_null(t);
    if (!strstr(why.text, line) || !strstr(why.text, word))
        fail_msg("\"%s\" does not speak of %s, %s", why.text, line, word);
}

static void test_a_row_means_what_it_says(void **state)
{
    struct rr_tuning *t = parse("# mine\n\n" TITLE "allreduce float32 4 1..2 2K..1M shm-twoshot 256K # fast\r\n"
                                "alltoall 2B ..8 3.. 7 alltoall -\nbarrier * * * * dissemination");

    (void)state;
    assert_int_equal(t->rows, 3);
    const struct rr_tuning_row *r = t->row;
    assert_true(r[0].what == RR_ALLREDUCE && r[0].type == RINGRED_FLOAT32 && r[0].width == 0);
    assert_true(r[0].ranks.least == 4 && r[0].ranks.most == 4 && r[0].hosts.least == 1 && r[0].hosts.most == 2);
    assert_true(r[0].bytes.least == 2048 && r[0].bytes.most == 1 << 20 && r[0].segment == 256 << 10);
    assert_true(r[0].way.lane == RR_LANE_NONE && r[0].way.algo == RR_ALGO_SHM_TWOSHOT && r[0].line == 4);
    assert_true(r[1].width == 2 && r[1].ranks.least == 0 && r[1].ranks.most == 8 && r[1].hosts.least == 3);
    assert_true(r[1].bytes.least == 7 && r[1].bytes.most == 7 && r[1].segment == 0);
    assert_true(r[2].ranks.most == INT64_MAX && r[2].way.algo == RR_ALGO_DISSEMINATION);
    rr_tuning_free(t);
}

static void test_what_is_wrong_is_told_with_its_line(void **state)
{
    (void)state;
    refused("", "table", "begins with");
    refused("allreduce * * * * tiny\n", "line 1", "ringred-tuning 1");
    refused("ringred-tuning 2\n", "line 1", "ringred-tuning 1");
    refused(TITLE "\nallreduc * * * * tiny", "line 3", "reduce_scatter");
    refused(TITLE "allreduce * * * *", "line 2", "5 words");
    refused(TITLE "allreduce * * * * tiny - -", "line 2", "7 words");
    refused(TITLE "allreduce float33 * * * tiny", "line 2", "float32");
    refused(TITLE "allreduce 3B * * * tiny", "line 2", "16B");
    refused(TITLE "barrier 4B * * * dissemination", "line 2", "barrier");
    refused(TITLE "allreduce * 4x * * tiny", "line 2", "ranks");
    refused(TITLE "allreduce * 4K * * tiny", "line 2", "ranks");
    refused(TITLE "allreduce * 5..4 * * tiny", "line 2", "ranks");
    refused(TITLE "allreduce * * -1 * tiny", "line 2", "hosts");
    refused(TITLE "allreduce * * * 1M...2M tiny", "line 2", "bytes");
    refused(TITLE "allreduce * * * 99999999999999999999 tiny", "line 2", "bytes");
    refused(TITLE "allreduce * * * * tinny", "line 2", "\"tiny\"");
    refused(TITLE "allreduce * * * * alltoall", "line 2", "allreduce");
    refused(TITLE "allreduce * * * * tiny 64K", "line 2", "no segments");
    refused(TITLE "allreduce * * * * twoshot 1000", "line 2", "64M");
}

static void test_remarks_do_not_make_another_table(void **state)
{
    struct rr_tuning *a = parse(TITLE "allreduce * * * * tiny"), *b = parse("# x\n" TITLE "allreduce  * *\t* * tiny # y\n\n");
    struct rr_tuning *c = parse(TITLE "allreduce * * * 0.. tiny"), *d = parse(TITLE "allreduce * * * 1.. tiny");

    (void)state;
    assert_true(a->hash == b->hash && a->hash == c->hash && a->hash != d->hash);
    rr_tuning_free(a);
    rr_tuning_free(b);
    rr_tuning_free(c);
    rr_tuning_free(d);
}

static void test_a_table_without_memory_is_refused(void **state)
{
    struct rr_tuning *t = NULL;
    ringred_error why;

    (void)state;
    for (long nth = 1; nth <= 2; nth++) {
        rr_alloc_fail_after(nth, false);
        int rc = rr_tuning_parse(TITLE, strlen(TITLE), "table", &t, &why);
        rr_alloc_fail_after(0, false);
        assert_int_equal(rc, RINGRED_ENOMEM);
    }
}

static void test_a_file_must_be_one(void **state)
{
    struct rr_tuning *t = NULL;
    ringred_error why;

    (void)state;
    assert_int_equal(rr_tuning_load("", &t, &why), 0);
    assert_null(t);
    assert_int_equal(rr_tuning_load("/nowhere/at/all", &t, &why), RINGRED_ESETTING);
    assert_non_null(strstr(why.text, "/nowhere/at/all"));
    assert_int_equal(rr_tuning_load("/", &t, &why), RINGRED_ESETTING);
    assert_int_equal(rr_tuning_load("/dev/zero", &t, &why), RINGRED_ESETTING);
}

/* ---- choosing ---- */

static ringred_comm *comm;
static struct rr_family family;
static struct rr_shared shared;
static int16_t host[64];

static void be(int ranks, const char *table)
{
    ringred_error why;

    memset(&family, 0, sizeof family);
    comm = calloc(1, sizeof *comm);
    assert_non_null(comm);
    assert_int_equal(rr_settings_load(&family.settings, NULL, &why), 0);
    comm->family = &family;
    comm->ranks = ranks;
    comm->all_local = true;
    comm->layout = (struct rr_layout){ ranks, 1, host };
    shared.stage_bytes = rr_stage_bytes(0, ranks);
    comm->engine.shared = &shared;
    comm->plans = rr_plans_new(comm, &why);
    assert_non_null(comm->plans);
    family.tuning = parse(table);
}

static void be_nobody(void)
{
    rr_tuning_free(family.tuning);
    rr_plans_free(comm->plans);
    rr_free(comm->last);
    free(comm);
}

static struct rr_chosen choose(enum rr_collective what, int type, size_t count)
{
    struct rr_call call = { .what = what, .type = type, .op = RINGRED_SUM, .count = count };
    struct rr_chosen x;
    ringred_error why;

    assert_int_equal(rr_choose(comm, &call, &x, &why), 0);
    return x;
}

static void chose(struct rr_chosen x, const char *name, enum rr_rule rule, int line, size_t segment)
{
    if (strcmp(rr_way_name(x.way), name) || x.rule != rule || x.line != line || x.segment != segment)
        fail_msg("%s by %d, line %d, segment %zu; not %s", rr_way_name(x.way), (int)x.rule, x.line, x.segment, name);
    assert_true(x.code == 0);
}

static void test_the_first_row_that_fits_and_can_be_used_counts(void **state)
{
    (void)state;
    be(4, TITLE "allreduce float64 * * * shm-twoshot 32K\n"
                "allreduce * 5 * * shm-twoshot\n"
                "allreduce * 4 2 * shm-twoshot\n"
                "allreduce * * * * ring\n"
                "allreduce * * * ..4K tiny\n"
                "allreduce * 2..4 1 ..1K shm-twoshot\n"
                "allreduce 4B 4 1 64K shm-oneshot 8K\n"
                "broadcast 8B * * * shm-broadcast 16K\n");
    rr_choose_init(comm);
    chose(choose(RR_ALLREDUCE, RINGRED_FLOAT64, 1), "shm-twoshot", RR_BY_TABLE, 2, 32 << 10);
    chose(choose(RR_ALLREDUCE, RINGRED_FLOAT32, 512), "tiny", RR_BY_TABLE, 6, 0);
    chose(choose(RR_ALLREDUCE, RINGRED_FLOAT32, 512), "tiny", RR_BY_TABLE, 6, 0); /* remembered */
    chose(choose(RR_ALLREDUCE, RINGRED_FLOAT32, 513), "shm-oneshot", RR_BY_LIMITS, 0, 0);
    chose(choose(RR_ALLREDUCE, RINGRED_INT32, 16384), "shm-oneshot", RR_BY_TABLE, 8, 8 << 10);
    chose(choose(RR_ALLREDUCE, RINGRED_INT64, 8192), "shm-twoshot", RR_BY_LIMITS, 0, 0);
    chose(choose(RR_BROADCAST, RINGRED_INT64, 5), "shm-broadcast", RR_BY_TABLE, 9, 16 << 10);
    chose(choose(RR_BARRIER, 0, 0), "shm-barrier", RR_BY_LIMITS, 0, 0);
    be_nobody();
}

static void test_settings_come_before_the_table(void **state)
{
    ringred_error why;

    (void)state;
    be(4, TITLE "allreduce * * * * shm-twoshot 32K\nbroadcast * * * * shm-broadcast 32K\n");
    assert_int_equal(rr_settings_set(&family.settings, "algorithm", "tiny", "argument", &why), 0);
    assert_int_equal(rr_settings_set(&family.settings, "segment", "4K", "argument", &why), 0);
    rr_choose_init(comm);
    chose(choose(RR_ALLREDUCE, RINGRED_FLOAT32, 1), "tiny", RR_BY_SETTING, 0, 0);
    chose(choose(RR_BROADCAST, RINGRED_FLOAT32, 1), "shm-broadcast", RR_BY_TABLE, 3, 0);
    be_nobody();
}

static const char *answer;
static uint64_t segment;

static void choose_so(void *context, ringred_choice *choice)
{
    assert_ptr_equal(context, &family);
    assert_true(choice->ranks == 4 && choice->hosts == 1 && choice->root == -1 && choice->bytes == 400000);
    assert_string_equal(choice->algorithm, "shm-twoshot");
    if (answer)
        choice->algorithm = answer;
    choice->segment = segment;
}

static void answers(const char *name, uint64_t bytes, const char *refusal)
{
    struct rr_call call = { .what = RR_ALLREDUCE, .type = RINGRED_FLOAT32, .op = RINGRED_SUM, .count = 100000 };
    struct rr_chosen x;
    ringred_error why;

    answer = name;
    segment = bytes;
    int rc = rr_choose(comm, &call, &x, &why);
    if (refusal) {
        assert_int_equal(rc, RINGRED_EINVAL);
        assert_non_null(strstr(why.text, refusal));
        return;
    }
    assert_int_equal(rc, 0);
    assert_true((x.code != 0) == (bytes || (name && strcmp(name, "shm-twoshot"))));
    assert_true(x.segment == (bytes ? 65536 : 0));
    assert_string_equal(rr_way_name(x.way), name ? name : "shm-twoshot");
}

static void test_a_function_has_the_last_word_within_what_is_allowed(void **state)
{
    (void)state;
    be(4, TITLE);
    rr_choose_init(comm);
    family.choose = choose_so;
    family.choose_context = &family;
    answers(NULL, 0, NULL);
    answers("shm-twoshot", 0, NULL);
    answers("shm-oneshot", 0, NULL);
    answers("shm-oneshot", 100000, NULL);
    answers(NULL, 65536, NULL);
    answers("shm-oneshot", 1023, "64 MiB");
    answers("shm-oneshot", (64 << 20) + 1, "64 MiB");
    answers("fastest", 0, "no algorithm of allreduce");
    answers("shm-broadcast", 0, "no algorithm of allreduce");
    answers("tiny", 0, "2 KiB");
    answers("twoshot", 0, "links");
    answers("copy", 0, "one rank");
    be_nobody();
}

/* ---- explaining ---- */

static void explains(const char *question, const char *const *settings, const char *what)
{
    static char text[1 << 16];

    int64_t rc = ringred_explain(question, settings, text, sizeof text);
    if (rc <= 0 || !strstr(text, what))
        fail_msg("%s: %lld, without %s: %s", question, (long long)rc, what, text);
}

static void test_explaining_tells_choice_rule_and_candidates(void **state)
{
    static const char *const wish[] = { "algorithm=shm-oneshot", NULL }, *const fast[] = { "numerics=fast", NULL };
    static const char *const tcp[] = { "transport=tcp", NULL }, *const portable[] = { "numerics=portable", NULL };
    char file[] = "/tmp/ringred-tuning-XXXXXX", setting[64];
    int fd = mkstemp(file);

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, TITLE "allreduce * 4 2 * twoshot 64K\n", strlen(TITLE) + 30), (long)strlen(TITLE) + 30);
    close(fd);
    snprintf(setting, sizeof setting, "tuning=%s", file);
    const char *const table[] = { setting, NULL };
    explains("per_host=4 nodes=1 bytes=1K", NULL, "\"choice\":{\"algorithm\":\"tiny\",\"segment\":0,\"rule\":\"limits\"}");
    explains("per_host=4 nodes=1 bytes=1M", wish, "\"algorithm\":\"shm-oneshot\",\"segment\":393216,\"rule\":\"setting\"}");
    explains("per_host=2 nodes=2 bytes=1M", table, "\"algorithm\":\"twoshot\",\"segment\":65536,\"rule\":\"table\",\"line\":2}");
    explains("per_host=2 nodes=2 bytes=1M", NULL, "\"choice\":{\"algorithm\":\"hierarchical\"");
    explains("per_host=3 nodes=2 bytes=1M", NULL, "\"choice\":{\"algorithm\":\"hierarchical\"");
    explains("per_host=3 nodes=2 bytes=1M", portable, "\"choice\":{\"algorithm\":\"twoshot\"");
    explains("per_host=2 nodes=1 bytes=1M", tcp, "\"choice\":{\"algorithm\":\"twoshot\"");
    explains("nodes=4 bytes=1M", NULL, "{\"algorithm\":\"ring\",\"refused\":\"it adds in another order");
    explains("nodes=4 bytes=1M", fast, "{\"algorithm\":\"ring\",\"segment\":");
    explains("nodes=4 bytes=1M type=float16", NULL, "{\"algorithm\":\"doubling\",\"refused\":\"it would round");
    explains("nodes=4 bytes=1M type=float16 op=max", NULL, "{\"algorithm\":\"doubling\",\"segment\":");
    explains("nodes=4 per_host=2 collective=barrier", NULL, "\"choice\":{\"algorithm\":\"hier-barrier\",\"segment\":0");
    explains("per_host=2 nodes=1 measure=1", NULL, "\"measured\":true");
    unlink(file);
}

static void test_a_question_that_makes_no_sense_is_refused_in_words(void **state)
{
    static const struct {
        const char *question, *word;
    } bad[] = {
        { "type=float33", "float33" }, { "op=median", "median" },       { "type=bytes", "no sum of bytes" },
        { "measure=2", "measure" },    { "algorithm=ring", "settings" }, { "nods=3", "nodes" },
    };
    char text[600];

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(ringred_explain(bad[i].question, NULL, text, sizeof text), RINGRED_EINVAL);
        assert_non_null(strstr(text, bad[i].word));
    }
    assert_int_equal(ringred_explain("", (const char *const[]){ "tuning=/nowhere", NULL }, text, sizeof text),
                     RINGRED_ESETTING);
    assert_int_equal(ringred_explain(NULL, NULL, text, sizeof text), RINGRED_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_row_means_what_it_says),
        cmocka_unit_test(test_what_is_wrong_is_told_with_its_line),
        cmocka_unit_test(test_remarks_do_not_make_another_table),
        cmocka_unit_test(test_a_table_without_memory_is_refused),
        cmocka_unit_test(test_a_file_must_be_one),
        cmocka_unit_test(test_the_first_row_that_fits_and_can_be_used_counts),
        cmocka_unit_test(test_settings_come_before_the_table),
        cmocka_unit_test(test_a_function_has_the_last_word_within_what_is_allowed),
        cmocka_unit_test(test_explaining_tells_choice_rule_and_candidates),
        cmocka_unit_test(test_a_question_that_makes_no_sense_is_refused_in_words),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
