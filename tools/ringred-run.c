/* SPDX-License-Identifier: Apache-2.0 */
/* ringred-run: starts the ranks of a job on this machine, passes them what they need to find each
 * other, and ends them all when one fails or the user says so. It uses nothing of the library: the
 * RINGRED_* variables (docs/USER.md) are the whole agreement.
 *
 * The root's socket listens before any rank exists and is handed to rank 0, so no port is ever
 * chosen first and opened later. The key goes to each rank through a pipe: neither arguments nor
 * environment show it to others. */
#include <ringred/version.h>

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

#define KEY_BYTES   32
#define RANKS_MOST  4096
#define LINE_MOST   (1 << 20)             /* a longer line is passed on in pieces */
#define SETTLE_NS   ((int64_t)1000000000) /* after a failure the others may say what they saw */
#define READER_NS   ((int64_t)1000000000) /* after Ctrl-C, for a reader of our output that stalls */
#define PIECE       4096                  /* a pipe that has room has room for that much */
#define EXIT_SYSTEM 125                   /* ringred-run itself failed */

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
    struct stream out[2];
};

static struct {
    /* options */
    int ranks, per_host;
    bool no_prefix;
    int64_t grace_ns;
    const char *extra[256];
    int extras;
    char **command;
    /* the job */
    struct rank *rank;
    int alive;
    int listener, signals;
    char root[64];
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
} job = { .signals = -1, .grace_ns = (int64_t)5000000000, .next_ns = INT64_MAX };

