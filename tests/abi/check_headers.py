#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each public header compiles alone, as C17 and as C++17, without a warning, with every compiler there is.

Usage: check_headers.py INCLUDE_DIRECTORY
"""
import pathlib
import shutil
import subprocess
import sys

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wundef", "-Werror", "-fsyntax-only"]
COMPILERS = [
    (["gcc", "-std=c17", "-x", "c"], ["-Wstrict-prototypes"]),
    (["clang", "-std=c17", "-x", "c"], ["-Wstrict-prototypes"]),
    (["g++", "-std=c++17", "-x", "c++"], []),
    (["clang++", "-std=c++17", "-x", "c++"], []),
]


def main():
    include = pathlib.Path(sys.argv[1])
    headers = sorted((include / "ringred").glob("*.h"))
    wrong = tried = 0
    for command, more in COMPILERS:
        if not shutil.which(command[0]):
            print(f"SKIP {command[0]}: not installed")
            continue
        for header in headers:
            # Twice: the guard must hold.
            source = f"#include <ringred/{header.name}>\n" * 2 + "extern int nothing_else;\n"
            tried += 1
            run = subprocess.run(command + WARNINGS + more + ["-I", str(include), "-"], input=source, text=True,
                                 capture_output=True)
            if run.returncode:
                wrong += 1
                print(f"{' '.join(command)} {header.name}:\n{run.stderr}")
    print(f"{tried} compilations, {wrong} wrong")
    return 1 if wrong or not tried or not headers else 0


if __name__ == "__main__":
    sys.exit(main())
