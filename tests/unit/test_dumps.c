/* SPDX-License-Identifier: Apache-2.0 */
/* What dumps say together, by dumps written by hand: who disagrees, is behind, has failed first or is not there; and what
 * is done with files that are none, cut, doubled or of another job. */
#include "dumps.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define OP(number, state, what) "{\"number\":" #number ",\"state\":\"" state "\",\"what\":\"" what "\",\"begun\":\"T" #number "\"}"

struct hall {
    struct dumps *dumps;
    char *said, *complaints;
    size_t said_bytes, complaints_bytes;
    FILE *out, *complains;
};

static void open_hall(struct hall *h)
{
    h->out = open_memstream(&h->said, &h->said_bytes);
    h->complains = open_memstream(&h->complaints, &h->complaints_bytes);
    h->dumps = dumps_new(h->complains);
    assert_true(h->out && h->complains && h->dumps);
}

static void close_hall(struct hall *h)
{
    dumps_free(h->dumps);
    fclose(h->out);
    fclose(h->complains);
    free(h->said);
    free(h->complaints);
}

static bool report(struct hall *h, bool json)
{
    bool told = dumps_report(h->dumps, h->out, json);

    fflush(h->out);
    fflush(h->complains);
    return told;
}

static void has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" is not in \"%s\"", part, text);
}

/* A rank's of 3, with one communicator. */
static const char *dump_of(int rank, const char *job, const char *more, const char *operations)
{
    static char text[4096];

    snprintf(text, sizeof text, "{\"schema\":\"ringred-dump\",\"version\":1,\"job\":\"%s\",\"rank\":%d,\"size\":3,\"host\":\"h%d\",\"pid\":"
             "%d,\"time\":\"T9\",\"status\":0,%s\"communicators\":[{\"name\":\"all\",\"rank\":%d,\"size\":3,\"members\":[0,1,2],"
             "\"operations\":[%s]}]}", job, rank, rank, 100 + rank, more, rank, operations);
    return text;
}

static bool add(struct hall *h, const char *file, const char *text)
{
    return dumps_add(h->dumps, file, text, strlen(text));
}

static void add_three(struct hall *h, const char *zero, const char *one, const char *two)
{
    const char *of[] = { zero, one, two };
    char file[] = "0.json";

    for (int r = 0; r < 3; r++, file[0]++)
        if (of[r])
            assert_true(add(h, file, dump_of(r, "j", "", of[r])));
}

static void says(const char *zero, const char *one, const char *two, const char *sentence)
{
    struct hall h;

    open_hall(&h);
    add_three(&h, zero, one, two);
    assert_true(report(&h, false));
    has(h.said, sentence);
    assert_string_equal(h.complaints, "");
    close_hall(&h);
}

static void test_the_first_disagreement_is_named_with_both_sides(void **state)
{
    (void)state;
    says(OP(7, "done", "barrier") "," OP(8, "failed", "A"), OP(7, "done", "barrier") "," OP(8, "failed", "B"),
         OP(7, "done", "barrier") "," OP(8, "failed", "A"),
         "communicator all: operation 8: ranks 0, 2 asked for A, rank 1 for B\n");
    says(OP(8, "done", "A") "," OP(9, "failed", "A"), OP(8, "done", "B") "," OP(9, "failed", "C"), NULL,
         "operation 8: rank 0 asked for A, rank 1 for B\n");
}

static void test_a_rank_that_is_behind_is_named_with_those_that_wait(void **state)
{
    (void)state;
    says(OP(8, "running", "A"), OP(7, "done", "B"), OP(8, "running", "A"),
         "rank 1 never began operation 8, A, and others wait in it since T8: ranks 0, 2\n");
    says(OP(8, "running", "A"), "", OP(9, "done", "A"), "rank 1 never began operation 8, A");
    says(OP(8, "done", "A"), OP(9, "done", "A"), OP(9, "done", "A"), "rank 0 never began operation 9, which others have ended");
}

