/* SPDX-License-Identifier: Apache-2.0 */
/* What pmix.c uses of the PMIx standard: numbers, and the layout of what passes between us and libpmix. */
#ifndef RR_BOOT_PMIX_H
#define RR_BOOT_PMIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PMIX_OUR_KEY "ringred.id"

#define PMIX_SUCCESS             0
#define PMIX_ERR_TIMEOUT         (-24)
#define PMIX_OPERATION_SUCCEEDED (-157)

#define PMIX_BOOL   1
#define PMIX_STRING 3
#define PMIX_UINT16 13
#define PMIX_UINT32 14

#define PMIX_GLOBAL        3
#define PMIX_RANK_WILDCARD (UINT32_MAX - 1)
#define PMIX_COLLECT_DATA  "pmix.collect"
#define PMIX_JOB_SIZE      "pmix.job.size"
#define PMIX_LOCAL_SIZE    "pmix.local.size"
#define PMIX_LOCAL_RANK    "pmix.lrank"

struct pmix_proc {
    char nspace[256];
    uint32_t rank;
};

struct pmix_value {
    uint16_t type;
    union {
        bool flag;
        char *string;
        uint16_t uint16;
        uint32_t uint32;
        struct {
            char *name, *value;
            char separator;
        } widest;
    } data;
};

struct pmix_info {
    char key[512];
    uint32_t flags;
    struct pmix_value value;
};

#endif
