/* SPDX-License-Identifier: Apache-2.0 */
/* Settings from a file: lines "name = value"; # begins a remark at the beginning of a line or behind a blank. What is
 * wrong is named with its file and line. */
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MOST 65536
#define LINE_MOST 512

/* Where a line is, and what it has. */
struct place {
    const char *path;
    int line;
    bool own; /* nobody else can read the file */
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Without blanks at both ends, in place. */
static char *trimmed(char *text)
{
    size_t n;

    while (is_blank(*text))
        text++;
    for (n = strlen(text); n > 0 && is_blank(text[n - 1]); n--)
        text[n - 1] = 0;
    return text;
}

static void cut_remark(char *line)
{
    for (char *at = line; *at; at++)
        if (*at == '#' && (at == line || is_blank(at[-1]))) {
            *at = 0;
            return;
        }
}

/* What only one process can have, or a file must not tell everybody. NULL: it may stand in a file. */
static const char *unfit(int which, bool own)
{
    switch (which) {
    case RR_SET_CONFIG:
        return "a file cannot name another one";
    case RR_SET_RANK:
    case RR_SET_LOCAL_RANK:
    case RR_SET_ROOT_FD:
    case RR_SET_KEY_FD:
        return "it differs between the processes that read a file";
    case RR_SET_KEY:
        return own ? NULL : "others can read this file (its mode must be 0600 or stricter, its owner this user)";
    default:
        return NULL;
    }
}

static int wrong(const struct place *p, const char *text, ringred_error *why)
{
    return rr_fail(why, RINGRED_ESETTING, -1, 0, "%s:%d: %s", p->path, p->line, text);
}

static int take(struct rr_settings *s, const struct place *p, const char *name, const char *value, ringred_error *why)
{
    char origin[sizeof s->value[0].origin], text[200];
    ringred_error inner = { 0 };
    int which = rr_setting_find(name, &inner);

    if (which < 0)
        return wrong(p, inner.text, why);
    if (unfit(which, p->own)) {
        snprintf(text, sizeof text, "%s cannot be set here: %s", rr_setting_name((enum rr_setting)which),
                 unfit(which, p->own));
        return wrong(p, text, why);
    }
    if (strcmp(s->value[which].origin, "default") != 0) {
        snprintf(text, sizeof text, "%s is set twice", rr_setting_name((enum rr_setting)which));
        return wrong(p, text, why);
    }
    snprintf(origin, sizeof origin, "%.255s:%d", p->path, p->line);
    return rr_settings_set(s, name, value, origin, &inner) < 0 ? wrong(p, inner.text, why) : 0;
}

static int take_line(struct rr_settings *s, const struct place *p, char *line, ringred_error *why)
{
    char *equals;

    cut_remark(line);
    line = trimmed(line);
    if (!*line)
        return 0;
    equals = strchr(line, '=');
    if (!equals || equals == line) /* no more of it: it may be a secret */
        return wrong(p, "this is not of the form name = value", why);
    *equals = 0;
    return take(s, p, trimmed(line), trimmed(equals + 1), why);
}

int rr_settings_read(struct rr_settings *s, const char *path, const char *text, size_t bytes, bool own,
                     ringred_error *why)
{
    struct place p = { path, 0, own };
    char line[LINE_MOST];

    for (const char *at = text, *end = text + bytes; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t n = (size_t)((stop ? stop : end) - at);
        p.line++;
        if (n >= sizeof line)
            return wrong(&p, "the line is longer than 511 bytes", why);
        if (memchr(at, 0, n))
            return wrong(&p, "there is a zero byte: this is no text", why);
        memcpy(line, at, n);
        line[n] = 0;
        RR_TRY(take_line(s, &p, line, why));
        at = stop ? stop + 1 : end;
    }
    return 0;
}

/* The whole file. Bytes, or -errno; EFBIG if there is more than the room. */
static ssize_t read_all(int fd, char *to, size_t room)
{
    size_t used = 0;

    while (used < room) {
        ssize_t n = read(fd, to + used, room - used);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : (ssize_t)used;
        used += (size_t)n;
    }
    return -EFBIG;
}

int rr_settings_read_file(struct rr_settings *s, const char *path, ringred_error *why)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe of that name does not keep us */
    struct stat st = { 0 };
    char *text;
    int rc;

    if (fd < 0 || fstat(fd, &st) < 0) {
        rc = rr_fail(why, RINGRED_ESETTING, -1, errno, "cannot read the file of settings %.200s (config)", path);
    } else if (!S_ISREG(st.st_mode)) {
        rc = rr_fail(why, RINGRED_ESETTING, -1, 0, "the file of settings %.200s (config) is not a regular file", path);
    } else if (!(text = rr_alloc(FILE_MOST + 1, 1))) {
        rc = rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory to read the settings");
    } else {
        bool own = st.st_uid == geteuid() && !(st.st_mode & 077);
        ssize_t n = read_all(fd, text, FILE_MOST + 1);
        if (n < 0)
            rc = rr_fail(why, RINGRED_ESETTING, -1, (int)-n, "cannot read the file of settings %.200s (config)", path);
        else
            rc = rr_settings_read(s, path, text, (size_t)n, own, why);
        explicit_bzero(text, FILE_MOST + 1);
        rr_free(text);
    }
    if (fd >= 0)
        close(fd);
    return rc;
}
