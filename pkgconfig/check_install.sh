#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Is what we install enough to build on? Installs a build under DESTDIR, and another into a prefix; each
# time a consumer is built from pkg-config alone, shared and static, as C and as C++, and run.
#   check_install.sh BUILD SOURCE PREFIX CC
set -eu
build=$1 source=$2 prefix=$3 cc=$4
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

# consumers ROOT OPTION...: ROOT is where the library lies; the options go to pkg-config
consumers()
{
    root=$1
    shift
    found=$(dirname "$(find "$root" -name ringred.pc)")
    libraries=$(dirname "$(find "$root" -name libringred.so.0)")
    export PKG_CONFIG_PATH="$found"
    # shellcheck disable=SC2046 # lists of words
    $cc -o "$place/shared" "$source/pkgconfig/consumer.c" $(pkg-config "$@" --cflags --libs ringred)
    LD_LIBRARY_PATH="$libraries" "$place/shared"
    # shellcheck disable=SC2046
    $cc -static -o "$place/static" "$source/pkgconfig/consumer.c" \
        $(pkg-config "$@" --static --cflags --libs ringred) 2>"$place/warnings" || {
        cat "$place/warnings"
        exit 1
    }
    "$place/static"
    if command -v c++ >/dev/null; then
        # shellcheck disable=SC2046
        c++ -x c++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -fsyntax-only \
            $(pkg-config "$@" --cflags ringred) "$source/pkgconfig/consumer.c"
    fi
    if command -v cmake >/dev/null; then
        mkdir -p "$place/with-cmake" && cp "$source/pkgconfig/consumer.c" "$place/with-cmake/"
        cat >"$place/with-cmake/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.18)
project(consumer C)
find_package(ringred 0.1 REQUIRED CONFIG)
foreach(kind ringred static)
  add_executable(with-${kind} consumer.c)
  target_link_libraries(with-${kind} ringred::${kind})
endforeach()
END
        rm -rf "$place/with-cmake/build"
        cmake -S "$place/with-cmake" -B "$place/with-cmake/build" \
            -Dringred_DIR="$(dirname "$(find "$root" -name ringred-config.cmake)")" >/dev/null
        cmake --build "$place/with-cmake/build" >/dev/null
        "$place/with-cmake/build/with-ringred"
        "$place/with-cmake/build/with-static"
    else
        echo "without cmake: its package file is not tried"
    fi
    for page in ringred-bench.1 ringred-conform.1 ringred-info.1 ringred-run.1 ringred.7; do
        [ -n "$(find "$root" -path "*man*/$page*")" ] || { echo "the man page $page is not installed"; exit 1; }
    done
    for program in ringred-bench ringred-conform ringred-info ringred-run; do
        [ -n "$(find "$root" -name $program -perm -100)" ] || { echo "$program is not installed"; exit 1; }
    done
}

echo "under DESTDIR:"
DESTDIR="$place/root" meson install -C "$build" --no-rebuild --quiet
consumers "$place/root" --define-variable=prefix="$place/root$prefix"

echo "and away again:"
DESTDIR="$place/root" ninja -C "$build" uninstall >/dev/null
left=$(find "$place" -path "$place/root/*" ! -type d)
[ -z "$left" ] || { echo "left behind: $left"; exit 1; }

echo "in a prefix:"
meson setup "$place/build" "$source" --prefix "$place/prefix" -Doptimization=1 -Dtests=disabled >/dev/null
ninja -C "$place/build" install >/dev/null
consumers "$place/prefix"
"$place/prefix/bin/ringred-bench" allreduce --ranks 2 --sizes 1K -n 10 >/dev/null
