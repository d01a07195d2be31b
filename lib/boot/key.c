/* SPDX-License-Identifier: Apache-2.0 */
/* The job's secret: from the caller, the unique id, or one of three settings; hashed to the key
 * that handshakes use. Without any, a key is made from the job's public name: then a handshake
 * still tells jobs apart, but keeps nobody out. */
#include "boot/inside.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECRET_LEAST 16
#define SECRET_MOST  4096
#define PIPE_NS      ((int64_t)10000000000) /* most that reading the pipe may take */

struct secret {
    unsigned char at[SECRET_MOST + 16]; /* more than allowed, for line ends, and to see that there is more */
    size_t used;
};

/* What came through a launcher's pipe: it can be read only once, and a process may make several
 * communicators. The descriptor is left open, so that its number comes to mean nothing else while
 * key_fd still names it. Guarded by the mutex. */
static struct {
    pthread_mutex_t mutex;
    int fd; /* -1: none yet */
    dev_t dev;
    ino_t ino;  /* with dev: which pipe that is, whatever its number */
    bool whole; /* has been read to its end */
    struct secret secret;
} piped = { .mutex = PTHREAD_MUTEX_INITIALIZER, .fd = -1 };

static void derive(struct rr_launch *launch, const char *label, const void *secret, size_t bytes)
{
    crypto_generichash_state s;

    crypto_generichash_init(&s, NULL, 0, RR_KEY_BYTES);
    crypto_generichash_update(&s, (const unsigned char *)label, strlen(label) + 1);
    crypto_generichash_update(&s, secret, bytes);
    crypto_generichash_final(&s, launch->key, RR_KEY_BYTES);
    sodium_memzero(&s, sizeof s);
}

/* Reads to the end, behind what is there already. 0 or an errno. */
static int read_all(int fd, struct secret *to, int64_t deadline_ns)
{
    while (to->used < sizeof to->at) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        int ready = poll(&p, 1, rr_deadline_ms(deadline_ns, 1000));
        if (ready == 0 && rr_now_ns() >= deadline_ns)
            return ETIMEDOUT;
        if (ready == 0)
            continue;
        ssize_t n = ready < 0 ? -1 : read(fd, to->at + to->used, sizeof to->at - to->used);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n < 0)
            return errno;
        if (n == 0)
            break;
        to->used += (size_t)n;
    }
    /* an editor's line end is not part of it; in the middle of what is too long it says nothing */
    while (to->used && to->used < sizeof to->at && (to->at[to->used - 1] == '\n' || to->at[to->used - 1] == '\r'))
        to->used--;
    return 0;
}

static int check_length(const char *from, size_t bytes, ringred_error *why)
{
    if (bytes >= SECRET_LEAST && bytes <= SECRET_MOST)
        return 0;
    return rr_fail(why, RINGRED_ESETTING, -1, 0,
                   "the key from %s has %zu bytes; it must have %d to %d", from, bytes,
                   SECRET_LEAST, SECRET_MOST);
}

static int from_file(const char *path, struct secret *to, ringred_error *why)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), system = fd < 0 ? errno : 0;
    struct stat st = { 0 };
    int rc = 0;

    if (fd >= 0 && fstat(fd, &st) < 0)
        system = errno;
    if (system) {
        rc = rr_fail(why, RINGRED_ESETTING, -1, system, "cannot read key_file %.200s", path);
    } else if (!S_ISREG(st.st_mode) || (st.st_uid != geteuid() && st.st_uid != 0) ||
               (st.st_mode & 077)) {
        rc = rr_fail(
            why, RINGRED_ESETTING, -1, 0,
            "key_file %.200s must be a file of this user with mode 0600 or stricter, but has owner "
            "%u and mode %04o",
            path, (unsigned)st.st_uid, (unsigned)(st.st_mode & 07777));
    } else {
        system = read_all(fd, to, INT64_MAX);
        rc = system
                 ? rr_fail(why, RINGRED_ESETTING, -1, system, "cannot read key_file %.200s", path)
                 : check_length("key_file", to->used, why);
    }
    if (fd >= 0)
        close(fd);
    return rc;
}

