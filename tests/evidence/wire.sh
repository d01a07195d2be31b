#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Promise: allreduce fills the wire between hosts. Where one connection gets a fifth of a link, at least 90 %
# of it from 4 MiB and 80 % at 512 KiB, on 4 hosts x 1 rank and 2 x 2; without such a cap at least 95 % from
# 4 MiB, on 3 x 1, 4 x 1 and 2 x 2. With --peers also: under the cap at least 4 times as fast as every peer on
# 4 x 1, and 2.4 times on 2 x 2, from 4 MiB. The hosts are network namespaces on links of 1 Gb/s (root); KIT
# makes them and measures.   wire.sh BUILD KIT [--peers] [compare's options]
. "$(dirname "$0")/common.sh"
kit=${2:-}
[ -x "$kit/compare" ] || skip "give the folder with the peers' compare and netlab as second argument"
[ "$(id -u)" = 0 ] || skip "only root can make network namespaces"
shift 2
peers=none
[ "${1:-}" = --peers ] && peers=default && shift
ours="'$build/bench/ringred-bench' {collective} --transport {transport} --sizes {sizes} --dtype {dtype} --op sum \
--seconds {seconds} --json {json}" # each rank is started by the kit, and finds the number of ranks in its environment
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

# measure FILE PEERS SIZES NET...
measure()
{
    file=$place/$1
    who=$2
    sizes=$3
    shift 3
    nets=
    for net in "$@"; do
        nets="$nets --net $net"
    done
    # shellcheck disable=SC2086 # a list of words
    "$kit/compare" $nets --peers "$who" --sizes "$sizes" --json "$file" --ours "$ours" \
        "${options[@]}" || fails "compare did not end well"
}

options=("$@")
fifth=rate=1gbit,flow=200mbit
measure capped "$peers" 512K,4M,32M hosts=4,per-host=1,$fifth hosts=2,per-host=2,$fifth
measure free none 4M,32M hosts=3,per-host=1,rate=1gbit hosts=4,per-host=1,rate=1gbit hosts=2,per-host=2,rate=1gbit

python3 - "$place/capped" "$place/free" "$peers" <<'END'
import json
import sys

MI = 1 << 20
short, worst, slowest = [], {}, {}
for path in sys.argv[1:3]:
    for p in json.load(open(path))["points"]:
        net, size = p["net"], p["bytes"]
        where = "%s, %g MiB" % (net, size / MI)
        capped, shape = "flow=" in net, net.split(",rate")[0]
        if not p["ours_us"] or not p["floor_us"]:
            short.append("%s: not measured, or wrong" % where)
            continue
        share, least = p["floor_us"] / p["ours_us"], 0.95 if not capped else 0.90 if size >= 4 * MI else 0.80
        kind = "%s the cap, %s 4 MiB" % ("under" if capped else "without", "from" if size >= 4 * MI else "below")
        worst[kind] = min(worst.get(kind, 9), share)
        print("%s: %.1f %% of the wire, %.0f %% required" % (where, 100 * share, 100 * least))
        if share < least:
            short.append("%s: %.1f %% of the wire" % (where, 100 * share))
        if sys.argv[3] == "none" or not capped or size < 4 * MI:
            continue
        for name, peer in sorted(p["peers"].items()):
            times, wanted = peer["us"] / p["ours_us"], 4 if "per-host=1" in net else 2.4
            print("%s: %.2f times as fast as %s, %g required" % (where, times, name, wanted))
            slowest[shape] = min(slowest.get(shape, 1e9), times)
            if times < wanted:
                short.append("%s: %.2f times as fast as %s" % (where, times, name))
for line in short:
    print("short: " + line)
if not worst:
    short.append("nothing was measured")
figures = ["%.1f %% of the wire %s" % (100 * share, kind) for kind, share in sorted(worst.items())]
figures += ["%.2f times as fast as the best peer on %s" % (t, shape) for shape, t in sorted(slowest.items())]
print("%s: %s" % ("FAILS" if short else "holds", "; ".join(figures) or "nothing was measured"))
sys.exit(bool(short))
END
