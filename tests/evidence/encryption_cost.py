#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What does tcp_encryption cost?

    encryption_cost.py BUILD [RANKS [ROUNDS]]

Allreduces over loopback TCP (ringred-bench, which checks every sum), in turns without encryption, with it, and with it
but without AES in hardware. A ratio is the median time over that without; ratios are of times of one round, and told
with the smallest and the largest of the rounds. Loopback is the worst case: it has more bandwidth than a network
between hosts, and all ranks share this machine's CPUs. Exit 0 where each sum is right and each connection was
encrypted as asked; last line: the ratio at each size.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile

SIZES = [8, 4096, 65536, 1 << 20, 16 << 20]
WAYS = ["off", "on", "chacha20"]


def measure(build, ranks, way, place):
    path = os.path.join(place, way)
    done = subprocess.run(
        [os.path.join(build, "bench/ringred-bench"), "allreduce", "--ranks", str(ranks), "--transport", "tcp", "--set",
         "tcp_encryption=" + way, "--sizes", ",".join(map(str, SIZES)), "--json", path], capture_output=True, text=True,
        check=False)
    if done.returncode:
        sys.exit("FAILS: tcp_encryption=%s: %s" % (way, done.stdout + done.stderr))
    points = json.load(open(path, encoding="utf-8"))["results"]
    if any(p["wrong"] for p in points) or len(points) != len(SIZES):
        sys.exit("FAILS: wrong sums under tcp_encryption=" + way)
    return {p["bytes"]: p["time_us"]["median"] for p in points}, points[0]["encryption"]


def main():
    build = sys.argv[1]
    ranks = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    times, ciphers = {way: [] for way in WAYS}, {}
    with tempfile.TemporaryDirectory() as place:
        for _ in range(rounds):
            for way in WAYS:
                took, ciphers[way] = measure(build, ranks, way, place)
                times[way].append(took)
    if ciphers["off"] != "none" or ciphers["on"] == "none" or ciphers["chacha20"] != "chacha20poly1305":
        sys.exit("FAILS: encrypted with %s" % ciphers)
    figures = []
    print("%10s %12s   %-26s %s" % ("bytes", "off (us)", "on: " + ciphers["on"], "chacha20: " + ciphers["chacha20"]))
    for size in SIZES:
        cells = []
        for way in WAYS[1:]:
            ratios = [mine[size] / base[size] for mine, base in zip(times[way], times["off"])]
            cells.append("%5.2f (%.2f to %.2f)" % (statistics.median(ratios), min(ratios), max(ratios)))
            if way == "on":
                figures.append("%.2f at %d" % (statistics.median(ratios), size))
        print("%10d %12.1f   %-26s %s" % (size, statistics.median(t[size] for t in times["off"]), *cells))
    print("holds: %d ranks, %s: times the time without encryption: %s bytes" % (ranks, ciphers["on"], ", ".join(figures)))


if __name__ == "__main__":
    main()
