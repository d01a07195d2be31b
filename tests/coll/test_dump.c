/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank says it did last: in words of its own, from any thread, to another process while it is stopped, and in
 * a file when its communicator breaks. */
#include "coll.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define ROOM ((size_t)1 << 18)

static const char *info; /* the program ringred-info; NULL: not given */

static const struct coll_setup setups[] = {
    { 1, { NULL } },
    { 2, { "transport=shm" } },
    { 3, { "transport=tcp" } },
    { 4, { "ranks_per_host=2" } },
};

static void each_setup(void (*run)(struct rank *me))
{
    coll_each(setups, sizeof setups / sizeof *setups, run, 60);
}

/* What it says now. */
static char *dump(ringred_comm *comm)
{
    static _Thread_local char text[ROOM];
    int64_t need = ringred_comm_dump(comm, text, sizeof text);

    rank_check_msg(need > 0 && need < (int64_t)sizeof text, "dump: %lld", (long long)need);
    rank_check(strlen(text) == (size_t)need && text[0] == '{' && text[need - 1] == '}');
    return text;
}

static int times(const char *text, const char *part)
{
    int n = 0;

    for (const char *at = text; (at = strstr(at, part)); at++)
        n++;
    return n;
}

#define says(text, ...)                                                               \
    do {                                                                              \
        char part_[200];                                                              \
        snprintf(part_, sizeof part_, __VA_ARGS__);                                   \
        rank_check_msg(strstr(text, part_) != NULL, "\"%s\" is not in %s", part_, text); \
    } while (0)

static void sum(ringred_comm *comm)
{
    float x[4] = { 1 };

    coll_must(comm, ringred_allreduce(comm, x, x, 4, RINGRED_FLOAT32, RINGRED_MAX), "allreduce");
}

/* ---- what is in it ---- */

static void tells(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    int64_t x[3] = { 0 };

    says(dump(comm), "\"operations\":[]");
    sum(comm);
    coll_must(comm, ringred_broadcast(comm, x, x, 3, RINGRED_INT64, me->size - 1), "broadcast");
    const char *text = dump(comm);
    says(text, "{\"schema\":\"ringred-dump\",\"version\":1,");
    says(text, "\"rank\":%d,\"size\":%d,", me->rank, me->size);
    says(text, "\"pid\":%d,", getpid());
    says(text, "\"status\":0,\"communicators\":[{\"name\":\"all\",\"rank\":%d,\"size\":%d,\"members\":[0", me->rank, me->size);
    says(text, "{\"number\":1,\"state\":\"done\",\"what\":\"allreduce (max) of 4 float32\",\"collective\":\"allreduce\",\"type\":"
               "\"float32\",\"op\":\"max\",\"root\":-1,\"count\":4,\"bytes\":16,\"algorithm\":\"");
    says(text, "{\"number\":2,\"state\":\"done\",\"what\":\"broadcast of 3 int64 from root %d\",\"collective\":\"broadcast\","
               "\"type\":\"int64\",\"op\":\"\",\"root\":%d,\"count\":3,\"bytes\":24,", me->size - 1, me->size - 1);
    rank_check(ringred_comm_dump(comm, NULL, 0) > 0);
    rank_check_int(ringred_comm_dump(NULL, NULL, 0), RINGRED_EINVAL);
    rank_check_int(ringred_comm_dump(comm, NULL, 1), RINGRED_EINVAL);
    coll_close(comm);
}

static void test_a_dump_says_what_was_asked_for(void **state)
{
    (void)state;
    each_setup(tells);
}

static void wraps(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);

    for (int i = 0; i < 200; i++)
        coll_must(comm, ringred_barrier(comm), "barrier");
    const char *text = dump(comm);
    rank_check_int(times(text, "\"number\":"), 64);
    says(text, "\"operations\":[{\"number\":137,");
    says(text, "{\"number\":200,");
    coll_close(comm);
}

static void test_the_last_64_are_kept(void **state)
{
    (void)state;
    each_setup(wraps);
}

