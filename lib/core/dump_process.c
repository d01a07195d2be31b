/* SPDX-License-Identifier: Apache-2.0 */
/* The records of another process, which may hang or be stopped: found among its descriptors, read, never written. */
#include "core/core.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRIES 1000 /* a process that reads its own record has it open once more, for a moment */
#define NAME "/memfd:ringred-operations"

/* The which-th descriptor of a folder of /proc that leads to a record, in order of their numbers; -1: there are fewer. */
static int find(DIR *folder, int which)
{
    int number = -1;

    for (int found = -1; found < which; found++) {
        int next = -1;
        rewinddir(folder);
        for (struct dirent *e; (e = readdir(folder));) {
            char target[sizeof NAME + 16] = "";
            int fd = atoi(e->d_name);
            if (e->d_name[0] == '.' || fd <= number || (next >= 0 && fd > next))
                continue;
            if (readlinkat(dirfd(folder), e->d_name, target, sizeof target - 1) > 0 &&
                strncmp(target, NAME, sizeof NAME - 1) == 0)
                next = fd;
        }
        if (next < 0)
            return -1;
        number = next;
    }
    return number;
}

static bool is_record(int fd)
{
    char path[32], target[sizeof NAME + 16] = "";

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return readlink(path, target, sizeof target - 1) > 0 && strncmp(target, NAME, sizeof NAME - 1) == 0;
}

static ssize_t read_all(int fd, char *to, size_t room)
{
    size_t used = 0;

    while (used < room) {
        ssize_t n = pread(fd, to + used, room - used, (off_t)used);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -1 : (ssize_t)used;
        used += (size_t)n;
    }
    return (ssize_t)used;
}

static int read_file(int fd, struct rr_text *t, ringred_error *why)
{
    struct stat s;

    if (fstat(fd, &s) || !S_ISREG(s.st_mode))
        return rr_fail(why, RINGRED_EWIRE, -1, 0, "its record is no file");
    size_t room = sizeof(struct rr_record) + 1; /* more is another version's */
    char *bytes = rr_alloc(1, room);
    if (!bytes)
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for a record of operations");
    ssize_t n = read_all(fd, bytes, room);
    int rc = n < 0 ? rr_fail(why, RINGRED_ESYSTEM, -1, errno, "its record cannot be read")
                   : rr_dump_read(bytes, (size_t)n, t, why);
    rr_free(bytes);
    return rc;
}

int rr_dump_process(int32_t pid, int32_t which, struct rr_text *t, ringred_error *why)
{
    char path[64], name[16];
    int rc;

    if (pid < 1 || which < 0)
        return rr_fail(why, RINGRED_EINVAL, -1, 0, "there is no process %d, or no record %d", pid, which);
    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    DIR *folder = opendir(path);
    if (!folder)
        return rr_fail(why, RINGRED_ESYSTEM, -1, errno, "the descriptors of process %d cannot be read", pid);
    int number = 0, fd = -1;
    for (int tries = 0; tries < TRIES && fd < 0 && number >= 0; tries++) {
        number = find(folder, which);
        snprintf(name, sizeof name, "%d", number);
        fd = number < 0 ? -1 : openat(dirfd(folder), name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (fd < 0 && errno != ENOENT && errno != ENXIO)
            break;
        if (fd >= 0 && !is_record(fd)) { /* its number means something else by now */
            close(fd);
            fd = -1;
        }
    }
    if (number < 0)
        rc = rr_fail(why, RINGRED_EINVAL, -1, 0, "process %d has no%s communicator of libringred whose operations are recorded",
                     pid, which ? " other" : "");
    else if (fd < 0)
        rc = rr_fail(why, RINGRED_ESYSTEM, -1, errno, "the record of process %d cannot be opened", pid);
    else
        rc = read_file(fd, t, why);
    if (fd >= 0)
        close(fd);
    closedir(folder);
    return rc;
}
