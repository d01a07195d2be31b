/* SPDX-License-Identifier: Apache-2.0 */
/* Promise: whichever instruction of an operation in shared memory is a rank's last one, the others end: with the right numbers where it had
 * done its part, else with its name, within two seconds; and then nothing else of theirs works.
 *     stepped           every instruction of every lane, beside the others and before them
 *     stepped --quick   some hundred of them; the bound is five times as wide
 * The rank is traced: it runs one instruction after another, and is killed behind the kth, for every k until it has done its part. */
#include "job.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define RANKS_MOST 4
#define MOST_BYTES ((size_t)1 << 20)
#define KNOWN_NS   (2 * RINGRED_SECOND)
#define ASLEEP_MS  20      /* an instruction that takes longer is a system call that sleeps */

static const struct lane {
    const char *name, *setting;
    int ranks;
    size_t count;           /* of floats */
    bool window;            /* in memory that the others reach */
} lanes[] = {
    { "tiny, in the flag's line", "algorithm=tiny", 2, 3, false },
    { "tiny", "algorithm=tiny", 3, 100, false },
    { "last arriver", "algorithm=last", 4, 200, false },
    { "last arriver, windows", "algorithm=last", 3, 200, true },
    { "one-shot", "algorithm=shm-oneshot", 3, 64, false },
    { "two-shot, staged", "algorithm=shm-twoshot", 3, 200, false },
    { "two-shot, pushed", "algorithm=shm-twoshot", 3, 200, true },
};
#define LANES (sizeof lanes / sizeof lanes[0])

/* What the processes of one trial share. */
struct page {
    ringred_unique_id id;
    atomic_int made, warm, ready, dead;
    _Atomic int64_t dead_ns;
    struct {
        int first, then, named; /* status of the operation, and of a barrier behind it; whom that names */
        bool right;
        int64_t ended_ns;
    } of[RANKS_MOST];
};
static struct page *page;
static bool quick;

static ringred_comm *make(const struct lane *lane, int rank)
{
    const char *settings[] = { "transport=shm", lane->setting, "stage=64K", "heap=1M", "timeout=20", "linger=1", NULL };
    ringred_comm *comm = NULL;
    ringred_config config;
    ringred_error why;

    ringred_config_init(&config, sizeof config);
    if (rank == 0) {
        if (ringred_unique_id_create(&page->id, &why) < 0)
            _exit(3);
        atomic_store(&page->made, 1);
    }
    while (!atomic_load(&page->made))
        job_nap_ms(1);
    config.rank = rank;
    config.size = lane->ranks;
    config.id = &page->id;
    config.settings = settings;
    if (ringred_comm_create(&config, &comm, &why) < 0) {
        fprintf(stderr, "rank %d: %s\n", rank, why.text);
        _exit(4);
    }
    return comm;
}

static float *buffer(const struct lane *lane, ringred_comm *comm, int rank)
{
    void *memory = NULL;

    if (lane->window ? ringred_alloc(comm, MOST_BYTES / 4, &memory) < 0 : (memory = malloc(MOST_BYTES)) == NULL)
        _exit(5);
    float *x = memory;
    for (size_t i = 0; i < lane->count; i++)
        x[i] = (float)(rank + 1);
    return x;
}

static int sum(const struct lane *lane, ringred_comm *comm, const float *in, float *out)
{
    return ringred_allreduce(comm, in, out, lane->count, RINGRED_FLOAT32, RINGRED_SUM);
}

static bool is_right(const struct lane *lane, const float *x)
{
    for (size_t i = 0; i < lane->count; i++)
        if (x[i] != (float)(lane->ranks * (lane->ranks + 1) / 2))
            return false;
    return true;
}

static void warm_up(const struct lane *lane, ringred_comm *comm, const float *in, float *out)
{
    for (int i = 0; i < 3; i++)
        if (sum(lane, comm, in, out) != 0 || !is_right(lane, out))
            _exit(6);
    atomic_fetch_add(&page->warm, 1);
}

static void culprit(const struct lane *lane)
{
    ringred_comm *comm = make(lane, lane->ranks - 1);
    float *in = buffer(lane, comm, lane->ranks - 1), *out = buffer(lane, comm, lane->ranks - 1);

    warm_up(lane, comm, in, out);
    for (int i = 0; i < 20000 && atomic_load(&page->warm) < lane->ranks; i++) /* else a death may strike who is at that */
        job_nap_ms(1);
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
        _exit(7);
    atomic_store(&page->ready, 1);
    (void)raise(SIGSTOP);
    (void)sum(lane, comm, in, out);
    (void)raise(SIGSTOP); /* its part is done */
    _exit(0);
}