/* With the mutex held: 0 or an errno. A pipe that is not whole in time can be read on later. */
static int read_pipe(int fd, int64_t deadline_ns)
{
    struct stat st;
    int system = 0;

    if (fstat(fd, &st) < 0) /* closed by somebody else: what it was stays known */
        return piped.fd == fd && piped.whole ? 0 : errno;
    if (piped.fd < 0 || st.st_dev != piped.dev || st.st_ino != piped.ino) {
        piped.dev = st.st_dev;
        piped.ino = st.st_ino;
        piped.whole = false;
        piped.secret.used = 0;
    }
    piped.fd = fd;
    if (!piped.whole) {
        (void)fcntl(fd, F_SETFD, FD_CLOEXEC); /* no program started from here needs it */
        system = read_all(fd, &piped.secret, deadline_ns);
    }
    piped.whole = system == 0;
    return system;
}

static int from_pipe(int fd, int64_t patience_ns, struct secret *to, ringred_error *why)
{
    int rc = 0;

    pthread_mutex_lock(&piped.mutex);
    int system = read_pipe(fd, rr_deadline(patience_ns));
    if (system == ETIMEDOUT)
        rc = rr_fail(why, RINGRED_ETIMEOUT, -1, 0,
                     "the key did not come to its end within %.3g s from descriptor %d (key_fd): "
                     "is its other end still open?",
                     (double)patience_ns / 1e9, fd);
    else if (system)
        rc = rr_fail(why, RINGRED_ESETTING, -1, system,
                     "cannot read the key from descriptor %d (key_fd)", fd);
    else
        *to = piped.secret;
    pthread_mutex_unlock(&piped.mutex);
    return rc < 0 ? rc : check_length("key_fd", to->used, why);
}

/* A launcher writes the key before it starts us, so little patience will do. */
static int64_t patience(const ringred_config *config, const struct rr_settings *s)
{
    int64_t ns =
        config && config->timeout_ns ? config->timeout_ns : rr_setting(s, RR_SET_INIT_TIMEOUT);

    return ns < 0 || ns > PIPE_NS ? PIPE_NS : ns;
}

/* More than one of the settings would leave open which of them the other ranks were given. */
static int check_settings(const struct rr_settings *s, ringred_error *why)
{
    bool text = rr_setting_text(s, RR_SET_KEY)[0], file = rr_setting_text(s, RR_SET_KEY_FILE)[0];
    bool fd = rr_setting(s, RR_SET_KEY_FD) >= 0;

    if (text + file + fd > 1)
        return rr_fail(why, RINGRED_ESETTING, -1, 0,
                       "%s and %s are both set: only one can be the key", text ? "key" : "key_file",
                       fd ? "key_fd" : "key_file");
    return 0;
}

static int from_settings(const ringred_config *config, const struct rr_settings *s,
                         struct secret *to, ringred_error *why)
{
    const char *text = rr_setting_text(s, RR_SET_KEY), *file = rr_setting_text(s, RR_SET_KEY_FILE);

    RR_TRY(check_settings(s, why));
    if (*file)
        return from_file(file, to, why);
    if (rr_setting(s, RR_SET_KEY_FD) >= 0)
        return from_pipe((int)rr_setting(s, RR_SET_KEY_FD), patience(config, s), to, why);
    to->used = strlen(text);
    memcpy(to->at, text, to->used);
    return 0;
}

int rr_key_find(const ringred_config *config, const struct rr_settings *settings,
                struct rr_launch *launch, ringred_error *why)
{
    struct secret secret = { .used = 0 };
    int rc = 0;

    if (launch->has_key) /* the unique id's */
        return config && config->key ? rr_fail(why, RINGRED_EINVAL, -1, 0,
                                     "a unique id brings its key: give no other")
                           : 0;
    if (config && config->key) {
        RR_TRY(check_length("config.key", config->key_bytes, why));
        derive(launch, "ringred key", config->key, config->key_bytes);
        launch->has_key = true;
        return 0;
    }
    rc = from_settings(config, settings, &secret, why);
    launch->has_key = rc == 0 && secret.used > 0;
    if (launch->has_key)
        derive(launch, "ringred key", secret.at, secret.used);
    else
        derive(launch, "ringred no key", launch->job, sizeof launch->job);
    sodium_memzero(&secret, sizeof secret);
    if (rc < 0 || launch->has_key || launch->size == 1)
        return rc;
    if (rr_setting(settings, RR_SET_TCP_ENCRYPTION))
        return rr_fail(why, RINGRED_EAUTH, -1, 0,
                       "tcp_encryption needs a key, and none was given: one made from the job's public name hides nothing "
                       "(config.key, key, key_file, key_fd, a unique id, or ringred-run)");
    if (rr_setting(settings, RR_SET_REQUIRE_KEY))
        return rr_fail(
            why, RINGRED_EAUTH, -1, 0,
            "no key was given, and require_key forbids to start without (key, key_file, key_fd)");
    return 0;
}
