/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators whose unique id goes from rank 0 to the others by the caller's own means: an allgather, a store. And
 * by a launcher's key-value space, more than once in a process. */
#include <ringred/ringred.h>

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define RANKS 3

/* What the ranks share, and each one's part of it: for this rank (-1: the test), a pipe from rank 0 and a socket to
 * whoever gathers. */
static struct {
    int pipe[RANKS][2], pair[RANKS][2];
    struct result {
        int rc;
        float sum;
        char text[500];
    } *result; /* [RANKS], shared memory */
} world;

static bool read_whole(int fd, void *to, size_t bytes)
{
    char *at = to;

    while (bytes > 0) {
        ssize_t n = read(fd, at, bytes);
        if (n <= 0)
            return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

/* ---- the caller's means ---- */

static int32_t gather(void *context, const void *mine, size_t bytes, void *all)
{
    int fd = world.pair[*(int *)context][1];

    return write(fd, mine, bytes) == (ssize_t)bytes && read_whole(fd, all, RANKS * bytes) ? 0 : 5;
}

/* The other side: hears from all, tells all. */
static bool serve_gather(int times)
{
    char all[RANKS][256];

    for (int k = 0; k < times; k++) {
        for (int r = 0; r < RANKS; r++)
            if (!read_whole(world.pair[r][0], all[r], sizeof all[r]))
                return false;
        for (int r = 0; r < RANKS; r++)
            if (write(world.pair[r][0], all, sizeof all) != (ssize_t)sizeof all)
                return false;
    }
    return true;
}

static int32_t store_set(void *context, const char *key, const void *value, size_t bytes)
{
    (void)context;
    if (strcmp(key, "ringred.id") != 0)
        return 1;
    for (int r = 1; r < RANKS; r++)
        if (write(world.pipe[r][1], value, bytes) != (ssize_t)bytes)
            return 2;
    return 0;
}

static int64_t store_get(void *context, const char *key, void *value, size_t room, int64_t timeout_ns)
{
    struct pollfd p = { .fd = world.pipe[*(int *)context][0], .events = POLLIN };

    if (strcmp(key, "ringred.id") != 0 || poll(&p, 1, timeout_ns < 0 ? -1 : (int)(timeout_ns / 1000000)) != 1)
        return -1;
    return read(p.fd, value, room);
}

static int32_t set_fails(void *context, const char *key, const void *value, size_t bytes)
{
    (void)context, (void)key, (void)value, (void)bytes;
    return 9;
}

static int64_t get_is_short(void *context, const char *key, void *value, size_t room, int64_t timeout_ns)
{
    (void)context, (void)key, (void)value, (void)room, (void)timeout_ns;
    return 17;
}

static int32_t gather_fails(void *context, const void *mine, size_t bytes, void *all)
{
    (void)context, (void)mine, (void)bytes, (void)all;
    return 5;
}

/* ---- ranks ---- */

static int open_world(void)
{
    world.result = mmap(NULL, RANKS * sizeof *world.result, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(world.result != MAP_FAILED);
    memset(world.result, 0, RANKS * sizeof *world.result);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(pipe(world.pipe[r]), 0);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, world.pair[r]), 0);
    }
    return 0;
}

static void close_world(void)
{
    munmap(world.result, RANKS * sizeof *world.result);
    for (int r = 0; r < RANKS; r++)
        for (int k = 0; k < 2; k++) {
            close(world.pipe[r][k]);
            close(world.pair[r][k]);
        }
}

static void make_and_sum(const ringred_config *config, struct result *to)
{
    ringred_error why;
    ringred_comm *comm;
    float one = 1, sum = 0;

    ringred_error_init(&why);
    to->rc = ringred_comm_create(config, &comm, &why);
    snprintf(to->text, sizeof to->text, "%s", why.text);
    if (to->rc < 0)
        return;
    to->rc = ringred_allreduce(comm, &one, &sum, 1, RINGRED_FLOAT32, RINGRED_SUM);
    to->sum += sum;
    int rc = ringred_comm_destroy(comm);
    to->rc = to->rc ? to->rc : rc;
}

