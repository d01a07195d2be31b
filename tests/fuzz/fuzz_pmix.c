/* SPDX-License-Identifier: Apache-2.0 */
/* What a libpmix answers: byte 0: who asks, as which rank; then answers, each a type, a status, how many bytes and these. */
#include "fuzz.h"

#include "boot/pmix.c"

#define ROOM 600

static const uint8_t *at, *end;
static char string[256]; /* of the latest answer */

static void must(bool claim)
{
    if (!claim)
        abort();
}

static uint8_t next(void)
{
    return at < end ? *at++ : 0;
}

/* Its status. */
static int answer_next(struct pmix_value *v)
{
    static const int statuses[] = { PMIX_SUCCESS, PMIX_SUCCESS, PMIX_ERR_TIMEOUT, PMIX_OPERATION_SUCCEEDED, -1 };
    int status = statuses[next() % 5];
    size_t n;

    memset(v, 0, sizeof *v);
    v->type = next();
    n = next();
    n = n < (size_t)(end - at) ? n : (size_t)(end - at);
    memcpy(string, at, n < sizeof string - 1 ? n : sizeof string - 1);
    string[n < sizeof string - 1 ? n : sizeof string - 1] = 0;
    if (v->type == PMIX_STRING)
        v->data.string = n ? string : NULL;
    else
        memcpy(&v->data.uint32, at, n < 4 ? n : 4);
    at += n;
    return status;
}

static int fake_init(struct pmix_proc *self, void *info, size_t infos)
{
    struct pmix_value v;
    int status = answer_next(&v);

    (void)info, (void)infos;
    self->rank = v.type == PMIX_STRING ? 1 : v.data.uint32;
    return status;
}
static int fake_finalize(const void *info, size_t infos)
{
    (void)info, (void)infos;
    return 0;
}
static int fake_put(uint8_t scope, const char *key, struct pmix_value *value)
{
    (void)scope, (void)key, (void)value;
    return next() % 3 == 2 ? -1 : 0;
}
static int fake_commit(void)
{
    return next() % 3 == 2 ? -1 : 0;
}
static int fake_fence(const struct pmix_proc *procs, size_t count, const struct pmix_info *info, size_t infos,
                      void (*done)(int status, void *context), void *context)
{
    struct pmix_value v;
    int status = answer_next(&v);

    (void)procs, (void)count, (void)info, (void)infos;
    if (next() % 4 == 3)
        return status;
    done(status, context);
    return PMIX_SUCCESS;
}
static int fake_get(const struct pmix_proc *proc, const char *key, const struct pmix_info *info, size_t infos,
                    struct pmix_value **value)
{
    struct pmix_value v;
    int status = answer_next(&v);

    (void)proc, (void)key, (void)info, (void)infos;
    *value = malloc(sizeof v);
    must(*value != NULL);
    **value = v;
    if (status != PMIX_SUCCESS) {
        free(*value);
        *value = NULL;
    }
    return status;
}
static int fake_get_start(const struct pmix_proc *proc, const char *key, const struct pmix_info *info, size_t infos,
                          void (*done)(int status, struct pmix_value *value, void *context), void *context)
{
    struct pmix_value v;
    int status = answer_next(&v);

    (void)proc, (void)key, (void)info, (void)infos;
    if (next() % 4 == 3)
        return status == PMIX_SUCCESS ? -1 : status;
    done(status, status == PMIX_SUCCESS ? &v : NULL, context);
    return PMIX_SUCCESS;
}
static const char *fake_error(int status)
{
    return status == -1 ? NULL : "it said so";
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static int loaded;
    char text[ROOM] = "rank 0's words";
    struct rr_place p = { .rank = -1, .size = -1, .local_rank = -1, .local_size = -1 };
    ringred_error why = { 0 };

    if (bytes < 1)
        return 0;
    pmix.library = &loaded;
    pmix.init = fake_init;
    pmix.finalize = fake_finalize;
    pmix.put = fake_put;
    pmix.commit = fake_commit;
    pmix.fence = fake_fence;
    pmix.get = fake_get;
    pmix.get_start = fake_get_start;
    pmix.error = fake_error;
    pmix.joined = false;
    pmix.known = (struct rr_place){ .rank = -1 };
    at = data + 1;
    end = data + bytes;
    setenv("PMIX_RANK", "1", 1);
    setenv("PMIX_NAMESPACE", "n", 1);
    int rc = rr_pmix_look(NULL, &p, &why);
    must(rc == 1 ? p.rank >= 0 : rc < 0 && why.code == rc && why.text[0]);
    rc = rr_pmix_share(data[0] & 3, text, data[0] & 4 ? 16 : sizeof text, rr_deadline(0), &why);
    must(rc == 0 ? memchr(text, 0, sizeof text) != NULL : rc < 0 && why.code == rc && why.text[0]);
    must(!pmix.joined);
    return 0;
}

size_t fuzz_seed(int which, uint8_t *to, size_t room)
{
#define NUMBER(type, low) "\0" type "\4" low "\0\0\0"
    static const char seeds[][96] = {
        "\1" NUMBER("\16", "\1") NUMBER("\16", "\2") NUMBER("\15", "\1") NUMBER("\15", "\2") "\0\0\0\0" "\0\3\5hello\0",
        "\0" NUMBER("\16", "\0") NUMBER("\16", "\2") NUMBER("\15", "\0") NUMBER("\15", "\2") "\0\0\0\0\0\0",
        "\1" NUMBER("\16", "\1") NUMBER("\16", "\2") NUMBER("\15", "\1") NUMBER("\15", "\2") "\2\0\0\0",
        "\5" NUMBER("\16", "\1") NUMBER("\16", "\2") NUMBER("\15", "\1") NUMBER("\15", "\2") "\3\0\0\0" "\0\3\30a text of many bytes, hmm\0",
        "\1\4\16\4\1\0\0\0",
    };

    if (which >= (int)(sizeof seeds / sizeof *seeds) || room < sizeof *seeds)
        return 0;
    memcpy(to, seeds[which], sizeof *seeds);
    return sizeof *seeds;
}
