/* SPDX-License-Identifier: Apache-2.0 */
/* ringred-run: starts the ranks of a job on this machine, passes them what they need to find each
 * other, and ends them all when one fails or the user says so. It uses nothing of the library: the
 * RINGRED_* variables (docs/USER.md) are the whole agreement.
 *
 * Over several hosts it starts a ringred-run on each, by ssh or another command, and treats these
 * as it treats ranks: their output is passed on, the first failure counts, and closing their input
 * ends them. What they need to know, the key included, goes through that input.
 *
 * The root's socket listens before any rank exists and is handed to rank 0, so no port is ever
 * chosen first and opened later. The key goes to each rank through a pipe: neither arguments nor
 * environment show it to others. */
#include <ringred/version.h>

#include "run.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LINE_MOST   (1 << 20)             /* a longer line is passed on in pieces */
#define SETTLE_NS   ((int64_t)1000000000) /* after a failure the others may say what they saw */
#define READER_NS   ((int64_t)1000000000) /* after Ctrl-C, for a reader of our output that stalls */
#define PIECE       4096                  /* a pipe that has room has room for that much */
#define HOST_NS     ((int64_t)5000000000) /* more grace for a ringred-run on another host than for ranks */
#define CONTROL     '\1'                  /* begins a line that one ringred-run writes for another */

/* What a rank writes to one of its two outputs. */
struct stream {
    int fd; /* our end of the pipe, -1: closed */
    int to; /* ours: 1 or 2 */
    int rank;
    char *text; /* what has come of the present line */
    size_t used, room;
    bool mid_line; /* its beginning is out already */
};

struct rank {
    pid_t pid; /* 0: has ended */
    int in;    /* of a host: our end of its input, -1: closed */
    struct stream out[2];
};

enum mode {
    LOCAL, /* all ranks are here */
    HEAD,  /* a "rank" is another ringred-run, which starts the ranks of one host */
    AGENT, /* such another one */
};

static struct {
    /* options */
    enum mode mode;
    int ranks, per_host; /* HEAD: ranks of the job, while at[] has one entry for each host */
    int base, size;      /* AGENT: the rank of its first one; of the whole job */
    struct run_host *hosts;
    int host_count;
    const char *launch_with, *remote_path, *host; /* host: AGENT: what the head calls this one */
    bool no_prefix;
    int64_t grace_ns;
    const char *extra[EXTRAS_MOST];
    int extras;
    char **command;
    /* the job */
    struct rank *rank;
    int count; /* of them */
    int alive;
    int listener, signals;
    char root[256];
    unsigned char key[KEY_BYTES];
    struct rlimit files; /* as we found it: the ranks get it back */
    /* how it ends */
    int code;        /* of the first failure */
    siginfo_t first; /* that failure, */
    int first_rank;  /* whose it is, */
    bool first_said; /* and whether we have said so */
    bool failed, told, interrupted, hurried;
    bool look;                   /* ranks may have ended while we were busy with output */
    int64_t next_ns;             /* when to become ruder; INT64_MAX: never */
    struct stream *open_line[3]; /* who has written a line's beginning to 1 and 2 */
} job = { .listener = -1, .signals = -1, .launch_with = "ssh", .grace_ns = (int64_t)5000000000, .next_ns = INT64_MAX };

extern char **environ;

static void put(int to, const char *text, size_t bytes);

void say(const char *format, ...)
{
    static const char name[] = "ringred-run: ";
    char text[4096];
    va_list a;

    va_start(a, format);
    int n = vsnprintf(text, sizeof text, format, a);
    va_end(a);
    put(2, name, sizeof name - 1);
    if (job.host) {
        put(2, job.host, strlen(job.host));
        put(2, ": ", 2);
    }
    put(2, text, n < 0 ? 0 : n < (int)sizeof text ? (size_t)n : sizeof text - 1);
    put(2, "\n", 1);
}

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- options ---- */

