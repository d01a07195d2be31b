#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Promise: the programs that users were meant to be able to write can be written, and work: in C, from four ways of meeting, in Python,
# a stranger's transport and team, and what an operator types at 3 a.m.
# api_programs.sh BUILD
. "$(dirname "$0")/common.sh"
run=$build/tools/ringred-run
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
shown=0
show() # COMMAND...
{
    said=$("$@" 2>&1) || fails "$* : $said"
    shown=$((shown + 1))
}
export RINGRED_LIBRARY=$build/lib/libringred.so.0 PYTHONPATH=$top/bindings/python PYTHONDONTWRITEBYTECODE=1
python=$(python_with numpy)
show "$run" -n 4 "$build/tests/users/api_programs"
show "$build/tests/users/api_programs"
show "$run" -n 2 "$build/examples/ringred-example-event-loop"
show bash -c '"$0" 0 2 "$1" & "$0" 1 2 "$1"; wait $!' "$build/examples/ringred-example-own-store" "$place"
for transport in shm tcp; do
    show env RINGRED_TRANSPORT=$transport "$run" -n 3 "$build/tests/users/api_programs"
done
if [ -n "$python" ]; then
    show "$run" -n 4 "$python" "$top/tests/users/api_programs.py"
    show env RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 "$python" "$top/tests/users/api_programs.py"
fi
export RINGRED_PLUGIN_PATH=$build/examples/plugin:$build/tests/users:$build/tests/conform
show "$run" -n 2 "$build/bench/ringred-bench" allreduce --transport unix --sizes 4,64K --seconds 0.01
show env RINGRED_TEAM=fakenccl RINGRED_NUMERICS=fast "$run" -n 2 "$build/bench/ringred-bench" allreduce --sizes 4,64K --seconds 0.01
show "$build/tools/ringred-info"
show "$build/tools/ringred-info" --settings
show "$build/tools/ringred-info" --launcher
show "$build/bench/ringred-bench" allreduce --ranks 2 -e 4K --seconds 0.01
json=$place/bench.json
show "$run" -n 2 "$build/bench/ringred-bench" allreduce -b 8 -e 64K -f 2 --seconds 0.01 --json "$json"
python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$json" || fails "--json writes no JSON"
show env RINGRED_LOG=info RINGRED_TRANSPORT=tcp "$run" -n 2 "$build/tests/users/api_programs"
echo "$said" | grep -i 'rank [01]' | grep -q '127\.\|::1\|lo' || fails "no line says by which address a peer is reached: $said"
holds "$shown programs and commands"