static void lists(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    float a[2] = { 1 };
    int32_t *b = calloc(1 << 16, sizeof *b);
    void *vectors[] = { a, b };
    const size_t counts[] = { 2, 1 << 16 };
    const int32_t types[] = { RINGRED_FLOAT32, RINGRED_INT32 };

    coll_must(comm, ringred_allreduce_list(comm, (const void *const *)vectors, vectors, counts, types, 2, RINGRED_SUM), "list");
    const char *text = dump(comm);
    rank_check_int(times(text, "\"what\":\"allreduce_list (sum) of a list of 2 vectors"), 2);
    rank_check_int(times(text, "\"state\":\"done\""), 2);
    free(b);
    coll_close(comm);
}

static void test_each_run_of_a_list_is_an_operation(void **state)
{
    (void)state;
    each_setup(lists);
}

static void on_parts(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument), *part, *whole;

    coll_must(comm, ringred_comm_split(comm, me->rank % 2, -me->rank, &part), "split");
    coll_must(part, ringred_comm_split(part, 0, 0, &whole), "split of a part");
    sum(whole);
    int highest = me->size - 1 - (me->size - 1 - me->rank) % 2;
    const char *text = dump(part);
    says(text, "\"name\":\"all/1.%d\",\"rank\":%d,\"size\":%d,\"members\":[%d", highest, ringred_comm_rank(part),
         ringred_comm_size(part), highest);
    rank_check_int(times(text, "\"name\":"), 1);
    text = dump(whole);
    says(text, "\"name\":\"all/1.%d/1.0\"", highest);
    says(text, "allreduce (max)");
    coll_close(part);
    coll_close(whole);
    rank_check_int(times(dump(comm), "\"name\":\"all\""), 1);
    coll_close(comm);
}

static void test_parts_have_names_that_all_ranks_give_alike(void **state)
{
    (void)state;
    each_setup(on_parts);
}

#define MANY 300

static void many_parts(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument), *part[MANY];

    for (int i = 0; i < MANY; i++) {
        coll_must(comm, ringred_comm_split(comm, 0, 0, &part[i]), "split");
        sum(part[i]);
    }
    says(dump(part[10]), "\"name\":\"all/11.0\"");
    says(dump(part[MANY - 1]), "\"communicators\":[]"); /* too many to be recorded; it works */
    for (int i = 0; i < MANY; i++)
        coll_close(part[i]);
    coll_must(comm, ringred_comm_split(comm, 0, 0, part), "split");
    says(dump(part[0]), "\"name\":\"all/%d.0\"", MANY + 1);
    coll_close(part[0]);
    coll_close(comm);
}

static void test_communicators_beyond_the_record_work_and_their_places_are_used_again(void **state)
{
    (void)state;
    coll_each(&setups[1], 1, many_parts, 60);
}

/* ---- whom it waits for ---- */

static bool is_missed(const char *text, int rank)
{
    char part[64];

    snprintf(part, sizeof part, "\"not_here\":[%d]", rank);
    return strstr(text, part) != NULL && strstr(text, "\"state\":\"running\"") != NULL;
}

static void waits_in_vain(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    int culprit = me->size - 1;
    ringred_request *request;
    float x[2000] = { 0 };

    sum(comm);
    if (me->rank == culprit)
        ranks_meet(me);
    coll_must(comm, ringred_allreduce_start(comm, x, x, 2000, RINGRED_FLOAT32, RINGRED_SUM, &request), "start");
    if (me->rank != culprit) {
        while (!is_missed(dump(comm), culprit))
            rank_check_int(ringred_wait(request, RINGRED_SECOND / 50), RINGRED_PENDING);
        says(dump(comm), "\"state\":\"running\",\"what\":\"allreduce (sum) of 2000 float32\"");
        ranks_meet(me);
    }
    coll_must(comm, ringred_wait(request, RINGRED_FOREVER), "wait");
    rank_check(!strstr(dump(comm), "not_here"));
    coll_close(comm);
}

static void test_a_rank_that_never_comes_is_named(void **state)
{
    (void)state;
    coll_each(setups + 1, sizeof setups / sizeof *setups - 1, waits_in_vain, 60);
}

