#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Promise: one wheel for every Python from 3.9 on carries library and package; it installs into a clean environment, where
# its tests pass without a compiler, and depends on nothing but the C library and numpy. Needs a network to install from.
#     python_venv.sh BUILD [PYTHON...]   more Pythons to install it into
. "$(dirname "$0")/common.sh"
shift
. "$(dirname "$0")/wheel.sh"
build_wheel
mkdir "$place/bin"
said=$("$place/build/bin/mypy" "$top/bindings/python/ringred" 2>&1) || fails "mypy: $said"
needs=$(readelf -d "$place"/content/.ringred.mesonpy.libs/libringred.so.0 | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | tr '\n' ' ')
for library in $needs; do
    case $library in
    libc.so.6 | libpthread.so.0 | libdl.so.2 | libm.so.6 | ld-linux-*) ;;
    *) fails "the library in the wheel needs $library" ;;
    esac
done
for tool in sh env uname ldconfig; do # no compiler, no linker
    ln -s "$(command -v $tool || echo /sbin/$tool)" "$place/bin/$tool"
done
shown=
for python in python3 "$@"; do
    command -v "$python" >/dev/null || { echo "there is no $python"; continue; }
    rm -rf "$place/clean"
    "$python" -m venv "$place/clean" && "$place/clean/bin/pip" -q install numpy hypothesis "$wheel" >/dev/null 2>&1 || fails "$python does not install it"
    said=$(cd "$place" && env -u RINGRED_LIBRARY -u PYTHONPATH PATH="$place/bin" "$place/clean/bin/python" -m ringred) || fails "python -m ringred: $said"
    echo "$said" | head -3
    ran=0
    for suite in ringred arrays calls reports odd; do
        tests=$(cd "$place" && env -u RINGRED_LIBRARY -u PYTHONPATH PATH="$place/bin" "$place/clean/bin/python" \
            "$top/bindings/python/tests/test_$suite.py" 2>&1) || fails "$python: $suite: $(echo "$tests" | tail -20)"
        ran=$((ran + $(echo "$tests" | sed -n 's/^Ran \([0-9]*\) tests.*/\1/p')))
    done
    shown="$shown $("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])'): $ran tests;"
done
holds "$(basename "$wheel"), $(stat -c %s "$wheel") bytes, needs $needs; passed on$shown"
