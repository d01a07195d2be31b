#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Promise: the tests of plans, kernels and single parts run more than 95 % of the lines of lib/plan, lib/algo
# and lib/reduce. Builds beside BUILD, for counting.   coverage.sh BUILD
. "$(dirname "$0")/common.sh"
command -v gcov >/dev/null || skip "there is no gcov"
folder=$build-coverage
[ -d "$folder" ] || meson setup "$folder" "$top" -Dtests=enabled -Dbuildtype=debug -Db_coverage=true \
    -Ddefault_library=static >/dev/null || fails "$folder cannot be set up"
ninja -C "$folder" >/dev/null || fails "$folder cannot be built"
find "$folder" -name '*.gcda' -delete
meson test -C "$folder" --suite plan --suite kernels --suite unit --timeout-multiplier 5 --print-errorlogs \
    >/dev/null || fails "a test fails in $folder"
exec python3 "$top/tests/evidence/coverage.py" "$top" "$folder" 95 plan algo reduce
