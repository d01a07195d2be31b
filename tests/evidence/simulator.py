# SPDX-License-Identifier: Apache-2.0
"""Fits the simulator's machine to half of the measured points and judges it by the other half.

    simulator.py LIBRINGRED FOLDER      FOLDER has HOSTS-FLOW.json files of ringred-bench, at 1gbit
"""
import ctypes
import glob
import json
import math
import os
import statistics
import sys

MEDIAN, TENTH = 0.15, 0.30  # what the errors of the judged points may be: the median, the 90th percentile
STEPS = {"latency": 1.5, "overhead": 1.5, "efficiency": 1.01}  # what is fitted, and how finely it is sought


class Simulator:
    def __init__(self, library):
        self.call = ctypes.CDLL(library).ringred_simulate
        self.call.restype = ctypes.c_int64
        self.call.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
        self.room = ctypes.create_string_buffer(1 << 16)

    def seconds(self, point, machine):
        hosts, flow, size, _ = point
        words = ["collective=allreduce algorithm=auto rate=1gbit all_cpus=%d" % (os.cpu_count() or 1),
                 "nodes=%d flow=%s bytes=%d streams=%d" % (hosts, flow, size, flow == "0")]
        words += ["latency=%.9g" % machine["latency"], "efficiency=%.9g" % machine["efficiency"],
                  "send=%.9g recv=%.9g" % (machine["overhead"], machine["overhead"])]
        if self.call(" ".join(words).encode(), self.room, len(self.room)) < 0:
            sys.exit(self.room.value.decode())
        return json.loads(self.room.value)["results"][0]["seconds"]

    def errors(self, points, machine):
        return [abs(self.seconds(p, machine) / p[3] - 1) for p in points]

    def cost(self, points, machine):
        return sum(abs(math.log(self.seconds(p, machine) / p[3])) for p in points)


def measured(folder):
    points = []
    for name in sorted(glob.glob(folder + "/*-*.json")):
        hosts, flow = os.path.basename(name)[:-5].split("-")
        for row in json.load(open(name))["results"]:
            points.append((int(hosts), flow, row["bytes"], row["time_us"]["median"] * 1e-6))
    return points


def fit(simulator, points):
    """Coordinate by coordinate, in steps that become smaller."""
    machine = {"latency": 20e-6, "overhead": 3e-6, "efficiency": 0.94}
    best = simulator.cost(points, machine)
    for power in (4, 2, 1, 1, 0.5, 0.25, 0.25):
        for name, step in STEPS.items():
            for factor in (step ** power, step ** -power):
                while True:
                    other = dict(machine, **{name: machine[name] * factor})
                    if other["efficiency"] > 1 or not 1e-7 < other["latency"] < 1:
                        break
                    cost = simulator.cost(points, other)
                    if cost >= best - 1e-9:
                        break
                    machine, best = other, cost
    return machine


def main():
    simulator = Simulator(sys.argv[1])
    points = measured(sys.argv[2])
    machine = fit(simulator, points[::2])
    print("fitted to %d points: %s" % (len(points[::2]), " ".join("%s=%.4g" % m for m in machine.items())))
    for p in points[1::2]:
        t = simulator.seconds(p, machine)
        print("  %d hosts, flow %-8s %9d B: measured %10.1f us, simulated %10.1f (%+.0f %%)"
              % (p[0], p[1], p[2], p[3] * 1e6, t * 1e6, (t / p[3] - 1) * 100))
    errors = sorted(simulator.errors(points[1::2], machine))
    median, tenth = statistics.median(errors), errors[min(len(errors) - 1, math.ceil(0.9 * len(errors)) - 1)]
    print("%d judged points: median error %.1f %% (at most %.0f), 90th percentile %.1f %% (at most %.0f)"
          % (len(errors), median * 100, MEDIAN * 100, tenth * 100, TENTH * 100))
    return 0 if median <= MEDIAN and tenth <= TENTH else 1


if __name__ == "__main__":
    sys.exit(main())
