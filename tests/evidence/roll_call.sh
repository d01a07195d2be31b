#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Promise: ranks that were started wrongly are told so within 2 s, all of them, with ranks, hosts and pids; where some
# never come, the others are told which at the deadline.   roll_call.sh BUILD
#     PR-06  ranks 0, 1, 0, 1; another size; ranks out of range
#     PR-08  n-2 of n; one at 80 % of the deadline; one after it
#     PR-09  other root ports       PR-10  strangers at the root       PR-05  the port of a job that was killed
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/named.sh"
named net/test_roll_call test_pr_06_local_ranks_given_as_ranks test_pr_06_another_size test_pr_06_ranks_out_of_range \
    test_settings_that_must_agree_are_named test_pr_08_missing_ranks_are_named_at_the_deadline \
    test_pr_08_one_that_comes_late_but_in_time test_pr_08_one_that_comes_too_late \
    test_pr_09_ranks_with_other_root_ports test_pr_10_strangers_neither_join_nor_stall \
    test_pr_05_a_killed_job_leaves_its_port_free
# what is not a matter of a deadline: the time until the last rank was told
slowest=$(echo "$said" | awk '
    / RUN / { timed = /pr_06/ || /must_agree/ }
    timed && /the last was told after/ { t = $(NF - 1); if (t + 0 > most) most = t + 0 }
    END { printf "%.3f", most }')
awk "BEGIN { exit !($slowest <= 2) }" || fails "ranks that were started wrongly were told after $slowest s"
holds "$tests situations; ranks that cannot meet were told within $slowest s of 2"