static void survivor(const struct lane *lane, int rank, bool behind)
{
    ringred_comm *comm = make(lane, rank);
    float *in = buffer(lane, comm, rank), *out = buffer(lane, comm, rank);
    ringred_error why;

    ringred_error_init(&why);
    warm_up(lane, comm, in, out);
    while (!atomic_load(behind ? &page->dead : &page->ready))
        job_nap_ms(1);
    page->of[rank].first = sum(lane, comm, in, out);
    page->of[rank].right = is_right(lane, out);
    page->of[rank].then = ringred_barrier(comm);
    page->of[rank].ended_ns = job_now_ns();
    (void)ringred_comm_error(comm, &why);
    page->of[rank].named = why.rank;
    (void)ringred_comm_destroy(comm); /* says it again */
    _exit(0);
}

/* Lets the culprit run `steps` instructions, then kills it. False: it had done its part, or sleeps, before that. */
static bool kill_behind(pid_t pid, long steps)
{
    bool more = true;
    int status = 0;

    if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status))
        return false;
    for (long i = 0; i < steps && more; i++) {
        int64_t began = job_now_ns();
        if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) || waitpid(pid, &status, 0) != pid)
            return false;
        more = WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP && job_now_ns() - began < ASLEEP_MS * 1000000;
    }
    atomic_store(&page->dead_ns, job_now_ns());
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, &status, 0);
    atomic_store(&page->dead, 1);
    return more;
}

/* NULL, or what is wrong. */
static const char *judge(const struct lane *lane, const int *ended)
{
    static char text[200];
    int last = lane->ranks - 1;

    for (int r = 0; r < last; r++) {
        int64_t took = page->of[r].ended_ns - atomic_load(&page->dead_ns);
        int first = page->of[r].first;
        if (ended[r]) {
            snprintf(text, sizeof text, "rank %d ended with %#x", r, (unsigned)ended[r]);
            return text;
        }
        if ((first != 0 && first != RINGRED_EPEER) || page->of[r].then != RINGRED_EPEER || page->of[r].named != last ||
            (first == 0 && !page->of[r].right) || took > KNOWN_NS * (quick ? 5 : 1)) {
            snprintf(text, sizeof text, "rank %d: status %d%s, then %d of rank %d, after %.3f s", r, first,
                     first || page->of[r].right ? "" : " with wrong numbers", page->of[r].then, page->of[r].named, (double)took / 1e9);
            return text;
        }
    }
    return NULL;
}

/* One trial; false: there are no more instructions. */
static bool try(const struct lane *lane, bool behind, long steps, const char **wrong)
{
    pid_t pid[RANKS_MOST];
    int ended[RANKS_MOST];

    memset(page, 0, sizeof *page);
    for (int r = 0; r < lane->ranks; r++) {
        pid[r] = fork();
        if (pid[r] == 0 && r == lane->ranks - 1)
            culprit(lane);
        if (pid[r] == 0)
            survivor(lane, r, behind);
    }
    bool more = kill_behind(pid[lane->ranks - 1], steps);
    int64_t end = job_now_ns() + 25 * RINGRED_SECOND;
    for (int r = 0; r < lane->ranks - 1; r++) {
        while (waitpid(pid[r], &ended[r], WNOHANG) == 0 && job_now_ns() < end)
            job_nap_ms(1);
        if (job_now_ns() >= end && kill(pid[r], SIGKILL) == 0)
            (void)waitpid(pid[r], &ended[r], 0);
    }
    *wrong = judge(lane, ended);
    return more;
}

int main(int argc, char **argv)
{
    int trials = 0, wrong = 0;

    quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return 1;
    for (size_t i = 0; i < LANES; i++)
        for (int behind = 0; behind < 2; behind++) {
            bool more = true;
            long k = 0, gone = 0;
            for (; more && k < 6000; k += quick ? 61 + k / 8 : 1) {
                const char *why;
                more = try(&lanes[i], behind, k, &why);
                trials++;
                if (why) {
                    printf("%s, behind instruction %ld: %s\n", lanes[i].name, k, why);
                    wrong++;
                }
                gone = k;
            }
            printf("%-26s | the others %s | %ld instructions%s\n", lanes[i].name, behind ? "come behind" : "come beside", gone,
                   more ? ", and more" : "");
            fflush(stdout);
        }
    printf("%s: %d of %d deaths were survived\n", wrong ? "FAILS" : "holds", trials - wrong, trials);
    return wrong != 0;
}
