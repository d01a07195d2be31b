/* SPDX-License-Identifier: Apache-2.0 */
/* The doors to fusion: check arguments, forward. */
#include "core/core.h"
#include "fusion/fusion.h"

#include <string.h>

#define OPTIONS_LEAST sizeof(ringred_fusion_options) /* what the first release that had it has */

void ringred_fusion_options_init(ringred_fusion_options *options, size_t size)
{
    const ringred_fusion_options ours = { .op = RINGRED_AVG };

    rr_struct_init(options, size, &ours, sizeof ours);
}

static int read_options(const ringred_fusion_options *given, ringred_fusion_options *o, ringred_error *why)
{
    ringred_fusion_options_init(o, sizeof *o);
    if (!given)
        return 0;
    if (given->struct_size < OPTIONS_LEAST)
        return rr_fail(why, RINGRED_EINVAL, -1, 0, "options.struct_size is %u; call ringred_fusion_options_init first (%zu)",
                       given->struct_size, OPTIONS_LEAST);
    if (rr_struct_is_newer(given, given->struct_size, sizeof *o))
        return rr_fail(why, RINGRED_EVERSION, -1, 0, "options has fields that are newer than this library (%s)",
                       RINGRED_VERSION);
    memcpy(o, given, given->struct_size < sizeof *o ? given->struct_size : sizeof *o);
    if (o->op != RINGRED_AVG && o->op != RINGRED_SUM)
        return rr_fail(why, RINGRED_EINVAL, -1, 0, "options.op is %d; gradients are averaged or summed (RINGRED_AVG is %d, "
                       "RINGRED_SUM %d)", o->op, RINGRED_AVG, RINGRED_SUM);
    return 0;
}

int32_t ringred_fusion_create(ringred_comm *comm, const ringred_fusion_options *options, ringred_fusion **fusion,
                              ringred_error *why)
{
    ringred_fusion_options o;
    ringred_error own;

    why = why ? why : &own;
    if (!comm || !fusion)
        return rr_fail(why, RINGRED_EINVAL, -1, 0, "fusion_create: %s is NULL", comm ? "where the fusion goes" : "comm");
    if (comm->family->forks != rr_forks())
        return rr_fail(why, RINGRED_EFORKED, -1, 0, "%s", ringred_status_text(RINGRED_EFORKED));
    RR_TRY(read_options(options, &o, why));
    int rc = rr_fusion_open(comm, &o, fusion);
    if (rc < 0) {
        ringred_error_init(why);
        (void)ringred_comm_error(comm, why);
    }
    return rc;
}

static int check(const ringred_fusion *f)
{
    return !f ? RINGRED_EINVAL : rr_fusion_is_forked(f) ? RINGRED_EFORKED : 0;
}

int32_t ringred_fusion_add(ringred_fusion *fusion, const char *key, void *gradient, size_t count, int32_t type)
{
    RR_TRY(check(fusion));
    size_t length = key ? strnlen(key, RINGRED_FUSION_KEY_MOST + 1) : 0, bytes = rr_type_bytes(type);

    if (!length || length > RINGRED_FUSION_KEY_MOST)
        return rr_fusion_refuse(fusion, RINGRED_EINVAL, "a key is %s; give 1 to %d bytes", !key ? "NULL"
                                : length ? "too long" : "empty", RINGRED_FUSION_KEY_MOST);
    if (!bytes || !rr_op_legal(type, RINGRED_AVG))
        return rr_fusion_refuse(fusion, RINGRED_EINVAL, "gradient \"%s\" has type %d, of which there is no average (types.h)",
                                key, type);
    if (!gradient && count)
        return rr_fusion_refuse(fusion, RINGRED_EINVAL, "gradient \"%s\" is NULL, but has %zu elements", key, count);
    if (count > (SIZE_MAX >> 1) / bytes)
        return rr_fusion_refuse(fusion, RINGRED_EINVAL, "gradient \"%s\", %zu elements of %zu bytes, is more than memory", key,
                                count, bytes);
    return rr_fusion_add(fusion, key, gradient, count, type);
}

int32_t ringred_fusion_poll(ringred_fusion *fusion)
{
    RR_TRY(check(fusion));
    return rr_fusion_poll(fusion);
}

int32_t ringred_fusion_wait(ringred_fusion *fusion, int64_t timeout_ns)
{
    RR_TRY(check(fusion));
    if (timeout_ns < RINGRED_FOREVER)
        return rr_fusion_refuse(fusion, RINGRED_EINVAL, "fusion_wait: timeout_ns is %lld; give nanoseconds, or -1 for ever",
                                (long long)timeout_ns);
    return rr_fusion_wait(fusion, timeout_ns);
}

int32_t ringred_fusion_error(ringred_fusion *fusion, ringred_error *error)
{
    RR_TRY(check(fusion));
    if (!error || error->struct_size < sizeof *error)
        return RINGRED_EINVAL;
    ringred_error_init(error);
    ringred_comm *tells = rr_fusion_error(fusion, error);
    return tells ? ringred_comm_error(tells, error) : RINGRED_OK;
}

int32_t ringred_fusion_destroy(ringred_fusion *fusion)
{
    return fusion ? rr_fusion_close(fusion) : RINGRED_OK;
}
