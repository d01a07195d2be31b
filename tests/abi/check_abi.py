#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs and plug-ins that were built with frozen headers run with what these headers describe.

Whatever the frozen headers say must still hold: each struct begins with the same fields at the same places, each
number has its value, each function its prototype. Structs may have grown at their ends, and there may be more of
everything. The compiler says where fields are.

Usage: check_abi.py FROZEN_INCLUDE INCLUDE            compare
       check_abi.py FROZEN_INCLUDE INCLUDE --seeded   is each of some breaks found?
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

STRUCT = re.compile(r"typedef struct (\w+) \{(.*?)\n\} \1;", re.S)
FUNCTION = re.compile(r"RINGRED_API\s+([^;]*?\([^;]*\));", re.S)
TYPEDEF = re.compile(r"typedef\s+([^;{]*\(\*\w+\)\([^;]*\));", re.S)
NUMBER = re.compile(r"^#define (RINGRED_\w+) (.+)$", re.M)


def text_of(include):
    """All headers, without comments."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted((include / "ringred").glob("*.h")))
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    return re.sub(r"[ \t]+", " ", text)


def squeeze(text):
    return re.sub(r"\s+", " ", text).strip()


def fields_of(body):
    """Names of the fields of a struct, in order, with what is declared of each."""
    found = []
    for line in body.split(";"):
        line = squeeze(line)
        if not line:
            continue
        pointer = re.search(r"\(\*(\w+)\)\s*\(", line)
        if pointer:
            found.append((pointer.group(1), line))
            continue
        first, *others = line.split(",")
        kind = re.sub(r"\**\w+(\[[^\]]*\])?$", "", first.strip())
        for name in [first] + others:
            name = name.strip()
            bare = re.sub(r"\[[^\]]*\]$", "", name)
            found.append((re.search(r"(\w+)$", bare).group(1), squeeze(kind) + "|" + squeeze(name.replace(kind, ""))))
    return found


def facts_of(include):
    """{what: value} of everything that a program has compiled in."""
    text = text_of(include)
    structs = {name: fields_of(body) for name, body in STRUCT.findall(text)}
    numbers = [name for name, value in NUMBER.findall(text) if re.fullmatch(r"[-()\w<>+* ]+", value.strip())
               and not value.strip().startswith("__") and name != "RINGRED_API"]
    numbers = [n for n in numbers if n not in ("RINGRED_TRANSPORT_ENTRY", "RINGRED_TEAM_ENTRY")]
    program = ["#include <ringred/ringred.h>", "#include <stdio.h>", "#include <stddef.h>"]
    for header in ("transport.h", "team.h", "fusion.h"):
        if (include / "ringred" / header).exists():
            program.insert(1, f"#include <ringred/{header}>")
    program.append("int main(void) {")
    for name, fields in structs.items():
        program.append(f'printf("sizeof {name}=%zu\\n", sizeof({name}));')
        for field, _ in fields:
            program.append(f'printf("place {name}.{field}=%zu+%zu\\n", offsetof({name}, {field}), '
                           f"sizeof((({name} *)0)->{field}));")
    program += [f'printf("number {n}=%lld\\n", (long long)({n}));' for n in numbers]
    program += ["return 0; }"]
    with tempfile.TemporaryDirectory() as place:
        source = pathlib.Path(place) / "facts.c"
        source.write_text("\n".join(program), encoding="utf-8")
        made = subprocess.run(["cc", "-std=c17", "-I", str(include), "-o", f"{place}/facts", str(source)],
                              capture_output=True, text=True)
        if made.returncode:
            return {"compiles": made.stderr}
        out = subprocess.run([f"{place}/facts"], check=True, capture_output=True, text=True).stdout
    facts = {"compiles": "yes"}
    for line in out.splitlines():
        what, value = line.split("=")
        facts[what] = value
    for name, fields in structs.items():
        for at, (field, declared) in enumerate(fields):
            facts[f"field {at} of {name}"] = f"{field}: {declared}"
    for prototype in FUNCTION.findall(text):
        name = re.search(r"(\w+)\s*\(", prototype).group(1)
        facts[f"function {name}"] = squeeze(prototype)
    for declared in TYPEDEF.findall(text):
        name = re.search(r"[(][*](\w+)[)]", declared).group(1)
        facts[f"type {name}"] = squeeze(declared)
    for kind, entry in re.findall(r"#define RINGRED_(TRANSPORT|TEAM)_ENTRY (\w+)", text):
        facts[f"entry of {kind.lower()} plug-ins"] = entry
    return facts


MAY_CHANGE = re.compile(r"number RINGRED_VERSION_")


def compare(frozen, now):
    """What does not hold any more, in words."""
    wrong = []
    for what, value in frozen.items():
        if MAY_CHANGE.match(what):
            continue
        if what.startswith("sizeof ") and what in now and int(now[what]) >= int(value):
            continue  # a struct may grow
        if now.get(what) != value:
            wrong.append(f"{what}: was {value}, is {now.get(what, 'gone')}")
    return wrong


BREAKS = [  # name, header, pattern, replacement
    ("a field moved", "ringred.h", r"(    int32_t code;[^\n]*\n)(    int32_t rank;[^\n]*\n)", r"\2\1"),
    ("a field gone", "ringred.h", r"    const char \*root;[^\n]*\n", ""),
    ("a field of another size", "ringred.h", r"int64_t timeout_ns;  ", "int32_t timeout_ns;  "),
    ("a field of another type and the same size", "ringred.h", r"size_t key_bytes;", "int64_t key_bytes;"),
    ("a field put in between", "ringred.h", r"(    size_t key_bytes;)", r"    uint64_t more;\n\1"),
    ("a type renumbered", "types.h", r"(#define RINGRED_FLOAT32 \(\(int32_t\))1\)", r"\g<1>19)"),
    ("a status renumbered", "types.h", r"(#define RINGRED_EPEER \(\(int32_t\)-)301\)", r"\g<1>399)"),
    ("a status gone", "types.h", r"#define RINGRED_ETIMEOUT[^\n]*\n", ""),
    ("a function gone", "ringred.h", r"RINGRED_API int32_t ringred_barrier\(ringred_comm \*comm\);\n", ""),
    ("a parameter of another type", "ringred.h", r"(ringred_wait\(ringred_request \*request, )int64_t", r"\g<1>int32_t"),
    ("a function of the plug-in table moved", "transport.h",
     r"(    void \(\*finish\)[^\n]*\n)((?:    /\*.*?\*/\n)?)(    void \(\*reset\)[^\n]*\n)", r"\3\2\1"),
    ("a function of the team table moved", "team.h",
     r"(    int32_t \(\*start\)[^\n]*\n)((?:    /\*.*?\*/\n)?)(    int32_t \(\*test\)[^\n]*\n)", r"\3\2\1"),
    ("the plug-in's entry renamed", "transport.h", r"RINGRED_TRANSPORT_ENTRY ringred_transport_\d+",
     "RINGRED_TRANSPORT_ENTRY ringred_transport_99"),
]


def seeded(frozen_include, include):
    """Makes each break in a copy of the headers. How many were not found."""
    frozen, missed = facts_of(frozen_include), 0
    for name, header, pattern, replacement in BREAKS:
        with tempfile.TemporaryDirectory() as place:
            copy = pathlib.Path(place) / "include"
            shutil.copytree(include, copy)
            path = copy / "ringred" / header
            text = path.read_text(encoding="utf-8")
            broken, times = re.subn(pattern, replacement, text, count=1, flags=re.S)
            if not times:
                print(f"MISSED {name}: the break could not be made")
                missed += 1
                continue
            path.write_text(broken, encoding="utf-8")
            wrong = compare(frozen, facts_of(copy))
            print(f"{'found ' if wrong else 'MISSED'} {name}: {wrong[0][:110] if wrong else ''}")
            missed += not wrong
    print(f"{len(BREAKS) - missed} of {len(BREAKS)} breaks found")
    return missed


def main():
    frozen, include = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    if sys.argv[3:] == ["--seeded"]:
        return 1 if seeded(frozen, include) else 0
    known = facts_of(frozen)
    wrong = compare(known, facts_of(include))
    for line in wrong:
        print(line)
    print(f"{len(known)} facts of the frozen headers, {len(wrong)} do not hold any more")
    return 1 if wrong or len(known) < 100 else 0


if __name__ == "__main__":
    sys.exit(main())
