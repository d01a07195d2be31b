#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Promise: in a clean clone, the README's first command ends well within 5 minutes and the second within
# 15, on two cores.   clean_clone.sh BUILD [demo|test]
. "$(dirname "$0")/common.sh"
what=${2:-demo}
case $what in
demo) bound=300 ;;
test) bound=900 ;;
*) fails "there is no command $what" ;;
esac
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
git clone -q "$top" "$place/ringred" || fails "the tree cannot be cloned"
began=$(date +%s)
"$place/ringred/tools/$what.sh" || fails "tools/$what.sh did not end well"
took=$(($(date +%s) - began))
[ "$took" -le "$bound" ] || fails "tools/$what.sh took $took s of $bound"
holds "tools/$what.sh took $took s of $bound in a clean clone"