static const char usage[] =
    "Usage: ringred-run -n RANKS [options] [--] COMMAND [ARGUMENT...]\n"
    "Starts RANKS processes of COMMAND on this machine as the ranks of one libringred job.\n"
    "\n"
    "  -n, --ranks RANKS        how many (1 to 4096)\n"
    "      --ranks-per-host K   let each K ranks in turn believe that they share a host of their "
    "own\n"
    "      --hosts A:2,B:2      start ranks on other hosts: two on A, two on B (without a number: one)\n"
    "      --hostfile FILE      the same from a file: lines \"A slots=2\" or \"A:2\"\n"
    "      --launch-with CMD    what starts a command on a host: CMD HOST COMMAND...; default ssh\n"
    "      --remote-path PATH   where ringred-run is on the hosts; default where it is here\n"
    "  -x, --env NAME=VALUE     set a variable for the ranks; may be repeated\n"
    "      --no-prefix          leave the ranks' output alone instead of marking lines with "
    "[rank]\n"
    "      --grace SECONDS      from asking ranks to end (SIGTERM) to ending them (SIGKILL); "
    "default 5\n"
    "  -h, --help               this text\n"
    "  -V, --version            the version\n"
    "\n"
    "Each rank finds its place in RINGRED_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE, _ROOT and "
    "_KEY_FD.\n"
    "When a rank fails, the others get a second to notice; then all are ended. The exit status is "
    "that\n"
    "of the first rank that failed, 128+N if signal N killed it; 125 if ringred-run itself failed, "
    "126\n"
    "or 127 if COMMAND could not be run. Standard input is for rank 0, unless it is a terminal or there\n"
    "are hosts. On those, ranks start in this folder, and get the RINGRED_* variables from here.\n";

long number(const char *text, const char *what, long least, long most)
{
    char *end;

    errno = 0;
    long v = strtol(text, &end, 10);
    if (end == text || *end || errno || v < least || v > most) {
        say("%s is \"%s\", which is not a number from %ld to %ld", what, text, least, most);
        exit(EXIT_SYSTEM);
    }
    return v;
}

static void add_hosts(const char *list, const char *file)
{
    job.hosts = job.hosts ? job.hosts : calloc(HOSTS_MOST + 1, sizeof *job.hosts);
    must(job.hosts != NULL, "make room for the hosts");
    job.host_count = list ? run_hosts_list(job.hosts, list) : run_hosts_file(job.hosts, file);
    job.mode = HEAD;
}

static void add_variable(const char *text)
{
    const char *equals = strchr(text, '=');

    if (!equals || equals == text || job.extras == (int)(sizeof job.extra / sizeof *job.extra)) {
        say(equals && equals != text ? "too many -x" : "-x needs NAME=VALUE, not \"%s\"", text);
        exit(EXIT_SYSTEM);
    }
    job.extra[job.extras++] = text;
}

enum option_code { PER_HOST = 256, NO_PREFIX, GRACE, HOSTS, HOSTFILE, LAUNCH_WITH, REMOTE_PATH, BE_AGENT };

static const struct option options[] = {
    { "ranks", required_argument, NULL, 'n' },
    { "ranks-per-host", required_argument, NULL, PER_HOST },
    { "env", required_argument, NULL, 'x' },
    { "no-prefix", no_argument, NULL, NO_PREFIX },
    { "grace", required_argument, NULL, GRACE },
    { "hosts", required_argument, NULL, HOSTS },
    { "hostfile", required_argument, NULL, HOSTFILE },
    { "launch-with", required_argument, NULL, LAUNCH_WITH },
    { "remote-path", required_argument, NULL, REMOTE_PATH },
    { "agent", no_argument, NULL, BE_AGENT },
    { "help", no_argument, NULL, 'h' },
    { "version", no_argument, NULL, 'V' },
    { NULL, 0, NULL, 0 },
};

static void take_option(int c)
{
    switch (c) {
    case 'n':
        job.ranks = (int)number(optarg, "the number of ranks", 1, RANKS_MOST);
        break;
    case PER_HOST:
        job.per_host = (int)number(optarg, "--ranks-per-host", 1, RANKS_MOST);
        break;
    case 'x':
        add_variable(optarg);
        break;
    case NO_PREFIX:
        job.no_prefix = true;
        break;
    case GRACE:
        job.grace_ns = number(optarg, "--grace", 0, 86400) * 1000000000;
        break;
    case HOSTS:
        add_hosts(optarg, NULL);
        break;
    case HOSTFILE:
        add_hosts(NULL, optarg);
        break;
    case LAUNCH_WITH:
        job.launch_with = optarg;
        break;
    case REMOTE_PATH:
        job.remote_path = optarg;
        break;
    case 'h':
        fputs(usage, stdout);
        exit(0);
    case 'V':
        puts("ringred-run " RINGRED_VERSION);
        exit(0);
    default:
        fprintf(stderr, "Try: ringred-run --help\n");
        exit(EXIT_SYSTEM);
    }
}

