# SPDX-License-Identifier: Apache-2.0
"""Is the table of settings in docs/USER.md the library's own, and is the version the same everywhere?

    check_docs.py RINGRED_INFO SOURCE [--write]      --write puts the right table into the page
"""
import json
import re
import subprocess
import sys

BEGIN = "<!-- settings: written by tools/check_docs.py -->"
END = "<!-- end of settings -->"


def table(info):
    rows = json.loads(subprocess.run([info, "--settings", "--json"], check=True, capture_output=True).stdout)
    lines = ["| setting | default | values | what for |", "|---|---|---|---|"]
    for row in rows:
        cells = [row["name"], row["default"] or "(empty)", row["form"], row["help"]]
        lines.append("| %s |" % " | ".join(c.replace("|", "\\|") for c in cells))
    return "\n".join(lines) + "\n"


def main():
    info, source = sys.argv[1:3]
    path = source + "/docs/USER.md"
    page = open(path).read()
    before, _, rest = page.partition(BEGIN)
    old, _, after = rest.partition(END)
    right = "\n" + table(info)
    if "--write" in sys.argv:
        open(path, "w").write(before + BEGIN + right + END + after)
        return 0
    if old != right:
        print("the table of settings in docs/USER.md is not the library's: run")
        print("  python3 tools/check_docs.py %s %s --write" % (info, source))
        return 1
    here = re.search(r'RINGRED_VERSION "(.*)"', open(source + "/include/ringred/version.h").read()).group(1)
    if "## " + here not in open(source + "/CHANGELOG.md").read():
        print("version.h says %s, which CHANGELOG.md does not have" % here)
        return 1
    print("docs/USER.md has the library's settings, CHANGELOG.md version %s" % here)
    return 0


if __name__ == "__main__":
    sys.exit(main())
