#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Promise: the kernels of every instruction set give the reference's bytes, for every legal pair of a type and an
# operator, 0 to 1,025 elements, aligned and not, 1 to 9 sources, 1 to 4 destinations, special numbers, and a
# caller whose rounding and flush modes are others; and a kernel with a mistake in rounding, order or tail is
# caught.   kernels.sh BUILD [ARM64] [every|whole]
# ARM64: a build for aarch64 (docs/TESTING.md), which runs under qemu. every: two minutes, each count with one
# choice of the rest; whole: an hour, each count with all.
. "$(dirname "$0")/common.sh"
arm=
[ -d "${2:-}" ] && arm=$2 && shift
much=${2:-every}
out=$(mktemp)
trap 'rm -f "$out"' EXIT
[ -x "$build/tests/kernels/test_reduce" ] || skip "$build has no tests of kernels"

# in_build FOLDER: its tests; $shapes and $ran tell of them
in_build()
{
    "$1/tests/kernels/test_reduce" "$much" >"$out" 2>&1 || { cat "$out"; fails "$1: a kernel has other bytes"; }
    shapes=$(grep -o '^[0-9]* shapes of [0-9]* pairs' "$out")
    missing=$(sed -n 's/^SKIPPED: kernels of \([a-z0-9]*\):.*/\1/p' "$out" | tr '\n' ' ')
    "$1/tests/kernels/test_mutants" >"$out" 2>&1 || { cat "$out"; fails "$1: a mistake is not caught"; }
    ran=
    for set in avx512 avx2 neon c; do
        case " $missing" in *" $set "*) ;; *) ran="$ran $set" ;; esac
    done
}

in_build "$build"
everywhere=$ran
if [ -z "$arm" ]; then
    reason="no build for aarch64 was given"
elif ! command -v qemu-aarch64 >/dev/null; then
    reason="there is no qemu-aarch64"
else
    # the wrapper knows where the libraries are: meson runs the tests
    meson test -C "$arm" --suite kernels --timeout-multiplier 20 --print-errorlogs >"$out" 2>&1 ||
        { cat "$out"; fails "$arm: a kernel has other bytes"; }
    everywhere="$everywhere neon(qemu, the tests' own choice)"
fi
for set in avx512 avx2 neon; do
    case "$everywhere" in *$set*) ;; *) echo "SKIPPED: $set: this CPU does not have it, and $( [ $set = neon ] &&
        echo "${reason:-}" || echo "qemu is not asked")" ;; esac
done
holds "$shapes, kernels of$everywhere; every mutant caught"
