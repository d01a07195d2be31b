/* SPDX-License-Identifier: Apache-2.0 */
/* Texts and bytes that come from outside before any connection: unique ids, root lists. Byte 0:
 * which. */
#include "fuzz.h"

#include "boot/inside.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

static const unsigned char magic[16] = { 'r', 'i', 'n', 'g', 'r', 'e', 'd', '#' };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ringred_error why = { 0 };
    struct rr_launch launch = { 0 };
    struct rr_roots roots;
    ringred_unique_id id = { { 0 } };
    char text[512] = "";
    size_t n = bytes ? bytes - 1 : 0;

    if (bytes == 0 || sodium_init() < 0)
        return 0;
    if (data[0] & 1) {
        memcpy(id.bytes, data + 1, n < 240 ? n : 240);
        if (data[0] & 2) /* with a right check sum, so that what lies behind it is reached */
            crypto_shorthash(id.bytes + 240, id.bytes, 240, magic);
        if (rr_unique_id_read(&id, &launch, &why) == 0 &&
            rr_roots_parse(launch.root, &roots, &why) < 0)
            abort();
        return 0;
    }
    memcpy(text, data + 1, n < sizeof text - 1 ? n : sizeof text - 1);
    if (rr_roots_parse(text, &roots, &why) == 0)
        for (int i = 0; i < roots.count; i++)
            for (int k = 0; k <= roots.at[i].more; k++)
                if (rr_root_port(&roots.at[i], k) == 0)
                    abort();
    return 0;
}

size_t fuzz_seed(int which, uint8_t *to, size_t room)
{
    static const char *const lists[] = { "host:29400", "[::1]:65530+8,127.0.0.1:1",
                                         "a:1,b:2,c:3+15" };
    struct rr_address a = { .family = RR_FAMILY_IP6, .port = 4000, .ip = { 0xfd, 1 } };
    uint16_t version = RR_WIRE_VERSION, count = 8;

    if (room < 512)
        return 0;
    if (which < 3) {
        to[0] = 0;
        memcpy(to + 1, lists[which], strlen(lists[which]));
        return 1 + strlen(lists[which]);
    }
    if (which > 3)
        return 0;
    memset(to, 0, 241);
    to[0] = 3;
    memcpy(to + 1, magic, 8);
    memcpy(to + 9, &version, 2);
    memcpy(to + 11, &count, 2);
    for (int i = 0; i < 8; i++)
        rr_address_write(&a, to + 1 + 68 + i * RR_ADDRESS_BYTES);
    return 241;
}
