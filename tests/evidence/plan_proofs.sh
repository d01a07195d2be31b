#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Promise: the plans of every builder are proved for all n <= 64, primes and 2^k +- 1 up to 256, and
# awkward counts, in under 60 s; and every mutant of a plan is found, or is listed with its reason.
. "$(dirname "$0")/common.sh"
bound=60
[ -x "$build/tests/plan/test_plan_prove" ] || skip "$build has no tests of plans"
began=$(date +%s)
"$build/tests/plan/test_plan_prove" 2>&1 || fails "a plan is not right"
took=$(($(date +%s) - began))
[ "$took" -lt "$bound" ] || fails "the proofs took $took s of $bound"
"$build/tests/plan/mutants" 2>&1 || fails "a mutant survives without a reason"
holds "proved in $took s of $bound"
