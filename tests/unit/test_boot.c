/* SPDX-License-Identifier: Apache-2.0 */
/* The rendezvous, data links and local sockets between real processes on loopback. */
#include "boot_job.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- what ranks do ---- */

/* Sends each peer a byte of mine and expects its: 0 if all is as it should be. */
static int talk(const int *fd, int size, int me, bool all)
{
    for (int r = 0; r < size; r++) {
        unsigned char out[2] = { (unsigned char)me, (unsigned char)r };
        if ((fd[r] >= 0) != (all ? r != me : fd[r] >= 0))
            return 1;
        if (fd[r] >= 0 && send(fd[r], out, 2, MSG_NOSIGNAL) != 2)
            return 2;
    }
    for (int r = 0; r < size; r++) {
        unsigned char in[2];
        if (fd[r] < 0)
            continue;
        struct pollfd p = { .fd = fd[r], .events = POLLIN };
        if (poll(&p, 1, 60000) != 1 || recv(fd[r], in, 2, MSG_WAITALL) != 2 || in[0] != r ||
            in[1] != me)
            return 3;
    }
    return 0;
}

static void close_all(int *fd, int size)
{
    for (int r = 0; r < size; r++)
        rr_fd_close(fd[r]);
}

static int use(struct rr_boot *boot, int size, int rank, struct job_rank *me)
{
    uint8_t want[JOB_MOST];
    int fd[JOB_MOST], rc;
    uint32_t mine = 1000u + (uint32_t)rank, all[JOB_MOST];

    RR_TRY(rr_boot_allgather(boot, &mine, sizeof mine, all, &me->why));
    for (int r = 0; r < size; r++)
        if (all[r] != 1000u + (uint32_t)r ||
            rr_boot_member(boot, r)->host != rr_boot_member(boot, 0)->host)
            return 10;
    memset(want, 1, sizeof want);
    want[rank] = 0;
    RR_TRY(rr_boot_wire(boot, want, 1, fd, NULL, &me->why));
    rc = talk(fd, size, rank, true);
    close_all(fd, size);
    if (rc)
        return 20 + rc;
    RR_TRY(rr_boot_local(boot, fd, &me->why));
    for (int r = 0; r < size; r++)
        if ((fd[r] >= 0) != (rank == 0 ? r != 0 : r == 0))
            return 30;
    rc = talk(fd, size, rank, false);
    close_all(fd, size);
    return rc ? 40 + rc : rr_boot_allgather(boot, &mine, sizeof mine, all, &me->why);
}

static int whole_life(struct job *job, int i, struct job_rank *me)
{
    struct rr_boot *boot;

    RR_TRY(job_open(job, i, me, &boot));
    int rc = use(boot, job->size[i], job->rank[i], me);
    rr_boot_close(boot);
    return rc;
}

/* ---- tests ---- */

static void check_all_fine(const struct job *job)
{
    for (int i = 0; i < job->n; i++) {
        if (job->at[i].code)
            fail_msg("process %d: %d %s", i, job->at[i].code, job->at[i].why.text);
        assert_int_equal(job->at[i].fds_before, job->at[i].fds_after);
    }
}

static void test_any_number_of_ranks_meets_and_wires(void **state)
{
    (void)state;
    for (int n = 1; n <= 5; n++) {
        struct job job;
        job_init(&job, n, "127.0.0.1");
        job_run(&job, whole_life);
        check_all_fine(&job);
        job_done(&job);
    }
}

static void test_a_root_on_ipv6_and_one_with_a_name(void **state)
{
    (void)state;
    static const char *const hosts[] = { "::1", "localhost" };

    for (int h = 0; h < 2; h++) {
        struct job job;
        job_init(&job, 3, hosts[h]);
        if (job.holder < 0)
            print_message("no port on %s: not tried\n", hosts[h]);
        else
            job_run(&job, whole_life);
        check_all_fine(&job);
        job_done(&job);
    }
}

static int several_lives(struct job *job, int i, struct job_rank *me)
{
    for (int times = 0; times < 5; times++)
        RR_TRY(whole_life(job, i, me));
    return 0;
}

static void test_the_same_processes_meet_again_and_again(void **state)
{
    (void)state;
    struct job job;

    job_init(&job, 3, "127.0.0.1");
    job_run(&job, several_lives);
    check_all_fine(&job);
    job_done(&job);
}

static int by_id(struct job *job, int i, struct job_rank *me)
{
    if (i == 0) {
        RR_TRY(ringred_unique_id_create(job->id, &me->why));
        job->at[0].numbers[0] = 1;
    }
    while (__atomic_load_n(&job->at[0].numbers[0], __ATOMIC_ACQUIRE) == 0)
        poll(NULL, 0, 1);
    return whole_life(job, i, me);
}

static void test_ranks_meet_by_a_unique_id(void **state)
{
    (void)state;
    struct job job;

    job_init(&job, 3, "127.0.0.1");
    job.id = (ringred_unique_id *)(void *)&job.at[JOB_MOST - 1].why; /* room in the shared memory */
    job_run(&job, by_id);
    check_all_fine(&job);
    job_done(&job);
}

static int big(struct job *job, int i, struct job_rank *me)
{
    size_t bytes = 3 << 20, wrong = 0;
    unsigned char *mine = malloc(bytes), *all = malloc(4 * bytes);
    struct rr_boot *boot;

    RR_TRY(job_open(job, i, me, &boot));
    memset(mine, 'a' + i, bytes);
    int rc = rr_boot_allgather(boot, mine, bytes, all, &me->why);
    for (size_t k = 0; k < 4 * bytes; k++)
        wrong += all[k] != 'a' + k / bytes;
    rr_boot_close(boot);
    free(mine);
    free(all);
    return rc ? rc : wrong != 0;
}

static void test_an_exchange_may_be_larger_than_sockets_hold(void **state)
{
    (void)state;
    struct job job;

    job_init(&job, 4, "127.0.0.1");
    job_run(&job, big);
    check_all_fine(&job);
    job_done(&job);
}