/* Runs the ranks; fill says what each one's config is, and how many communicators it makes one after the other. */
static void run(int (*fill)(int *rank, ringred_config *config))
{
    pid_t pid[RANKS];
    int status;

    fflush(NULL);
    for (int r = 0; r < RANKS; r++) {
        pid[r] = fork();
        assert_true(pid[r] >= 0);
        if (pid[r] == 0) {
            ringred_config config;
            int rank = r;
            ringred_config_init(&config, sizeof config);
            int times = fill(&rank, &config);
            for (int k = 0; k < times && world.result[r].rc == 0; k++)
                make_and_sum(&config, &world.result[r]);
            _exit(0);
        }
    }
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(waitpid(pid[r], &status, 0), pid[r]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

static void expect_sums(float sum)
{
    for (int r = 0; r < RANKS; r++)
        if (world.result[r].rc != 0 || world.result[r].sum != sum)
            fail_msg("rank %d: %d %g %s", r, world.result[r].rc, (double)world.result[r].sum, world.result[r].text);
}

static int by_allgather(int *rank, ringred_config *config)
{
    static const char *const settings[] = { "require_key=1", NULL };

    config->rank = *rank;
    config->size = RANKS;
    config->settings = settings;
    config->allgather = gather;
    config->allgather_context = rank;
    return 2;
}

static void test_an_allgather_of_the_callers_serves_again_and_again(void **state)
{
    int status;

    (void)state;
    open_world();
    fflush(NULL);
    pid_t server = fork(); /* no thread: a fork beside it would copy locks that it holds */
    assert_true(server >= 0);
    if (server == 0)
        _exit(serve_gather(2) ? 0 : 1);
    run(by_allgather);
    expect_sums(2 * RANKS);
    assert_int_equal(waitpid(server, &status, 0), server);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close_world();
}

static int by_store(int *rank, ringred_config *config)
{
    static ringred_store store;
    char number[16];

    ringred_store_init(&store, sizeof store);
    store.context = rank;
    store.set = store_set;
    store.get = store_get;
    snprintf(number, sizeof number, "%d", *rank); /* the place comes from a launcher */
    setenv("RANK", number, 1);
    setenv("WORLD_SIZE", "3", 1);
    config->store = &store;
    return 1;
}

static void test_a_store_of_the_callers_takes_the_place_from_the_launcher(void **state)
{
    (void)state;
    open_world();
    run(by_store);
    expect_sums(RANKS);
    close_world();
}

/* ---- failures, in this process ---- */

static int create(ringred_config *config, ringred_error *why)
{
    ringred_comm *comm;

    ringred_error_init(why);
    return ringred_comm_create(config, &comm, why);
}

static void test_what_fails_of_the_callers_is_told_of(void **state)
{
    static int zero;
    ringred_store store;
    ringred_config config;
    ringred_unique_id id = { { 0 } };
    ringred_error why;

    (void)state;
    open_world();
    ringred_config_init(&config, sizeof config);
    config.size = 2;
    config.rank = 0;
    config.allgather = gather_fails;
    assert_int_equal(create(&config, &why), RINGRED_ESYSTEM);
    assert_string_equal(why.text, "config.allgather failed on rank 0: it returned 5");
    config.id = &id;
    assert_int_equal(create(&config, &why), RINGRED_EINVAL);
    assert_string_equal(why.text, "config.id and config.allgather are both given");
    config.id = NULL;
    config.allgather = NULL;
    ringred_store_init(&store, sizeof store);
    config.store = &store;
    assert_int_equal(create(&config, &why), RINGRED_EINVAL);
    assert_string_equal(why.text, "config.store has no function set");
    store.set = set_fails;
    store.get = get_is_short;
    store.struct_size = 8;
    assert_int_equal(create(&config, &why), RINGRED_EINVAL);
    struct {
        ringred_store store;
        long more;
    } newer = { store, 0 };
    newer.store.struct_size = sizeof newer;
    config.store = &newer.store;
    assert_int_equal(create(&config, &why), RINGRED_ESYSTEM); /* its tail is zero */
    newer.more = 1;
    assert_int_equal(create(&config, &why), RINGRED_EVERSION);
    config.store = &store;
    store.struct_size = sizeof store;
    assert_int_equal(create(&config, &why), RINGRED_ESYSTEM);
    assert_non_null(strstr(why.text, "it returned 9"));
    config.rank = 1;
    assert_int_equal(create(&config, &why), RINGRED_EINVAL);
    assert_non_null(strstr(why.text, "has 17 bytes as ringred.id, not 256"));
    store.get = store_get;
    store.context = &zero;
    config.timeout_ns = 20000000;
    assert_int_equal(create(&config, &why), RINGRED_ETIMEOUT);
    assert_non_null(strstr(why.text, "in time"));
    config.size = 1; /* alone: nobody to hand anything to */
    config.rank = 0;
    store.set = set_fails;
    ringred_comm *comm;
    assert_int_equal(ringred_comm_create(&config, &comm, &why), 0);
    assert_int_equal(ringred_comm_destroy(comm), 0);
    close_world();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_allgather_of_the_callers_serves_again_and_again),
        cmocka_unit_test(test_a_store_of_the_callers_takes_the_place_from_the_launcher),
        cmocka_unit_test(test_what_fails_of_the_callers_is_told_of),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
