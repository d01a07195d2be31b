/* SPDX-License-Identifier: Apache-2.0 */
/* Time, failures, log lines, and reading bytes that came from outside. */
#include "base/base.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

int64_t rr_now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t rr_deadline(int64_t timeout_ns)
{
    int64_t now = timeout_ns < 0 ? INT64_MAX : rr_now_ns(); /* for ever needs no clock */

    return timeout_ns > INT64_MAX - now || timeout_ns < 0 ? INT64_MAX : now + timeout_ns;
}

int rr_deadline_ms(int64_t deadline_ns, int most_ms)
{
    int64_t left = deadline_ns == INT64_MAX ? INT64_MAX : deadline_ns - rr_now_ns();

    if (left <= 0)
        return 0;
    left = left / 1000000 + (left % 1000000 != 0);
    return left > most_ms ? most_ms : (int)left;
}

/* ---- structs of callers ---- */

void rr_struct_init(void *his, size_t size, const void *ours, size_t our_size)
{
    uint32_t struct_size = (uint32_t)size;

    if (!his || size < sizeof struct_size)
        return;
    memset(his, 0, size);
    memcpy(his, ours, size < our_size ? size : our_size);
    memcpy(his, &struct_size, sizeof struct_size);
}

bool rr_struct_is_newer(const void *his, size_t his_size, size_t our_size)
{
    const unsigned char *bytes = his;

    for (size_t i = our_size; i < his_size; i++)
        if (bytes[i])
            return true;
    return false;
}

/* ---- failures ---- */

int rr_fail(ringred_error *why, int code, int rank, int system, const char *format, ...)
{
    va_list arguments;
    struct rr_text t;

    if (!why)
        return code;
    /* built aside: an argument may point into *why */
    char text[sizeof why->text];
    va_start(arguments, format);
    int used = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);

    memset(why, 0, sizeof *why);
    why->struct_size = sizeof *why;
    why->code = code;
    why->rank = rank;
    why->system = system;
    memcpy(why->text, text, sizeof text);
    t = (struct rr_text){ why->text, sizeof why->text, (size_t)(used > 0 ? used : 0) };
    struct rlimit files;
    char room[128];
    if (system == EMFILE && getrlimit(RLIMIT_NOFILE, &files) == 0)
        rr_text_add(&t, " (too many open files: RLIMIT_NOFILE, ulimit -n, is %llu)", (unsigned long long)files.rlim_cur);
    else if (system)
        rr_text_add(&t, " (%s)", strerror_r(system, room, sizeof room));
    return code;
}

/* ---- files ---- */

uint64_t rr_file_limit(void)
{
    struct rlimit most;

    return getrlimit(RLIMIT_FSIZE, &most) || most.rlim_cur == RLIM_INFINITY ? UINT64_MAX : most.rlim_cur;
}

/* ---- log ---- */

/* One write, so that ranks do not mix. A reader that has gone, or a file that is full, is no reason for the program to
 * be ended by a signal. */
static void write_line(const char *line, size_t bytes)
{
    const struct timespec now = { 0, 0 };
    sigset_t ours, kept, before;

    sigemptyset(&ours);
    sigaddset(&ours, SIGPIPE);
    sigaddset(&ours, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &ours, &kept);
    sigpending(&before);
    ssize_t n = write(STDERR_FILENO, line, bytes); /* failed: nobody is left to tell */
    int sent = n < 0 && errno == EPIPE ? SIGPIPE : n < 0 && errno == EFBIG ? SIGXFSZ : 0;
    if (sent && !sigismember(&before, sent)) {
        sigemptyset(&ours);
        sigaddset(&ours, sent);
        (void)sigtimedwait(&ours, NULL, &now); /* it need not have been sent */
    }
    pthread_sigmask(SIG_SETMASK, &kept, NULL);
}

void rr_log(const struct rr_log *log, int level, const char *format, ...)
{
    static const char *const names[] = { "", "error", "warning", "info", "trace" };
    char line[1024];
    va_list arguments;
    int at;

    if (!log || level > log->level || level < RINGRED_LOG_ERROR)
        return;
    at = snprintf(line, sizeof line, "ringred %s rank %d: ", names[level], log->rank);
    va_start(arguments, format);
    vsnprintf(line + at, sizeof line - (size_t)at - 1, format, arguments);
    va_end(arguments);
    if (log->line) {
        log->line(log->context, level, line);
        return;
    }
    size_t used = strlen(line); /* the user asked for lines on stderr (setting log) */
    line[used] = '\n';
    write_line(line, used + 1);
}

/* ---- reading ---- */

void rr_read_bytes(struct rr_reader *r, void *to, size_t bytes)
{
    if (r->bad || (size_t)(r->end - r->at) < bytes) {
        r->bad = true;
        memset(to, 0, bytes);
        return;
    }
    memcpy(to, r->at, bytes);
    r->at += bytes;
}

uint8_t rr_read_u8(struct rr_reader *r)
{
    uint8_t v;
    rr_read_bytes(r, &v, sizeof v);
    return v;
}

uint16_t rr_read_u16(struct rr_reader *r)
{
    uint16_t v;
    rr_read_bytes(r, &v, sizeof v);
    return v;
}

uint32_t rr_read_u32(struct rr_reader *r)
{
    uint32_t v;
    rr_read_bytes(r, &v, sizeof v);
    return v;
}

uint64_t rr_read_u64(struct rr_reader *r)
{
    uint64_t v;
    rr_read_bytes(r, &v, sizeof v);
    return v;
}

/* ---- text ---- */

void rr_text_add(struct rr_text *t, const char *format, ...)
{
    va_list arguments;
    size_t left = t->used < t->room ? t->room - t->used : 0;

    va_start(arguments, format);
    int n = vsnprintf(left ? t->at + t->used : NULL, left, format, arguments);
    va_end(arguments);
    t->used += n > 0 ? (size_t)n : 0;
}

/* Bytes of the UTF-8 character at c, which is above 0x7f; 0: it is none. */
static size_t character(const unsigned char *c)
{
    size_t n = c[0] >= 0xf0 && c[0] <= 0xf4 ? 4 : c[0] >= 0xe0 && c[0] < 0xf0 ? 3 : c[0] >= 0xc2 ? 2 : 0;

    if (n == 0 || c[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((c[i] & 0xc0) != 0x80)
            return 0;
    bool is_long = (c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xf0 && c[1] < 0x90);
    bool is_beyond = (c[0] == 0xed && c[1] >= 0xa0) || (c[0] == 0xf4 && c[1] >= 0x90);
    return is_long || is_beyond ? 0 : n;
}

void rr_text_tame(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            *text = '?';
}

void rr_text_add_json(struct rr_text *t, const char *string)
{
    rr_text_add(t, "\"");
    for (const unsigned char *c = (const unsigned char *)string; *c; c++) {
        size_t n = *c > 0x7f ? character(c) : 1;
        if (*c == '"' || *c == '\\')
            rr_text_add(t, "\\%c", *c);
        else if (*c < 0x20 || n == 0)
            rr_text_add(t, "\\u%04x", n ? *c : 0xfffd);
        else
            rr_text_add(t, "%.*s", (int)n, (const char *)c);
        c += n ? n - 1 : 0;
    }
    rr_text_add(t, "\"");
}
