#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Promise: what users of other libraries have reported of idle and of crowded machines has named tests here.
#     PR-47  an idle communicator has no thread and no timer, and leaves the affinity mask alone
#     PR-48  sixteen ranks on two CPUs make a thousand barriers and allreduces in time
# reports.sh BUILD
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/named.sh"
named coll/test_neighbours test_pr_47_an_idle_communicator_costs_nothing \
    test_pr_48_ranks_that_outnumber_cpus_give_way
holds "$tests reports have tests that pass"
