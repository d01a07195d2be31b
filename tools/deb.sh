#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes Debian packages from a release's tarball: libringred0, libringred-dev, ringred-tools, python3-ringred.
# Needs debhelper, dh-python and what control names.
#     deb.sh TARBALL FOLDER
set -euo pipefail
tarball=$(readlink -f "${1:?a tarball of release.sh}")
out=$(mkdir -p "${2:?a folder for the packages}" && cd "$2" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
name=$(basename "$tarball" .tar.gz)
version=${name#ringred-}
cp "$tarball" "$work/ringred_$version.orig.tar.gz"
tar xf "$tarball" -C "$work"
cp -r "$work/$name/tools/debian" "$work/$name/debian"
date=$(date -R -u -d "@$(stat -c %Y "$work/$name/CHANGELOG.md")")
maintainer=$(sed -n 's/^Maintainer: //p' "$work/$name/debian/control")
cat >"$work/$name/debian/changelog" <<END
ringred ($version-1) unstable; urgency=medium

  * Release $version; CHANGELOG.md tells what is new.

 -- $maintainer  $date
END
(cd "$work/$name" && dpkg-buildpackage -us -uc >"$out/build.log" 2>&1) || { tail -30 "$out/build.log"; exit 1; }
cp "$work"/*.deb "$work"/*.dsc "$work"/*.debian.tar.xz "$work"/*.changes "$work"/*.buildinfo "$work"/*.orig.tar.gz "$out/"
