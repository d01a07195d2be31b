#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# finds.sh COMMAND...: a suite has found something wrong, which is not that it could not run
"$@"
[ $? = 1 ]
