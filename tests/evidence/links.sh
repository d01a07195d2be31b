#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Promise: each collective puts on each link what its formula says, to the byte, from 1 MiB; and its _start
# returns while a peer has not come.   links.sh BUILD
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/named.sh"
named coll/test_bytes test_bytes_on_each_link_are_the_formulas test_start_returns_before_a_peer_has_come
named coll/test_late test_late_ranks_change_nothing
holds "$tests named tests"
