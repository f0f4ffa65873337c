#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Refuse what CONTRIBUTING.md forbids and a compiler does not notice.

    layers.py [SOURCE_ROOT]

Prints one line a finding, "FILE:LINE: what", and exits 1 if there is any.
"""
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys

# folder -> folders whose headers it may include
ARROWS = {
    "base": {"base"},
    "device": {"device", "base"},
    "collectives": {"collectives", "device", "base"},
    "s3io": {"s3io", "base"},
    "runtime": {"runtime", "collectives", "device", "s3io", "base"},
    "entrypoint": {"entrypoint", "s3io", "base"},
    "examples": {"examples", "runtime", "collectives", "device", "s3io", "base"},
    "tests": {"tests", "examples", "entrypoint", "runtime", "collectives", "device", "s3io", "base"},
}

# header (as a pattern) -> where it may be included (a pattern of paths), besides tests
GUARDED_HEADERS = {
    r"mpi\.h": r"_mpi\.c$",
    r"nccl\.h": r"_nccl\.[ch]$",
    r"cuda.*\.h|cudnn.*\.h|cublas.*\.h|nvrtc\.h|nvml\.h": r"_(cuda|nccl)\.(c|h|cu|cuh)$",
    r"curl/.*": r"^s3io/http/[a-z0-9_]+\.c$",
    r"(?:cjson/)?cJSON.*\.h": r"^base/json\.c$",
}

# identifier (as a pattern) -> where it may stand, besides tests
GUARDED_WORDS = {
    r"\b(?:secure_)?getenv\s*\(|\b(?:un)?setenv\s*\(|\bputenv\s*\(|\bclearenv\s*\(|\benviron\b": r"^(base/environment|entrypoint/hostname_preload)\.c$",
    r"(?<![A-Za-z0-9_>.])(?:quick_)?exit\s*\(": r"(^|/)(main|tool_[a-z0-9_]+)\.c$",
}

TOP_LEVEL = {"base", "device", "collectives", "s3io", "runtime", "entrypoint", "examples", "libexec", "tests", "docs", "Dockerfile", "meson.build",
             "meson_options.txt", "README.md", "CONTRIBUTING.md", "LICENSE"}
CODE = {".c", ".h", ".cu", ".cuh"}
SPDX = CODE | {".sh", ".py", ".build"}
MAX_LINES = 800  # from 600 on a file has a reason; for more there is none
MAX_COLUMNS = 120
NARROW = CODE | {".inc"}
UNFINISHED = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"]) + r")\b")
MACHINE_PATH = re.compile(r"(?<![A-Za-z0-9_.])/(?:wo" + r"rk|home/[a-z]+|root|Users/[A-Za-z]+)/[a-z]")


def source_files(root):
    try:
        listed = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                                capture_output=True, check=True).stdout.decode()
        names = [name for name in listed.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):  # not a checkout
        names = [str(path.relative_to(root)) for top in TOP_LEVEL for path in
                 ([root / top] if (root / top).is_file() else (root / top).rglob("*"))]
    return sorted(name for name in set(names) if (root / name).is_file())


def blank(match):
    return "\n" * match.group(0).count("\n")


def code_only(text):
    """The text without comments and without what stands in quotes; lines keep their numbers."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
    return pattern.sub(blank, text)


def without_comments(text):
    pattern = re.compile(r'("(?:\\.|[^"\\\n])*")|//[^\n]*|/\*.*?\*/', re.S)
    return pattern.sub(lambda m: m.group(1) or blank(m), text)


def lines_matching(pattern, text):
    for match in re.finditer(pattern, text):
        yield text.count("\n", 0, match.start()) + 1, match


def check_code(name, text):
    top = name.split("/", 1)[0]
    for line, match in lines_matching(r'(?m)^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', without_comments(text)):
        quote, header = match.groups()
        for guarded, place in GUARDED_HEADERS.items():
            if re.fullmatch(guarded, header) and top != "tests" and not re.search(place, name):
                yield line, f"'{header}' belongs in files like {place} only"
        folder = header.split("/", 1)[0]
        if quote == '"' and "/" not in header:
            yield line, f'"{header}": our headers are included from the top, "folder/name.h"'
        elif quote == '"' and folder in ARROWS and folder not in ARROWS.get(top, set()):
            yield line, f"{top}/ must not know {folder}/ ('{header}')"
    if top != "tests":
        code = code_only(text)
        for word, place in GUARDED_WORDS.items():
            for line, match in lines_matching(word, code):
                if not re.search(place, name):
                    yield line, f"'{match.group(0).strip()}' belongs in files like {place} only"


