#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Promise: what users of other libraries have reported of hangs, wrong results, resources, forks, threads and signals has
# named tests here (docs/TESTING.md says which report has which test).
# reports_core.sh BUILD
. "$(dirname "$0")/common.sh"
all=
for program in fault/test_hangs fault/test_limits fault/test_ends coll/test_reported; do
    [ -x "$build/tests/$program" ] || skip "$build/tests/$program is not built"
    said=$("$build/tests/$program" 2>&1) || { echo "$said"; fails "$program fails"; }
    all+=$said$'\n'
done
for report in 12 15 16 17 20 21 22 23 25 28 29 30 31 32 35 36 37 39 40 42 43 44 45; do
    echo "$all" | grep -o "OK \] test_PR_${report}_.*" | cut -d' ' -f3- && continue
    echo "$all" | grep -A1 "RUN *\] test_PR_${report}_" | grep "SKIP" # the reason
    echo "$all" | grep -q "SKIPPED \] test_PR_${report}_" || fails "no test of PR-$report"
    skip "no test of PR-$report ran here"
done
holds "$(echo "$all" | grep -c 'OK \] test_PR_') tests of 23 reports, $(echo "$all" | grep -c 'SKIPPED \]') of them skipped here"
