#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Summarise the stages that stage.sh left in a folder: logs of failed tests, reasons of skips, and the closing line.

    report.py RESULTS STAGE...       the report; with the list of all tests in RESULTS/tests.json (meson introspect --tests) also what was left out
    report.py --again MESON_LOG      names of the failed tests that may be run once more, one per line

Every named stage must have run at least one test. A stage that failed without a failed test (it did not build, ran
into its limit, lost its log) counts as one failure. Exit code 0 only if nothing failed.

A test that failed and passed when it was run once more, alone, counts as passed and is listed as flaky. Always a failure:
a sanitizer's report, death by a signal, and values or bits that differ.
"""
import json
import pathlib
import re
import sys

TAIL_LINES = 120
NEVER_FORGIVEN = re.compile(
    r"(?:Address|Leak|Thread|Memory|UndefinedBehavior)Sanitizer|: runtime error: "
    # Messages of Check, shells and mpirun about a process that died by its own fault. SIGKILL and SIGTERM are sent by tests.
    r"|Received signal \d|[Ss]ignal:? \(?(?:4|6|7|8|11)\b|Segmentation fault|core dumped"
    # Check prints the expression that failed, with both sides of ck_assert_mem_eq() in hexadecimal digits; so does Python.
    r"|memcmp\(|failed: .* == \"[0-9a-fA-F]{16,}|\bassert .*model\(.* == "
    r"|\bdiffers?\b|(?:different|other) (?:bits|values|weights)|not the (?:same )?bits| is -?[\d.]\S*, not -?[\d.]")


def tail(text, lines=TAIL_LINES):
    rows = text.rstrip("\n").split("\n")
    cut = [f"... {len(rows) - lines} lines before"] if len(rows) > lines else []
    return "\n".join(cut + rows[-lines:])


def read_tests(path):
    return [json.loads(line) for line in path.read_text(errors="replace").splitlines()] if path.exists() else []


def text_of(test):
    return (test.get("stdout") or "") + (test.get("stderr") or "")


def told(test):
    return f"{test['result']}, exit code {test['returncode']}, {test['duration']:.1f} s\n{text_of(test)}"


def is_forgivable(test):
    """Whether timing may be the reason of a failure. INTERRUPT is a stage that was stopped; a timeout's signal is meson's."""
    died = test["result"] == "FAIL" and not 0 <= test["returncode"] <= 128 and test["returncode"] <= 192
    return test["result"] in ("FAIL", "TIMEOUT") and not died and not NEVER_FORGIVEN.search(text_of(test))


def read_stage(results, stage):
    """Yield (name, outcome, text) for each test of the stage, then one more if the stage itself failed."""
    status_file = results / f"{stage}.status"
    log_file = results / f"{stage}.log"
    again = {test["name"]: test for test in read_tests(results / f"{stage}.again.json")}
    status = status_file.read_text().strip() if status_file.exists() else "never ended"
    log = log_file.read_text(errors="replace") if log_file.exists() else ""
    tests = failed = 0
    for test in read_tests(results / f"{stage}.json"):
        text = text_of(test)
        outcome = {"OK": "passed", "EXPECTEDFAIL": "passed", "SKIP": "skipped"}.get(test["result"], "failed")
        if outcome == "failed":
            text = told(test)
            second = again.get(test["name"])
            if second and second["result"] == "OK" and is_forgivable(test):
                outcome = "flaky"
            elif second:
                text += f"\n-- once more, alone: {told(second)}"
        tests += 1
        failed += outcome == "failed"
        yield f"{stage}: {test['name']}", outcome, text
    if tests == 0:
        yield f"{stage}: the stage ran no test (status {status})", "failed", log
    elif status != "0" and failed == 0:
        yield f"{stage}: the stage ended with status {status}", "failed", log


def left_out(results, stages):
    """Lines about the tests of the suites `long` and `full` that a whole run was not asked for, by the build's own list of tests."""
    known = json.loads((results / "tests.json").read_text())
    ran = {test["name"].rpartition(" / ")[2] for stage in stages for test in read_tests(results / f"{stage}.json")}
    by = {"long": [], "full": []}
    for test in known:
        suites = {suite.rpartition(":")[2] for suite in test["suite"]}
        for suite in by.keys() & suites if test["name"] not in ran else ():
            by[suite].append(test["name"])
    if by["long"]:
        yield f"Left out without --all: the stages asan and tsan, and {len(by['long'])} tests: {', '.join(by['long'])}"
    if by["full"]:
        yield f"Left out without --full: {len(by['full'])} tests that repeat others"


def main():
    if sys.argv[1] == "--again":
        for test in read_tests(pathlib.Path(sys.argv[2])):
            if is_forgivable(test):
                print(test["name"].rpartition(" / ")[2])
        return 0
    results = pathlib.Path(sys.argv[1])
    rows = [row for stage in sys.argv[2:] for row in read_stage(results, stage)]
    by = {outcome: [row for row in rows if row[1] == outcome] for outcome in ("passed", "flaky", "failed", "skipped")}
    for name, _, text in by["failed"]:
        print(f"\n==== FAILED {name}\n{tail(text)}")
    if by["flaky"]:
        print("\nFlaky:")
    for name, _, text in by["flaky"]:
        print(f"  {name}: passed when it was run once more, alone; at first:")
        print("\n".join(f"    | {line}" for line in tail(text).splitlines()))
    if by["skipped"]:
        print("\nSkipped:")
    for name, _, text in by["skipped"]:
        said = [line for line in text.splitlines() if line.strip()]
        print(f"  {name}: {said[-1] if said else 'gave no reason'}")
    if by["failed"]:
        print("\nFailed:")
    for name, _, _ in by["failed"]:
        print(f"  {name}")
    print("\nThe longest:")
    tests = [(test["duration"], f"{stage}: {test['name'].rpartition(' / ')[2]}") for stage in sys.argv[2:] for test in read_tests(results / f"{stage}.json")]
    for duration, name in sorted(tests, reverse=True)[:10]:
        print(f"  {duration:.0f} s {name}")
    if (results / "tests.json").exists():
        print("\n".join(["", *left_out(results, sys.argv[2:])]))
    passed = len(by["passed"]) + len(by["flaky"])
    print(f"{passed} passed, {len(by['failed'])} failed, {len(by['skipped'])} skipped")
    return 1 if by["failed"] or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