static void parse(int argc, char **argv)
{
    int c;

    while ((c = getopt_long(argc, argv, "+n:x:hV", options, NULL)) != -1) {
        if (c == BE_AGENT) {
            job.mode = AGENT;
            return;
        }
        take_option(c);
    }
    job.command = argv + optind;
    if (job.mode == HEAD && job.per_host) {
        say("--ranks-per-host pretends hosts: it makes no sense with --hosts");
        exit(EXIT_SYSTEM);
    }
    if (job.mode == HEAD)
        job.ranks = run_hosts_fill(job.hosts, &job.host_count, job.ranks);
    if (job.ranks == 0 || !*job.command) {
        say(job.ranks == 0 ? "say how many ranks: -n RANKS" : "say what to run");
        fprintf(stderr, "Try: ringred-run --help\n");
        exit(EXIT_SYSTEM);
    }
}

/* ---- before the ranks ---- */

void must(bool fine, const char *what)
{
    if (fine)
        return;
    say("cannot %s: %s", what, strerror(errno));
    exit(EXIT_SYSTEM);
}

static void open_root(void)
{
    struct sockaddr_in in4 = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
    socklen_t n = sizeof in4;

    job.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (job.listener >= 0 && bind(job.listener, (struct sockaddr *)&in4, sizeof in4) == 0) {
        must(getsockname(job.listener, (struct sockaddr *)&in4, &n) == 0, "name the root's socket");
        snprintf(job.root, sizeof job.root, "127.0.0.1:%d", ntohs(in4.sin_port));
    } else { /* a machine with IPv6 only */
        n = sizeof in6;
        job.listener = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
        must(job.listener >= 0 && bind(job.listener, (struct sockaddr *)&in6, sizeof in6) == 0 &&
                 getsockname(job.listener, (struct sockaddr *)&in6, &n) == 0,
             "open a socket for the root");
        snprintf(job.root, sizeof job.root, "[::1]:%d", ntohs(in6.sin6_port));
    }
    must(listen(job.listener, 4096) == 0, "listen for the ranks");
}

static void catch_signals(void)
{
    sigset_t caught;

    sigemptyset(&caught);
    sigaddset(&caught, SIGCHLD);
    sigaddset(&caught, SIGINT);
    sigaddset(&caught, SIGTERM);
    sigaddset(&caught, SIGHUP);
    sigaddset(&caught, SIGQUIT);
    sigaddset(&caught, SIGTSTP);
    must(sigprocmask(SIG_BLOCK, &caught, NULL) == 0, "block signals");
    signal(SIGPIPE, SIG_IGN);
    job.signals = signalfd(-1, &caught, SFD_CLOEXEC | SFD_NONBLOCK);
    must(job.signals >= 0, "catch signals");
}

static void prepare(void)
{
    struct rlimit more;

    must(getrlimit(RLIMIT_NOFILE, &job.files) == 0, "read the limit of descriptors");
    more = job.files;
    more.rlim_cur = more.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &more); /* then few ranks have to do */
    if (job.mode != AGENT)
        must(getrandom(job.key, sizeof job.key, 0) == (ssize_t)sizeof job.key, "make a key");
    job.count = job.mode == HEAD ? job.host_count : job.ranks;
    job.size = job.mode == AGENT ? job.size : job.ranks;
    job.rank = calloc((size_t)job.count, sizeof *job.rank);
    must(job.rank != NULL, "make room for the ranks");
    for (int r = 0; r < job.count; r++) {
        job.rank[r].in = -1;
        for (int s = 0; s < 2; s++)
            job.rank[r].out[s] = (struct stream){ .fd = -1, .to = 1 + s, .rank = job.base + r };
    }
    if (job.mode == LOCAL)
        open_root();
    if (job.mode == HEAD)
        job.grace_ns += HOST_NS;
    catch_signals();
}

/* What the ringred-run that started this one says. */
static void become_agent(void)
{
    static struct run_part part;
    bool opens;

    signal(SIGPIPE, SIG_IGN);
    run_part_read(0, &part);
    opens = !part.root[0];
    job.host = part.host;
    job.base = part.first;
    job.ranks = part.ranks;
    job.size = part.size;
    job.grace_ns = part.grace_ns;
    job.command = part.command;
    job.extras = part.extras;
    memcpy(job.extra, part.extra, sizeof job.extra);
    memcpy(job.key, part.key, sizeof job.key);
    explicit_bzero(part.key, sizeof part.key);
    memcpy(job.root, part.root, sizeof job.root);
    if (part.directory[0] && chdir(part.directory) < 0) {
        say("cannot enter %s: %s", part.directory, strerror(errno));
        exit(EXIT_SYSTEM);
    }
    if (opens)
        job.listener = run_open_root(job.root, sizeof job.root);
}

