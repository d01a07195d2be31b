/* SPDX-License-Identifier: Apache-2.0 */
/* ringred_unique_id_create: checks, reads the settings, and forwards. */
#include "boot/boot.h"

#include <string.h>

int32_t ringred_unique_id_create(ringred_unique_id *id, ringred_error *why)
{
    struct rr_settings *settings;
    int rc;

    if (!id)
        return rr_fail(why, RINGRED_EINVAL, -1, 0, "id is NULL");
    settings = rr_alloc(1, sizeof *settings);
    if (!settings)
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory to read the settings");
    rc = rr_settings_load(settings, NULL, why);
    if (rc == 0)
        rc = rr_unique_id_open(settings, id, why);
    rr_free(settings);
    return rc;
}
