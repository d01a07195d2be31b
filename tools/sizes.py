#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the largest files and functions. Enforces nothing: it is for whoever reviews.

Usage: sizes.py SOURCE_ROOT [rows]
"""
import pathlib
import re
import sys

NAME = re.compile(r"([A-Za-z_]\w*)\s*\(")


def functions(lines):
    """(name, length) of each function: its brace stands alone in the first column."""
    start = None
    for number, line in enumerate(lines):
        if line.rstrip() == "{":
            start = number
        elif line.startswith("}") and start is not None:
            head = start - 1
            while head > 0 and lines[head - 1].strip() and lines[head][:1].isspace():
                head -= 1
            found = NAME.search(lines[head])
            yield (found.group(1) if found else "?"), number - start + 1
            start = None


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    rows = int(sys.argv[2]) if len(sys.argv) > 2 else 15
    files, bodies = [], []
    for folder in ("lib", "bench", "tools", "tests"):
        for path in sorted((root / folder).rglob("*.[ch]")):
            lines = path.read_text(encoding="utf-8").splitlines()
            files.append((len(lines), str(path.relative_to(root))))
            bodies += [(n, name, str(path.relative_to(root))) for name, n in functions(lines)]
    files.sort(reverse=True)
    bodies.sort(reverse=True)
    print(f"{len(files)} files, {sum(n for n, _ in files)} lines; {len(bodies)} functions, "
          f"{sum(n > 40 for n, _, _ in bodies)} of more than 40 lines")
    for n, path in files[:rows]:
        print(f"{n:6} {path}")
    print()
    for n, name, path in bodies[:rows]:
        print(f"{n:6} {name}  {path}")


if __name__ == "__main__":
    main()
