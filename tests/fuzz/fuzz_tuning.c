/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of measured choices: a refusal has a code and a sentence with a line in it; what is taken has only
 * rows that mean something. */
#include "fuzz.h"

#include "core/core.h"

#include <stdlib.h>
#include <string.h>

static void must(bool claim)
{
    if (!claim)
        abort();
}

static void check_row(const struct rr_tuning_row *row)
{
    must(row->what > 0 && row->what < RR_COLLECTIVES && rr_way_collective(row->way) == row->what);
    must(row->ranks.least <= row->ranks.most && row->hosts.least <= row->hosts.most);
    must(row->bytes.least <= row->bytes.most && row->bytes.most <= INT64_MAX);
    must(row->segment == 0 || (row->segment >= 1024 && row->segment <= 64 << 20));
    must(row->line > 1 && row->type >= 0 && row->type < RR_TYPES && (!row->type || !row->width));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct rr_tuning *t = NULL;
    ringred_error why = { 0 };
    int rc = rr_tuning_parse((const char *)data, bytes, "table", &t, &why);

    if (rc != 0) {
        must(!t && why.code == rc && memchr(why.text, 0, sizeof why.text) && strncmp(why.text, "table", 5) == 0);
        return 0;
    }
    must(t && t->hash != 0);
    for (int i = 0; i < t->rows; i++)
        check_row(&t->row[i]);
    rr_tuning_free(t);
    return 0;
}

size_t fuzz_seed(int which, uint8_t *to, size_t room)
{
    static const char *const seeds[] = {
        "ringred-tuning 1\nallreduce * 2 1 ..2K tiny\nallreduce float32 2..8 1 2049..1M shm-oneshot 64K\n",
        "# by hand\n\nringred-tuning 1\t# first\r\nbroadcast 4B * 2.. 1M.. hier-broadcast -\nbarrier * * * * dissemination",
        "ringred-tuning 1\nalltoall 16B ..64 * 9223372036854775807 bruck-alltoall 1K\nreduce bool 3 3 0 reduce 64M",
    };

    if (which >= (int)(sizeof seeds / sizeof *seeds) || room < 512)
        return 0;
    size_t bytes = strlen(seeds[which]);
    memcpy(to, seeds[which], bytes);
    return bytes;
}
