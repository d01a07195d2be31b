#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes what a release consists of, from the commit that is checked out: the tarball of the sources and its bill of materials
# (SPDX). The same commit gives the same bytes, whoever makes them and when.
#     release.sh FOLDER
set -euo pipefail
out=$(mkdir -p "${1:?a folder for the release}" && cd "$1" && pwd)
cd "$(dirname "$0")/.."
[ -z "$(git status --porcelain)" ] || { echo "release.sh: there are changes that no commit has" >&2; exit 1; }
version=$(tools/version.sh)
name=ringred-$version
git -c core.autocrlf=false archive --format=tar --prefix="$name/" HEAD | gzip -9n >"$out/$name.tar.gz"
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) python3 tools/sbom.py "$version" "$out/$name.tar.gz" >"$out/$name.spdx.json"
(cd "$out" && sha256sum "$name.tar.gz" "$name.spdx.json")
