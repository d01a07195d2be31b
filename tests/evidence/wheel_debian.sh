#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Promise: the wheel installs on the Pythons of Debian 12 and 13, in chroots of nothing but the base system and Python, and its
# tests pass there; auditwheel finds nothing in it that such systems lack. Needs root, debootstrap and the network.
#     wheel_debian.sh BUILD [SUITE...]
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/wheel.sh"
shift
[ "$(id -u)" = 0 ] || skip "only root makes a chroot"
command -v debootstrap >/dev/null || skip "debootstrap is not installed"
build_wheel
audit=$("$place/build/bin/auditwheel" show "$wheel" 2>&1 | tr '\n' ' ')
platform=$(echo "$audit" | grep -o 'manylinux_[0-9]*_[0-9]*_x86_64' | head -1)
[ -n "$platform" ] || fails "auditwheel: $audit"
shown=
inside() # COMMAND...: in the chroot, which alone sees what is mounted there
{
    unshare --mount --pid --fork bash -c 'mount --bind /dev "$0/dev"; mount -t proc proc "$0/proc"
        mount -t tmpfs tmpfs "$0/dev/shm" 2>/dev/null; exec chroot "$0" "$@"' "$root" "$@"
}
for suite in "${@:-bookworm trixie}"; do
    for name in $suite; do
        root=$place/$name
        debootstrap --variant=minbase --include=python3,python3-venv,python3-numpy,python3-hypothesis "$name" "$root" >"$place/log" 2>&1 ||
            skip "no $name can be installed: $(tail -1 "$place/log")"
        cp "$wheel" "$root/tmp/"
        cp -r "$top/bindings/python/tests" "$root/tmp/tests"
        inside python3 -m venv --system-site-packages /tmp/env >/dev/null &&
            inside /tmp/env/bin/pip -q install --no-index --no-deps "/tmp/$(basename "$wheel")" || fails "$name does not install it"
        inside /tmp/env/bin/python -m ringred || fails "$name: python -m ringred"
        ran=0
        for tests in ringred arrays calls reports odd; do
            said=$(inside /tmp/env/bin/python "/tmp/tests/test_$tests.py" 2>&1) || fails "$name: $tests: $(echo "$said" | tail -20)"
            ran=$((ran + $(echo "$said" | sed -n 's/^Ran \([0-9]*\) tests.*/\1/p')))
        done
        shown="$shown, $name: $ran tests"
    done
done
holds "auditwheel: $platform$shown"
