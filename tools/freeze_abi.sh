#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Freezes the public headers as they are: from now on programs and plug-ins that were built with them must run with
# every library of the same ABI number (tests/abi). Before release 1.0.0 a change that breaks them re-cuts the copy,
# and CHANGELOG.md says so; afterwards it takes a new number.
set -eu
cd "$(dirname "$0")/.."
number=$(sed -n 's/^#define RINGRED_ABI_VERSION \([0-9]*\).*/\1/p' include/ringred/version.h)
place=tests/abi/frozen/$number/ringred
mkdir -p "$place"
cp include/ringred/*.h "$place/"
echo "frozen: $(ls "$place" | tr '\n' ' ')"