/* Two pretended hosts of two: local sockets inside each, links across. */
static int on_two_hosts(struct job *job, int i, struct job_rank *me)
{
    uint8_t want[4];
    int fd[4], rc;
    struct rr_boot *boot;

    RR_TRY(job_open(job, i, me, &boot));
    for (int r = 0; r < 4; r++) {
        bool same = rr_boot_member(boot, r)->host == rr_boot_member(boot, i)->host;
        if (same != (r / 2 == i / 2))
            return 50;
        want[r] = !same;
    }
    RR_TRY(rr_boot_local(boot, fd, &me->why));
    for (int r = 0; r < 4; r++)
        if ((fd[r] >= 0) != (r == (i ^ 1)))
            return 51;
    rc = talk(fd, 4, i, false);
    close_all(fd, 4);
    RR_TRY(rr_boot_wire(boot, want, 1, fd, NULL, &me->why));
    for (int r = 0; r < 4; r++)
        if ((fd[r] >= 0) != want[r] ||
            (want[r] && !strstr(rr_boot_member(boot, r)->address, "127.0.0.1:")))
            return 52;
    rc = rc ? rc : talk(fd, 4, i, false);
    close_all(fd, 4);
    rr_boot_close(boot);
    return rc;
}

static void test_pretended_hosts_are_kept_apart(void **state)
{
    (void)state;
    struct job job;

    job_init(&job, 4, "127.0.0.1");
    job.settings[0] = "ranks_per_host=2";
    job.settings[1] = "interface=lo";
    job_run(&job, on_two_hosts);
    check_all_fine(&job);
    job_done(&job);
}

/* Without descriptors no file can be read, so nothing tells which machine this is. */
static int says_where_it_is(struct job *job, int i, struct job_rank *me)
{
    static struct rr_settings settings;
    struct rlimit files, none;
    uint64_t host, net;

    (void)job;
    RR_TRY(rr_settings_load(&settings, NULL, &me->why));
    getrlimit(RLIMIT_NOFILE, &files);
    none = (struct rlimit){ 0, files.rlim_max };
    if (i >= 2 && setrlimit(RLIMIT_NOFILE, &none) < 0)
        return 1;
    for (int times = 0; times < 2; times++) {
        uint64_t machine = rr_machine_hash();
        rr_identity(&settings, 0, &host, &net);
        if (times && (machine != (uint64_t)me->numbers[0] || host != (uint64_t)me->numbers[1]))
            return 2;
        me->numbers[0] = (long)machine;
        me->numbers[1] = (long)host;
    }
    setrlimit(RLIMIT_NOFILE, &files); /* leak checkers want some */
    return 0;
}

static void test_processes_share_a_machine_only_where_that_is_known(void **state)
{
    (void)state;
    struct job job;

    job_init(&job, 4, "127.0.0.1");
    job_run(&job, says_where_it_is);
    for (int what = 0; what < 2; what++) {
        for (int i = 0; i < 4; i++)
            assert_int_equal(job.at[i].code, 0);
        assert_int_equal(job.at[0].numbers[what], job.at[1].numbers[what]);
        assert_int_not_equal(job.at[0].numbers[what], job.at[2].numbers[what]);
        assert_int_not_equal(job.at[2].numbers[what], job.at[3].numbers[what]);
    }
    job_done(&job);
}

/* ---- ranks that were started wrongly ---- */

static void expect_all(const struct job *job, int code, const char *word)
{
    for (int i = 0; i < job->n; i++) {
        if (job->at[i].code != code || !strstr(job->at[i].why.text, word))
            fail_msg("process %d: %d %s", i, job->at[i].code, job->at[i].why.text);
        assert_int_equal(job->at[i].why.code, code);
        assert_int_equal(job->at[i].fds_before, job->at[i].fds_after);
    }
}

static void test_ranks_started_twice_are_named_to_all(void **state)
{
    (void)state;
    static const int ranks[2][4] = { { 0, 1, 0, 1 }, { 0, 1, 2, 1 } };

    for (int t = 0; t < 2; t++) {
        struct job job;
        char pid[32];
        job_init(&job, 4, "127.0.0.1");
        memcpy(job.rank, ranks[t], sizeof ranks[t]);
        job_run(&job, whole_life);
        expect_all(&job, RINGRED_ECONFIG, "was started twice");
        snprintf(pid, sizeof pid, "(pid %d)", job.at[3].pid);
        if (t == 1)
            expect_all(&job, RINGRED_ECONFIG, pid);
        job_done(&job);
    }
}

static void test_another_size_is_named_to_all(void **state)
{
    (void)state;
    struct job job;

    job_init(&job, 4, "127.0.0.1");
    job.size[2] = 3;
    job_run(&job, whole_life);
    expect_all(&job, RINGRED_ECONFIG, "was started for 3 ranks, but rank 0");
    job_done(&job);

    job_init(&job, 3, "127.0.0.1");
    job.size[2] = 9;
    job.rank[2] = 8;
    job_run(&job, whole_life);
    expect_all(&job, RINGRED_ECONFIG, "rank 8 on");
    job_done(&job);
}

static void test_missing_ranks_are_named_to_all_that_are_there(void **state)
{
    (void)state;
    struct job job;
    char words[160];

    job_init(&job, 3, "127.0.0.1");
    job.seconds = 0.7;
    for (int i = 0; i < 3; i++)
        job.size[i] = 7;
    job.rank[2] = 5;
    job_run(&job, whole_life);
    snprintf(words, sizeof words, "ranks 2-4, 6 never arrived at %s within", job.root);
    expect_all(&job, RINGRED_ETIMEOUT, words);
    expect_all(&job, RINGRED_ETIMEOUT, "(here: 0, 1, 5 of 7)");
    assert_int_equal(job.at[1].why.rank, 2);
    job_done(&job);
}

/* One that has less time than the root ends it for all; each still hears who was missing. */
static int impatient(struct job *job, int i, struct job_rank *me)
{
    job->seconds = i == 1 ? 0.5 : 60;
    return whole_life(job, i, me);
}

static void test_the_most_impatient_rank_decides(void **state)
{
    (void)state;
    struct job job;

    job_init(&job, 2, "127.0.0.1");
    job.size[0] = job.size[1] = 3;
    job_run(&job, impatient);
    expect_all(&job, RINGRED_ETIMEOUT, "rank 2 never arrived at");
    job_done(&job);
}

