# SPDX-License-Identifier: Apache-2.0
"""Does ringred-bench measure every collective, count as nccl-tests does, and refuse what is wrong in words?

    check_bench.py RINGRED_BENCH
"""
import json
import os
import subprocess
import sys
import tempfile

RANKS = 3
BYTES = 12000
ALLREDUCE, PARTS, WHOLE = 2 * (RANKS - 1) / RANKS, (RANKS - 1) / RANKS, 1.0
# collective: its busbw over its algbw, and how many parts its longer buffer has
COLLECTIVES = {
    "allreduce": (ALLREDUCE, 1), "reduce": (WHOLE, 1), "broadcast": (WHOLE, 1),
    "allgather": (PARTS, RANKS), "gather": (PARTS, RANKS), "scatter": (PARTS, RANKS),
    "reduce_scatter": (PARTS, RANKS), "alltoall": (PARTS, RANKS), "allgatherv": (PARTS, RANKS),
    "gatherv": (PARTS, RANKS), "scatterv": (PARTS, RANKS), "reduce_scatterv": (PARTS, RANKS),
    "alltoallv": (PARTS, RANKS),
}
REFUSED = [
    (["sing"], "'sing' cannot be measured"),
    (["allreduce", "-d", "float,banana"], "type 'banana' is not known"),
    (["allreduce", "-o", "median"], "operator 'median' is not known"),
    (["allreduce", "-d", "float,int8", "-o", "sum,band"], "no band of float"),
    (["allreduce", "-d", "bytes"], "no sum of bytes"),
    (["alltoallv", "--place", "in"], "cannot be done in place"),
    (["alltoall", "--uneven", "0.5"], "collectives with v"),
    (["gatherv", "--uneven", "1.5"], "from 0 to 1"),
    (["allreduce", "--comms", "65"], "1 to 64"),
    (["reduce", "--ranks", "2", "--root", "2"], "not one of 2 ranks"),
]