def check_text(name, text):
    lines = text.split("\n")
    suffix = pathlib.PurePath(name).suffix
    if text.strip() and (suffix in SPDX or name == "Dockerfile") and not any("SPDX-License-Identifier: Apache-2.0" in line for line in lines[:3]):
        yield 1, "no SPDX line among the first three"
    if suffix in SPDX and len(lines) > MAX_LINES + 1:
        yield len(lines), f"longer than {MAX_LINES} lines"
    for number, line in enumerate(lines, 1):
        if suffix in NARROW and len(line) > MAX_COLUMNS:
            yield number, f"{len(line)} columns, more than {MAX_COLUMNS}"
    if name != "tests/support/layers.py" and name != "LICENSE":
        for line, match in lines_matching(UNFINISHED, text):
            yield line, f"unfinished work is not landed ('{match.group(0)}')"
        for line, match in lines_matching(MACHINE_PATH, text):
            yield line, f"a path of one machine ('{match.group(0)}')"


def check_registered(root, names):
    """A test file that no meson.build names would never run."""
    for name in names:
        path = pathlib.PurePath(name)
        unit = re.fullmatch(r"tests/unit/([a-z0-9]+)/(?:([a-z0-9]+)/)?(?:test_)?([a-z0-9_]+)\.(c|sh|py)", name)
        other = re.fullmatch(r"tests/(integration|fuzz)/([A-Za-z0-9_]+)\.(sh|py|c)", name)
        if not unit and not other:
            continue
        folder = f"tests/unit/{unit.group(1)}" if unit else str(path.parent)
        wanted = "/".join(part for part in unit.groups()[1:3] if part) if unit else re.sub(r"^(fuzz|test)_", "", other.group(2))
        build = root / folder / "meson.build"
        if not build.exists() or not re.search(rf"(?<![a-z0-9]){wanted}(?![a-z0-9])", build.read_text().replace("/test_", "/")):
            yield name, f"no test in {folder}/meson.build names it"


def check_header_alone(root, name):
    """A header that needs another one first."""
    done = subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", "-I.", "-fsyntax-only", "-Wall", "-Werror", "-x", "c", "-"],
                          input=f'#include "{name}"\n#include "{name}"\n', cwd=root, capture_output=True, text=True)
    if done.returncode:
        yield 1, "does not compile alone: " + done.stderr.strip().split("\n")[0]


def check_format(root, names):
    tool = shutil.which("clang-format-14") or shutil.which("clang-format")
    if not tool or " 14." not in subprocess.run([tool, "--version"], capture_output=True, text=True).stdout:
        print("clang-format 14 is absent: the layout of the code was not checked", file=sys.stderr)
        return
    done = subprocess.run([tool, "--dry-run", "--ferror-limit=1", "-Werror", *names], cwd=root, capture_output=True, text=True)
    for match in re.finditer(r"^([^:\s]+):(\d+):\d+: error: code should be clang-formatted", done.stderr, re.M):
        yield f"{match.group(1)}:{match.group(2)}", "not formatted: clang-format -i " + match.group(1)


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    names = source_files(root)
    findings = []
    for name in names:
        data = (root / name).read_bytes()
        if name.split("/", 1)[0] not in TOP_LEVEL and not name.startswith("."):
            findings.append((name, "does not belong at the top level"))
        if b"\0" in data[:8192]:
            continue
        text = data.decode("utf-8", errors="replace")
        suffix = pathlib.PurePath(name).suffix
        for line, what in check_text(name, text):
            findings.append((f"{name}:{line}", what))
        for line, what in check_code(name, text) if suffix in CODE else []:
            findings.append((f"{name}:{line}", what))
    findings += check_registered(root, names)
    code = [name for name in names if pathlib.PurePath(name).suffix in {".c", ".h"}]
    findings += check_format(root, code)
    headers = [name for name in code if name.endswith(".h") and "_cuda" not in name and "_nccl" not in name]
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for name, rows in zip(headers, pool.map(lambda name: list(check_header_alone(root, name)), headers)):
            findings += [(f"{name}:{line}", what) for line, what in rows]
    for where, what in findings:
        print(f"{where}: {what}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