static void put(int to, const char *text, size_t bytes);

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...)
{
    static const char name[] = "ringred-run: ";
    char text[4096];
    va_list a;

    va_start(a, format);
    int n = vsnprintf(text, sizeof text, format, a);
    va_end(a);
    put(2, name, sizeof name - 1);
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
    "or 127 if COMMAND could not be run. Standard input is for rank 0, unless it is a terminal.\n";

static long number(const char *text, const char *what, long least, long most)
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

static void add_variable(const char *text)
{
    const char *equals = strchr(text, '=');

    if (!equals || equals == text || job.extras == (int)(sizeof job.extra / sizeof *job.extra)) {
        say(equals && equals != text ? "too many -x" : "-x needs NAME=VALUE, not \"%s\"", text);
        exit(EXIT_SYSTEM);
    }
    job.extra[job.extras++] = text;
}

static void parse(int argc, char **argv)
{
    enum { PER_HOST = 256, NO_PREFIX, GRACE };
    static const struct option options[] = {
        { "ranks", required_argument, NULL, 'n' },
        { "ranks-per-host", required_argument, NULL, PER_HOST },
        { "env", required_argument, NULL, 'x' },
        { "no-prefix", no_argument, NULL, NO_PREFIX },
        { "grace", required_argument, NULL, GRACE },
        { "help", no_argument, NULL, 'h' },
        { "version", no_argument, NULL, 'V' },
        { NULL, 0, NULL, 0 },
    };
    int c;

    while ((c = getopt_long(argc, argv, "+n:x:hV", options, NULL)) != -1) {
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
    job.command = argv + optind;
    if (job.ranks == 0 || !*job.command) {
        say(job.ranks == 0 ? "say how many ranks: -n RANKS" : "say what to run");
        fprintf(stderr, "Try: ringred-run --help\n");
        exit(EXIT_SYSTEM);
    }
}

/* ---- before the ranks ---- */

static void must(bool fine, const char *what)
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
    must(getrandom(job.key, sizeof job.key, 0) == (ssize_t)sizeof job.key, "make a key");
    job.rank = calloc((size_t)job.ranks, sizeof *job.rank);
    must(job.rank != NULL, "make room for the ranks");
    for (int r = 0; r < job.ranks; r++)
        for (int s = 0; s < 2; s++)
            job.rank[r].out[s] = (struct stream){ .fd = -1, .to = 1 + s, .rank = r };
    open_root();
    catch_signals();
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

    for (size_t i = 0; i < sizeof stale / sizeof *stale; i++)
        unsetenv(stale[i]);
    for (int i = 0; i < job.extras; i++)
        putenv((char *)(uintptr_t)job.extra[i]); /* putenv keeps it; argv lives on */
    set_number("RINGRED_RANK", r);
    set_number("RINGRED_SIZE", job.ranks);
    set_number("RINGRED_LOCAL_RANK", r - first);
    set_number("RINGRED_LOCAL_SIZE", job.ranks - first < per_host ? job.ranks - first : per_host);
    set_number("RINGRED_KEY_FD", key_fd);
    setenv("RINGRED_ROOT", job.root, 1);
    if (job.per_host)
        set_number("RINGRED_RANKS_PER_HOST", job.per_host);
    if (r == 0)
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
    if (r != 0 || isatty(0)) {
        int null = open("/dev/null", O_RDONLY);
        if (null > 0) {
            dup2(null, 0);
            close(null);
        }
    }
    for (int s = 0; s < 2 && !job.no_prefix; s++)
        dup2(out[s], 1 + s);
    fcntl(key_fd, F_SETFD, 0);
    if (r == 0)
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

/* Waits until the command runs. 0, or the errno of what could not be run. */
static int start(int r)
{
    int key[2], out[2][2] = { { -1, -1 }, { -1, -1 } }, report[2], system = 0;
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
    for (int s = 0; s < 2 && !job.no_prefix; s++) {
        close(out[s][1]);
        k->out[s].fd = out[s][0];
        fcntl(out[s][0], F_SETFL, O_NONBLOCK);
    }
    ssize_t n;
    do
        n = read(report[0], &system, sizeof system);
    while (n < 0 && errno == EINTR);
    close(report[0]);
    return n == (ssize_t)sizeof system ? system : 0;
}

/* ---- ending ---- */

static void signal_all(int sig)
{
    for (int r = 0; r < job.ranks; r++)
        if (job.rank[r].pid > 0)
            kill(-job.rank[r].pid, sig);
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

    for (int r = 0; job.look && r < job.ranks; r++)
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

/* A line or the piece of one; `ends` if it ends it. */
static void put_line(struct stream *s, const char *text, size_t bytes, bool ends)
{
    char prefix[24];
    struct stream *other = job.open_line[s->to];

    if (other && other != s) { /* another rank's long line is in the way */
        put(s->to, "\n", 1);
        other->mid_line = false;
    }
    if (!s->mid_line)
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
    const char *others = job.alive > 1 ? "; ending the others" : "";

    if (!job.failed || job.first_said || i->si_pid == 0)
        return;
    job.first_said = true;
    if (i->si_code != CLD_EXITED)
        say("rank %d (pid %d) was killed by signal %d (%s)%s", job.first_rank, i->si_pid,
            i->si_status, strsignal(i->si_status), others);
    else
        say("rank %d (pid %d) ended with status %d%s", job.first_rank, i->si_pid, i->si_status,
            others);
}

static void reap(void)
{
    siginfo_t i;

    job.look = false;
    for (int r = 0; r < job.ranks; r++) {
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
        for (int s = 0; s < 2; s++)
            drain_last(&k->out[s]);
    }
}

/* ---- the loop ---- */

static void turn(struct pollfd *polls, struct stream **whose)
{
    int n = 0;

    polls[n++] = (struct pollfd){ .fd = job.signals, .events = POLLIN };
    for (int r = 0; r < job.ranks; r++)
        for (int s = 0; s < 2; s++)
            if (job.rank[r].out[s].fd >= 0) {
                whose[n] = &job.rank[r].out[s];
                polls[n] = (struct pollfd){ .fd = whose[n]->fd, .events = POLLIN };
                n++;
            }
    (void)poll(polls, (nfds_t)n, job.look ? 0 : left_ms(job.next_ns, now_ns()));
    for (int k = 1; k < n; k++)
        if (polls[k].revents)
            drain(whose[k]);
    handle_signals();
    if (job.look)
        reap();
    if (now_ns() >= job.next_ns)
        become_ruder();
}

static int run(void)
{
    size_t most = 1 + 2 * (size_t)job.ranks;
    struct pollfd *polls = calloc(most, sizeof *polls);
    struct stream **whose = calloc(most, sizeof *whose);

    must(polls && whose, "make room for the ranks");
    for (int r = 0; r < job.ranks && !job.failed; r++) {
        int system = start(r);
        if (system) {
            say("cannot run %s: %s", job.command[0], strerror(system));
            job.failed = true;
            job.code = system == ENOENT ? 127 : 126;
            end_all(SIGTERM);
        }
    }
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
    prepare();
    int code = run();
    for (int r = 0; r < job.ranks; r++)
        for (int s = 0; s < 2; s++)
            free(job.rank[r].out[s].text);
    free(job.rank);
    return code;
}
