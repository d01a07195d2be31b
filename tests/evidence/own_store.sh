#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Promise: ranks without a launcher find each other through a store of their program's own; here a folder.
# own_store.sh BUILD
. "$(dirname "$0")/common.sh"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
pids=()
for rank in 2 1 0; do
    "$build/examples/ringred-example-own-store" $rank 3 "$folder" > "$folder/out.$rank" 2>&1 &
    pids+=($!)
done
for pid in "${pids[@]}"; do
    wait "$pid" || fails "a rank ended with status $?: $(cat "$folder"/out.*)"
done
for rank in 0 1 2; do
    grep -q "rank $rank of 3: the ranks add up to 3" "$folder/out.$rank" || fails "$(cat "$folder"/out.*)"
done
holds "3 ranks met through a folder"
