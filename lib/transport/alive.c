/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a process lives, where the kernel gives no descriptor of it: /proc says when it began, and in what state it
 * is. That can be believed only if /proc is of this process's own namespace of numbers. */
#include "transport/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool proc_is_ours(void)
{
    char self[24] = "";

    return readlink("/proc/self", self, sizeof self - 1) > 0 && strtol(self, NULL, 10) == getpid();
}

int64_t rr_process_began(int32_t pid)
{
    char path[32], text[1024], state;
    int64_t began = -1;

    if (!proc_is_ours())
        return -1;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1; /* it may be hidden */
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return n < 0 && errno == ESRCH ? 0 : -1;
    text[n] = 0;
    const char *at = strrchr(text, ')'); /* the name may hold anything */
    if (!at || sscanf(at + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %" SCNd64,
                      &state, &began) != 2)
        return -1;
    return state == 'Z' || state == 'X' ? 0 : began;
}