/* ---- starting a rank ---- */

static void set_number(const char *name, long v)
{
    char text[32];

    snprintf(text, sizeof text, "%ld", v);
    setenv(name, text, 1);
}

static void set_environment(int r, int key_fd)
{
    static const char *const stale[] = { "RINGRED_KEY", "RINGRED_KEY_FILE", "RINGRED_ROOT_FD" };
    int per_host = job.per_host ? job.per_host : job.ranks, first = r / per_host * per_host;

    if (job.mode == AGENT) {
        per_host = job.ranks;
        first = 0;
    }
    for (size_t i = 0; i < sizeof stale / sizeof *stale; i++)
        unsetenv(stale[i]);
    for (int i = 0; i < job.extras; i++)
        putenv((char *)(uintptr_t)job.extra[i]); /* putenv keeps it; argv lives on */
    set_number("RINGRED_RANK", job.base + r);
    set_number("RINGRED_SIZE", job.size);
    set_number("RINGRED_LOCAL_RANK", r - first);
    set_number("RINGRED_LOCAL_SIZE", job.ranks - first < per_host ? job.ranks - first : per_host);
    set_number("RINGRED_KEY_FD", key_fd);
    setenv("RINGRED_ROOT", job.root, 1);
    if (job.per_host)
        set_number("RINGRED_RANKS_PER_HOST", job.per_host);
    if (r == 0 && job.listener >= 0)
        set_number("RINGRED_ROOT_FD", job.listener);
}

