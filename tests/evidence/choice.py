# SPDX-License-Identifier: Apache-2.0
"""Are the library's limits, which choose, at least as good as its predictions, which only explain?

    choice.py BUILD [SECONDS_FOR_EACH_LAYOUT]

Measures every way of running collectives (ringred-bench tune) for some layouts of this machine, and then asks
ringred_explain what it would have predicted to be the fastest. The regret of a choice is how much longer it
took than the fastest way; means are geometric, of the times. Wants a quiet machine. Last line: the mean regrets;
exit 0 where the limits' is not larger.
"""
import ctypes
import json
import math
import os
import subprocess
import sys
import tempfile

LAYOUTS = [  # nodes, ranks on each; settings
    (1, 2, []), (1, 4, []), (2, 1, ["transport=tcp"]), (4, 1, ["transport=tcp"]), (2, 2, ["ranks_per_host=2"]),
]
COLLECTIVES = "allreduce,broadcast,reduce,allgather"


def predict(library, collective, size, nodes, per_host):
    room = ctypes.create_string_buffer(1 << 16)
    cpus = "all_cpus=%d" % len(os.sched_getaffinity(0))
    # hosts are pretended ones: what goes between them is loopback
    question = "collective=%s bytes=%d nodes=%d per_host=%d measure=1 rate=10GB latency=4us efficiency=1 streams=1 %s" % (
        collective, size, nodes, per_host, cpus)
    if library.ringred_explain(question.encode(), None, room, len(room)) < 0:
        sys.exit(room.value.decode())
    return json.loads(room.value)["model"]


def regret(ways, name, segment=0):
    """Of the way with that name whose segment is nearest."""
    same = [w for w in ways if w["algorithm"] == name]
    if not same:
        return None
    near = min(same, key=lambda w: abs(math.log((w["segment"] or 1 << 20) / (segment or 1 << 20))))
    return near["us"] / min(w["us"] for w in ways) - 1


def mean(regrets):
    return 100 * (math.exp(sum(math.log1p(r) for r in regrets) / max(1, len(regrets))) - 1)


def main():
    build, seconds = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "30"
    library = ctypes.CDLL(build + "/lib/libringred.so.0")
    library.ringred_explain.restype = ctypes.c_int64
    library.ringred_explain.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
    limits, model = [], []
    for nodes, per_host, settings in LAYOUTS:
        with tempfile.TemporaryDirectory() as folder:
            words = [w for s in settings for w in ("--set", s)]
            subprocess.run([build + "/bench/ringred-bench", "tune", "--ranks", str(nodes * per_host), "--budget", seconds,
                            "--collectives", COLLECTIVES, "-o", folder + "/table", "--json", folder + "/json"] + words,
                           check=True, stderr=subprocess.DEVNULL)
            points = json.load(open(folder + "/json"))["results"]
        here = [], []
        for p in points:
            if len({w["algorithm"] for w in p["ways"]}) < 2:
                continue
            said = predict(library, p["collective"], p["bytes"], nodes, per_host)
            by_model = regret(p["ways"], said["algorithm"], said["segment"])
            if by_model is not None:
                here[0].append(regret(p["ways"], p["usual"]))
                here[1].append(by_model)
        print("%d x %d ranks, %d points: regret of the limits %.0f %%, of the predictions %.0f %%"
              % (nodes, per_host, len(here[0]), mean(here[0]), mean(here[1])))
        limits += here[0]
        model += here[1]
    print("%d points: mean regret of the limits %.0f %%, of the predictions %.0f %%" % (len(limits), mean(limits), mean(model)))
    return 0 if mean(limits) <= mean(model) else 1


if __name__ == "__main__":
    sys.exit(main())
