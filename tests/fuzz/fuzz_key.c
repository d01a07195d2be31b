/* SPDX-License-Identifier: Apache-2.0 */
/* The secret of a job: byte 0: from the caller, a file, a pipe, or a setting; byte 1: the file's mode, what is wrong with the
 * pipe. What is taken has a length that may be; and from wherever it comes, it makes one key. */
#include "fuzz.h"

#include "boot/key.c"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define LEAST 16
#define MOST  4096

static void must(bool claim)
{
    if (!claim)
        abort();
}

/* As a file of this user's, which has no name: /proc names it. */
static int file_of(const uint8_t *data, size_t bytes, mode_t mode, char path[64])
{
    int fd = memfd_create("key", MFD_CLOEXEC);

    must(fd >= 0 && fchmod(fd, mode) == 0);
    must(write(fd, data, bytes) == (ssize_t)bytes);
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}

/* The writer's end; -1: it is closed. */
static int writer;

static int pipe_of(const uint8_t *data, size_t bytes, bool open)
{
    int end[2];

    must(pipe(end) == 0);
    must(write(end[1], data, bytes) == (ssize_t)bytes);
    writer = open ? end[1] : -1;
    if (!open)
        close(end[1]);
    return end[0];
}

/* What needs no secret, or has one already. */
static void without(const struct rr_settings *settings)
{
    const ringred_config config = { .key = "another key, given" , .key_bytes = 18 };
    struct rr_launch has = { .size = 2, .has_key = true }, none = { .size = 2 };
    struct rr_settings strict = *settings;
    ringred_error why = { 0 };

    must(rr_key_find(&config, settings, &has, &why) == RINGRED_EINVAL && why.text[0]);
    must(rr_key_find(NULL, settings, &has, &why) == 0);
    must(rr_settings_set(&strict, "require_key", "1", "a test", &why) == 0);
    must(rr_key_find(NULL, &strict, &none, &why) == RINGRED_EAUTH && why.text[0]);
}

static size_t without_ends(const uint8_t *data, size_t bytes)
{
    while (bytes && (data[bytes - 1] == '\n' || data[bytes - 1] == '\r'))
        bytes--;
    return bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct rr_settings settings;
    static const char *const none[] = { NULL };
    struct rr_launch launch = { .size = 2 }, other = { .size = 2 };
    ringred_config config = { .key = NULL };
    ringred_error why = { 0 };
    char path[64], number[16];

    if (bytes < 2 || bytes > 8192 || sodium_init() < 0)
        return 0;
    const uint8_t *secret = data + 2;
    size_t n = bytes - 2;
    must(rr_settings_load(&settings, none, &why) == 0);
    int fd = -1;
    bool own = true;
    without(&settings);
    writer = -1;
    switch (data[0] % 4) {
    case 0:
        config.key = secret;
        config.key_bytes = n;
        break;
    case 1:
        own = !(data[1] & 1);
        fd = file_of(secret, n, own ? 0600 : 0640, path);
        must(rr_settings_set(&settings, "key_file", path, "a test", &why) == 0);
        n = without_ends(secret, n);
        break;
    case 3: {
        char *text = strndup((const char *)secret, n);
        must(text != NULL);
        int rc = rr_settings_set(&settings, "key", text, "a test", &why);
        n = strlen(text);
        free(text);
        if (rc < 0 || n == 0)
            return 0;
        break;
    }
    default:
        fd = pipe_of(secret, n, data[1] & 2);
        config.timeout_ns = data[1] & 2 ? 1 : 0; /* it does not end */
        snprintf(number, sizeof number, "%d", data[1] & 4 ? 1 << 20 : fd); /* there is none */
        must(rr_settings_set(&settings, "key_fd", number, "a test", &why) == 0);
        if (data[1] & 1) /* two of them */
            must(rr_settings_set(&settings, "key", "another one of ours", "a test", &why) == 0);
        own = !(data[1] & 7) || (data[1] & 7) == 2;
        n = without_ends(secret, n);
    }
    int rc = rr_key_find(&config, &settings, &launch, &why);
    if (writer >= 0) {
        must(rc < 0); /* not yet */
        close(writer);
        memset(&why, 0, sizeof why);
        config.timeout_ns = 0;
        rc = rr_key_find(&config, &settings, &launch, &why);
    }
    bool fits = own && n >= LEAST && n <= MOST;
    if (rc < 0)
        must((!fits || bytes - 2 > MOST) && why.code == rc && why.text[0] && !launch.has_key);
    else
        must(fits && launch.has_key);
    if (rc == 0) {
        config = (ringred_config){ .key = secret, .key_bytes = n };
        must(rr_key_find(&config, &settings, &other, &why) == 0);
        must(memcmp(launch.key, other.key, sizeof other.key) == 0);
        other.has_key = false; /* and once more from where it came: a pipe is remembered */
        if (data[0] % 4)
            must(rr_key_find(NULL, &settings, &other, &why) == 0 && memcmp(launch.key, other.key, sizeof other.key) == 0);
    }
    if (fd >= 0)
        close(fd);
    return 0;
}

size_t fuzz_seed(int which, uint8_t *to, size_t room)
{
    static const char secret[] = "a secret of this job's\r\n";

    if (which > 9 || room < 8192)
        return 0;
    to[0] = (uint8_t)(which < 7 ? which % 3 : 2);
    to[1] = (uint8_t)(which == 5 ? 1 : which == 7 ? 2 : which == 8 ? 4 : 0);
    memcpy(to + 2, secret, sizeof secret - 1);
    if (which == 6) {
        to[0] = 1;
        memset(to + 2, 'x', 4200);
        return 4202;
    }
    if (which == 9) {
        to[0] = 3;
        return 2 + sizeof secret - 3;
    }
    return 2 + (which == 4 ? 10 : sizeof secret - 1);
}
