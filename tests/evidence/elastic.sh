#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Promise: training outlives the loss of a worker in step 50 and takes it back in before step 80: all workers end with the weights
# of a serial replay of the same membership schedule, to the last bit, over each transport, whichever worker it is.
# elastic.sh BUILD
. "$(dirname "$0")/common.sh"
python=$(python_with numpy)
[ -n "$python" ] || skip "no Python has numpy"
export RINGRED_LIBRARY=$build/lib/libringred.so.0 PYTHONPATH=$top/bindings/python PYTHONDONTWRITEBYTECODE=1
runs=0
for setting in TRANSPORT=shm TRANSPORT=tcp RANKS_PER_HOST=2 PROGRESS=thread; do
    for lost in 0 2 3; do
        said=$(env RINGRED_$setting timeout 100 "$python" "$top/examples/elastic.py" --ranks 4 --steps 120 --lose $lost --at 50 --back 80 2>&1) ||
            fails "$setting, worker $lost: $said"
        case $said in
        "workers x steps: 4 x 50, 3 x 30, 4 x 40;"*) ;;
        *) fails "$setting, worker $lost: $said" ;;
        esac
        echo "$setting, worker $lost: $said"
        runs=$((runs + 1))
    done
done
holds "$runs runs of 4 workers, each lost one at step 50 and had it back at 80; weights as the replay's"