static void *waiter(void *comm)
{
    sum(comm);
    return NULL;
}

static void beside_a_waiter(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    int culprit = me->size - 1;
    pthread_t thread;

    if (me->rank == culprit) {
        ranks_meet(me);
        sum(comm);
        coll_close(comm);
        return;
    }
    rank_check(pthread_create(&thread, NULL, waiter, comm) == 0);
    while (!is_missed(dump(comm), culprit))
        sched_yield();
    ranks_meet(me);
    rank_check(pthread_join(thread, NULL) == 0);
    coll_close(comm);
}

static void test_any_thread_may_dump_while_another_waits(void **state)
{
    (void)state;
    coll_each(setups + 1, sizeof setups / sizeof *setups - 1, beside_a_waiter, 60);
}

static void in_a_fork(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    char text[64];
    int status;

    sum(comm);
    pid_t pid = fork();
    if (pid == 0)
        _exit(ringred_comm_dump(comm, text, sizeof text) == RINGRED_EFORKED &&
                      ringred_dump_process(getpid(), 0, text, sizeof text) == RINGRED_EINVAL
                  ? 0 : 1);
    rank_check(waitpid(pid, &status, 0) == pid);
    rank_check_int(status, 0);
    says(dump(comm), "\"number\":1,");
    coll_close(comm);
}

static void test_a_fork_dumps_nothing_of_its_parents(void **state)
{
    (void)state;
    each_setup(in_a_fork);
}

/* ---- from outside ---- */

/* What a command says on both its outputs; its status. */
static int __attribute__((format(printf, 2, 3))) run(char *said, const char *format, ...)
{
    char command[1024];
    va_list arguments;
    size_t used;

    va_start(arguments, format);
    vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    FILE *out = popen(command, "r");
    rank_check(out != NULL);
    used = fread(said, 1, ROOM - 1, out);
    said[used] = 0;
    return pclose(out);
}

static char state_of(pid_t pid)
{
    char path[64], text[256] = "";

    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "r");
    rank_check(f && fgets(text, sizeof text, f));
    fclose(f);
    const char *behind = strrchr(text, ')');
    return behind ? behind[2] : '?';
}

static void reads_a_stopped_one(struct rank *me)
{
    static char text[ROOM];
    _Atomic pid_t *pid = me->shared;
    ringred_comm *comm = coll_open(me, me->argument);

    sum(comm);
    if (me->rank == 1)
        *pid = getpid();
    ranks_meet(me);
    if (me->rank == 0) {
        while (ringred_dump_process(*pid, 0, text, sizeof text) < 0 || !strstr(text, "\"number\":2,\"state\":\"running\""))
            sched_yield();
        rank_check(kill(*pid, SIGSTOP) == 0);
        while (state_of(*pid) != 'T')
            sched_yield();
        if (info) {
            rank_check_int(run(text, "%s --dump %d", info, *pid), 0);
            says(text, "\"rank\":1,\"size\":2,");
            says(text, "\"pid\":%d,", *pid);
            says(text, "{\"number\":2,\"state\":\"running\",\"what\":\"allreduce (max) of 4 float32\"");
        }
        rank_check_int(ringred_dump_process(*pid, 1, text, sizeof text), RINGRED_EINVAL);
        rank_check(kill(*pid, SIGCONT) == 0);
    }
    sum(comm);
    coll_close(comm);
}

static void test_a_stopped_process_is_read_from_outside(void **state)
{
    static const struct coll_setup two[] = { { 2, { "transport=shm" } }, { 2, { "transport=tcp" } } };

    (void)state;
    coll_each(two, 2, reads_a_stopped_one, 60);
}

static void test_a_process_without_communicators_is_refused_in_words(void **state)
{
    char text[512];

    (void)state;
    assert_int_equal(ringred_dump_process(getpid(), 0, text, sizeof text), RINGRED_EINVAL);
    assert_non_null(strstr(text, "has no communicator"));
    assert_int_equal(ringred_dump_process(-1, 0, text, sizeof text), RINGRED_EINVAL);
    assert_int_equal(ringred_dump_process(1 << 30, 0, text, sizeof text), RINGRED_ESYSTEM);
}