static void test_a_rank_without_dump_is_named(void **state)
{
    (void)state;
    says(OP(8, "running", "A"), NULL, OP(8, "running", "A"),
         "no dump of rank 1, which may not have begun operation 8, A, and others wait in it since T8: ranks 0, 2\n");
    says(OP(8, "failed", "A"), NULL, OP(7, "done", "A"), "others wait in it since T8: rank 0; nor have begun it: rank 2\n");
    says(OP(8, "running", "A"), NULL, OP(8, "running", "A"), "dumps of ranks 0, 2; none of rank 1\n");
}

static void test_where_all_is_well_that_is_said(void **state)
{
    (void)state;
    says(OP(8, "done", "A"), OP(8, "done", "A"), OP(8, "done", "A"), "no rank is in an operation; the last was 8");
    says(OP(8, "running", "A"), OP(8, "running", "A"), OP(8, "running", "A"), "no rank is missing in operation 8, A, ");
}

static void test_who_failed_first_is_said_first(void **state)
{
    struct hall h;

    (void)state;
    open_hall(&h);
    assert_true(add(&h, "0", dump_of(0, "j", "\"error\":{\"rank\":1,\"time\":\"T5\",\"text\":\"rank 1 is gone\"},", "")));
    assert_true(add(&h, "2", dump_of(2, "j", "\"error\":{\"rank\":1,\"time\":\"T4\",\"text\":\"its \\\"end\\\"\"},", "")));
    assert_true(report(&h, true));
    has(h.said, "\"failed_first\":{\"rank\":2,\"at_fault\":1,\"time\":\"T4\",\"text\":\"its \\\"end\\\"\"}");
    has(h.said, "\"ranks\":[0,2],\"without_dump\":[1]");
    close_hall(&h);
}

static void test_files_that_are_none_are_named_and_left_out(void **state)
{
    static const char *const none[] = { "", "{", "nonsense", "{\"schema\":\"other\"}", "[1]", "{\"schema\":\"ringred-dump\",\"version\":2}",
                                        "{\"schema\":\"ringred-dump\",\"version\":1,\"rank\":3,\"size\":3,\"communicators\":[]}",
                                        "{\"schema\":\"ringred-dump\",\"version\":1,\"rank\":-1,\"size\":3,\"communicators\":[]}",
                                        "{\"schema\":\"ringred-dump\",\"version\":1,\"rank\":0,\"size\":99999999999999999999}",
                                        "{\"schema\":\"ringred-dump\",\"version\":1,\"rank\":0,\"size\":1,\"communicators\":7}" };
    struct hall h;
    char deep[3000];

    (void)state;
    open_hall(&h);
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_false(add(&h, "strange.json", none[i]));
    memset(deep, '[', sizeof deep - 1);
    deep[0] = '{';
    deep[sizeof deep - 1] = 0;
    assert_false(add(&h, "deep.json", deep));
    assert_false(dumps_add(h.dumps, "bytes.json", "{\0}", 3));
    assert_false(dumps_add_path(h.dumps, "/dev/null/none"));
    assert_false(dumps_add_path(h.dumps, "/dev/zero"));
    assert_false(report(&h, false));
    has(h.complaints, "strange.json: it is no JSON, or ends in the middle\n");
    has(h.complaints, "strange.json: it is a dump of another version");
    has(h.complaints, "deep.json: it is no JSON");
    has(h.complaints, "bytes.json: it is no text");
    has(h.complaints, "there is no dump to look at");
    close_hall(&h);
}

static void test_any_cut_is_noticed(void **state)
{
    char text[4096];

    (void)state;
    snprintf(text, sizeof text, "%s", dump_of(0, "j", "", OP(1, "done", "A \\\"quoted\\\" }]")));
    for (size_t cut = 0; cut < strlen(text); cut++) {
        struct hall h;
        open_hall(&h);
        assert_false(dumps_add(h.dumps, "cut", text, cut));
        close_hall(&h);
    }
}