/* The clock ends between its deadline and the root's last word behind that. */
static int patient_to_the_end(struct job *job, int i, struct job_rank *me)
{
    job->seconds = (double)(INT64_MAX - rr_now_ns() - 1900000000) / 1e9;
    return whole_life(job, i, me);
}

static void test_a_deadline_may_lie_at_the_end_of_the_clock(void **state)
{
    (void)state;
    struct job job;

    job_init(&job, 3, "127.0.0.1");
    job_run(&job, patient_to_the_end);
    check_all_fine(&job);
    job_done(&job);
}

static void test_nobody_at_the_root_says_where_and_why(void **state)
{
    (void)state;
    struct job job;

    job_init(&job, 1, "127.0.0.1");
    job.seconds = 0.3;
    job.rank[0] = 1;
    job.size[0] = 2;
    job_run(&job, whole_life);
    expect_all(&job, RINGRED_ETIMEOUT, "nothing answered as root at ");
    expect_all(&job, RINGRED_ETIMEOUT, job.root);
    expect_all(&job, RINGRED_ETIMEOUT, "refused");
    job_done(&job);
}

static void test_a_name_without_an_address_is_told(void **state)
{
    (void)state;
    struct job job;

    job_init(&job, 1, "127.0.0.1");
    job.seconds = 0.3;
    job.rank[0] = 1;
    job.size[0] = 2;
    job.roots[0] = "no-such-host.invalid:1";
    job_run(&job, whole_life);
    expect_all(&job, RINGRED_ETIMEOUT, "nothing answered as root at no-such-host.invalid:1");
    job_done(&job);
}

/* Its name server may be away for a while; what the name meant before is tried on. */
static void test_a_name_that_is_not_found_again_keeps_its_addresses(void **state)
{
    (void)state;
    static const unsigned char key[RR_KEY_BYTES], name[RR_JOB_BYTES];
    static struct rr_dial d;
    struct rr_badge badge = { key, name, 1, RR_PURPOSE_MEET, 0, 0 };
    struct pollfd p[RR_DIAL_RACE];
    struct rr_polls none = { p, 0, RR_DIAL_RACE, INT64_MAX };
    struct rr_roots roots;
    ringred_error why;
    struct job job;

    job_init(&job, 1, "127.0.0.1"); /* nobody listens there */
    assert_int_equal(rr_roots_parse(job.root, &roots, &why), 0);
    roots.numeric = false;
    rr_dial_init(&d, &badge, 0);
    d.roots = &roots;
    for (int looks = 0; looks < 2; looks++) {
        int round = d.round = 8 * looks;
        while (d.round == round)
            rr_dial_turn(&d, &none);
        assert_int_equal(d.count, 1);
        assert_int_equal(d.at[0].to.port, job.port);
        snprintf(roots.at[0].host, sizeof roots.at[0].host, "no-such-host.invalid");
    }
    rr_dial_drop(&d);
    job_done(&job);
}

static void test_pr_05_a_taken_port_names_its_holder(void **state)
{
    (void)state;
    struct job job;
    char holder[32];

    job_init(&job, 1, "127.0.0.1");
    job.size[0] = 2;
    job.seconds = 1;
    assert_int_equal(listen(job.holder, 1), 0);
    job_run(&job, whole_life);
    snprintf(holder, sizeof holder, "process %d (", getpid());
    expect_all(&job, RINGRED_ESYSTEM, holder);
    expect_all(&job, RINGRED_ESYSTEM, job.root);
    assert_int_equal(job.at[0].why.system, EADDRINUSE);
    job_done(&job);
}

/* The port is held by the test, and no other one is allowed. */
static void test_pr_05_a_taken_range_names_its_holder(void **state)
{
    (void)state;
    struct job job, other;
    char range[64], words[96];

    job_init(&job, 1, "127.0.0.1");
    job_init(&other, 1, "127.0.0.1");
    assert_int_equal(listen(other.holder, 1), 0);
    snprintf(range, sizeof range, "port_range=%d-%d", other.port, other.port);
    job.settings[0] = range;
    job.settings[1] = "interface=127.0.0.1";
    job.size[0] = 2;
    job.seconds = 1;
    job_run(&job, whole_life);
    snprintf(words, sizeof words, "no port of port_range %d-%d is free; %d by process %d (", other.port, other.port,
             other.port, getpid());
    expect_all(&job, RINGRED_ESYSTEM, words);
    assert_int_equal(job.at[0].why.system, EADDRINUSE);
    job_done(&other);
    job_done(&job);
}

#define HOLES 7

/* A listener whose queue is full: the kernel drops whatever comes, as a firewall would. */
static void dig_hole(struct job *hole, int caller[4])
{
    job_init(hole, 1, "127.0.0.1");
    assert_int_equal(listen(hole->holder, 0), 0);
    for (int i = 0; i < 4; i++) {
        struct rr_address a = { .family = RR_FAMILY_IP4, .port = (uint16_t)hole->port, .ip = { 127, 0, 0, 1 } };
        caller[i] = rr_net_dial(NULL, &a, NULL, NULL);
        assert_true(caller[i] >= 0);
        struct pollfd p = { .fd = caller[i], .events = POLLOUT };
        (void)poll(&p, 1, i == 0 ? 1000 : 0); /* the first is queued, and fills the queue */
    }
}

/* One after the other, each of these would take half a second, and the time limit be over. */
static void test_addresses_that_swallow_everything_cost_a_moment(void **state)
{
    (void)state;
    struct job job, hole[HOLES];
    char roots[256] = "";
    struct rr_text t = { roots, sizeof roots, 0 };
    int caller[HOLES][4];

    for (int i = 0; i < HOLES; i++) {
        dig_hole(&hole[i], caller[i]);
        rr_text_add(&t, "%s,", hole[i].root);
    }
    job_init(&job, 3, "127.0.0.1");
    rr_text_add(&t, "%s", job.root);
    for (int i = 0; i < 3; i++)
        job.roots[i] = roots;
    job.seconds = 2.5;
    job_run(&job, whole_life);
    check_all_fine(&job);
    for (int i = 0; i < HOLES; i++) {
        for (int k = 0; k < 4; k++)
            rr_fd_close(caller[i][k]);
        job_done(&hole[i]);
    }
    job_done(&job);
}

