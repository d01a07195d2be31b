#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Promise: each collective, and allreduce of halves, is as fast as targets/collectives.json says of the best
# tuned peers. Needs the kit of peers, whose setup has been run.
#     collectives_parity.sh BUILD KIT [compare's options]
. "$(dirname "$0")/common.sh"
kit=${2:-}
[ -x "$kit/compare" ] || skip "give the folder with the peers' compare as second argument"
shift 2
export PEERS_BENCH=$build/bench/ringred-bench
out=$(mktemp)
trap 'rm -f "$out"' EXIT
judged=0
short=0

# one COLLECTIVE TYPE [compare's options]
one()
{
    collective=$1
    type=$2
    shift 2
    "$kit/compare" --collective "$collective" --dtype "$type" --ranks 2,3,4 --rounds 5 \
        --targets "$kit/targets/collectives.json" "$@" 2>&1 | tee "$out"
    line=$(grep '^targets:' "$out") || fails "compare did not end well for $collective of $type"
    judged=$((judged + $(echo "$line" | sed 's/^targets: \([0-9]*\) judged.*/\1/')))
    short=$((short + $(echo "$line" | sed 's/.*, \([0-9]*\) fall short.*/\1/')))
}

for collective in reduce_scatter allgather broadcast; do
    one "$collective" float32 "$@"
done
for type in bfloat16 float16; do
    one allreduce "$type" "$@"
done
[ "$judged" -gt 0 ] || fails "nothing was judged"
[ "$short" = 0 ] || fails "$short of $judged points fall short of the targets, see above"
holds "all of $judged points reach their targets"
