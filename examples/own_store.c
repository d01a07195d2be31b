/* SPDX-License-Identifier: Apache-2.0 */
/* A job without a launcher of ours: the ranks share a folder, through which rank 0 hands on the job's unique id.
 *     ringred-example-own-store RANK SIZE FOLDER        once for each rank, anywhere that sees the folder
 * The folder is the store: it must be readable by its owner only, since the id carries the job's key. */
#include <ringred/ringred.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int fail(const char *what)
{
    fprintf(stderr, "%s\n", what);
    return 1;
}

/* Writes beside, then renames: whoever finds the file finds all of it. */
static int32_t folder_set(void *context, const char *key, const void *value, size_t bytes)
{
    char path[512], beside[530];

    snprintf(path, sizeof path, "%s/%s", (const char *)context, key);
    snprintf(beside, sizeof beside, "%s.part", path);
    (void)umask(077);
    FILE *f = fopen(beside, "wb");
    if (!f)
        return errno;
    size_t written = fwrite(value, 1, bytes, f);
    return fclose(f) == 0 && written == bytes && rename(beside, path) == 0 ? 0 : EIO;
}

/* Looks now and then until the file is there. */
static int64_t folder_get(void *context, const char *key, void *value, size_t room, int64_t timeout_ns)
{
    const struct timespec nap = { 0, 10000000 };
    char path[512];

    snprintf(path, sizeof path, "%s/%s", (const char *)context, key);
    for (int64_t waited = 0; timeout_ns < 0 || waited <= timeout_ns; waited += nap.tv_nsec) {
        FILE *f = fopen(path, "rb");
        if (f) {
            size_t n = fread(value, 1, room, f);
            (void)fclose(f); /* it was only read */
            return (int64_t)n;
        }
        nanosleep(&nap, NULL);
    }
    return -1;
}

int main(int argc, char **argv)
{
    ringred_config config;
    ringred_store store;
    ringred_error why;
    ringred_comm *comm;

    if (argc != 4)
        return fail("usage: ringred-example-own-store RANK SIZE FOLDER");
    ringred_error_init(&why);
    ringred_store_init(&store, sizeof store);
    store.context = argv[3];
    store.set = folder_set;
    store.get = folder_get;
    ringred_config_init(&config, sizeof config);
    config.rank = atoi(argv[1]);
    config.size = atoi(argv[2]);
    config.store = &store;
    if (ringred_comm_create(&config, &comm, &why) < 0)
        return fail(why.text);

    double sum = config.rank;
    if (ringred_allreduce(comm, &sum, &sum, 1, RINGRED_FLOAT64, RINGRED_SUM) < 0) {
        (void)ringred_comm_error(comm, &why);
        return fail(why.text);
    }
    printf("rank %d of %d: the ranks add up to %g\n", config.rank, config.size, sum);
    return ringred_comm_destroy(comm) < 0;
}