static int fails_then_lives(struct job *job, int i, struct job_rank *me)
{
    struct rr_boot *boot;

    job->seconds = 0.5;
    job->size[i] = 3;
    if (job_open(job, i, me, &boot) != RINGRED_ETIMEOUT)
        return 60;
    job->seconds = 60;
    job->size[i] = 2;
    return whole_life(job, i, me);
}

static void test_after_a_failure_the_same_processes_can_meet(void **state)
{
    (void)state;
    struct job job;

    job_init(&job, 2, "127.0.0.1");
    job_run(&job, fails_then_lives);
    check_all_fine(&job);
    job_done(&job);
}

/* ---- ranks that end, or fail, while the others set up ---- */

/* Reads log lines until one has the words. */
static void await_line(int fd, const char *words)
{
    char line[4096];
    size_t used = 0;

    for (;;) {
        ssize_t n = read(fd, line + used, 1);
        if (n != 1)
            fail_msg("no line with \"%s\"", words);
        if (line[used++] != '\n' && used < sizeof line - 1)
            continue;
        line[used] = 0;
        used = 0;
        if (strstr(line, words))
            return;
    }
}

static int absent(struct job *job, int i, struct job_rank *me)
{
    return i == 2 ? 0 : whole_life(job, i, me);
}

static void kill_one(int victim, int rank_at_fault)
{
    struct job job;
    int log[2];

    job_init(&job, 3, "127.0.0.1");
    assert_int_equal(pipe(log), 0);
    job.log_fd = log[1];
    job.may_die[victim] = true;
    job_start(&job, absent);
    close(log[1]);
    await_line(log[0], victim ? "rank 1 is here" : "has counted this rank");
    assert_int_equal(kill(job.pid[victim], SIGKILL), 0);
    job_join(&job);
    close(log[0]);
    int survivor = 1 - victim;
    assert_int_equal(job.at[survivor].code, RINGRED_EPEER);
    assert_int_equal(job.at[survivor].why.rank, rank_at_fault);
    job_done(&job);
}

static void test_a_death_during_the_rendezvous_ends_it(void **state)
{
    (void)state;
    kill_one(1, 1);
    kill_one(0, 0);
}

static int dies_before_wiring(struct job *job, int i, struct job_rank *me)
{
    struct rr_boot *boot;

    if (i != 1)
        return whole_life(job, i, me);
    RR_TRY(job_open(job, i, me, &boot));
    kill(getpid(), SIGKILL);
    return 0;
}

static int fails_before_wiring(struct job *job, int i, struct job_rank *me)
{
    struct rr_boot *boot;

    if (i != 1)
        return whole_life(job, i, me);
    RR_TRY(job_open(job, i, me, &boot));
    rr_fail(&me->why, RINGRED_ENOMEM, 1, 0, "rank 1 has no memory for this test");
    rr_boot_tell(boot, &me->why);
    rr_boot_close(boot);
    return me->why.code;
}

static void test_a_death_during_wiring_ends_it_everywhere(void **state)
{
    (void)state;
    struct job job;

    job_init(&job, 4, "127.0.0.1");
    job.may_die[1] = true;
    job_run(&job, dies_before_wiring);
    for (int i = 0; i < 4; i++)
        if (i != 1) {
            assert_int_equal(job.at[i].code, RINGRED_EPEER);
            assert_int_equal(job.at[i].why.rank, 1);
        }
    job_done(&job);
}

static void test_a_failure_of_one_is_told_to_all(void **state)
{
    (void)state;
    struct job job;

    job_init(&job, 4, "127.0.0.1");
    job_run(&job, fails_before_wiring);
    expect_all(&job, RINGRED_ENOMEM, "rank 1 has no memory for this test");
    job_done(&job);
}

/* The nth allocation fails in one of two ranks: both end, nothing stays open. */
static int out_of_memory(struct job *job, int i, struct job_rank *me)
{
    if (i == (int)job->at[0].numbers[1])
        rr_alloc_fail_after(job->at[0].numbers[2], false);
    int rc = whole_life(job, i, me);
    me->numbers[3] = rr_alloc_count();
    return rc;
}

static void test_any_allocation_may_fail(void **state)
{
    (void)state;
    for (int size = 1; size <= 2; size++)
        for (int victim = 0; victim < size; victim++) {
            bool failed = true;
            for (long nth = 1; failed; nth++) {
                struct job job;
                job_init(&job, size, "127.0.0.1");
                job.seconds = 0.2; /* that the other waits where the victim never came */
                job.at[0].numbers[1] = victim;
                job.at[0].numbers[2] = nth;
                job_run(&job, out_of_memory);
                failed = job.at[victim].code < 0;
                assert_true(nth < 40);
                for (int i = 0; i < size; i++) {
                    assert_int_equal(job.at[i].fds_before, job.at[i].fds_after);
                    assert_int_equal(job.at[i].code < 0, failed);
                }
                if (failed)
                    assert_int_equal(job.at[victim].code, RINGRED_ENOMEM);
                job_done(&job);
            }
        }
}

/* Listens at some of all ports and dials from others as a user who may not have the first of them. */
static int32_t bind_as_nobody(void)
{
    const struct rr_net net = { .least = 1, .most = 65535 };
    struct rr_address a = { .family = RR_FAMILY_IP4, .ip = { 127, 0, 0, 1 } };

    if (geteuid() == 0 && setresuid(65534, 65534, 65534) < 0)
        return -errno;
    for (int i = 0; i < 1000; i++) { /* 1023 of 65535 are not for everybody: one in 64 begins there */
        uint16_t any = 0;
        a.port = 0;
        int fd = rr_net_listen(&net, &a);
        int all = rr_net_listen_any(&net, &any);
        int from = rr_net_dial(&net, &a, NULL, NULL);
        for (int k = 0; k < 3; k++)
            if ((k == 0 ? fd : k == 1 ? all : from) < 0)
                return k == 0 ? fd : k == 1 ? all : from;
        rr_fd_close(from);
        rr_fd_close(all);
        rr_fd_close(fd);
    }
    return 0;
}

