#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Promise: clean under the address and undefined-behaviour sanitizers on everything, under the thread
# sanitizer with ranks as threads that share one mapping; the models of the flag protocols and the fuzz
# targets hold. Builds beside BUILD.   sanitizers.sh BUILD
. "$(dirname "$0")/common.sh"
passed=0

# run NAME SANITIZER SUITE...
run()
{
    folder=$build-$1
    sanitizer=$2
    shift 2
    [ -d "$folder" ] || meson setup "$folder" "$top" -Dtests=enabled -Dbuildtype=debugoptimized \
        -Db_sanitize="$sanitizer" >/dev/null || fails "$folder cannot be set up"
    options=
    for suite in "$@"; do
        options="$options --suite $suite"
    done
    # shellcheck disable=SC2086 # a list of words
    meson test -C "$folder" --print-errorlogs --timeout-multiplier 5 $options || fails "$sanitizer found something"
    passed=$((passed + $(grep -c '"result": "OK"' "$folder/meson-logs/testlog.json")))
}

export ASAN_OPTIONS=detect_leaks=1:halt_on_error=1
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1
run asan address,undefined unit kernels plan coll fault model fuzz threads
run tsan thread threads
holds "$passed test programs without a finding"
