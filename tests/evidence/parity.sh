#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Promise: at least as fast as the best tuned peers where targets/parity.json and parity-symmetric.json
# say so. Needs the kit of peers, whose setup has been run.   parity.sh BUILD KIT [compare's options]
. "$(dirname "$0")/common.sh"
kit=${2:-}
[ -x "$kit/compare" ] || skip "give the folder with the peers' compare as second argument"
shift 2
export PEERS_BENCH=$build/bench/ringred-bench
short=0
"$kit/compare" --ranks 2,3,4 --rounds 5 --targets "$kit/targets/parity.json" "$@" || short=1
"$kit/compare" --transport shm --ranks 2,3,4 --rounds 5 --memory symmetric \
    --targets "$kit/targets/parity-symmetric.json" "$@" || short=1
[ "$short" = 0 ] || fails "some points fall short of the targets, see above"
holds "every point reaches its target"
