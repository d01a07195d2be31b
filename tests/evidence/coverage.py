#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""coverage.py TREE BUILD PERCENT ROOM...: which lines of the rooms the tests have run, file by file.

BUILD was made with -Db_coverage=true. A line counts once, however many objects a header was compiled into. Files
for instruction sets that this CPU has not are left out. Exit 1 unless every room has more than PERCENT."""
import collections
import json
import os
import subprocess
import sys

# A file for one instruction set, and what the CPU must have for it.
NEEDS = {"lib/reduce/avx2.c": {"avx2", "f16c"},
         "lib/reduce/avx512.c": {"avx512f", "avx512bw", "avx512dq", "avx512vl"},
         "lib/reduce/neon.c": {"asimd"}}


def cpu_has():
    """The flags of the first CPU."""
    with open("/proc/cpuinfo") as f:
        for line in f:
            name, _, value = line.partition(":")
            if name.strip() in ("flags", "Features"):
                return set(value.split())
    return set()


def objects(build):
    """The notes of every object of the library, whether a test ran it or not."""
    for where, _, names in os.walk(os.path.join(build, "lib")):
        yield from (os.path.join(where, n) for n in names if n.endswith(".gcno"))


def lines_of(tree, build):
    """For each file of the tree: {line: times}."""
    found = collections.defaultdict(dict)
    for path in objects(build):
        out = subprocess.run(["gcov", "--json-format", "--stdout", path], cwd=build, capture_output=True,
                             text=True, check=True).stdout
        for text in out.splitlines():
            for file in json.loads(text)["files"]:
                name = os.path.relpath(os.path.realpath(os.path.join(build, file["file"])), tree)
                for line in file["lines"]:
                    times = found[name].get(line["line_number"], 0)
                    found[name][line["line_number"]] = times + line["count"]
    return found


def missing(lines):
    """The lines that did not run, as ranges."""
    text, begin, last = [], None, None
    for n in sorted(lines) + [None]:
        if begin is not None and (n is None or lines[n]):
            text.append("%d" % begin if begin == last else "%d-%d" % (begin, last))
            begin = None
        elif n is not None and not lines[n]:
            begin = begin or n
        last = n
    return " ".join(text)


def main():
    tree, build, least, rooms = os.path.realpath(sys.argv[1]), sys.argv[2], float(sys.argv[3]), sys.argv[4:]
    found, has, good, figures = lines_of(tree, build), cpu_has(), True, []
    for name in NEEDS:
        if not NEEDS[name] <= has:
            print("%-28s left out: this CPU has no %s" % (name, ", ".join(sorted(NEEDS[name] - has))))
            found.pop(name, None)
    for room in rooms:
        all_lines = all_run = 0
        for name in sorted(n for n in found if n.startswith("lib/%s/" % room)):
            run = sum(1 for times in found[name].values() if times)
            all_lines, all_run = all_lines + len(found[name]), all_run + run
            print("%-28s %4d of %4d  %5.1f %%  %s" % (name, run, len(found[name]), 100 * run / len(found[name]),
                                                      missing(found[name])))
        share = 100 * all_run / max(all_lines, 1)
        figures.append("lib/%s %.1f %%" % (room, share))
        good = good and share > least
    print("%s: %s of the lines run" % ("holds" if good else "FAILS", ", ".join(figures)))
    sys.exit(not good)


if __name__ == "__main__":
    main()
