#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Promise: each parser of bytes from outside is fuzzed for SECONDS without a finding, under the address and undefined-behaviour
# sanitizers, and more than 90 % of its lines run then (tests/evidence/fuzz.py names them). Builds beside BUILD, with clang.
#   fuzz.sh BUILD [SECONDS, 5] [TARGET...]     600 is what is promised
. "$(dirname "$0")/common.sh"
seconds=${2:-5}
shift $(($# < 2 ? $# : 2))
for tool in clang llvm-profdata llvm-cov; do
    command -v $tool >/dev/null || skip "there is no $tool"
done
echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return d && n > 9; }' |
    clang -x c -fsanitize=fuzzer,address,undefined -o /dev/null - 2>/dev/null || skip "clang has no libFuzzer (libclang-rt-dev)"
targets=${*:-$(cd "$top/tests/fuzz" && printf '%s\n' fuzz_*.c | sed 's/^fuzz_//; s/\.c$//')}
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

# set_up FOLDER OPTION...
set_up()
{
    folder=$1
    shift
    [ -f "$folder/build.ninja" ] || CC=clang meson setup "$folder" "$top" -Dtests=enabled "$@" >/dev/null ||
        fails "$folder cannot be set up"
}

# shellcheck disable=SC2086 # lists of words
build_targets()
{
    ninja -C "$1" $(for t in $targets; do echo "tests/fuzz/$2$t"; done) >"$place/log" 2>&1 ||
        { tail -20 "$place/log"; fails "$1 cannot be built"; }
}

# fuzz TARGET: leaves what it has found to be of use, and what it did to do harm
fuzz()
{
    mkdir -p "$place/$1" "$place/seeds-$1"
    LLVM_PROFILE_FILE=/dev/null "$build-coverage-fuzz/tests/fuzz/fuzz_drive_$1" --seeds "$place/seeds-$1" || return 1
    "$build-fuzz/tests/fuzz/fuzz_$1" -max_total_time="$seconds" -timeout=20 -max_len=8192 -print_final_stats=1 \
        -artifact_prefix="$build-fuzz/found-$1-" "$place/$1" "$place/seeds-$1" "$top/tests/fuzz/corpus/$1" >"$place/$1.log" 2>&1 ||
        { tail -40 "$place/$1.log"; return 1; }
    # what the undefined-behaviour sanitizer says does not end a run
    ! grep -A3 'runtime error' "$place/$1.log" || return 1
    LLVM_PROFILE_FILE=$place/$1.raw "$build-coverage-fuzz/tests/fuzz/fuzz_drive_$1" --replay "$place/$1" "$place/seeds-$1" \
        "$top/tests/fuzz/corpus/$1" && llvm-profdata merge -o "$place/$1.profile" "$place/$1.raw"
}

set_up "$build-fuzz" -Dfuzz=true -Db_lundef=false -Db_sanitize=address,undefined -Dc_args=-fsanitize=fuzzer-no-link
set_up "$build-coverage-fuzz" -Dbuildtype=debug -Dc_args='-fprofile-instr-generate -fcoverage-mapping' \
    -Dc_link_args=-fprofile-instr-generate
build_targets "$build-fuzz" fuzz_
build_targets "$build-coverage-fuzz" fuzz_drive_
# as many at once as there are processors
for t in $targets; do
    [ "$(jobs -rp | wc -l)" -lt "$(nproc)" ] || wait -n
    { fuzz "$t" >"$place/$t.said" 2>&1 && touch "$place/$t.fine"; } &
done
wait
runs=0
for t in $targets; do
    [ -f "$place/$t.fine" ] || { cat "$place/$t.said"; fails "$t: found something, or could not run; an input would be $build-fuzz/found-$t-*"; }
    runs=$((runs + $(sed -n 's/^stat::number_of_executed_units: *//p' "$place/$t.log")))
done
# shellcheck disable=SC2086 # a list of words
exec python3 "$top/tests/evidence/fuzz.py" "$top" "$build-coverage-fuzz" "$place" "$seconds" "$runs" $targets
