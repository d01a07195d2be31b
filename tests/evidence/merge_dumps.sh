#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Promise: what the ranks of a job say they did last, put together, names in one sentence what went wrong.   merge_dumps.sh BUILD
#     disagree: both sides      lose: the rank without a dump      miss: what the others asked for instead
#     hang: dumps are taken from outside, one of them of a stopped process; who never came, and since when
. "$(dirname "$0")/common.sh"
export RINGRED_LIBRARY=$build/lib/libringred.so.0 PYTHONPATH=$top/bindings/python
run=$build/tools/ringred-run info=$build/tools/ringred-info
[ -x "$run" ] && [ -x "$info" ] || skip "$build has no tools"
python=$(python_with ctypes)
[ -n "$python" ] || skip "no Python"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
named=0

# named WAY SENTENCE: it is the communicator's
named()
{
    said=$("$info" --merge-dumps "$work/$1" 2>&1) || fails "$1: $said"
    echo "$said" | grep -q "^communicator all: $2" || fails "$1: \"$2\" is not in: $said"
    echo "$1: $(echo "$said" | grep '^communicator all: ')"
    "$info" --merge-dumps "$work/$1" --json | "$python" -c 'import json, sys; json.load(sys.stdin)' || fails "$1: no JSON"
    named=$((named + 1))
}

# job WAY: that it fails is what is wanted
job()
{
    mkdir "$work/$1"
    RINGRED_DUMP_DIR=$work/$1 timeout 60 "$run" -n 4 "$python" "$(dirname "$0")/merge_dumps.py" "$1" "$work/$1" \
        >"$work/$1.log" 2>&1
}

job disagree
# who is late finds the job broken, and asks for nothing
named disagree 'operation 103: ranks\? [0-2].* asked for broadcast of 2 float32 from root 0, rank 3 for broadcast of 1 float64'
job lose
named lose 'no dump of rank 2, which may not have begun operation 103, broadcast of 2 float32 from root 0, and others wait'
job miss
named miss 'operation 103: rank.* for broadcast of 2 float32 from root 0\(, rank 1 for barrier\)\?'
echo "$said" | grep -q 'operation 103: .*rank 1 \(asked \)\?for barrier' || fails "miss: $said"

job hang &
for rank in 0 1 2 3; do
    until [ -s "$work/hang/pid.$rank" ]; do kill -0 $! || fails "hang: $(cat "$work/hang.log")"; done
    pid=$(cat "$work/hang/pid.$rank")
    until "$info" --dump "$pid" >"$work/hang/$rank.json" && { [ "$rank" = 0 ] || grep -q running "$work/hang/$rank.json"; }; do
        kill -0 $! || fails "hang: $(cat "$work/hang.log")"
    done
done
grep -q '^State:.*stopped' "/proc/$(cat "$work/hang/pid.0")/status" || fails "hang: rank 0 is not stopped"
named hang 'rank 0 never began operation 103, broadcast of 2 float32 from root 0, and others wait in it since .*: ranks 1-3'
kill -CONT "$(cat "$work/hang/pid.0")"
wait $! || fails "hang: it did not go on: $(cat "$work/hang.log")"
holds "$named of 4 jobs that went wrong are explained by their dumps"