static void test_a_range_may_begin_with_ports_that_are_not_for_everybody(void **state)
{
    (void)state;
    int status;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0)
        _exit(-bind_as_nobody());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("status %x: %s", status, strerror(WEXITSTATUS(status)));
}

/* ---- strangers ---- */

static int connect_to(int port)
{
    struct rr_address a = { .family = RR_FAMILY_IP4,
                            .port = (uint16_t)port,
                            .ip = { 127, 0, 0, 1 } };
    struct sockaddr_storage s;
    socklen_t n = rr_address_sock(&a, &s);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    while (connect(fd, (struct sockaddr *)&s, n) < 0) {
        if (errno != ECONNREFUSED)
            fail_msg("cannot connect: %s", strerror(errno));
        close(fd);
        poll(NULL, 0, 1);
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    }
    return fd;
}

#define STRANGERS 70 /* more than a gate holds */

/* Noise, silence, beginnings, and the proofs of another job. */
static void come_uninvited(int port, int fd[STRANGERS])
{
    for (int i = 0; i < STRANGERS; i++) {
        unsigned char bytes[200];
        size_t n = 0;
        fd[i] = connect_to(port);
        if (i % 4 == 0) {
            n = sizeof bytes;
            for (size_t k = 0; k < n; k++)
                bytes[k] = (unsigned char)(31 * k + 7 * (size_t)i);
        } else if (i % 4 == 1) {
            n = 10 + (size_t)i;
            memset(bytes, 0, sizeof bytes);
            memcpy(bytes, "ringred\n\2", 9);
        } else if (i % 4 == 2) { /* a well-formed proof for what it cannot know */
            memset(bytes, 0, sizeof bytes);
            memcpy(bytes, "ringred\n\2\0\1\0\1\0\0", 15);
            n = RR_PROOF_BYTES;
        }
        if (n && send(fd[i], bytes, n, MSG_NOSIGNAL) < 0 && errno != EPIPE && errno != ECONNRESET)
            fail_msg("cannot send: %s", strerror(errno));
    }
}

static int second_waits(struct job *job, int i, struct job_rank *me)
{
    if (i == 1)
        job_wait(job);
    return whole_life(job, i, me);
}

static void test_strangers_at_the_root_neither_join_nor_stall(void **state)
{
    (void)state;
    struct job job;
    int fd[STRANGERS], log[2];

    job_init(&job, 2, "127.0.0.1");
    assert_int_equal(pipe(log), 0);
    job.log_fd = log[1];
    job_start(&job, second_waits);
    close(log[1]);
    come_uninvited(job.port, fd);
    job_release(&job);
    await_line(log[0], "refused a connection from 127.0.0.1:");
    job_join(&job);
    check_all_fine(&job);
    for (int i = 0; i < STRANGERS; i++)
        close(fd[i]);
    close(log[0]);
    job_done(&job);
}

static int wires_when_told(struct job *job, int i, struct job_rank *me)
{
    struct rr_boot *boot;

    RR_TRY(job_open(job, i, me, &boot));
    me->numbers[1] = boot->entry[i].address[0].port;
    __atomic_store_n(&me->numbers[0], 1, __ATOMIC_RELEASE);
    job_wait(job);
    int rc = use(boot, job->size[i], job->rank[i], me);
    rr_boot_close(boot);
    return rc;
}

static void test_strangers_at_data_listeners_neither_join_nor_stall(void **state)
{
    (void)state;
    struct job job;
    int fd[2][STRANGERS];

    job_init(&job, 3, "127.0.0.1");
    job_start(&job, wires_when_told);
    for (int i = 1; i < 3; i++) {
        while (!__atomic_load_n(&job.at[i].numbers[0], __ATOMIC_ACQUIRE))
            poll(NULL, 0, 1);
        come_uninvited((int)job.at[i].numbers[1], fd[i - 1]);
    }
    job_release(&job);
    job_join(&job);
    check_all_fine(&job);
    for (int i = 0; i < STRANGERS; i++) {
        close(fd[0][i]);
        close(fd[1][i]);
    }
    job_done(&job);
}

static int guests(const struct rr_gate *g)
{
    int n = 0;

    for (int i = 0; i < RR_BOOT_STRANGERS; i++)
        n += g->guest[i].hand.state != RR_HAND_FREE;
    return n;
}

static void nobody_gets_through(void *context, int fd, int rank, int stream, const struct rr_seal *seal)
{
    (void)context;
    (void)stream;
    (void)seal;
    fail_msg("descriptor %d is said to be rank %d", fd, rank);
}

/* A full gate throws out one guest for each that comes, and none where nobody does. */
static void test_a_full_gate_makes_room_only_for_who_has_come(void **state)
{
    (void)state;
    static const unsigned char key[RR_KEY_BYTES], job[RR_JOB_BYTES];
    static struct rr_gate g;
    struct rr_address a = { .family = RR_FAMILY_IP4, .ip = { 127, 0, 0, 1 } };
    struct pollfd p[RR_BOOT_STRANGERS + 1];
    struct rr_polls polls = { p, 0, RR_BOOT_STRANGERS + 1, INT64_MAX };
    const struct rr_log log = { 0 };
    int before = job_fds(), end[RR_BOOT_STRANGERS][2], thrown_out = 0;

    g = (struct rr_gate){ .badge = { key, job, 0, RR_PURPOSE_MEET, 0, 0 }, .listeners = 1 };
    g.listener[0] = rr_listen(&a);
    assert_true(g.listener[0] >= 0);
    for (int i = 0; i < RR_BOOT_STRANGERS; i++) { /* they came long ago, at time 0 */
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, end[i]), 0);
        rr_hand_accept(&g.guest[i].hand, &g.badge, end[i][0]);
    }
    for (int round = 0; round < 2; round++) {
        int fd = round ? connect_to(a.port) : -1;
        polls.used = 0;
        rr_gate_polls(&g, &polls);
        for (int i = 0; i < polls.used; i++)
            p[i].revents = p[i].fd == g.listener[0] ? POLLIN : 0; /* at first it is not true */
        rr_gate_turn(&g, &polls, &log, nobody_gets_through, NULL);
        assert_int_equal(guests(&g), RR_BOOT_STRANGERS);
        assert_int_equal(g.strangers, round);
        if (fd >= 0)
            close(fd);
    }
    for (int i = 0; i < RR_BOOT_STRANGERS; i++) {
        struct pollfd closed = { .fd = end[i][1], .events = POLLRDHUP };
        thrown_out += poll(&closed, 1, 0) == 1;
        rr_hand_drop(&g.guest[i].hand);
        close(end[i][1]);
    }
    assert_int_equal(thrown_out, 1);
    close(g.listener[0]);
    assert_int_equal(job_fds(), before);
}

