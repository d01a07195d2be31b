# SPDX-License-Identifier: Apache-2.0
"""Counts the test cases in meson's logs, names what failed or was skipped, and says how many passed.

    count_tests.py [--failed-before 0|1] BUILD_FOLDER...

A program of cmocka or unittest counts each of its cases, any other program is one. The exit status is
1 if anything failed, or if a step before the tests did.
"""
import argparse
import json
import os
import re
import sys

# a line of cmocka's or of unittest -v's; skipped cases are neither passed nor failed
PASSED = re.compile(r"^\[ +OK +\] |^test\w* \(.*\.\.\. ok$", re.M)
FAILED = re.compile(r"^\[ +FAILED +\] (?!\d+ test)(\w+)$|^(test\w*) \(.*\.\.\. (?:FAIL|ERROR)$", re.M)
SKIPPED = re.compile(r"^\[ +SKIPPED +\] (?!\d+ test)(\w+)|^(test\w*) \(.*\.\.\. skipped", re.M)


def read(folder):
    path = os.path.join(folder, "meson-logs", "testlog.json")
    try:
        with open(path) as lines:
            return [json.loads(line) for line in lines if line.strip()]
    except OSError:
        return []


def names(pattern, text):
    return sorted({next(filter(None, found.groups())) for found in pattern.finditer(text)})


def count(test, folder, totals):
    text = test.get("stdout", "") + "\n" + test.get("stderr", "")
    where = "%s %s" % (folder, test["name"])
    passed, failed, skipped = len(PASSED.findall(text)), names(FAILED, text), names(SKIPPED, text)
    if test["result"] in ("OK", "EXPECTEDFAIL"):
        totals["passed"] += max(passed, 1)
    elif test["result"] == "SKIP":
        skipped = skipped or [text.strip().splitlines()[-1] if text.strip() else "says no reason"]
    else:
        failed = failed or ["(%s)" % test["result"].lower()]
        totals["passed"] += passed
    for name in failed:
        print("FAILED  %s: %s" % (where, name))
    for name in skipped:
        print("skipped %s: %s" % (where, name))
    totals["failed"] += len(failed)
    totals["skipped"] += len(skipped)


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--failed-before", type=int, default=0)
    a.add_argument("folders", nargs="*")
    options = a.parse_args()
    totals = {"passed": 0, "failed": 0, "skipped": 0}
    for folder in options.folders:
        tests = read(folder)
        if not tests:
            print("nothing was tested in %s" % folder)
        for test in tests:
            count(test, folder, totals)
    if options.failed_before and not totals["failed"]:
        totals["failed"] = 1  # a build, or a step around the tests
    if totals["skipped"]:
        print("%(skipped)d skipped, for the reasons above" % totals)
    print("%(passed)d passed, %(failed)d failed" % totals)
    return 1 if totals["failed"] or not totals["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
