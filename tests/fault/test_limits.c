/* SPDX-License-Identifier: Apache-2.0 */
/* What a process may lack where it runs: descriptors, locked memory, /dev/shm, memory, system calls, IPv6, room on the
 * disk, namespaces that its mates share. It works all the same, or says in words what is lacking; nothing is left
 * behind. Tests that are of a report have its number (docs/TESTING.md). */
#include "coll.h"
#include "self.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define CULPRIT 1
#define SKIP(why)                                    \
    do {                                             \
        print_message("             SKIP: %s\n", why); \
        skip();                                      \
    } while (0)

static const struct coll_setup layouts[] = {
    { 4, { "transport=shm" } },
    { 4, { "transport=tcp" } },
    { 4, { "ranks_per_host=2" } },
};
#define LAYOUTS (sizeof layouts / sizeof layouts[0])

/* An allreduce and an alltoall whose numbers are known. */
static void check_numbers(ringred_comm *comm, int rank, int size)
{
    static int32_t x[20000], to[RANKS_MOST], from[RANKS_MOST];

    for (int i = 0; i < 20000; i++)
        x[i] = (rank + 1) * i;
    coll_must(comm, ringred_allreduce(comm, x, x, 20000, RINGRED_INT32, RINGRED_SUM), "allreduce");
    for (int i = 0; i < 20000; i++)
        rank_check_msg(x[i] == size * (size + 1) / 2 * i, "element %d is %d", i, x[i]);
    for (int r = 0; r < size; r++)
        to[r] = 100 * rank + r;
    coll_must(comm, ringred_alltoall(comm, to, from, 1, RINGRED_INT32), "alltoall");
    for (int r = 0; r < size; r++)
        rank_check_int(from[r], 100 * r + rank);
}

static void works(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);

    check_numbers(comm, me->rank, me->size);
    coll_close(comm);
}

/* ---- descriptors ---- */

struct few {
    struct coll_setup setup;
    int culprit;
    int need; /* descriptors that making takes at the culprit (docs/USER.md, Limits) */
};

static void set_files(rlim_t n)
{
    struct rlimit files;

    rank_check(getrlimit(RLIMIT_NOFILE, &files) == 0);
    files.rlim_cur = n;
    rank_check(setrlimit(RLIMIT_NOFILE, &files) == 0);
}

/* A limit that leaves n descriptors free: it is on their numbers, and those that are open may have gaps between them. */
static void leave_free(int n)
{
    int limit = 0;

    for (; n > 0; limit++)
        n -= fcntl(limit, F_GETFD) < 0;
    set_files((rlim_t)limit);
}

static void have_few(struct rank *me)
{
    const struct few *f = me->argument;
    int before = self_look().descriptors, failures = 0;
    struct rlimit files;

    rank_check(getrlimit(RLIMIT_NOFILE, &files) == 0);
    for (int have = 7; have <= f->need; have += have < f->need - 7 ? 6 : f->need - have ? f->need - have : 1) {
        ringred_comm *comm = NULL;
        ringred_error why;
        if (me->rank == f->culprit)
            leave_free(have);
        int32_t rc = coll_try(me, &f->setup, NULL, &comm, &why);
        if (rc < 0) {
            rank_check_msg(rc == RINGRED_ELIMIT, "with %d: %d, %s", have, rc, why.text);
            rank_check_msg(strstr(why.text, "RLIMIT_NOFILE"), "%s", why.text);
            rank_check_msg(me->rank != f->culprit || strstr(why.text, "ranks takes "), "%s", why.text);
            rank_check_msg(have < f->need, "%d are not enough: %s", have, why.text);
            failures++;
        } else {
            check_numbers(comm, me->rank, me->size);
            coll_close(comm);
        }
        set_files(files.rlim_cur);
        rank_check_int(self_look().descriptors, before);
    }
    rank_check(failures > 0);
    works(&(struct rank){ me->rank, me->size, (void *)(uintptr_t)&f->setup, me->shared, me->hall });
}

