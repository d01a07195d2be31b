/* SPDX-License-Identifier: Apache-2.0 */
/* Files of settings: byte 0: whether others can read it; then the file. A refusal names file and line. */
#include "fuzz.h"

#include "base/base.h"

#include <stdlib.h>
#include <string.h>

static void must(bool claim)
{
    if (!claim)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct rr_settings *s = malloc(sizeof *s);
    ringred_error why = { 0 };

    must(s != NULL);
    if (bytes >= 1 && rr_settings_load(s, NULL, &why) == 0) {
        int rc = rr_settings_read(s, "a file", (const char *)data + 1, bytes - 1, data[0] & 1, &why);
        must(rc == 0 || (rc == RINGRED_ESETTING && strncmp(why.text, "a file:", 7) == 0));
        for (int i = 0; i < RR_SETTINGS; i++)
            must(memchr(s->value[i].text, 0, sizeof s->value[i].text) &&
                 memchr(s->value[i].origin, 0, sizeof s->value[i].origin));
        if (!(data[0] & 1))
            must(!s->value[RR_SET_KEY].text[0]);
    }
    free(s);
    return 0;
}

size_t fuzz_seed(int which, uint8_t *to, size_t room)
{
    static const char *const seeds[] = {
        "\1# all of our jobs\ntransport = tcp   # there is no shared memory\n\nkey = a secret of ours\nheap=1G\r\n",
        "\0numerics=fast\nlog = warn\ninterface = eth0,eth1\ntrace = /tmp/a b#c",
        "\0transprot = tcp\n",
        "\0rank = 3\n",
    };

    if (which >= (int)(sizeof seeds / sizeof *seeds) || room < 512)
        return 0;
    size_t n = 1 + strlen(seeds[which] + 1);
    memcpy(to, seeds[which], n);
    return n;
}
