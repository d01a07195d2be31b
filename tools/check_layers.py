#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks who includes whom: only downward, only through a room's door, siblings never.

Usage: check_layers.py SOURCE_ROOT. Prints each line that breaks a rule; status 1 if there is one.
A new room is a line in FLOOR. Where a rule is in the way, move it here, in a commit that says why.
"""
import pathlib
import re
import sys

# A room may include the doors of rooms on lower floors.
FLOOR = {
    "base": 0,
    "reduce": 1, "boot": 1, "topo": 1, "device": 1,
    "plan": 2,
    "transport": 3, "algo": 3,
    "engine": 4, "sim": 4,
    "core": 5,
    "fusion": 6,
    "api": 7,
}
# These see the public headers, and what lies in their own folder or the tests' support.
CLIENTS = ["bench", "examples", "bindings", "tools", "tests/coll", "tests/abi", "tests/support"]
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def includes(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        found = INCLUDE.match(line)
        if found:
            yield number, found.group(1) == '"', found.group(2)


def room_of(included):
    parts = included.split("/")
    return parts[0] if len(parts) > 1 and parts[0] in FLOOR else None


def check_inside(room, included, quoted):
    """What is wrong with an include in lib/<room>/; None if nothing."""
    if included.startswith("ringred/"):
        return "quote <ringred/...> with angle brackets" if quoted else None
    if not quoted:
        return None
    target = room_of(included)
    if target is None:
        return f'say "{room}/{included}": rooms are named in includes'
    if target == room:
        return None
    if included.split("/", 1)[1] != target + ".h":
        return f"{target} is entered by its door, {target}/{target}.h"
    if FLOOR[target] >= FLOOR[room]:
        return f"{room} (floor {FLOOR[room]}) must not know {target} (floor {FLOOR[target]})"
    return None


def check_client(near, included, quoted):
    if room_of(included) or included.startswith("lib/"):
        return "sees only <ringred/*.h>"
    if quoted and not any((folder / included).exists() for folder in near):
        return "is neither beside this file nor in tests/support"
    return None


def check_public(included, quoted):
    if quoted:
        return "public headers include <ringred/...> and the C library only"
    if "/" in included and not included.startswith("ringred/"):
        return "public headers include no system header in a folder"
    return None


def sources(folder):
    return sorted(p for p in folder.rglob("*") if p.suffix in (".c", ".h")) if folder.is_dir() else []


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    wrong = files = 0

    def report(path, check):
        nonlocal wrong, files
        files += 1
        for number, quoted, included in includes(path):
            complaint = check(included, quoted)
            if complaint:
                wrong += 1
                print(f"{path.relative_to(root)}:{number}: {included}: {complaint}")

    for room in sorted(p.name for p in (root / "lib").iterdir() if p.is_dir()):
        if room not in FLOOR:
            wrong += 1
            print(f"lib/{room}: not in the table of tools/check_layers.py")
            continue
        for path in sources(root / "lib" / room):
            report(path, lambda inc, quoted, room=room: check_inside(room, inc, quoted))
    for client in CLIENTS:
        for path in sources(root / client):
            near = (path.parent, root / "tests/support")
            report(path, lambda inc, quoted, near=near: check_client(near, inc, quoted))
    for path in sources(root / "include"):
        report(path, check_public)
    print(f"{files} files, {wrong} wrong includes")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