static void test_of_two_of_one_rank_the_later_counts(void **state)
{
    char early[4096], *time;
    struct hall h;

    (void)state;
    open_hall(&h);
    snprintf(early, sizeof early, "%s", dump_of(0, "j", "", OP(1, "running", "A")));
    time = strstr(early, "T9");
    time[1] = '1';
    assert_true(add(&h, "late", dump_of(0, "j", "", OP(2, "running", "A"))));
    assert_true(add(&h, "early", early));
    fflush(h.complains);
    assert_string_equal(h.complaints, "");
    memcpy(strstr(early, "\"pid\":100"), "\"pid\":200", 9);
    assert_true(add(&h, "other", early));
    assert_true(report(&h, false));
    has(h.complaints, "other: rank 0 is in late, too (pid 200 on h0, and pid 100 on h0): the later one counts, late\n");
    has(h.said, "is in operation 2, A");
    close_hall(&h);
}

static void test_dumps_of_two_jobs_are_refused_with_their_files(void **state)
{
    struct hall h;

    (void)state;
    open_hall(&h);
    assert_true(add(&h, "a.json", dump_of(0, "one", "", "")));
    assert_true(add(&h, "b.json", dump_of(1, "two", "", "")));
    assert_false(report(&h, false));
    has(h.complaints, "b.json: it is of job two, of 3 ranks, and a.json of job one, of 3");
    assert_string_equal(h.said, "");
    close_hall(&h);
}

static void test_several_dumps_may_follow_each_other_in_a_file(void **state)
{
    char both[8192];
    struct hall h;

    (void)state;
    open_hall(&h);
    snprintf(both, sizeof both, "%s\n", dump_of(0, "j", "", OP(1, "running", "A")));
    strcat(both, dump_of(1, "j", "", OP(1, "running", "A")));
    assert_true(add(&h, "both", both));
    assert_true(report(&h, false));
    has(h.said, "dumps of ranks 0, 1; none of rank 2");
    close_hall(&h);
}

static void test_no_terminal_is_moved_by_a_dump(void **state)
{
    struct hall h;

    (void)state;
    open_hall(&h);
    assert_true(add(&h, "a", dump_of(0, "j", "", OP(1, "running", "\x1b[2J\x7f"))));
    assert_true(report(&h, false));
    assert_null(strchr(h.said, 0x1b));
    assert_null(strchr(h.said, 0x7f));
    close_hall(&h);

    open_hall(&h); /* ranks that are none */
    assert_true(add(&h, "a", dump_of(0, "j", "", OP(1, "running", "A") "],\"not_here\":[\"\x1b[2J\",\"\x9b\",-1,4096,2x,2")));
    assert_true(report(&h, false));
    has(h.said, "; it misses rank 2\n");
    assert_null(strchr(h.said, 0x1b));
    assert_null(strchr(h.said, 0x9b));
    close_hall(&h);

    open_hall(&h); /* outside of strings there is nothing of the kind */
    assert_false(add(&h, "a", dump_of(0, "j", "", OP(1, "running", "A") "],\"not_here\":[\x1b[2J]")));
    assert_false(add(&h, "a", dump_of(0, "j", "\x7f", OP(1, "running", "A"))));
    fflush(h.complains);
    has(h.complaints, "it is no JSON");
    assert_null(strchr(h.complaints, 0x1b));
    close_hall(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_disagreement_is_named_with_both_sides),
        cmocka_unit_test(test_a_rank_that_is_behind_is_named_with_those_that_wait),
        cmocka_unit_test(test_a_rank_without_dump_is_named),
        cmocka_unit_test(test_where_all_is_well_that_is_said),
        cmocka_unit_test(test_who_failed_first_is_said_first),
        cmocka_unit_test(test_files_that_are_none_are_named_and_left_out),
        cmocka_unit_test(test_any_cut_is_noticed),
        cmocka_unit_test(test_of_two_of_one_rank_the_later_counts),
        cmocka_unit_test(test_dumps_of_two_jobs_are_refused_with_their_files),
        cmocka_unit_test(test_several_dumps_may_follow_each_other_in_a_file),
        cmocka_unit_test(test_no_terminal_is_moved_by_a_dump),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
