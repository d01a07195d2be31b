# SPDX-License-Identifier: Apache-2.0
"""python -m ringred: which library this is, and what it finds here."""
import ringred
from ringred._library import lib


def main() -> None:
    """Prints the build, the transports, and the launcher that would be used."""
    found = ringred.describe()
    print("ringred %s, ABI %d, wire %d, kernels %s" % (found["version"], found["abi"], found["wire"], found["kernels"]))
    print("library: %s" % lib.path)
    for transport in found["transports"]:
        print("transport %s: %s" % (transport["name"], "usable" if transport["usable"] else transport["why"]))
    launcher = found.get("launcher", {})
    if "error" in launcher:
        print("launcher: %s" % launcher["error"])
    elif launcher:
        print("launcher: %s, rank %s of %s" % (launcher["source"], launcher["rank"], launcher["size"]))


if __name__ == "__main__":
    main()
