#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Promise: training on the handwritten digits with 4 ranks gives the same weights, to the last bit, on
# all ranks, over shared memory, over TCP, and as 2 x 2 hosts; accuracy above 0.95.
. "$(dirname "$0")/common.sh"
python=$(python_with sklearn)
[ -n "$python" ] || skip "no Python with scikit-learn"
export PYTHONPATH=$top/bindings/python RINGRED_LIBRARY=$build/lib/libringred.so.0 PYTHONDONTWRITEBYTECODE=1
lines=$(mktemp)
trap 'rm -f "$lines"' EXIT

for way in RINGRED_TRANSPORT=shm RINGRED_TRANSPORT=tcp RINGRED_RANKS_PER_HOST=2; do
    env "$way" "$build/tools/ringred-run" -n 4 "$python" "$top/examples/train_digits.py" >"$lines.now" 2>&1 || {
        cat "$lines.now"
        rm -f "$lines.now"
        fails "training with $way did not end well"
    }
    sed "s/^/$way /" "$lines.now" | tee -a "$lines"
    rm -f "$lines.now"
done
ranks=$(grep -c 'weights [0-9a-f]' "$lines")
different=$(grep -o 'weights [0-9a-f]*' "$lines" | sort -u | wc -l)
accuracy=$(grep -o 'accuracy [0-9.]*' "$lines" | awk 'NR == 1 || $2 < least { least = $2 } END { print least }')
[ "$ranks" = 12 ] || fails "$ranks of 12 ranks told their weights"
[ "$different" = 1 ] || fails "$different different networks"
awk "BEGIN { exit !($accuracy > 0.95) }" || fails "accuracy $accuracy"
holds "12 ranks, three ways, one network; accuracy $accuracy"
