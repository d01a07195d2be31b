#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Promise: a program and a plug-in that were built with the frozen headers run with this library; what is newer than this
# library is refused in words; breaks of the ABI that are made on purpose are found.   abi.sh BUILD
. "$(dirname "$0")/common.sh"
frozen=$top/tests/abi/frozen/0
facts=$(python3 "$top/tests/abi/check_abi.py" "$frozen" "$top/include") || fails "$facts"
breaks=$(python3 "$top/tests/abi/check_abi.py" "$frozen" "$top/include" --seeded) || fails "$breaks"
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
library=$build/lib/libringred.so.0
cc -std=c17 -D_GNU_SOURCE -I "$frozen" -o "$place/old_caller" "$top/tests/abi/old_caller.c" "$library" || fails "no compiler"
cc -std=c17 -shared -fPIC -I "$frozen" -o "$place/libringred-unix.so" "$top/examples/plugin/unix.c" || fails "no compiler"
LD_LIBRARY_PATH=$build/lib "$place/old_caller" || fails "a program built with the frozen headers"
export RINGRED_PLUGIN_PATH=$place
"$build/tools/ringred-conform" unix || fails "a plug-in built with the frozen headers"
python3 "$top/tests/abi/check_symbols.py" "$library" "$top/tests/abi/symbols.txt" "$top/include/ringred/version.h" ||
    fails "exported symbols"

# the other way round: a program that wants more of a struct than there is, a plug-in of another interface
cat >"$place/newer.c" <<'END'
#include <ringred/ringred.h>
#include <stdio.h>
struct newer {
    ringred_config config;
    unsigned long long field;
};
int main(void)
{
    struct newer c = { .field = 7 };
    ringred_comm *comm;
    ringred_error why;
    ringred_config_init(&c.config, sizeof c.config);
    ringred_error_init(&why);
    c.config.struct_size = sizeof c;
    int rc = ringred_comm_create(&c.config, &comm, &why);
    printf("%s\n", why.text);
    return rc != RINGRED_EVERSION;
}
END
cc -std=c17 -I "$top/include" -o "$place/newer" "$place/newer.c" "$library" || fails "no compiler"
LD_LIBRARY_PATH=$build/lib "$place/newer" || fails "a struct with fields that are newer than the library was taken"
cc -std=c17 -shared -fPIC -I "$top/include" -DMISTAKE=5 -o "$place/libringred-broken5.so" "$top/tests/conform/broken.c" || fails "no compiler"
said=$(RINGRED_TRANSPORT=broken5 "$build/bench/ringred-bench" allreduce --ranks 2 --sizes 4 -n 1 2>&1) && fails "a plug-in of another interface was taken"
echo "$said" | grep -q "interface 7, this library has" || fails "not the right words: $said"
holds "$(echo "$facts" | tail -1); $(echo "$breaks" | tail -1)"
