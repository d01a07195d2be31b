#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs what the tests need, builds libringred with two compilers and with sanitizers, and runs all
# tests. On Debian 12, as root or with sudo; builds go to build/. The last line is the count.
#   tools/test.sh          everything
#   tools/test.sh quick    the release build alone
set -u
cd "$(dirname "$0")/.." || exit 1
. tools/packages.sh
what=${1:-all}
failed=0
folders=

# tests FOLDER OPTION...: all tests of a build; their results are counted at the end
tests()
{
    folder=$1
    shift
    folders="$folders $folder"
    rm -f "$folder/meson-logs/testlog.json"
    step "testing $folder" meson test -C "$folder" --print-errorlogs "$@" || failed=1
}

build()
{
    folder=$1
    shift
    step "setting up $folder" set_up "$folder" -Dwerror=true -Dtests=enabled "$@" &&
        step "building $folder" ninja -C "$folder"
}

gcc_release()
{
    build build/gcc -Dbuildtype=release && tests build/gcc
}

clang_release()
{
    CC=clang build build/clang -Dbuildtype=release && tests build/clang --no-suite evidence --no-suite slow
}

# memory errors, undefined behaviour, leaks
sanitized()
{
    build build/asan -Dbuildtype=debugoptimized -Db_sanitize=address,undefined &&
        ASAN_OPTIONS=detect_leaks=1:halt_on_error=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
            tests build/asan --no-suite evidence --no-suite slow --timeout-multiplier 5
}

# ranks as threads that share one mapping: only these tests are built
threads()
{
    step "setting up build/tsan" set_up build/tsan -Dwerror=true -Dtests=enabled \
        -Dbuildtype=debugoptimized -Db_sanitize=thread &&
        TSAN_OPTIONS=halt_on_error=1 tests build/tsan --suite threads --timeout-multiplier 5
}

need_packages gcc libc6-dev libsodium-dev meson ninja-build pkg-config libcmocka-dev libfabric-dev python3 \
    python3-numpy python3-sklearn python3-hypothesis clang || exit 1
gcc_release || failed=1
if [ "$what" = all ]; then
    clang_release || failed=1
    sanitized || failed=1
    threads || failed=1
fi
# shellcheck disable=SC2086 # a list of words
python3 tools/count_tests.py --failed-before "$failed" $folders