static void test_PR_40_too_few_descriptors_are_told_with_what_there_is_and_what_it_takes(void **state)
{
    static const struct few cases[] = {
        { { 6, { "transport=shm" } }, 0, 5 * 6 + 1 },
        { { 6, { "transport=shm" } }, 1, 3 * 6 + 3 },
        { { 6, { "transport=tcp" } }, 0, 2 * 6 + 3 },
        { { 6, { "transport=tcp" } }, 1, 6 + 5 },
        { { 6, { "transport=tcp", "ranks_per_host=1", "tcp_streams=8" } }, 0, 8 * 5 + 6 + 4 },
        { { 6, { "transport=tcp", "ranks_per_host=1", "tcp_streams=8" } }, 5, 8 * 5 + 6 + 4 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ranks_run(&(struct ranks_plan){ .size = 6, .run = have_few, .argument = (void *)(uintptr_t)&cases[i] });
}

/* Many ranks with as many descriptors as the table says, and many communicators that overlap. */
static void overlap(struct rank *me)
{
    const struct coll_setup *setup = me->argument;
    ringred_comm *part[1000];
    int32_t list[RANKS_MOST];
    int parts = self_times(100, 1000);

    leave_free(5 * me->size);
    ringred_comm *comm = coll_open(me, setup);
    struct self before = self_look();
    for (int i = 0; i < parts; i++) {
        int n = 0;
        bool in = false;
        for (int r = 0; r < me->size; r++)
            if ((r * 7 + i) % 3) {
                list[n++] = r;
                in = in || r == me->rank;
            }
        coll_must(comm, ringred_comm_group(comm, list, in ? n : 0, &part[i]), "group");
        int32_t one = 1, sum = 0;
        if (part[i])
            coll_must(part[i], ringred_allreduce(part[i], &one, &sum, 1, RINGRED_INT32, RINGRED_SUM), "allreduce");
        rank_check(!part[i] || sum == n);
    }
    struct self after = self_look();
    rank_check_int(after.descriptors, before.descriptors);
    rank_check_int(after.threads, before.threads);
    for (int i = 0; i < parts; i++)
        coll_close(part[i]);
    check_numbers(comm, me->rank, me->size);
    coll_close(comm);
}

static void test_PR_39_many_groups_share_links_and_need_no_descriptors(void **state)
{
    int ranks = self_times(32, 64);
    const struct coll_setup setups[] = { { ranks, { "transport=shm" } }, { ranks, { "transport=tcp" } } };

    (void)state;
    coll_each(setups, 2, overlap, self_times(60, 600));
}

static void lock_little(struct rank *me)
{
    const struct rlimit little = { 65536, 65536 };
    ringred_comm *comm;
    void *memory;

    rank_check(setrlimit(RLIMIT_MEMLOCK, &little) == 0);
    comm = coll_open(me, me->argument);
    coll_must(comm, ringred_alloc(comm, 4 << 20, &memory), "ringred_alloc");
    coll_must(comm, ringred_allreduce(comm, memory, memory, 1 << 20, RINGRED_FLOAT32, RINGRED_SUM), "allreduce");
    check_numbers(comm, me->rank, me->size);
    rank_check_int(ringred_free(memory), 0);
    coll_close(comm);
}

static void test_nothing_is_locked_in_memory(void **state)
{
    (void)state;
    coll_each(layouts, LAYOUTS, lock_little, 30);
}

/* ---- /dev/shm and memory ---- */

static const char *dev_shm; /* options of the tmpfs over it; NULL: over all of /dev */

static bool may_mount(void)
{
    pid_t pid = fork();
    int status = -1;

    if (pid == 0)
        _exit(unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
              mount("none", "/dev/shm", "tmpfs", 0, "size=1m"));
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

static void with_dev_shm(struct rank *me)
{
    const struct coll_setup *setup = me->argument;
    bool is_ro = dev_shm && strcmp(dev_shm, "ro") == 0;

    rank_check(unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    if (dev_shm)
        rank_check(mount("none", "/dev/shm", "tmpfs", is_ro ? MS_RDONLY : 0, is_ro ? "" : dev_shm) == 0);
    else
        rank_check(mount("none", "/dev", "tmpfs", 0, "size=64k") == 0 && access("/dev/shm", F_OK) < 0);
    ringred_comm *comm = coll_open(me, setup);
    void *memory;
    coll_must(comm, ringred_alloc(comm, 8 << 20, &memory), "ringred_alloc");
    coll_must(comm, ringred_allreduce(comm, memory, memory, 2 << 20, RINGRED_FLOAT32, RINGRED_SUM), "allreduce");
    check_numbers(comm, me->rank, me->size);
    rank_check_int(ringred_free(memory), 0);
    coll_close(comm);
}

static void test_PR_37_dev_shm_may_be_small_read_only_or_absent(void **state)
{
    static const char *const kinds[] = { "size=64m", "size=1m", "ro", NULL };
    static const struct coll_setup eight = { 8, { "transport=shm" } };

    (void)state;
    if (!may_mount())
        SKIP("/dev/shm can be replaced by root only");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        dev_shm = kinds[i];
        coll_each(&eight, 1, with_dev_shm, 30);
    }
}

/* A memory cgroup, as a child of ours; its path in group. */
static char group[600];

static bool group_file(const char *name, const char *text)
{
    char path[700];

    snprintf(path, sizeof path, "%s/%s", group, name);
    return self_write(path, text);
}

static bool group_make(const char *bytes)
{
    FILE *f = fopen("/proc/self/cgroup", "re");
    char line[400];
    bool made = false;

    while (f && !made && fgets(line, sizeof line, f)) {
        const char *v1 = strstr(line, ":memory:"), *v2 = strncmp(line, "0::", 3) == 0 ? line + 3 : NULL;
        line[strcspn(line, "\n")] = 0;
        if (!v1 && !v2)
            continue;
        snprintf(group, sizeof group, "/sys/fs/cgroup%s%.300s/ringred-limits-%d", v1 ? "/memory" : "", v1 ? v1 + 8 : v2,
                 (int)getpid());
        made = mkdir(group, 0700) == 0 && (group_file("memory.limit_in_bytes", bytes) || group_file("memory.max", bytes));
        if (!made)
            (void)rmdir(group);
    }
    if (f)
        fclose(f);
    return made;
}

static void on_sigbus(int signal)
{
    (void)signal;
    _exit(1); /* which fails the test */
}

/* The kernel kills who asks for more than there is, at once or when a page is touched; never with SIGBUS. */
static void in_the_group(struct rank *me)
{
    const struct coll_setup *setup = me->argument;
    bool small = me->rank == CULPRIT - (setup->ranks == 2); /* of two the one that makes the segment */
    ringred_comm *comm = NULL;
    ringred_error why;
    char pid[16];
    void *memory;
    int32_t rc;

    signal(SIGBUS, on_sigbus);
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    rank_check(!small || group_file("cgroup.procs", pid));
    rc = coll_try(me, setup, NULL, &comm, &why);
    if (rc == 0) {
        rc = ringred_alloc(comm, 64 << 20, &memory);
        if (rc == 0)
            memset(memory, 1, 64 << 20);
        if (rc == 0 || rc == RINGRED_ENOMEM)
            rc = ringred_barrier(comm); /* which fails where a mate is killed */
        ringred_error_init(&why);
        (void)ringred_comm_error(comm, &why); /* the sentence is looked at */
    }
    if (!small && rc < 0) {
        rank_check_msg(rc == RINGRED_EPEER || rc == RINGRED_ENOMEM, "%d: %s", rc, why.text);
        rank_check_msg(strstr(why.text, "rank") != NULL, "%s", why.text);
    }
    if (comm)
        (void)ringred_comm_destroy(comm); /* says how it broke */
}

static void test_PR_37_a_small_memory_cgroup_never_means_sigbus(void **state)
{
    static const struct coll_setup setups[] = { { 2, { "transport=shm", "stage=64M" } }, { 3, { "transport=shm", "stage=16M" } } };

    (void)state;
    if (geteuid() != 0 || !group_make("33554432"))
        SKIP("no memory cgroup can be made here");
    for (int i = 0; i < 2; i++) {
        struct ranks_plan plan = { .size = setups[i].ranks, .run = in_the_group, .argument = (void *)(uintptr_t)&setups[i],
                                   .may_die = i ? 1u << CULPRIT : 1 };
        ranks_run(&plan);
    }
    assert_int_equal(rmdir(group), 0);
}

/* ---- system calls that are refused ---- */

struct refusal {
    struct coll_setup setup;
    int system;          /* errno */
    bool memory;         /* memfd_create, too */
    bool ip6;            /* sockets of IPv6 instead */
    bool dies;
    int32_t status;      /* of making the communicator */
};

static const int newer[] = {
#ifdef SYS_membarrier
    SYS_membarrier,
#endif
    SYS_process_vm_readv, SYS_process_vm_writev, SYS_ptrace, SYS_userfaultfd,
    434 /* pidfd_open */, 438 /* pidfd_getfd */, 424 /* pidfd_send_signal */, 425 /* io_uring_setup */,
    435 /* clone3 */, 436 /* close_range */, 437 /* openat2 */, 439 /* faccessat2 */, 440 /* process_madvise */,
    441 /* epoll_pwait2 */, 447 /* memfd_secret */, 332 /* statx */,
};
#define NEWER (sizeof newer / sizeof newer[0])

#if defined(__x86_64__)
#define THIS_ARCH AUDIT_ARCH_X86_64
#else
#define THIS_ARCH AUDIT_ARCH_AARCH64
#endif

static void refuse_calls(const struct refusal *r)
{
    struct sock_filter code[2 * NEWER + 16];
    const unsigned no = SECCOMP_RET_ERRNO | (unsigned)r->system;
    unsigned short n = 0;

#define SAY(...) code[n++] = (struct sock_filter)__VA_ARGS__
    SAY(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)));
    SAY(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, THIS_ARCH, 1, 0));
    SAY(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    SAY(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
    for (size_t i = 0; i < NEWER && !r->ip6; i++) {
        SAY(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)newer[i], 0, 1));
        SAY(BPF_STMT(BPF_RET | BPF_K, no));
    }
    if (r->memory) {
        SAY(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1));
        SAY(BPF_STMT(BPF_RET | BPF_K, no));
    }
    if (r->ip6) {
        SAY(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3));
        SAY(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)));
        SAY(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 0, 1));
        SAY(BPF_STMT(BPF_RET | BPF_K, no));
    }
    SAY(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
#undef SAY
    struct sock_fprog program = { n, code };
    rank_check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    rank_check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void be_refused(struct rank *me)
{
    const struct refusal *r = me->argument;
    ringred_comm *comm = NULL;
    ringred_error why;

    refuse_calls(r);
    int32_t rc = coll_try(me, &r->setup, NULL, &comm, &why);
    rank_check_msg(rc == r->status, "%d: %s", rc, why.text);
    if (rc < 0) {
        rank_check_msg(strstr(why.text, "shared memory") && strstr(why.text, strerror(r->system)), "%s", why.text);
        return;
    }
    check_numbers(comm, me->rank, me->size);
    if (!r->dies) {
        coll_close(comm);
        return;
    }
    ranks_meet(me);
    if (me->rank == CULPRIT)
        (void)kill(getpid(), SIGKILL);
    rank_check_int(ringred_barrier(comm), RINGRED_EPEER);
    ringred_error_init(&why);
    rank_check_int(ringred_comm_error(comm, &why), 0);
    rank_check_int(why.rank, CULPRIT);
    rank_check_int(ringred_comm_destroy(comm), RINGRED_EPEER);
}

static bool has_seccomp(void)
{
    return prctl(PR_GET_SECCOMP, 0, 0, 0, 0) >= 0;
}

static void refuse_all(const struct refusal *cases, size_t n)
{
    if (!has_seccomp())
        SKIP("this kernel has no seccomp");
    for (size_t i = 0; i < n; i++)
        ranks_run(&(struct ranks_plan){ .size = cases[i].setup.ranks, .run = be_refused,
                                        .argument = (void *)(uintptr_t)&cases[i],
                                        .may_die = cases[i].dies ? 1u << CULPRIT : 0 });
}

static void test_newer_system_calls_may_be_refused(void **state)
{
    static struct refusal cases[2 * LAYOUTS];

    (void)state;
    for (size_t i = 0; i < 2 * LAYOUTS; i++)
        cases[i] = (struct refusal){ .setup = layouts[i / 2], .system = i % 2 ? ENOSYS : EPERM, .dies = true };
    refuse_all(cases, 2 * LAYOUTS);
}

static void test_without_shared_memory_links_do_or_it_is_told(void **state)
{
    static const struct refusal cases[] = {
        { { 3, { "transport=auto" } }, EPERM, true, false, true, 0 },
        { { 3, { "transport=shm" } }, EPERM, true, false, false, RINGRED_ESYSTEM },
        { { 4, { "ranks_per_host=2" } }, ENOSYS, true, false, false, 0 },
    };

    (void)state;
    refuse_all(cases, sizeof cases / sizeof *cases);
}

static void test_a_kernel_without_ipv6_will_do(void **state)
{
    static const struct refusal cases[] = {
        { { 4, { "transport=tcp" } }, EAFNOSUPPORT, false, true, true, 0 },
        { { 4, { "ranks_per_host=2" } }, EAFNOSUPPORT, false, true, true, 0 },
    };

    (void)state;
    refuse_all(cases, sizeof cases / sizeof *cases);
}

/* ---- deaths that a parent hides ---- */

/* The rank is a child of a process that does not collect it. */
static void die_uncollected(struct rank *me)
{
    const struct refusal *r = me->argument;
    pid_t pid = me->rank == CULPRIT ? fork() : 0;

    if (pid > 0) { /* a launcher that is busy */
        siginfo_t how;
        rank_check(waitid(P_PID, (id_t)pid, &how, WEXITED | WNOWAIT) == 0);
        ranks_meet(me);
        rank_check(waitpid(pid, NULL, 0) == pid);
        return;
    }
    if (r->system)
        refuse_calls(r);
    ringred_comm *comm = coll_open(me, &r->setup);
    ringred_error why;
    check_numbers(comm, me->rank, me->size);
    ranks_meet(me);
    if (me->rank == CULPRIT)
        (void)kill(getpid(), SIGKILL);
    rank_check_int(ringred_barrier(comm), RINGRED_EPEER);
    ringred_error_init(&why);
    rank_check_int(ringred_comm_error(comm, &why), 0);
    rank_check_int(why.rank, CULPRIT);
    ranks_meet(me);
    (void)ringred_comm_destroy(comm); /* broken */
}

static void test_PR_16_a_death_counts_though_nobody_collects_it(void **state)
{
    static struct refusal cases[2 * LAYOUTS];

    (void)state;
    for (size_t i = 0; i < 2 * LAYOUTS; i++) { /* with pidfds and without */
        cases[i] = (struct refusal){ .setup = layouts[i / 2], .system = i % 2 ? ENOSYS : 0 };
        ranks_run(&(struct ranks_plan){ .size = 4, .run = die_uncollected, .argument = &cases[i] });
    }
}

/* ---- namespaces ---- */

static int spaces[2][2]; /* of two containers: network, processes */
static bool own_net;

/* A process that holds the namespaces of a container, with a first process in it. */
static pid_t keeper(int ready)
{
    pid_t pid = fork();

    if (pid)
        return pid;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (unshare((own_net ? CLONE_NEWNET : 0) | CLONE_NEWPID) || fork() < 0)
        _exit(1);
    if (getpid() == 1)
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    else if (write(ready, "", 1) != 1)
        _exit(1);
    for (;;)
        pause();
}

static bool enter(int container)
{
    return (!own_net || setns(spaces[container][0], CLONE_NEWNET) == 0) && setns(spaces[container][1], CLONE_NEWPID) == 0;
}

static bool make_containers(pid_t *kept)
{
    char path[64], pid[2][16], byte;
    int ready[2];
    bool made = pipe2(ready, O_CLOEXEC) == 0;

    for (int i = 0; i < 2 && made; i++) {
        kept[i] = keeper(ready[1]);
        made = kept[i] > 0 && poll(&(struct pollfd){ ready[0], POLLIN, 0 }, 1, 5000) == 1 && read(ready[0], &byte, 1) == 1;
        snprintf(path, sizeof path, "/proc/%d/ns/net", (int)kept[i]);
        spaces[i][0] = open(path, O_RDONLY | O_CLOEXEC);
        snprintf(path, sizeof path, "/proc/%d/ns/pid_for_children", (int)kept[i]);
        spaces[i][1] = open(path, O_RDONLY | O_CLOEXEC);
        snprintf(pid[i], sizeof pid[i], "%d", (int)kept[i]);
        made = made && spaces[i][0] >= 0 && spaces[i][1] >= 0;
    }
    close(ready[0]);
    close(ready[1]);
#define IN(i, ...) SELF_RUN("nsenter", "--net", "--target", pid[i], "ip", __VA_ARGS__)
    return made && (!own_net || (IN(0, "link", "add", "ra0", "type", "veth", "peer", "name", "ra1", "netns", pid[1]) &&
                                 IN(0, "addr", "add", "10.7.0.1/24", "dev", "ra0") && IN(1, "addr", "add", "10.7.0.2/24", "dev", "ra1") &&
                                 IN(0, "link", "set", "ra0", "up") && IN(1, "link", "set", "ra1", "up") &&
                                 IN(0, "link", "set", "lo", "up") && IN(1, "link", "set", "lo", "up")));
}

/* Two ranks in each container: mates there, strangers between. */
static void contained(struct rank *me)
{
    const struct coll_setup *setup = me->argument;
    int status = -1;

    rank_check(enter(me->rank / 2));
    pid_t pid = fork();
    if (pid == 0) {
        ringred_comm *comm = coll_open(me, setup);
        ringred_error why;
        char text[8192];
        rank_check_int(ringred_comm_local_size(comm), 2);
        rank_check_int(ringred_comm_local_rank(comm), me->rank % 2);
        rank_check(ringred_comm_describe(comm, "allreduce", 4, text, sizeof text) > 0);
        check_numbers(comm, me->rank, me->size);
        ranks_meet(me);
        if (me->rank == CULPRIT)
            (void)kill(getpid(), SIGKILL);
        rank_check_int(ringred_barrier(comm), RINGRED_EPEER);
        ringred_error_init(&why);
    rank_check_int(ringred_comm_error(comm, &why), 0);
        rank_check_msg(why.rank == CULPRIT, "%s", why.text);
        rank_check_int(ringred_comm_destroy(comm), RINGRED_EPEER);
        exit(0);
    }
    rank_check(pid > 0 && waitpid(pid, &status, 0) == pid);
    rank_check(me->rank == CULPRIT ? WIFSIGNALED(status) : status == 0);
}

/* What comes from the other container is lost from now on, as if somebody had pulled the plug. */
static void cut(int container)
{
    rank_check(SELF_RUN("iptables", "-A", "INPUT", "-i", container ? "ra1" : "ra0", "-j", "DROP"));
}

/* A call is under way when the wire is cut, with data in the queues; or it begins when the wire has been cut. */
static void lose_the_wire(struct rank *me, const struct coll_setup *setup, bool idle)
{
    ringred_comm *comm = coll_open(me, setup);
    static float x[1 << 20];
    ringred_request *request;
    ringred_error why;
    int32_t rc = 0;

    check_numbers(comm, me->rank, me->size);
    ranks_meet(me);
    if (!idle)
        coll_must(comm, ringred_allreduce_start(comm, x, x, 1 << 20, RINGRED_FLOAT32, RINGRED_SUM, &request), "start");
    if (me->rank % 2 == 0)
        cut(me->rank / 2);
    if (idle)
        ranks_meet(me);
    int64_t began = self_now_ns();
    if (!idle)
        rc = ringred_wait(request, RINGRED_FOREVER);
    for (int i = 0; i < 100000 && rc == 0; i++)
        rc = ringred_allreduce(comm, x, x, 1 << 20, RINGRED_FLOAT32, RINGRED_SUM);
    ringred_error_init(&why);
    rank_check_int(ringred_comm_error(comm, &why), 0);
    rank_check_msg(rc == RINGRED_EPEER && why.rank / 2 != me->rank / 2, "%d, names rank %d: %s", rc, why.rank, why.text);
    rank_check(self_now_ns() - began < 5 * (1 + 2) * RINGRED_SECOND); /* peer_timeout, and 2 s to tell; five times that */
    (void)ringred_comm_destroy(comm); /* broken */
}

static void lose_the_wire_as(struct rank *me, bool idle)
{
    int status = -1;

    rank_check(enter(me->rank / 2));
    pid_t pid = fork();
    if (pid == 0) {
        lose_the_wire(me, me->argument, idle);
        exit(0);
    }
    rank_check(pid > 0 && waitpid(pid, &status, 0) == pid);
    rank_check_int(status, 0);
}

static void lose_it_idle(struct rank *me)
{
    lose_the_wire_as(me, true);
}

static void lose_it_busy(struct rank *me)
{
    lose_the_wire_as(me, false);
}

static void with_containers(void (*run)(struct rank *me))
{
    static const struct coll_setup setup = { 4, { "timeout=60", "peer_timeout=1", "linger=1" } };
    pid_t kept[2] = { 0, 0 };
    bool made = make_containers(kept);

    if (made)
        ranks_fork(4, run, (void *)(uintptr_t)&setup);
    for (int i = 0; i < 2; i++) {
        if (kept[i] > 0) {
            kill(kept[i], SIGKILL);
            waitpid(kept[i], NULL, 0);
        }
        close(spaces[i][0]);
        close(spaces[i][1]);
    }
    if (!made)
        SKIP("containers cannot be made here (root, ip, nsenter, veth)");
}

static void test_ranks_of_two_process_namespaces_find_their_mates(void **state)
{
    (void)state;
    if (geteuid() != 0)
        SKIP("only root can make namespaces");
    own_net = false;
    with_containers(contained);
}

static void test_ranks_of_two_containers_find_their_mates(void **state)
{
    (void)state;
    if (geteuid() != 0)
        SKIP("only root can make namespaces");
    own_net = true;
    with_containers(contained);
}

static void test_PR_15_a_wire_that_is_cut_is_noticed_in_a_call_and_before_it(void **state)
{
    (void)state;
    if (geteuid() != 0 || !SELF_RUN("iptables", "-w", "-L"))
        SKIP("wires are cut by root and iptables");
    own_net = true;
    with_containers(lose_it_idle);
    with_containers(lose_it_busy);
}

/* ---- disks ---- */

struct heard {
    char line[300];
};

static void hear(void *context, int32_t level, const char *line)
{
    if (level == RINGRED_LOG_WARN && strstr(line, "trace"))
        snprintf(((struct heard *)context)->line, sizeof ((struct heard *)context)->line, "%s", line);
}

static void trace_in_vain(struct rank *me)
{
    const struct coll_setup *setup = me->argument;
    bool is_limit = strstr(setup->setting[1], "/dev/full") == NULL;
    const struct rlimit little = { 8192, RLIM_INFINITY };
    struct heard h = { { 0 } };
    ringred_config wishes;
    char path[300] = "";
    float x = 1;

    ringred_config_init(&wishes, sizeof wishes);
    wishes.log = hear;
    wishes.log_context = &h;
    ringred_comm *comm = coll_open_with(me, setup, &wishes);
    if (is_limit)
        rank_check(setrlimit(RLIMIT_FSIZE, &little) == 0);
    for (int i = 0; i < 2000; i++)
        coll_must(comm, ringred_allreduce(comm, &x, &x, 1, RINGRED_FLOAT32, RINGRED_MAX), "allreduce");
    coll_close(comm);
    rank_check_msg(strstr(h.line, "the trace ends early") != NULL, "no warning: %s", h.line);
    snprintf(path, sizeof path, "%s", setup->setting[1] + strlen("trace="));
    ranks_meet(me);
    if (is_limit && me->rank == 0)
        unlink(path);
}

static void test_a_full_disk_ends_the_trace_and_nothing_else(void **state)
{
    static char file[64];
    struct coll_setup setups[] = { { 2, { "transport=shm", "trace=/dev/full" } }, { 2, { "transport=tcp", "trace=/dev/full" } },
                                   { 2, { "transport=shm", file } } };

    (void)state;
    snprintf(file, sizeof file, "trace=/tmp/ringred-trace-%d", (int)getpid());
    coll_each(setups, 3, trace_in_vain, 30);
}

/* ---- what stays when many have been made ---- */

/* Mallocs of a moment differ; what grows without end is found all the same. */
static void check_flat(struct self before, const char *what, long slack_kib)
{
    struct self now = self_look();

    rank_check_msg(now.descriptors == before.descriptors, "%s: %d descriptors, not %d", what, now.descriptors, before.descriptors);
    rank_check_msg(now.threads == before.threads, "%s: %d threads, not %d", what, now.threads, before.threads);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    rank_check_msg(now.mappings <= before.mappings + 2, "%s: %d mappings, not %d", what, now.mappings, before.mappings);
    rank_check_msg(now.kib <= before.kib + slack_kib, "%s: %ld KiB, not %ld", what, now.kib, before.kib);
#endif
    (void)slack_kib; /* the tools' allocators keep what is freed */
}

static void make_many(struct rank *me)
{
    const struct coll_setup *setup = me->argument;
    struct coll_setup wrong = *setup;
    struct self before = { 0, 0, 0, 0 };
    int wrongs = 0;

    while (wrong.setting[wrongs])
        wrongs++;
    for (int i = 0; i < self_times(130, 10030); i++) {
        ringred_comm *comm = NULL;
        ringred_error why;
        if (i == 30)
            before = self_look();
        wrong.setting[wrongs] = i % 2 ? "interface=nowhere" : me->rank ? "segment=64K" : "segment=1M";
        if (i % 5 == 4) { /* a failure, at once or when the ranks compare */
            rank_check(coll_try(me, &wrong, NULL, &comm, &why) < 0 && !comm);
            continue;
        }
        comm = coll_open(me, setup);
        check_numbers(comm, me->rank, me->size);
        ranks_meet(me);
        if (i % 7 == 6)
            (void)ringred_comm_abort(comm);
        ranks_meet(me);
        (void)ringred_comm_destroy(comm); /* EABORTED where it was */
    }
    check_flat(before, "communicators", 2048);
}

static void test_PR_35_communicators_leave_nothing(void **state)
{
    static const struct coll_setup setups[] = {
        { 2, { "transport=shm" } }, { 2, { "transport=tcp" } }, { 4, { "ranks_per_host=2" } }, { 2, { "transport=shm", "progress=thread" } },
    };

    (void)state;
    coll_each(setups, sizeof setups / sizeof *setups, make_many, self_times(60, 1500));
}

static ringred_comm *split(ringred_comm *comm, int color)
{
    ringred_comm *part = NULL;

    coll_must(comm, ringred_comm_split(comm, color, 0, &part), "split");
    return part;
}

static void split_often(struct rank *me)
{
    static ringred_comm *alive[1000];
    ringred_comm *comm = coll_open(me, me->argument);
    struct self before = { 0, 0, 0, 0 }, early = self_look();

    for (int i = 0; i < 10000; i++) {
        ringred_comm *part = split(comm, i % 3 ? 0 : me->rank);
        int32_t one = 1, sum = 0;
        if (i == 1000)
            before = self_look();
        if (i % 10 == 0)
            coll_must(part, ringred_allreduce(part, &one, &sum, 1, RINGRED_INT32, RINGRED_SUM), "allreduce");
        coll_close(part);
    }
    check_flat(before, "ten thousand parts", 1024);
    for (int i = 0; i < 1000; i++)
        alive[i] = split(comm, 0);
    rank_check_int(self_look().descriptors, early.descriptors);
    rank_check_int(self_look().threads, early.threads);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    rank_check(self_look().mappings <= early.mappings + 24); /* malloc's arenas grow by one */
#endif
    for (int i = 0; i < 1000; i++)
        coll_close(alive[i]);
    check_numbers(comm, me->rank, me->size);
    coll_close(comm);
}

static void test_PR_35_ten_thousand_parts_leave_nothing(void **state)
{
    static const struct coll_setup setups[] = { { 2, { "transport=shm" } }, { 2, { "transport=tcp" } }, { 2, { "ranks_per_host=1", "progress=thread" } } };

    (void)state;
    coll_each(setups, sizeof setups / sizeof *setups, split_often, 120);
}

/* The leak checker needs ptrace, which is refused here, and waits for ever in other process namespaces. The other tests
 * have it. */
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_PR_35_communicators_leave_nothing),
        cmocka_unit_test(test_PR_35_ten_thousand_parts_leave_nothing),
        cmocka_unit_test(test_PR_37_dev_shm_may_be_small_read_only_or_absent),
        cmocka_unit_test(test_PR_37_a_small_memory_cgroup_never_means_sigbus),
        cmocka_unit_test(test_PR_39_many_groups_share_links_and_need_no_descriptors),
        cmocka_unit_test(test_PR_40_too_few_descriptors_are_told_with_what_there_is_and_what_it_takes),
        cmocka_unit_test(test_PR_16_a_death_counts_though_nobody_collects_it),
        cmocka_unit_test(test_PR_15_a_wire_that_is_cut_is_noticed_in_a_call_and_before_it),
        cmocka_unit_test(test_nothing_is_locked_in_memory),
        cmocka_unit_test(test_newer_system_calls_may_be_refused),
        cmocka_unit_test(test_without_shared_memory_links_do_or_it_is_told),
        cmocka_unit_test(test_a_kernel_without_ipv6_will_do),
        cmocka_unit_test(test_ranks_of_two_process_namespaces_find_their_mates),
        cmocka_unit_test(test_ranks_of_two_containers_find_their_mates),
        cmocka_unit_test(test_a_full_disk_ends_the_trace_and_nothing_else),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
