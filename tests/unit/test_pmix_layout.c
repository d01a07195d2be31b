/* SPDX-License-Identifier: Apache-2.0 */
/* What lib/boot/pmix.h declares is what an installed pmix.h declares. Compiled only where there is one. */
#define pmix_proc  our_proc
#define pmix_value our_value
#define pmix_info  our_info
#include "boot/pmix.h"
#undef pmix_proc
#undef pmix_value
#undef pmix_info

enum {
    OUR_SUCCESS = PMIX_SUCCESS,
    OUR_TIMEOUT = PMIX_ERR_TIMEOUT,
    OUR_SUCCEEDED = PMIX_OPERATION_SUCCEEDED,
    OUR_BOOL = PMIX_BOOL,
    OUR_STRING = PMIX_STRING,
    OUR_UINT16 = PMIX_UINT16,
    OUR_UINT32 = PMIX_UINT32,
    OUR_GLOBAL = PMIX_GLOBAL,
};
static const unsigned our_wildcard = PMIX_RANK_WILDCARD;
static const char *const our_words[] = { PMIX_COLLECT_DATA, PMIX_JOB_SIZE, PMIX_LOCAL_SIZE, PMIX_LOCAL_RANK };
#undef PMIX_SUCCESS
#undef PMIX_ERR_TIMEOUT
#undef PMIX_OPERATION_SUCCEEDED
#undef PMIX_BOOL
#undef PMIX_STRING
#undef PMIX_UINT16
#undef PMIX_UINT32
#undef PMIX_GLOBAL
#undef PMIX_RANK_WILDCARD
#undef PMIX_COLLECT_DATA
#undef PMIX_JOB_SIZE
#undef PMIX_LOCAL_SIZE
#undef PMIX_LOCAL_RANK

#include <pmix.h>
#include <stdio.h>
#include <string.h>

#define SAME(a, b) _Static_assert((a) == (b), #b " is another number")
SAME(OUR_SUCCESS, PMIX_SUCCESS);
SAME(OUR_TIMEOUT, PMIX_ERR_TIMEOUT);
SAME(OUR_SUCCEEDED, PMIX_OPERATION_SUCCEEDED);
SAME(OUR_BOOL, PMIX_BOOL);
SAME(OUR_STRING, PMIX_STRING);
SAME(OUR_UINT16, PMIX_UINT16);
SAME(OUR_UINT32, PMIX_UINT32);
SAME(OUR_GLOBAL, PMIX_GLOBAL);
SAME(sizeof(struct our_proc), sizeof(pmix_proc_t));
SAME(offsetof(struct our_proc, rank), offsetof(pmix_proc_t, rank));
SAME(sizeof(struct our_value), sizeof(pmix_value_t));
SAME(offsetof(struct our_value, data), offsetof(pmix_value_t, data));
SAME(sizeof(struct our_info), sizeof(pmix_info_t));
SAME(offsetof(struct our_info, flags), offsetof(pmix_info_t, flags));
SAME(offsetof(struct our_info, value), offsetof(pmix_info_t, value));

int main(void)
{
    static const char *const words[] = { PMIX_COLLECT_DATA, PMIX_JOB_SIZE, PMIX_LOCAL_SIZE, PMIX_LOCAL_RANK };
    int wrong = our_wildcard != PMIX_RANK_WILDCARD;

    for (int i = 0; i < 4; i++)
        wrong += strcmp(words[i], our_words[i]) != 0;
    printf("pmix.h of version %ld.%ld.%ld: %s\n", (long)PMIX_VERSION_MAJOR, (long)PMIX_VERSION_MINOR,
           (long)PMIX_VERSION_RELEASE, wrong ? "something differs" : "as declared");
    return wrong;
}
