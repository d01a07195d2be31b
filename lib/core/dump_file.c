/* SPDX-License-Identifier: Apache-2.0 */
/* The setting dump_dir: a file of what this rank did last, whole or not there. Whatever is in the way costs one line of
 * the log. */
#include "core/core.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The text, to be freed; NULL: no memory. */
static char *print(const struct rr_family *f, size_t *bytes)
{
    struct rr_record *copy = rr_dump_copy(f);
    struct rr_text t = { NULL, 0, 0 };

    if (!copy)
        return NULL;
    rr_dump_print(copy, &t);
    t = (struct rr_text){ rr_alloc(1, t.used + 256), t.used + 256, 0 }; /* times may get longer by a digit */
    if (t.at)
        rr_dump_print(copy, &t);
    rr_free(copy);
    *bytes = t.used < t.room ? t.used : t.room - 1;
    return t.at;
}

static bool write_all(int fd, const char *text, size_t bytes)
{
    if (bytes > rr_file_limit()) {
        errno = EFBIG;
        return false;
    }
    while (bytes) {
        ssize_t n = write(fd, text, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        text += n;
        bytes -= (size_t)n;
    }
    return true;
}

/* Under another name first, which nobody else has: what was left there by one of the same pid goes. */
static bool write_file(int folder, const char *name, const char *text, size_t bytes)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    char half[128];

    snprintf(half, sizeof half, ".%s.half", name);
    int fd = openat(folder, half, flags, 0600);
    if (fd < 0 && errno == EEXIST && unlinkat(folder, half, 0) == 0)
        fd = openat(folder, half, flags, 0600);
    if (fd < 0)
        return false;
    bool written = write_all(fd, text, bytes);
    int system = errno;
    if (close(fd) && written) {
        written = false;
        system = errno;
    }
    if (written && renameat(folder, half, folder, name) == 0)
        return true;
    system = written ? errno : system;
    (void)unlinkat(folder, half, 0); /* nothing is left to be done if it cannot */
    errno = system;
    return false;
}

void rr_dump_file(struct rr_family *f)
{
    const char *path = rr_setting_text(&f->settings, RR_SET_DUMP_DIR);
    const struct rr_record_head *h = &f->record->head;
    char name[96];
    size_t bytes;
    ringred_error why;

    if (!*path)
        return;
    snprintf(name, sizeof name, "ringred-%s-%d-%d.json", h->job, h->rank, h->pid);
    char *text = print(f, &bytes);
    int folder = text ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (folder >= 0 && write_file(folder, name, text, bytes)) {
        rr_log(&f->log, RINGRED_LOG_INFO, "what this rank did last stands in %.200s/%s", path, name);
    } else {
        rr_fail(&why, RINGRED_ESYSTEM, -1, text ? errno : ENOMEM, "what this rank did last cannot be written to %.200s", path);
        rr_log(&f->log, RINGRED_LOG_WARN, "%s", why.text);
    }
    if (folder >= 0)
        close(folder);
    rr_free(text);
}

void rr_dump_broken(struct rr_family *f)
{
    if (atomic_load(&f->record->head.status) && !atomic_exchange(&f->dumped, true))
        rr_dump_file(f);
}
