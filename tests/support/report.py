#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Judge the stages that stage.sh left in a folder: logs of failed tests, reasons of skips, and the closing line.

    report.py RESULTS STAGE...

Every named stage must have run at least one test. A stage that ended badly without a failed test (it did not build, ran
into its limit, lost its log) counts as one failure. Exit code 0 only if nothing failed.
"""
import json
import pathlib
import sys

TAIL_LINES = 120


def tail(text, lines=TAIL_LINES):
    rows = text.rstrip("\n").split("\n")
    cut = [f"... {len(rows) - lines} lines before"] if len(rows) > lines else []
    return "\n".join(cut + rows[-lines:])


def read_stage(results, stage):
    """Yield (name, verdict, text) for each test of the stage, then one more where the stage itself failed."""
    status_file = results / f"{stage}.status"
    log_file = results / f"{stage}.log"
    json_file = results / f"{stage}.json"
    status = status_file.read_text().strip() if status_file.exists() else "never ended"
    log = log_file.read_text(errors="replace") if log_file.exists() else ""
    tests = failed = 0
    if json_file.exists():
        for line in json_file.read_text(errors="replace").splitlines():
            test = json.loads(line)
            text = (test.get("stdout") or "") + (test.get("stderr") or "")
            verdict = {"OK": "passed", "EXPECTEDFAIL": "passed", "SKIP": "skipped"}.get(test["result"], "failed")
            if verdict == "failed":
                text = f"{test['result']}, exit code {test['returncode']}, {test['duration']:.1f} s\n{text}"
            tests += 1
            failed += verdict == "failed"
            yield f"{stage}: {test['name']}", verdict, text
    if tests == 0:
        yield f"{stage}: the stage ran no test (status {status})", "failed", log
    elif status != "0" and failed == 0:
        yield f"{stage}: the stage ended with status {status}", "failed", log


def main():
    results = pathlib.Path(sys.argv[1])
    rows = [row for stage in sys.argv[2:] for row in read_stage(results, stage)]
    by = {verdict: [row for row in rows if row[1] == verdict] for verdict in ("passed", "failed", "skipped")}
    for name, _, text in by["failed"]:
        print(f"\n==== FAILED {name}\n{tail(text)}")
    if by["skipped"]:
        print("\nSkipped:")
    for name, _, text in by["skipped"]:
        said = [line for line in text.splitlines() if line.strip()]
        print(f"  {name}: {said[-1] if said else 'gave no reason'}")
    if by["failed"]:
        print("\nFailed:")
    for name, _, _ in by["failed"]:
        print(f"  {name}")
    print(f"{len(by['passed'])} passed, {len(by['failed'])} failed, {len(by['skipped'])} skipped")
    return 1 if by["failed"] or not by["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
