#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Promise: a release's tarball and its bill of materials are the same bytes from two clones; the tarball alone builds and does the
# README's main job; the bill is valid SPDX; Debian's packages are made from it, and in a chroot of Debian 12 they install, work
# from C, Python and pkg-config, and leave nothing behind. Needs root, debhelper, debootstrap and the network.
#     packages.sh BUILD
. "$(dirname "$0")/common.sh"
[ "$(id -u)" = 0 ] || skip "only root makes a chroot"
for tool in debootstrap dh dh_python3 dpkg-buildpackage; do
    command -v $tool >/dev/null || skip "$tool is not installed"
done
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
[ -z "$(git -C "$top" status --porcelain)" ] || echo "(what no commit has is left out)"
for n in 1 2; do
    git clone -q "$top" "$place/clone$n"
    (cd "$place/clone$n" && umask $((20 + n)) && TZ=UTC-$n tools/release.sh "$place/release$n" >"$place/sums$n") || fails "release.sh"
done
cmp "$place/sums1" "$place/sums2" || fails "two clones make different releases"
tarball=$(echo "$place"/release1/ringred-*.tar.gz)
name=$(basename "$tarball" .tar.gz)
tar xf "$tarball" -C "$place"
[ -n "$(cd "$place/$name" && tools/version.sh)" ] || fails "the tarball does not know its version"
meson setup "$place/build" "$place/$name" -Dtests=disabled >"$place/log" 2>&1 && ninja -C "$place/build" >"$place/log" 2>&1 ||
    fails "the tarball does not build: $(tail -5 "$place/log")"
"$place/build/tools/ringred-run" -n 2 "$place/build/examples/ringred-example-allreduce" || fails "the tarball's build does not do its job"
python3 -m venv "$place/env" && "$place/env/bin/pip" -q install spdx-tools >/dev/null 2>&1 || skip "spdx-tools cannot be installed"
said=$("$place/env/bin/pyspdxtools" -i "$place/release1/$name.spdx.json" 2>&1) || fails "the bill of materials: $said"
files=$(python3 -c 'import json, sys; print(len(json.load(open(sys.argv[1]))["files"]))' "$place/release1/$name.spdx.json")
[ "$files" = "$(git -C "$place/clone1" ls-files | wc -l)" ] || fails "the bill has $files files"
"$top/tools/deb.sh" "$tarball" "$place/deb" || fails "deb.sh"
if command -v lintian >/dev/null; then
    said=$(lintian --allow-root --fail-on error "$place"/deb/*.changes 2>&1) || fails "lintian: $said"
fi
root=$place/root
debootstrap --variant=minbase --include=python3,libsodium-dev,gcc,libc6-dev,pkgconf bookworm "$root" >"$place/log" 2>&1 ||
    skip "no Debian 12 can be installed: $(tail -1 "$place/log")"
inside() # COMMAND...: in the chroot
{
    unshare --mount --pid --fork bash -c 'mount --bind /dev "$0/dev"; mount -t proc proc "$0/proc"; exec chroot "$0" "$@"' "$root" "$@"
}
listing() { (cd "$root" && find . -xdev -path ./tmp -prune -o -path ./var -prune -o -path ./proc -prune -o -path ./dev -prune -o -print | sort); }
listing >"$place/before"
cp "$place"/deb/*.deb "$top/pkgconfig/consumer.c" "$root/tmp/"
rm -f "$root"/tmp/*-dbgsym_*
inside sh -c 'dpkg -i /tmp/*.deb' >"$place/log" 2>&1 || fails "dpkg -i: $(tail -5 "$place/log")"
inside ringred-run -n 2 ringred-bench allreduce --sizes 4,1M -c 1 || fails "the installed programs"
inside ringred-run -n 2 python3 -c 'import ringred, array
with ringred.init() as comm:
    assert comm.allreduce(array.array("d", [1.5])).tolist() == [3.0]' || fails "the installed Python package"
inside sh -c 'gcc -o /tmp/consumer /tmp/consumer.c $(pkg-config --cflags --libs ringred) && /tmp/consumer' || fails "a program of a user's"
inside dpkg -P ringred-tools python3-ringred libringred-dev libringred0 >"$place/log" 2>&1 || fails "dpkg -P"
listing | diff "$place/before" - || fails "something is left behind"
holds "$name.tar.gz $(cut -c1-16 "$place/sums1" | head -1)..., SPDX of $files files valid, $(ls "$place"/deb/*.deb | grep -vc dbgsym) packages in and out of Debian 12"
