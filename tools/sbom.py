#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The bill of materials of a release, as SPDX 2.3: what is in its tarball, file by file, and what it is built with.

    sbom.py VERSION TARBALL     to standard output; SOURCE_DATE_EPOCH is its date
"""
import datetime
import hashlib
import json
import os
import re
import sys
import tarfile

HOME = "https://spdx.org/spdxdocs/ringred-%s-%s"  # a name, not a place
LICENSE = "Apache-2.0"

# name, license, how it is used, purl
NEEDS = (
    ("libsodium", "ISC", "DEPENDENCY_OF", "pkg:generic/libsodium"),
    ("glibc", "LGPL-2.1-or-later", "DEPENDENCY_OF", "pkg:generic/glibc"),
    ("meson", "Apache-2.0", "BUILD_TOOL_OF", "pkg:pypi/meson"),
    ("cmocka", "Apache-2.0", "TEST_DEPENDENCY_OF", "pkg:generic/cmocka"),
    ("numpy", "BSD-3-Clause", "OPTIONAL_DEPENDENCY_OF", "pkg:pypi/numpy"),
)


def package(name, version, license_, purl):
    return {
        "SPDXID": "SPDXRef-" + name, "name": name, "versionInfo": version, "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False, "licenseConcluded": license_, "licenseDeclared": license_, "copyrightText": "NOASSERTION",
        "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}],
    }


def kind(path):
    ends = os.path.splitext(path)[1]
    return "SOURCE" if ends in (".c", ".h", ".cpp", ".py", ".sh", ".build") else \
        "DOCUMENTATION" if ends in (".md", ".1", ".7") else "OTHER"


def files(tarball):
    with tarfile.open(tarball) as archive:
        for number, member in enumerate(sorted((m for m in archive if m.isfile()), key=lambda m: m.name)):
            content = archive.extractfile(member).read()
            said = re.search(rb"SPDX-License-Identifier: ([\w.-]+)", content[:400])
            yield {
                "SPDXID": "SPDXRef-File-%d" % number, "fileName": "./" + member.name.split("/", 1)[1],
                "fileTypes": [kind(member.name)], "licenseConcluded": LICENSE,
                "licenseInfoInFiles": [said[1].decode() if said else "NOASSERTION"], "copyrightText": "NOASSERTION",
                "checksums": [{"algorithm": "SHA1", "checksumValue": hashlib.sha1(content).hexdigest()},
                              {"algorithm": "SHA256", "checksumValue": hashlib.sha256(content).hexdigest()}],
            }


def main():
    version, tarball = sys.argv[1:]
    with open(tarball, "rb") as opened:
        whole = hashlib.sha256(opened.read()).hexdigest()
    created = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
    listed = list(files(tarball))
    ours = package("ringred", version, LICENSE, "pkg:generic/ringred@" + version)
    sums = "".join(sorted(f["checksums"][0]["checksumValue"] for f in listed))
    ours.update({
        "filesAnalyzed": True, "packageFileName": os.path.basename(tarball),
        "checksums": [{"algorithm": "SHA256", "checksumValue": whole}],
        "packageVerificationCode": {"packageVerificationCodeValue": hashlib.sha1(sums.encode()).hexdigest()},
        "licenseInfoFromFiles": sorted({l for f in listed for l in f["licenseInfoInFiles"]}),
    })
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-ringred")]
    relations += [("SPDXRef-" + name, how, "SPDXRef-ringred") for name, _, how, _ in NEEDS]
    relations += [("SPDXRef-ringred", "CONTAINS", f["SPDXID"]) for f in listed]
    json.dump({
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": "ringred-" + version,
        "documentNamespace": HOME % (version, whole[:16]),
        "creationInfo": {"created": created.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": ["Tool: ringred-sbom"]},
        "packages": [ours] + [package(name, "NOASSERTION", license_, purl) for name, license_, _, purl in NEEDS],
        "files": listed,
        "relationships": [{"spdxElementId": a, "relationshipType": r, "relatedSpdxElement": b} for a, r, b in relations],
    }, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
