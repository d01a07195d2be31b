#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The release number, from the one place where it is written.
sed -n 's/^#define RINGRED_VERSION "\(.*\)"$/\1/p' "$(dirname "$0")/../include/ringred/version.h"
