#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The shared library exports what symbols.txt lists, with these versions, and nothing else; its name
carries the ABI number. A new function is a new line in the list; a line never goes away.

Usage: check_symbols.py LIBRARY symbols.txt version.h
"""
import re
import subprocess
import sys


def exported(library):
    text = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True,
                          text=True).stdout
    return {line.split()[-1] for line in text.splitlines() if line.strip()}


def soname(library):
    text = subprocess.run(["readelf", "-d", library], check=True, capture_output=True, text=True).stdout
    found = re.search(r"\(SONAME\).*\[(.*)\]", text)
    return found.group(1) if found else None


def abi_number(header):
    with open(header, encoding="utf-8") as file:
        return re.search(r"#define RINGRED_ABI_VERSION (\d+)", file.read()).group(1)


def main():
    library, listing, header = sys.argv[1:]
    with open(listing, encoding="utf-8") as file:
        wanted = set(file.read().split())
    found = exported(library)
    name = f"libringred.so.{abi_number(header)}"
    for symbol in sorted(wanted - found):
        print(f"not exported any more: {symbol}")
    for symbol in sorted(found - wanted):
        print(f"exported, but not in the list: {symbol}")
    if soname(library) != name:
        print(f"the library calls itself {soname(library)}, should be {name}")
    return 0 if found == wanted and soname(library) == name else 1


if __name__ == "__main__":
    sys.exit(main())