static void is_admitted(void *context, int fd, int rank, int stream, const struct rr_seal *seal)
{
    int *admitted = context;

    (void)stream;
    (void)seal;
    *admitted = rank;
    close(fd);
}

/* A gate that is full of guests; the first `welcomed` of them have been, and their diallers not been told yet. */
static void fill_gate(struct rr_gate *g, struct rr_hand dialler[RR_BOOT_STRANGERS], int welcomed)
{
    struct rr_badge badge = g->badge;
    int end[2];

    badge.rank = 1;
    for (int i = 0; i < RR_BOOT_STRANGERS; i++) {
        struct rr_hand *h = &g->guest[i].hand;
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, end), 0);
        rr_hand_accept(h, &g->badge, end[0]);
        rr_hand_dial(&dialler[i], &badge, end[1], g->badge.rank, INT64_MAX);
        while (i < welcomed && h->state != RR_HAND_READ_TAKEN) {
            if (dialler[i].state != RR_HAND_READ_WELCOME)
                assert_int_equal(rr_hand_step(&dialler[i]), RINGRED_PENDING);
            assert_int_equal(rr_hand_step(h), RINGRED_PENDING);
        }
    }
}

/* Whoever has proved itself may have been told so, and believes in the connection: it is not thrown out for
 * one that comes, which waits where there are no others. */
static void test_a_full_gate_keeps_those_it_has_welcomed(void **state)
{
    (void)state;
    static const unsigned char key[RR_KEY_BYTES], job[RR_JOB_BYTES];
    static struct rr_hand dialler[RR_BOOT_STRANGERS];
    static struct rr_gate g;
    struct pollfd p[RR_BOOT_STRANGERS + 1];
    const struct rr_log log = { 0 };
    int before = job_fds();

    for (int welcomed = 1; welcomed <= RR_BOOT_STRANGERS; welcomed += RR_BOOT_STRANGERS - 1) {
        struct rr_address a = { .family = RR_FAMILY_IP4, .ip = { 127, 0, 0, 1 } };
        struct rr_polls polls = { p, 0, RR_BOOT_STRANGERS + 1, INT64_MAX };
        int admitted = -1;
        g = (struct rr_gate){ .badge = { key, job, 0, RR_PURPOSE_MEET, 0, 0 }, .listeners = 1 };
        g.listener[0] = rr_listen(&a);
        assert_true(g.listener[0] >= 0);
        fill_gate(&g, dialler, welcomed);
        int fd = connect_to(a.port);
        rr_gate_polls(&g, &polls);
        for (int i = 0; i < polls.used; i++)
            p[i].revents = p[i].fd == g.listener[0] ? POLLIN : 0;
        rr_gate_turn(&g, &polls, &log, is_admitted, &admitted);
        assert_int_equal(g.strangers, welcomed == 1);
        assert_true(welcomed == 1 || g.pause_ns > 0);
        assert_int_equal(rr_hand_step(&dialler[0]), 0);
        g.guest[0].hand.give_up_ns = 0; /* what has come is read all the same */
        polls.used = 0;
        rr_gate_turn(&g, &polls, &log, is_admitted, &admitted);
        assert_int_equal(admitted, 1);
        for (int i = 0; i < RR_BOOT_STRANGERS; i++) {
            rr_hand_drop(&dialler[i]);
            rr_hand_drop(&g.guest[i].hand);
        }
        close(g.listener[0]);
        close(fd);
    }
    assert_int_equal(job_fds(), before);
}

/* ---- those who have the key, and lie ---- */

static const struct lie {
    int rank, size; /* what the dialler says it is; the job has three ranks */
    uint32_t note[2];
    int code;
    const char *words;
    const char *release; /* NULL: this one */
} lies[] = {
    { 2000000, 3, { RR_NOTE_JOIN, 0 }, RINGRED_ECONFIG, "came as rank 2000000, but the 3 ranks", NULL },
    { 3, 3, { RR_NOTE_JOIN, 0 }, RINGRED_ECONFIG, "came as rank 3, but the 3 ranks", NULL },
    { -5, 3, { RR_NOTE_JOIN, 0 }, RINGRED_ECONFIG, "came as rank -5, but the 3 ranks", NULL },
    { INT32_MIN, 3, { RR_NOTE_JOIN, 0 }, RINGRED_ECONFIG, "came as rank -2147483648, but", NULL },
    { 0, 3, { RR_NOTE_JOIN, 0 }, RINGRED_ECONFIG, "rank 0 was started twice", NULL },
    { 2000000, 9, { RR_NOTE_JOIN, 0 }, RINGRED_ECONFIG, "was started for 9 ranks", NULL },
    { 2, 3, { RR_NOTE_JOIN, 0 }, RINGRED_EVERSION, "uses libringred 9.8.7, but rank 0 on ", "9.8.7" },
    /* one part twice is not the parts of two */
    { 2, 3, { RR_NOTE_JOIN, RR_NOTE_JOIN }, RINGRED_EWIRE, "rank 2 sent its part of step 1 twice", NULL },
    /* says goodbye before it has come: nothing is lost, and rank 2 is still awaited */
    { 2000000, 3, { RR_NOTE_BYE, 0 }, RINGRED_ETIMEOUT, "ranks 1, 2 never arrived", NULL },
};

