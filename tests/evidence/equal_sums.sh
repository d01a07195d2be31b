#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Promise: sums are bit-equal to the reference over transports, algorithms of the tree, segment sizes, in
# and out of place mixed in one call, 1 to 7 ranks, and pretended hosts.
. "$(dirname "$0")/common.sh"
cases=0
for program in "$build"/tests/coll/test_*; do
    [ -x "$program" ] && [ -f "$program" ] || continue
    "$program" >/tmp/equal_sums.$$ 2>&1 || {
        cat /tmp/equal_sums.$$
        rm -f /tmp/equal_sums.$$
        fails "$(basename "$program") found a difference"
    }
    cases=$((cases + $(grep -c '  OK \]' /tmp/equal_sums.$$)))
    rm -f /tmp/equal_sums.$$
done
[ "$cases" -gt 0 ] || skip "$build has no tests of collectives"
holds "$cases cases, every bit as in the reference"