def bench(program, *arguments):
    """Exit status, both outputs, and the results of a run."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "results.json")
        ran = subprocess.run([program, *arguments, "--json", path], capture_output=True, text=True, timeout=60)
        results = json.load(open(path))["results"] if ran.returncode == 0 else []
    return ran.returncode, ran.stdout + ran.stderr, results


def check(claim, *what):
    if not claim:
        print("wrong:", *what)
        sys.exit(1)


def measures_every_collective(program):
    for name, (factor, parts) in COLLECTIVES.items():
        status, text, rows = bench(program, name, "--ranks", str(RANKS), "--sizes", str(BYTES), "--root", "1",
                                   "--place", "out" if name == "alltoallv" else "both", "-n", "3")
        check(status == 0, name, text)
        check(len(rows) == (1 if name == "alltoallv" else 2), name, rows)
        for row in rows:
            check(row["collective"] == name and row["wrong"] == 0 and row["dtype"] == "float32", row)
            check(row["op"] == ("sum" if "reduce" in name else "none"), row)
            check(row["bytes"] == BYTES and row["count"] == BYTES // 4 // parts, row)
            check(abs(row["algbw_gbs"] * factor - row["busbw_gbs"]) < 1e-3, row)


def measures_a_barrier(program):
    status, text, rows = bench(program, "barrier", "--ranks", str(RANKS), "-n", "3")
    check(status == 0 and len(rows) == 1 and rows[0]["bytes"] == 0 and rows[0]["wrong"] == 0, text, rows)


def takes_other_spellings(program):
    for name in ("reduce-scatter", "all_gather"):
        status, text, rows = bench(program, name, "--ranks", "2", "--transport", "tcp", "--sizes", "1K",
                                   "-n", "2", "-d", "double,float")
        check(status == 0 and [r["dtype"] for r in rows] == ["float64", "float32"], text)


def overlaps(program):
    status, text, rows = bench(program, "allreduce", "--ranks", "2", "--sizes", "64K", "-n", "4", "--compute", "50")
    check(status == 0 and 0 <= rows[0]["overlap"]["hidden"] <= 1 and rows[0]["overlap"]["compute_us"] > 0, text)


def uses_several_communicators(program):
    for name in ("allreduce", "alltoall", "barrier"):
        status, text, rows = bench(program, name, "--ranks", str(RANKS), "--sizes", "64K", "-n", "3", "--comms", "3")
        check(status == 0 and rows and all(row["wrong"] == 0 for row in rows), text, rows)


def simulates(program):
    status, text, answers = bench(program, "simulate", "--nodes", "8", "--sizes", "4K,1M", "--latency", "50us")
    check(status == 0 and "latency_s:5e-05" in text and text.count(" twoshot ") == 2, text)
    check([a["assumptions"]["bytes"] for a in answers] == [4096, 1 << 20], answers)
    status, text, _ = bench(program, "simulate", "--nodes", "8", "--lateny", "50us")
    check(status != 0 and 'the nearest is "latency"' in text, text)


def tunes(program):
    with tempfile.TemporaryDirectory() as folder:
        table, path = os.path.join(folder, "table"), os.path.join(folder, "all.json")
        ran = subprocess.run([program, "tune", "-o", table, "--json=" + path, "--collectives", "allreduce,alltoall",
                              "--sizes", "64,64K,1M", "--budget", "0.2", "--ranks", str(RANKS)],
                             capture_output=True, text=True, timeout=60)
        check(ran.returncode == 0, ran.stdout, ran.stderr)
        points = json.load(open(path))["results"]
        check([(p["collective"], p["bytes"]) for p in points] ==
              [(c, b) for c in ("allreduce", "alltoall") for b in (64, 1 << 16, 1 << 20)], points)
        check({"tiny", "shm-oneshot"} <= {w["algorithm"] for w in points[0]["ways"]}, points[0])
        check({w["segment"] for w in points[2]["ways"]} == {0, 128 << 10, 512 << 10}, points[2])
        rows = [line.split() for line in open(table) if line.startswith("a")]
        check(rows and all(r[2:4] == [str(RANKS), "1"] for r in rows), rows)
        status, text, _ = bench(program, "allreduce", "--ranks", str(RANKS), "--sizes", "64,1M", "-n", "3",
                                "--set", "tuning=" + table)
        check(status == 0, text)
        open(table, "a").write("allreduce * 3\n")
        status, text, _ = bench(program, "allreduce", "--ranks", str(RANKS), "-n", "3", "--set", "tuning=" + table)
        check(status != 0 and "3 words" in text, text)
    for arguments, words in ((["--collectives", "allreduce,sing"], "'sing' cannot be tuned"),
                             (["--budget", "soon"], "--budget wants seconds")):
        status, text, _ = bench(program, "tune", *arguments)
        check(status == 2 and words in text, arguments, status, text)


def fuses(program):
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "model")
        open(model, "w").write("# name and shape\nconv.weight 64x3x7x7\n\nconv.bias 64 # small\nfc.weight 1000x30\n")
        status, text, rows = bench(program, "fusion", "--model", model, "--ranks", str(RANKS), "--rounds=3", "--bucket", "64K")
        check(status == 0 and (rows[0]["tensors"], rows[0]["elements"]) == (3, 39472), text)
        check(rows[0]["wrong"] == 0 and all(v > 0 for k, v in rows[0].items() if k.endswith("_us")), rows)
        for line in ("conv.weight", "conv.weight 64x", "conv.weight x7", "conv.weight 7 7", "w 99999999999x99999999999",
                     "# nothing"):
            open(model, "w").write(line + "\n")
            status, text, _ = bench(program, "fusion", "--model", model)
            check(status == 2 and ("give a name and a count" in text or "has no tensors" in text), line, text)
    for arguments, words in ((["--model", "alexnet"], "'alexnet' cannot be read"), (["--rounds", "0"], "--rounds is 1 to"),
                             (["--bucket", "much"], "--bucket wants bytes")):
        status, text, _ = bench(program, "fusion", *arguments)
        check(status == 2 and words in text, arguments, status, text)
    for name, tensors, elements in (("resnet50", 161, 25557032), ("bert-large", 398, 336226108), ("gpt2", 148, 124439808)):
        ran = subprocess.run([program, "fusion", "--model", name, "--list"], capture_output=True, text=True, timeout=60)
        counts = [int(line.split()[1]) for line in ran.stdout.splitlines()]
        check(len(counts) == tensors and sum(counts) == elements, name, ran.stderr)


def refuses_in_words(program):
    for arguments, words in REFUSED:
        status, text, _ = bench(program, *arguments)
        check(status == 2 and words in text, arguments, status, text)


def main():
    for test in (measures_every_collective, measures_a_barrier, takes_other_spellings, overlaps,
                 uses_several_communicators, simulates, tunes, fuses,
                 refuses_in_words):
        test(sys.argv[1])
    print("ringred-bench measures %d collectives, and refuses what it cannot" % (len(COLLECTIVES) + 1))


if __name__ == "__main__":
    main()
