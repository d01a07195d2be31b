#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs what is needed, builds libringred, and measures allreduce between 2 and 4 processes on this
# machine. On Debian 12, as root or with sudo; the build goes to build/demo.
set -eu
cd "$(dirname "$0")/.."
. tools/packages.sh

need_packages gcc libc6-dev libsodium-dev meson ninja-build pkg-config
step "setting up build/demo" set_up build/demo -Dbuildtype=release -Dtests=disabled
step "building the library and its programs" ninja -C build/demo
bench=build/demo/bench/ringred-bench

say "2 ranks, shared memory"
"$bench" allreduce --ranks 2 -b 8 -e 64M -f 2 --seconds 0.05
say "4 ranks, shared memory"
"$bench" allreduce --ranks 4 -b 8 -e 64M -f 2 --seconds 0.05
say "2 ranks, TCP over loopback"
"$bench" allreduce --ranks 2 --sizes 8,64,512,4K,32K,256K,2M,16M,64M --seconds 0.05 --transport tcp
say "4 ranks, TCP over loopback"
"$bench" allreduce --ranks 4 --sizes 8,64,512,4K,32K,256K,2M,16M,64M --seconds 0.05 --transport tcp
say "all results were right; ringred-bench --help and ringred-info (in build/demo/tools) tell more"
