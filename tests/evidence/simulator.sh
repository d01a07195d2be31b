#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Promise: where latency, overhead and efficiency are fitted to half of the measured points, simulated times
# of the other half are off by at most 15 % in the median and 30 % at the 90th percentile. Hosts are
# namespaces with a shaped wire, 2 to 5 of them, with and without a cap per flow; sizes from 64 KiB, above
# what such a wire lets through in one burst. Without a cap there is one stream between two hosts: that
# several get in each other's way is not simulated. Wants root and a quiet machine.
#
#     simulator.sh BUILD FOLDER_OF_NETLAB
. "$(dirname "$0")/common.sh"
netlab=${2:-}/netlab
[ -x "$netlab" ] || skip "needs netlab: give its folder"
[ "$(id -u)" = 0 ] || skip "needs root, for network namespaces"
points=$(mktemp -d)
trap 'rm -rf "$points"' EXIT
sizes=64K,128K,256K,512K,1M,2M,4M,8M,16M
for hosts in 2 3 4 5; do
    for flow in 0 200mbit; do
        cap=() streams=1
        [ "$flow" = 0 ] || cap=(--flow "$flow") streams=0
        "$netlab" run --hosts $hosts --ranks-per-host 1 --rate 1gbit "${cap[@]}" -- \
            "$build/bench/ringred-bench" allreduce --rendezvous env --transport tcp --sizes $sizes \
            --place in --check 0 --seconds 0.5 --set tcp_streams=$streams --json "$points/$hosts-$flow.json" >"$points/log" 2>&1 || {
            cat "$points/log"
            fails "no measurement of $hosts hosts"
        }
    done
done
python3 "$(dirname "$0")/simulator.py" "$build/lib/libringred.so" "$points" >"$points/judged"
status=$?
cat "$points/judged"
[ $status = 0 ] || fails "$(tail -1 "$points/judged")"
holds "$(tail -1 "$points/judged")"