/* Dials the root as whom the lie says, proves it, and sends its notes. */
static int lies_to_root(struct job *job, int i, struct job_rank *me)
{
    const struct lie *lie = &lies[job->at[0].numbers[0]];
    static struct rr_settings settings;
    struct rr_join j = { .size = (uint32_t)lie->size, .left_ms = 60000, .release = RINGRED_VERSION };
    unsigned char body[RR_JOIN_BYTES];
    struct rr_launch launch;
    struct rr_hand hand = { 0 };
    struct rr_line line;
    ringred_config c = { .rank = 1, .size = 3, .root = job->root, .key = job->key[1] };

    if (i == 0)
        return whole_life(job, i, me);
    if (lie->release)
        snprintf(j.release, sizeof j.release, "%s", lie->release);
    c.key_bytes = strlen(job->key[1]);
    RR_TRY(rr_settings_load(&settings, NULL, &me->why));
    RR_TRY(rr_launch_find(&c, &settings, &launch, &me->why));
    struct rr_badge badge = { launch.key, launch.job, lie->rank, RR_PURPOSE_MEET, 0, 0 };
    int rc, fd = connect_to(job->port);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    rr_hand_dial(&hand, &badge, fd, 0, INT64_MAX);
    while ((rc = rr_hand_step(&hand)) == RINGRED_PENDING) {
        struct pollfd p = { .fd = hand.fd, .events = rr_hand_events(&hand) };
        poll(&p, 1, -1);
    }
    RR_TRY(rc);
    rr_line_init(&line, rr_hand_take(&hand), 0);
    rr_join_write(&j, body);
    for (int k = 0; k < 2 && lie->note[k]; k++) {
        rr_line_send(&line, lie->note[k], 1, body, lie->note[k] == RR_NOTE_BYE ? 0 : sizeof body);
        while (rr_line_write(&line) == RINGRED_PENDING)
            poll(NULL, 0, 1);
    }
    struct pollfd p = { .fd = line.fd, .events = POLLIN };
    do /* until the root has closed, too */
        poll(&p, 1, -1);
    while (recv(line.fd, body, sizeof body, 0) > 0);
    rr_line_close(&line);
    return 0;
}

static void test_who_lies_with_the_key_ends_the_rendezvous_in_words(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof lies / sizeof *lies; k++) {
        struct job job;
        job_init(&job, 2, "127.0.0.1");
        job.size[0] = 3;
        job.seconds = lies[k].code == RINGRED_ETIMEOUT ? 0.3 : 60;
        job.at[0].numbers[0] = (long)k;
        job_run(&job, lies_to_root);
        if (job.at[1].code)
            fail_msg("%s", job.at[1].why.text);
        if (job.at[0].code != lies[k].code || !strstr(job.at[0].why.text, lies[k].words))
            fail_msg("lie %zu: %d %s", k, job.at[0].code, job.at[0].why.text);
        assert_int_equal(job.at[0].fds_before, job.at[0].fds_after);
        job_done(&job);
    }
}

/* A rank that gives its part of the next exchange twice, where its mate gives none. */
static int twice_where_one_is_due(struct job *job, int i, struct job_rank *me)
{
    struct rr_boot *boot;
    unsigned char all[3];
    int rc = 0;

    RR_TRY(job_open(job, i, me, &boot));
    if (i == 2) {
        job_wait(job);
    } else if (i == 1) {
        for (int times = 0; times < 2; times++) {
            rr_line_send(&boot->line[0], RR_NOTE_UP, boot->step + 1, "x", 1);
            while (rr_line_write(&boot->line[0]) == RINGRED_PENDING)
                poll(NULL, 0, 1);
        }
        job_wait(job);
    } else {
        rc = rr_boot_allgather(boot, "x", 1, all, &me->why);
        __atomic_store_n(&me->numbers[0], 1, __ATOMIC_RELEASE);
    }
    rr_boot_close(boot);
    return rc;
}

static void test_a_part_given_twice_is_not_two(void **state)
{
    (void)state;
    struct job job;

    job_init(&job, 3, "127.0.0.1");
    job_start(&job, twice_where_one_is_due);
    while (!__atomic_load_n(&job.at[0].numbers[0], __ATOMIC_ACQUIRE))
        poll(NULL, 0, 1);
    job_release(&job);
    job_join(&job);
    assert_int_equal(job.at[0].code, RINGRED_EWIRE);
    assert_non_null(strstr(job.at[0].why.text, "rank 1 sent its part of step 2 twice"));
    job_done(&job);
}

static int patient_with_key(struct job *job, int i, struct job_rank *me)
{
    job->seconds =
        i == 0 ? 0.7 : 60; /* the one with the wrong key need not wait for its deadline */
    return whole_life(job, i, me);
}

static void test_another_key_is_refused_and_told(void **state)
{
    (void)state;
    struct job job;

    job_init(&job, 2, "127.0.0.1");
    job.key[1] = "not the key of this job";
    job_run(&job, patient_with_key);
    assert_int_equal(job.at[1].code, RINGRED_EAUTH);
    assert_non_null(strstr(job.at[1].why.text, "different keys"));
    assert_int_equal(job.at[0].code, RINGRED_EAUTH);
    assert_non_null(strstr(job.at[0].why.text, "rank 1 never arrived"));
    assert_non_null(strstr(job.at[0].why.text, "said to be rank 1: another key"));
    job_done(&job);
}

static void test_a_job_without_a_key_meets_with_one_warning(void **state)
{
    (void)state;
    struct job job;
    int log[2];

    job_init(&job, 2, "127.0.0.1");
    job.key[0] = job.key[1] = NULL;
    assert_int_equal(pipe(log), 0);
    job.log_fd = log[1];
    job_start(&job, whole_life);
    close(log[1]);
    await_line(log[0], "no key was given");
    job_join(&job);
    check_all_fine(&job);
    close(log[0]);
    job_done(&job);
}

