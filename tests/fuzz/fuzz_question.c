/* SPDX-License-Identifier: Apache-2.0 */
/* Questions to the simulator: what is taken has only values that mean something. */
#include "fuzz.h"

#include "sim/sim.h"

#include <stdlib.h>
#include <string.h>

static void must(bool claim)
{
    if (!claim)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *text = malloc(bytes + 1);
    struct rr_question q;
    ringred_error why = { 0 };

    must(text != NULL);
    memcpy(text, data, bytes);
    text[bytes] = 0;
    int rc = rr_question_read(text, &q, &why);
    must(rc == 0 ? q.what > 0 && q.what < RR_COLLECTIVES && q.value[RR_SIM_NODES] >= 1 && q.value[RR_SIM_BYTES] >= 0
                 : rc < 0 && why.code == rc && why.text[0] && memchr(why.text, 0, sizeof why.text));
    free(text);
    return 0;
}

size_t fuzz_seed(int which, uint8_t *to, size_t room)
{
    static const char *const seeds[] = {
        "collective=allreduce bytes=4M nodes=4 per_host=2 rate=10gbit latency=50us",
        "collective=broadcast algorithm=auto root=3 nodes=4\tbytes=64k efficiency=0.8\n",
        "nodes=100000 per_host=2", "root=9", "slow_host=7", "bytes=1.5", "nods=3", "collective=all", "algorithm", "bytes=", "rate=3GB",
    };

    if (which >= (int)(sizeof seeds / sizeof *seeds) || room < 512)
        return 0;
    memcpy(to, seeds[which], strlen(seeds[which]));
    return strlen(seeds[which]);
}
