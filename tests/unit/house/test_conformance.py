#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Covers tests/conformance.md.
"""tests/conformance.md lists every behaviour once, names tests that exist, and gives a reason where it names none."""
import pathlib
import re
import sys

COUNTS = dict(A=11, B=26, C=15, D=14, E=13, F=15, G=16, H=16, I=9, J=3, K=11, L=23, M=14, N=6, O=8, P=18, Q=15, R=7)
root = pathlib.Path(sys.argv[1])
findings = []
seen = []
names = {match for path in root.glob("tests/unit/**/test_*.c") for match in re.findall(r"^(?:UNIT_)?TEST\((\w+)", path.read_text(), re.M)}
names |= {match for path in root.glob("tests/data/**/*.txt") for match in re.findall(r"^== (\w+)$", path.read_text(), re.M)}
names |= {path.name for path in root.glob("tests/integration/*")}
names |= set(re.findall(r"^test\('([^']+)'", (root / "tests/integration/meson.build").read_text(), re.M))
page = re.sub(r"\n  (?=\S)", " ", (root / "tests/conformance.md").read_text())  # an item's lines as one
for line in page.splitlines():
    row = re.match(r"- \*\*([A-R]\d+(?:, [A-R]\d+)*)\*\* \| (.*?) \|(?: (.*))?$", line)
    if not row:
        continue
    numbers, first, second = row.groups(default="")
    seen += numbers.split(", ")
    if first == "none" and not second or second == "none":
        findings.append(f"{numbers}: neither a test nor a reason")
    # Words in backquotes, and words of four parts or more, are names of tests.
    mentioned = re.findall(r"`([\w/.]+)`", f"{first} {second}") + re.findall(r"\b(?!pl_)[a-z0-9]+(?:_[a-z0-9]+){3,}\b", f"{first} {second}")
    findings += [f"{numbers}: there is no test {name}" for name in sorted(set(mentioned)) if name not in names]
expected = {f"{group}{i}" for group, count in COUNTS.items() for i in range(1, count + 1)}
findings += [f"{number} is missing" for number in sorted(expected - set(seen))]
findings += [f"{number} is not a behaviour" for number in sorted(set(seen) - expected)]
findings += [f"{number} is there {seen.count(number)} times" for number in sorted(set(seen)) if seen.count(number) > 1]
print("\n".join(findings) or f"{len(seen)} behaviours")
sys.exit(bool(findings))