/* In the child. Its errno goes up the pipe if it cannot become the command. */
static void become(int r, int key_fd, const int out[2], int report, pid_t parent)
{
    sigset_t none;
    int system;

    setpgid(0, 0); /* so that its own children can be reached, too */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(EXIT_SYSTEM);
    if (r != 0 || job.mode == AGENT || isatty(0)) {
        int null = open("/dev/null", O_RDONLY);
        if (null > 0) {
            dup2(null, 0);
            close(null);
        }
    }
    for (int s = 0; s < 2 && !job.no_prefix; s++)
        dup2(out[s], 1 + s);
    fcntl(key_fd, F_SETFD, 0);
    if (r == 0 && job.listener >= 0)
        fcntl(job.listener, F_SETFD, 0);
    set_environment(r, key_fd);
    setrlimit(RLIMIT_NOFILE, &job.files);
    signal(SIGPIPE, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execvp(job.command[0], job.command);
    system = errno;
    if (write(report, &system, sizeof system) < 0)
        _exit(EXIT_SYSTEM);
    _exit(127);
}

/* The pipes for its outputs are ours to read. */
static void keep_outputs(struct rank *k, int out[2][2])
{
    for (int s = 0; s < 2; s++) {
        close(out[s][1]);
        k->out[s].fd = out[s][0];
        fcntl(out[s][0], F_SETFL, O_NONBLOCK);
    }
}

/* What a started process reports of its exec: 0, or an errno. */
static int hear_report(int fd)
{
    int system = 0;
    ssize_t n;

    do
        n = read(fd, &system, sizeof system);
    while (n < 0 && errno == EINTR);
    close(fd);
    return n == (ssize_t)sizeof system ? system : 0;
}

/* Waits until the command runs. 0, or the errno of what could not be run. */
static int start(int r)
{
    int key[2], out[2][2] = { { -1, -1 }, { -1, -1 } }, report[2];
    struct rank *k = &job.rank[r];
    pid_t parent = getpid();

    must(pipe2(key, O_CLOEXEC) == 0 && pipe2(report, O_CLOEXEC) == 0, "open pipes");
    must(write(key[1], job.key, sizeof job.key) == (ssize_t)sizeof job.key,
         "pass the key"); /* fits */
    close(key[1]);
    for (int s = 0; s < 2 && !job.no_prefix; s++)
        must(pipe2(out[s], O_CLOEXEC) == 0, "open pipes");
    fflush(NULL);
    k->pid = fork();
    must(k->pid >= 0, "start a process");
    if (k->pid == 0)
        become(r, key[0], (int[2]){ out[0][1], out[1][1] }, report[1], parent);
    job.alive++;
    close(key[0]);
    close(report[1]);
    if (!job.no_prefix)
        keep_outputs(k, out);
    return hear_report(report[0]);
}

/* ---- starting a host ---- */

/* In the child: "ssh HOST /usr/bin/ringred-run --agent". */
static void become_launcher(int h, int in, int out[2][2], int report)
{
    char *words = strdup(job.launch_with), *word, own[4096] = "ringred-run";
    char *argv[64];
    sigset_t none;
    int n = 0, system;

    setpgid(0, 0); /* Ctrl-C is for us: closing its input ends it */
    dup2(in, 0);
    dup2(out[0][1], 1);
    dup2(out[1][1], 2);
    while (words && (word = strsep(&words, " \t")) != NULL && n < 60)
        if (*word)
            argv[n++] = word;
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    if (length > 0)
        own[length] = 0;
    argv[n++] = job.hosts[h].name;
    argv[n++] = job.remote_path ? (char *)(uintptr_t)job.remote_path : own;
    argv[n++] = (char *)(uintptr_t)"--agent";
    argv[n] = NULL;
    setrlimit(RLIMIT_NOFILE, &job.files);
    signal(SIGPIPE, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execvp(argv[0], argv);
    system = errno;
    if (write(report, &system, sizeof system) < 0)
        _exit(EXIT_SYSTEM);
    _exit(127);
}

/* RINGRED_* variables from here are meant for all ranks, less those that we make. */
static void add_settings(struct run_part *part)
{
    static const char *const ours[] = { "RANK=", "SIZE=", "LOCAL_RANK=", "LOCAL_SIZE=", "ROOT=", "ROOT_FD=", "KEY=",
                                        "KEY_FILE=", "KEY_FD=" };

    for (char **e = environ; *e; e++) {
        bool is_ours = strncmp(*e, "RINGRED_", 8) != 0;
        for (size_t i = 0; i < sizeof ours / sizeof *ours && !is_ours; i++)
            is_ours = strncmp(*e + 8, ours[i], strlen(ours[i])) == 0;
        if (!is_ours && part->extras < EXTRAS_MOST)
            part->extra[part->extras++] = *e;
    }
    for (int i = 0; i < job.extras && part->extras < EXTRAS_MOST; i++)
        part->extra[part->extras++] = job.extra[i];
}

static void send_part(int h)
{
    struct run_part part = { .first = job.hosts[h].first, .ranks = job.hosts[h].ranks, .size = job.ranks,
                             .grace_ns = job.grace_ns - HOST_NS, .command = job.command };

    snprintf(part.host, sizeof part.host, "%s", job.hosts[h].name);
    memcpy(part.key, job.key, sizeof part.key);
    if (!getcwd(part.directory, sizeof part.directory))
        part.directory[0] = 0;
    add_settings(&part);
    run_part_send(job.rank[h].in, &part);
    if (h == 0)
        run_root_send(job.rank[h].in, ""); /* it opens the root, and tells us */
    explicit_bzero(part.key, sizeof part.key);
}

static int start_host(int h)
{
    int in[2], out[2][2], report[2];
    struct rank *k = &job.rank[h];

    must(pipe2(in, O_CLOEXEC) == 0 && pipe2(report, O_CLOEXEC) == 0 && pipe2(out[0], O_CLOEXEC) == 0 &&
             pipe2(out[1], O_CLOEXEC) == 0,
         "open pipes");
    fflush(NULL);
    k->pid = fork();
    must(k->pid >= 0, "start a process");
    if (k->pid == 0)
        become_launcher(h, in[0], out, report[1]);
    job.alive++;
    close(in[0]);
    close(report[1]);
    k->in = in[1];
    keep_outputs(k, out);
    int system = hear_report(report[0]);
    if (system == 0)
        send_part(h);
    return system;
}

/* A line that a host's ringred-run has written for us: the root that it has opened, or that a rank has failed. */
static void obey(const char *line, size_t bytes)
{
    char text[300];

    snprintf(text, sizeof text, "%.*s", (int)(bytes < 299 ? bytes : 299), line);
    text[strcspn(text, "\n")] = 0;
    if (strncmp(text, "root ", 5) == 0 && !job.root[0]) {
        snprintf(job.root, sizeof job.root, "%.255s", text + 5);
        for (int h = 1; h < job.count; h++)
            if (job.rank[h].in >= 0)
                run_root_send(job.rank[h].in, job.root);
    }
    if (strncmp(text, "failed ", 7) == 0 && !job.failed && !job.interrupted) {
        job.failed = job.first_said = true; /* it has the words, too */
        job.code = atoi(text + 7) & 255;
        job.first_rank = -1;
        job.next_ns = now_ns() + SETTLE_NS;
    }
}

/* ---- ending ---- */

/* A host's ringred-run is asked by closing its input, which reaches it wherever it is. */
static void signal_all(int sig)
{
    for (int r = 0; r < job.count; r++) {
        struct rank *k = &job.rank[r];
        if (k->pid > 0 && (job.mode != HEAD || sig == SIGKILL))
            kill(-k->pid, sig);
        if (job.mode == HEAD && k->in >= 0 && sig != SIGCONT && sig != SIGTSTP) {
            close(k->in);
            k->in = -1;
        }
    }
}

/* First the polite signal, after the grace the other one. */
static void end_all(int sig)
{
    signal_all(sig);
    signal_all(SIGCONT); /* a stopped process cannot end */
    job.told = true;
    job.next_ns = sig == SIGKILL ? INT64_MAX : now_ns() + job.grace_ns;
}

static void become_ruder(void)
{
    end_all(job.told ? SIGKILL : SIGTERM);
}

/* The first failure counts. What it was is said once its rank's output is out. */
static void note_end(int r, const siginfo_t *i)
{
    int code = i->si_code != CLD_EXITED ? 128 + i->si_status : i->si_status;

    if (code == 0 || job.failed || job.interrupted)
        return;
    job.failed = true;
    job.code = code;
    job.first = *i;
    job.first_rank = r;
    job.next_ns = now_ns() + SETTLE_NS;
}

/* Whether it has ended; it stays to be reaped. */
static bool has_ended(const struct rank *k, siginfo_t *i)
{
    *i = (siginfo_t){ 0 };
    return k->pid > 0 && waitid(P_PID, (id_t)k->pid, i, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           i->si_pid != 0;
}

static void look_for_ends(void)
{
    siginfo_t i;

    for (int r = 0; job.look && r < job.count; r++)
        if (has_ended(&job.rank[r], &i))
            note_end(r, &i);
}

static void on_signal(int sig)
{
    if (sig == SIGCHLD) {
        job.look = true;
        return;
    }
    if (sig == SIGTSTP) {
        signal_all(SIGTSTP);
        raise(SIGSTOP);
        signal_all(SIGCONT);
        return;
    }
    if (!job.failed && !job.interrupted)
        job.code = 128 + sig;
    end_all(job.interrupted ? SIGKILL : sig); /* asked twice: at once */
    job.hurried = job.interrupted;
    job.interrupted = true;
}

/* Writes nothing and reaps nobody: output may be under way. */
static void handle_signals(void)
{
    struct signalfd_siginfo i;

    while (read(job.signals, &i, sizeof i) == (ssize_t)sizeof i)
        on_signal((int)i.ssi_signo);
}

static int left_ms(int64_t until_ns, int64_t now)
{
    int64_t left = until_ns == INT64_MAX ? INT64_MAX : (until_ns - now) / 1000000 + 1;

    return until_ns <= now ? 0 : left > 3600000 ? 3600000 : (int)left;
}

/* ---- output ---- */

/* Waits until there is room, and meanwhile does what cannot wait: without it a reader that has
 * stopped reading would keep us from hearing Ctrl-C, and from seeing that a rank has died. False:
 * the reader stalls, and the user wants an end. */
static bool has_reader(int to)
{
    int64_t began = now_ns();

    for (;;) {
        struct pollfd p[2] = { { .fd = to, .events = POLLOUT },
                               { .fd = job.signals, .events = POLLIN } };
        int64_t now = now_ns(), until = job.interrupted ? began + READER_NS : INT64_MAX;
        if (job.hurried)
            until = now;
        int ready = poll(p, 2, left_ms(until < job.next_ns ? until : job.next_ns, now));
        if (ready > 0 && p[1].revents) {
            handle_signals();
            look_for_ends();
        }
        now = now_ns();
        if (now >= job.next_ns)
            become_ruder();
        if (ready > 0 && p[0].revents)
            return true;
        if (now >= until)
            return false;
    }
}

/* Everything, or nothing more to anybody who has stopped reading. */
static void put(int to, const char *text, size_t bytes)
{
    static bool gone[3];

    while (bytes && !gone[to]) {
        if (!has_reader(to)) {
            gone[to] = true;
            return;
        }
        ssize_t n = write(to, text, bytes < PIECE ? bytes : PIECE);
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            gone[to] = true;
        if (n > 0) {
            text += n;
            bytes -= (size_t)n;
        }
    }
}

/* Another rank's long line may be in the way. */
static void end_open_line(int to, const struct stream *unless)
{
    struct stream *other = job.open_line[to];

    if (!other || other == unless)
        return;
    put(to, "\n", 1);
    other->mid_line = false;
    job.open_line[to] = NULL;
}

/* A line for the ringred-run that started this one. */
static void tell_head(const char *what, const char *text)
{
    char line[320];

    if (job.mode != AGENT)
        return;
    end_open_line(1, NULL);
    put(1, line, (size_t)snprintf(line, sizeof line, "%c%s %.280s\n", CONTROL, what, text));
}

/* Of a host's output: lines for us, and lines that have their rank already. Bytes at the beginning that are not for
 * the user. */
static size_t relay(const struct stream *s, const char *text, size_t bytes)
{
    size_t n = 1;

    if (s->mid_line || bytes == 0)
        return 0;
    if (s->to == 1 && text[0] == CONTROL) {
        obey(text + 1, bytes - 1);
        return bytes;
    }
    while (n < bytes && n < 8 && text[n] >= '0' && text[n] <= '9')
        n++;
    return job.no_prefix && text[0] == '[' && n > 1 && n + 1 < bytes && text[n] == ']' ? n + 2 : 0;
}

/* A line or the piece of one; `ends` if it ends it. */
static void put_line(struct stream *s, const char *text, size_t bytes, bool ends)
{
    char prefix[24];
    size_t skip = job.mode == HEAD ? relay(s, text, bytes) : 0;

    if (skip > 0 && skip == bytes)
        return;
    text += skip;
    bytes -= skip;
    end_open_line(s->to, s);
    if (!s->mid_line && job.mode != HEAD)
        put(s->to, prefix, (size_t)snprintf(prefix, sizeof prefix, "[%d] ", s->rank));
    put(s->to, text, bytes);
    s->mid_line = !ends;
    job.open_line[s->to] = ends ? NULL : s;
}

/* Where the first line ends, behind its end; 0: nowhere yet. A carriage return that no line feed
 * follows counts: progress bars end their lines so. */
static size_t line_end(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (text[i] == '\n' || (text[i] == '\r' && i + 1 < bytes && text[i + 1] != '\n'))
            return i + 1;
    return 0;
}

static void put_lines(struct stream *s, bool last)
{
    size_t from = 0, n;

    while ((n = line_end(s->text + from, s->used - from)) > 0) {
        put_line(s, s->text + from, n, true);
        from += n;
    }
    memmove(s->text, s->text + from, s->used - from);
    s->used -= from;
    if (s->used == 0 || (!last && s->used < LINE_MOST))
        return;
    put_line(s, s->text, s->used, false);
    s->used = 0;
    if (last) {
        put(s->to, "\n", 1);
        s->mid_line = false;
        job.open_line[s->to] = NULL;
    }
}

static bool has_room(struct stream *s)
{
    size_t room = s->room ? 2 * s->room : 4096;
    char *more;

    if (s->used < s->room)
        return true;
    more = realloc(s->text, room);
    if (!more)
        return false;
    s->text = more;
    s->room = room;
    return true;
}

/* Passes on what has come. At its end the descriptor is closed. */
static void drain(struct stream *s)
{
    while (s->fd >= 0) {
        ssize_t n = -1;
        if (has_room(s))
            n = read(s->fd, s->text + s->used, s->room - s->used);
        else
            errno = ENOMEM;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        s->used += n > 0 ? (size_t)n : 0;
        put_lines(s, n <= 0);
        if (n <= 0) {
            close(s->fd);
            s->fd = -1;
        }
    }
}

/* What is left after a rank has ended; its own children may hold the pipe open. */
static void drain_last(struct stream *s)
{
    drain(s);
    if (s->fd < 0)
        return;
    put_lines(s, true);
    close(s->fd);
    s->fd = -1;
}

/* ---- those that have ended ---- */

static void say_end(void)
{
    const siginfo_t *i = &job.first;
    const char *others = job.alive > 1 || (job.mode == AGENT && job.size > job.count) ? "; ending the others" : "";
    char code[16];

    if (!job.failed || job.first_said || i->si_pid == 0)
        return;
    job.first_said = true;
    snprintf(code, sizeof code, "%d", job.code);
    tell_head("failed", code);
    if (job.mode == HEAD)
        say("%s on host %s ended with status %d%s", job.launch_with, job.hosts[job.first_rank].name, job.code, others);
    else if (i->si_code != CLD_EXITED)
        say("rank %d (pid %d) was killed by signal %d (%s)%s", job.base + job.first_rank, i->si_pid,
            i->si_status, strsignal(i->si_status), others);
    else
        say("rank %d (pid %d) ended with status %d%s", job.base + job.first_rank, i->si_pid, i->si_status,
            others);
}

static void reap(void)
{
    siginfo_t i;

    job.look = false;
    for (int r = 0; r < job.count; r++) {
        struct rank *k = &job.rank[r];
        if (!has_ended(k, &i))
            continue;
        for (int s = 0; s < 2; s++)
            if (k->out[s].fd >= 0)
                drain(&k->out[s]);
        note_end(r, &i);
        if (r == job.first_rank)
            say_end();
        if (job.failed || job.interrupted)
            kill(-k->pid,
                 SIGKILL); /* what it has left behind; the number is ours until it is reaped */
        waitpid(k->pid, NULL, 0);
        k->pid = 0;
        job.alive--;
        if (k->in >= 0)
            close(k->in);
        k->in = -1;
        for (int s = 0; s < 2; s++)
            drain_last(&k->out[s]);
    }
}

/* ---- the loop ---- */

/* Whoever started this ringred-run has gone, or wants an end. */
static void hang_up(void)
{
    char byte;

    if (job.interrupted || read(0, &byte, 1) > 0)
        return;
    job.code = job.failed ? job.code : 128 + SIGTERM;
    end_all(SIGTERM);
    job.interrupted = true;
}

static void turn(struct pollfd *polls, struct stream **whose)
{
    int n = 0;

    polls[n++] = (struct pollfd){ .fd = job.signals, .events = POLLIN };
    polls[n++] = (struct pollfd){ .fd = job.mode == AGENT && !job.interrupted ? 0 : -1, .events = POLLIN };
    for (int r = 0; r < job.count; r++)
        for (int s = 0; s < 2; s++)
            if (job.rank[r].out[s].fd >= 0) {
                whose[n] = &job.rank[r].out[s];
                polls[n] = (struct pollfd){ .fd = whose[n]->fd, .events = POLLIN };
                n++;
            }
    (void)poll(polls, (nfds_t)n, job.look ? 0 : left_ms(job.next_ns, now_ns()));
    for (int k = 2; k < n; k++)
        if (polls[k].revents)
            drain(whose[k]);
    handle_signals();
    if (polls[1].revents)
        hang_up();
    if (job.look)
        reap();
    if (now_ns() >= job.next_ns)
        become_ruder();
}

static void fail_to_start(int system)
{
    char code[16];

    say("cannot run %s: %s", job.mode == HEAD ? job.launch_with : job.command[0], strerror(system));
    job.failed = job.first_said = true;
    job.first_rank = -1;
    job.code = system == ENOENT ? 127 : 126;
    snprintf(code, sizeof code, "%d", job.code);
    tell_head("failed", code);
}

static int run(void)
{
    size_t most = 2 + 2 * (size_t)job.count;
    struct pollfd *polls = calloc(most, sizeof *polls);
    struct stream **whose = calloc(most, sizeof *whose);

    must(polls && whose, "make room for the ranks");
    if (job.mode == AGENT && job.base == 0)
        tell_head("root", job.root);
    for (int r = 0; r < job.count && !job.failed; r++) {
        int system = job.mode == HEAD ? start_host(r) : start(r);
        if (system) {
            fail_to_start(system);
            end_all(SIGTERM);
        }
    }
    if (job.listener >= 0)
        close(job.listener);
    explicit_bzero(job.key, sizeof job.key);
    while (job.alive > 0)
        turn(polls, whose);
    free(polls);
    free(whose);
    return job.code;
}

int main(int argc, char **argv)
{
    parse(argc, argv);
    if (job.mode == AGENT)
        become_agent();
    prepare();
    int code = run();
    for (int r = 0; r < job.count; r++)
        for (int s = 0; s < 2; s++)
            free(job.rank[r].out[s].text);
    free(job.rank);
    free(job.hosts);
    return code;
}