/* Neighbours' addresses come first, in their order; our own are nobody's but ours. */
static void test_addresses_on_shared_networks_come_first(void **state)
{
    struct rr_settings settings;
    struct rr_address mine[RR_ADDRESSES], list[4];
    struct rr_net net;
    ringred_error why = { 0 };

    (void)state;
    assert_int_equal(rr_settings_load(&settings, NULL, &why), 0);
    assert_int_equal(rr_net_open(&settings, &net, &why), 0);
    int n = rr_net_addresses(&net, mine, RR_ADDRESSES), lan = -1;
    assert_true(n > 0);
    for (int i = 0; i < n && lan < 0; i++)
        lan = !mine[i].loopback && mine[i].family == RR_FAMILY_IP4 ? i : -1;
    if (lan < 0) {
        rr_net_close(&net);
        skip(); /* no network to have neighbours on */
    }
    list[0] = list[1] = list[2] = list[3] = mine[lan];
    list[0].ip[0] = 203, list[0].ip[1] = 0, list[0].ip[2] = 113; /* for documentation: nobody's network */
    list[2].ip[3] ^= 1;
    list[3].ip[3] ^= 2;
    int near = rr_net_near(&net, list, 4);
    rr_net_close(&net);
    assert_true(near <= 2); /* the mask may be one of a single address */
    if (near == 2) {
        assert_int_equal(list[0].ip[3], mine[lan].ip[3] ^ 1);
        assert_int_equal(list[1].ip[3], mine[lan].ip[3] ^ 2);
    }
    assert_int_equal(list[near].ip[0], 203);
}

static void test_another_version_at_the_root_is_named(void **state)
{
    (void)state;
    struct job job;
    unsigned char greeting[RR_GREETING_BYTES] = "ringred\n\x2a";

    job_init(&job, 1, "127.0.0.1");
    job.rank[0] = 1;
    job.size[0] = 2;
    assert_int_equal(listen(job.holder, 8), 0);
    job_start(&job, whole_life);
    int fd = accept(job.holder, NULL, NULL);
    assert_int_equal(send(fd, greeting, sizeof greeting, MSG_NOSIGNAL), sizeof greeting);
    job_join(&job);
    expect_all(&job, RINGRED_EVERSION, "wire version 42, this library version 2");
    close(fd);
    job_done(&job);
}

static void test_another_version_that_comes_is_named_in_the_end(void **state)
{
    (void)state;
    struct job job;

    job_init(&job, 1, "127.0.0.1");
    job.size[0] = 2;
    job.seconds = 0.7;
    job_start(&job, whole_life);
    int fd = connect_to(job.port);
    assert_int_equal(send(fd, "ringred\n\x2a\0", 10, MSG_NOSIGNAL), 10);
    job_join(&job);
    expect_all(&job, RINGRED_EVERSION, "another wire version (42, here 2)");
    close(fd);
    job_done(&job);
}

/* ---- torchrun, whose store holds MASTER_PORT ---- */

static void test_torchrun_ranks_meet_beside_the_store(void **state)
{
    (void)state;
    for (int agent = 0; agent < 2; agent++) {
        static char text[3][64], port[64];
        struct job job;
        job_init(&job, 3, "127.0.0.1");
        assert_int_equal(listen(job.holder, 64), 0); /* a store that does not speak first */
        snprintf(port, sizeof port, "MASTER_PORT=%d", job.port);
        for (int i = 0; i < 3; i++) {
            snprintf(text[i], sizeof text[i], "RANK=%d", i);
            const char *variables[] = { text[i],
                                        "WORLD_SIZE=3",
                                        "MASTER_ADDR=127.0.0.1",
                                        port,
                                        "TORCHELASTIC_RUN_ID=test",
                                        agent ? "TORCHELASTIC_USE_AGENT_STORE=True" : NULL };
            memcpy(job.variables[i], variables, sizeof variables);
        }
        job_run(&job, several_lives);
        check_all_fine(&job);
        job_done(&job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_number_of_ranks_meets_and_wires),
        cmocka_unit_test(test_a_root_on_ipv6_and_one_with_a_name),
        cmocka_unit_test(test_the_same_processes_meet_again_and_again),
        cmocka_unit_test(test_ranks_meet_by_a_unique_id),
        cmocka_unit_test(test_an_exchange_may_be_larger_than_sockets_hold),
        cmocka_unit_test(test_pretended_hosts_are_kept_apart),
        cmocka_unit_test(test_processes_share_a_machine_only_where_that_is_known),
        cmocka_unit_test(test_ranks_started_twice_are_named_to_all),
        cmocka_unit_test(test_another_size_is_named_to_all),
        cmocka_unit_test(test_missing_ranks_are_named_to_all_that_are_there),
        cmocka_unit_test(test_the_most_impatient_rank_decides),
        cmocka_unit_test(test_a_deadline_may_lie_at_the_end_of_the_clock),
        cmocka_unit_test(test_nobody_at_the_root_says_where_and_why),
        cmocka_unit_test(test_a_name_without_an_address_is_told),
        cmocka_unit_test(test_a_range_may_begin_with_ports_that_are_not_for_everybody),
        cmocka_unit_test(test_a_name_that_is_not_found_again_keeps_its_addresses),
        cmocka_unit_test(test_pr_05_a_taken_port_names_its_holder),
        cmocka_unit_test(test_pr_05_a_taken_range_names_its_holder),
        cmocka_unit_test(test_addresses_that_swallow_everything_cost_a_moment),
        cmocka_unit_test(test_after_a_failure_the_same_processes_can_meet),
        cmocka_unit_test(test_a_death_during_the_rendezvous_ends_it),
        cmocka_unit_test(test_a_death_during_wiring_ends_it_everywhere),
        cmocka_unit_test(test_a_failure_of_one_is_told_to_all),
        cmocka_unit_test(test_any_allocation_may_fail),
        cmocka_unit_test(test_strangers_at_the_root_neither_join_nor_stall),
        cmocka_unit_test(test_strangers_at_data_listeners_neither_join_nor_stall),
        cmocka_unit_test(test_a_full_gate_makes_room_only_for_who_has_come),
        cmocka_unit_test(test_a_full_gate_keeps_those_it_has_welcomed),
        cmocka_unit_test(test_who_lies_with_the_key_ends_the_rendezvous_in_words),
        cmocka_unit_test(test_a_part_given_twice_is_not_two),
        cmocka_unit_test(test_another_key_is_refused_and_told),
        cmocka_unit_test(test_a_job_without_a_key_meets_with_one_warning),
        cmocka_unit_test(test_addresses_on_shared_networks_come_first),
        cmocka_unit_test(test_another_version_at_the_root_is_named),
        cmocka_unit_test(test_another_version_that_comes_is_named_in_the_end),
        cmocka_unit_test(test_torchrun_ranks_meet_beside_the_store),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