/* A small limit of file sizes: no memory file, and nothing else that is different. */
static void without_a_file(struct rank *me)
{
    const struct rlimit small = { 65536, 65536 };
    char text[512];

    rank_check(setrlimit(RLIMIT_FSIZE, &small) == 0);
    ringred_comm *comm = coll_open(me, me->argument);
    sum(comm);
    says(dump(comm), "\"number\":1,\"state\":\"done\"");
    rank_check_int(ringred_dump_process(getpid(), 0, text, sizeof text), RINGRED_EINVAL);
    coll_close(comm);
}

static void test_without_a_memory_file_a_process_still_dumps_itself(void **state)
{
    static const struct coll_setup two = { 2, { "transport=tcp" } };

    (void)state;
    coll_each(&two, 1, without_a_file, 60);
}

static int count_in(const char *path)
{
    DIR *d = opendir(path);
    int n = 0;

    rank_check(d != NULL);
    for (struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static int mappings(void)
{
    FILE *f = fopen("/proc/self/maps", "r");
    char line[512];
    int n = 0;

    while (f && fgets(line, sizeof line, f))
        n += strstr(line, "ringred-operations") != NULL;
    rank_check(f != NULL);
    fclose(f);
    return n;
}

static void comes_and_goes(struct rank *me)
{
    int before = 0;

    for (int i = 0; i < 3000; i++) {
        ringred_comm *comm = coll_open(me, me->argument), *part;
        coll_must(comm, ringred_comm_split(comm, 0, 0, &part), "split");
        sum(part);
        coll_close(part);
        rank_check_int(mappings(), 1);
        coll_close(comm);
        before = i ? before : count_in("/proc/self/fd");
    }
    rank_check_int(count_in("/proc/self/fd"), before);
    rank_check_int(mappings(), 0);
}

static void test_thousands_of_communicators_leave_no_descriptor(void **state)
{
    (void)state;
    coll_each(setups, 1, comes_and_goes, 120);
}

/* ---- files ---- */

struct broken {
    struct coll_setup setup;
    const char *way;            /* "disagree", "timeout", "kill", "abort" */
    char folder[64];
    rlim_t most;                /* bytes of a file; 0: as it is */
    int files, lines;           /* that each of the others leaves: files, warnings of the log */
    const char *merged;         /* what the merge says */
};

static void hear(void *context, int32_t level, const char *line)
{
    *(int *)context += level == RINGRED_LOG_WARN && strstr(line, "cannot be written") != NULL;
}

static int32_t call(struct rank *me, ringred_comm *comm, const struct broken *b)
{
    double x[2] = { 0 };
    bool culprit = me->rank == me->size - 1;

    if (!strcmp(b->way, "disagree"))
        return ringred_allreduce(comm, x, x, culprit ? 2 : 1, RINGRED_FLOAT64, RINGRED_SUM);
    if (culprit && !strcmp(b->way, "kill"))
        raise(SIGKILL);
    bool late = !strcmp(b->way, "timeout");
    if (culprit && late) {
        ranks_meet(me); /* the others have given up, which a rank that is in no call does not see */
        return ringred_comm_abort(comm);
    }
    int32_t rc = ringred_allreduce(comm, x, x, 1, RINGRED_FLOAT64, RINGRED_SUM);
    if (late)
        ranks_meet(me);
    return rc;
}

static void breaks(struct rank *me)
{
    const struct broken *b = me->argument;
    struct coll_setup setup = b->setup;
    char setting[96];
    ringred_config wishes;
    int lines = 0;

    ringred_config_init(&wishes, sizeof wishes);
    wishes.log = hear;
    wishes.log_context = &lines;
    snprintf(setting, sizeof setting, "dump_dir=%s", b->folder);
    setup.setting[COLL_SETTINGS - 1] = setting;
    for (int i = 0; i < COLL_SETTINGS - 1; i++)
        if (!setup.setting[i])
            setup.setting[i] = "log=warn";
    ringred_comm *comm = coll_open_with(me, &setup, &wishes);
    sum(comm);
    ranks_meet(me);
    if (b->most)
        rank_check(setrlimit(RLIMIT_FSIZE, &(struct rlimit){ b->most, b->most }) == 0);
    int32_t rc = call(me, comm, b);
    if (rc == 0)
        rc = ringred_barrier(comm);
    rank_check_msg(rc < 0, "%s: %d", b->way, rc);
    rank_check(ringred_barrier(comm) < 0);
    const char *text = dump(comm);
    says(text, "\"status\":%d,\"error\":{", rc);
    (void)ringred_comm_destroy(comm); /* its status is the failure */
    rank_check_int(lines, b->lines);
}

static void make_folder(char folder[64])
{
    strcpy(folder, "/tmp/ringred-dump-XXXXXX");
    assert_non_null(mkdtemp(folder));
}

/* Files of a folder, which go; each is private, and none is half of one. */
static int clear(const char *folder)
{
    DIR *d = opendir(folder);
    int n = 0;

    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat s;
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        assert_int_equal(fstatat(dirfd(d), e->d_name, &s, AT_SYMLINK_NOFOLLOW), 0);
        assert_int_equal(s.st_mode, S_IFREG | 0600);
        assert_true(!strncmp(e->d_name, "ringred-", 8) && strstr(e->d_name, ".json"));
        assert_int_equal(unlinkat(dirfd(d), e->d_name, 0), 0);
        n++;
    }
    if (d)
        closedir(d);
    return n;
}

static void break_it(struct broken *b)
{
    static char text[ROOM];
    int size = b->setup.ranks;
    const struct ranks_plan plan = { .size = size, .run = breaks, .argument = b,
                                     .may_die = strcmp(b->way, "kill") ? 0 : 1ull << (size - 1) };

    print_message("             %s, %d ranks\n", b->way, size);
    ranks_run(&plan);
    if (info && b->merged) {
        assert_int_equal(run(text, "%s --merge-dumps %s 2>&1", info, b->folder), 0);
        if (!strstr(text, b->merged))
            fail_msg("\"%s\" is not in %s", b->merged, text);
    }
    assert_int_equal(clear(b->folder), b->files);
}

static void test_a_broken_communicator_leaves_one_file_of_each_rank(void **state)
{
    struct broken cases[] = {
        { .setup = { 2, { "transport=shm" } }, .way = "disagree", .files = 2, .merged =
          "operation 2: rank 0 asked for allreduce (sum) of 1 float64, rank 1 for allreduce (sum) of 2 float64" },
        { .setup = { 4, { "ranks_per_host=2" } }, .way = "disagree", .files = 4, .merged = "ranks 0-2 asked for" },
        { .setup = { 3, { "transport=shm", "timeout=0.5" } }, .way = "timeout", .files = 3, .merged =
          "rank 2 never began operation 2, allreduce (sum) of 1 float64, and others wait in it since" },
        { .setup = { 3, { "transport=tcp" } }, .way = "kill", .files = 2, .merged =
          "no dump of rank 2, which may not have begun operation 2, allreduce (sum) of 1 float64" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        make_folder(cases[i].folder);
        break_it(&cases[i]);
        assert_int_equal(rmdir(cases[i].folder), 0);
    }
}

static void test_a_folder_that_is_missing_costs_one_line(void **state)
{
    struct broken b = { .setup = { 2, { "transport=shm" } }, .way = "disagree", .lines = 1,
                        .folder = "/tmp/ringred-there-is-none/dumps" };

    (void)state;
    break_it(&b);
}

static void test_a_limit_of_file_sizes_costs_one_line(void **state)
{
    struct broken b = { .setup = { 2, { "transport=shm" } }, .way = "disagree", .lines = 1, .most = 100 };

    (void)state;
    make_folder(b.folder);
    break_it(&b);
    assert_int_equal(rmdir(b.folder), 0);
}

/* In a mount namespace of its own, so that the disk goes with the process. */
static int on_a_full_disk(struct broken *b)
{
    char block[4096] = { 0 }, path[96];

    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("none", b->folder, "tmpfs", 0, "size=64k"))
        return 77;
    snprintf(path, sizeof path, "%s/full", b->folder);
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    while (write(fd, block, sizeof block) > 0)
        continue;
    close(fd);
    const struct ranks_plan plan = { .size = 2, .run = breaks, .argument = b };
    ranks_run(&plan);
    return unlink(path) == 0 && clear(b->folder) == 0 ? 0 : 1;
}

static void full_disk(void **state)
{
    assert_int_equal(on_a_full_disk(*state), 0);
}

static void test_a_full_disk_costs_one_line_and_leaves_nothing(void **state)
{
    struct broken b = { .setup = { 2, { "transport=shm" } }, .way = "disagree", .lines = 1 };
    const struct CMUnitTest inner[] = { cmocka_unit_test_prestate(full_disk, &b) };
    int status;

    (void)state;
    if (geteuid()) {
        print_message("             skipped: only root can mount a small disk\n");
        skip();
    }
    make_folder(b.folder);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        _exit(cmocka_run_group_tests(inner, NULL, NULL));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(rmdir(b.folder), 0);
    assert_int_equal(status, 0);
}

static void stalls(struct rank *me)
{
    const struct broken *b = me->argument;
    struct coll_setup setup = b->setup;
    char setting[96];
    ringred_request *request;
    float x = 1;

    snprintf(setting, sizeof setting, "dump_dir=%s", b->folder);
    setup.setting[COLL_SETTINGS - 1] = setting;
    for (int i = 0; i < COLL_SETTINGS - 1; i++)
        if (!setup.setting[i])
            setup.setting[i] = "log=warn";
    ringred_comm *comm = coll_open(me, &setup);
    ranks_meet(me);
    if (me->rank == 1) {
        while (count_in(b->folder) < 1)
            sched_yield();
        ranks_meet(me);
    }
    coll_must(comm, ringred_allreduce_start(comm, &x, &x, 1, RINGRED_FLOAT32, RINGRED_SUM, &request), "start");
    if (me->rank == 0) {
        while (count_in(b->folder) < 1)
            rank_check_int(ringred_wait(request, RINGRED_SECOND / 20), RINGRED_PENDING);
        ranks_meet(me);
    }
    coll_must(comm, ringred_wait(request, RINGRED_FOREVER), "wait");
    coll_close(comm);
}

static void test_a_stall_warning_leaves_a_file_and_breaks_nothing(void **state)
{
    struct broken b = { .setup = { 2, { "transport=shm", "stall_warning=0.3" } } };

    (void)state;
    make_folder(b.folder);
    ranks_fork(2, stalls, &b);
    assert_int_equal(clear(b.folder), 1);
    assert_int_equal(rmdir(b.folder), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_dump_says_what_was_asked_for),
        cmocka_unit_test(test_the_last_64_are_kept),
        cmocka_unit_test(test_each_run_of_a_list_is_an_operation),
        cmocka_unit_test(test_parts_have_names_that_all_ranks_give_alike),
        cmocka_unit_test(test_communicators_beyond_the_record_work_and_their_places_are_used_again),
        cmocka_unit_test(test_a_rank_that_never_comes_is_named),
        cmocka_unit_test(test_any_thread_may_dump_while_another_waits),
        cmocka_unit_test(test_a_fork_dumps_nothing_of_its_parents),
        cmocka_unit_test(test_a_stopped_process_is_read_from_outside),
        cmocka_unit_test(test_a_process_without_communicators_is_refused_in_words),
        cmocka_unit_test(test_without_a_memory_file_a_process_still_dumps_itself),
        cmocka_unit_test(test_thousands_of_communicators_leave_no_descriptor),
        cmocka_unit_test(test_a_broken_communicator_leaves_one_file_of_each_rank),
        cmocka_unit_test(test_a_folder_that_is_missing_costs_one_line),
        cmocka_unit_test(test_a_limit_of_file_sizes_costs_one_line),
        cmocka_unit_test(test_a_full_disk_costs_one_line_and_leaves_nothing),
        cmocka_unit_test(test_a_stall_warning_leaves_a_file_and_breaks_nothing),
    };

    info = argc > 1 ? argv[1] : NULL;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
