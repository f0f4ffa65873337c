#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Refuse what CONTRIBUTING.md forbids and a compiler does not notice.

    layers.py [SOURCE_ROOT]            one line per finding, "FILE:LINE: what"; exits with 1 if there is any
    layers.py [SOURCE_ROOT] --words    number of matches of each word of words.txt in the tree, refused or not yet

structure.py checks the rest, which needs a build (cycles, use of functions).
"""
import argparse
import collections
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import typing

# folder -> folders whose headers it may include and whose functions it may use
ARROWS = {
    "base": {"base"},
    "device": {"device", "base"},
    "collectives": {"collectives", "device", "base"},
    "s3io": {"s3io", "base"},
    "runtime": {"runtime", "collectives", "device", "s3io", "base"},
    "entrypoint": {"entrypoint", "s3io", "base"},
    "examples": {"examples", "runtime", "collectives", "device", "s3io", "base"},
    "programs": {"programs", "entrypoint", "runtime", "collectives", "device", "s3io", "base"},
    "tests": {"tests", "examples", "programs", "entrypoint", "runtime", "collectives", "device", "s3io", "base"},
    # Sub-room, or file with a place of its own on top of a room (and its header) -> the parts of its room that it may use. It may also
    # use what those use. All other files of a room are below its sub-rooms and must not use them.
    "base/json": set(),
    "collectives/bootstrap": set(),
    "collectives/reduce": set(),
    "collectives/algorithms": set(),
    "collectives/core": {"collectives/bootstrap", "collectives/reduce"},
    "collectives/calls": {"collectives/core"},
    "collectives/p2p": {"collectives/core", "collectives/algorithms"},
    "collectives/shm": {"collectives/core"},
    "collectives/gpu": {"collectives/core"},
    "collectives/backends.c": {"collectives/core"},
    "collectives/hier": {"collectives/p2p"},
    "collectives/backends.c": {"collectives/hier", "collectives/shm", "collectives/p2p", "collectives/gpu", "collectives/calls"},
    "s3io/bytes": set(),
    "s3io/http": set(),
    "s3io/record": {"s3io/bytes"},
    "s3io/s3": {"s3io/http", "s3io/record"},
    "s3io/pipe": {"s3io/record"},
    "s3io/dataset": {"s3io/pipe", "s3io/s3"},
    "runtime/named": set(),
    "runtime/gradient": set(),
    "runtime/checkpoint": {"runtime/gradient"},
    "runtime/server": {"runtime/gradient", "runtime/named"},
    "runtime/tensorflow": set(),
    "runtime/horovod": {"runtime/named", "runtime/tensorflow"},
    "runtime/abi.c": {"runtime/named", "runtime/server"},
    "entrypoint/job": set(),
    "entrypoint/launch": {"entrypoint/job"},
    "entrypoint/check": {"entrypoint/launch"},
    "entrypoint/ssh": {"entrypoint/launch"},
    "entrypoint/output": set(),
    "entrypoint/proc": set(),
    "entrypoint/supervise": {"entrypoint/output", "entrypoint/proc", "entrypoint/ssh"},
    "entrypoint/subcommand.c": {"entrypoint/job"},
    "entrypoint/subcommand_plan.c": {"entrypoint/supervise", "entrypoint/check", "entrypoint/launch", "entrypoint/subcommand.c"},
    "entrypoint/rank.c": {"entrypoint/supervise", "entrypoint/subcommand.c"},
    "entrypoint/train.c": {"entrypoint/supervise", "entrypoint/check", "entrypoint/subcommand.c"},
    "entrypoint/main.c": {"entrypoint/train.c", "entrypoint/rank.c", "entrypoint/subcommand_plan.c"},
    # One verb per sub-room; they must not use each other.
    **{f"programs/{verb}": set() for verb in ("bench", "check", "feed", "horovod", "index", "info", "keys", "local", "s3", "server", "split", "stacks",
                                              "sweep", "sync", "trial", "unpack")},
    # A report, of which `paceline trace` is a part, joins what two of them find out.
    "programs/report": {"programs/local"},
}

# header (as a pattern) -> files that may include it (a pattern of paths), besides tests
GUARDED_HEADERS = {
    r"mpi\.h": r"_mpi\.c$",
    r"nccl\.h": r"_nccl\.[ch]$",
    r"cuda.*\.h|cudnn.*\.h|cublas.*\.h|nvrtc\.h|nvml\.h": r"_(cuda|nccl)\.(c|h|cu|cuh)$",
    r"Python\.h": r"^runtime/horovod/torch(_stage|_tensor)?\.c$",
    r"curl/.*": r"^s3io/http/[a-z0-9_]+\.c$",
    r"elfutils/.*": r"^programs/stacks/collect\.c$",
    r"(?:cjson/)?cJSON.*\.h": r"^(base/json/(json\.c|python_json_tree\.h)|examples/synthetic/gradient_list\.c)$",
}

# identifier (as a pattern) -> files that may contain it, besides tests
GUARDED_WORDS = {
    r"\b(?:secure_)?getenv\s*\(|\b(?:un)?setenv\s*\(|\bputenv\s*\(|\bclearenv\s*\(|\benviron\b": r"^(base/environment|entrypoint/hostname_preload)\.c$",
    r"(?<![A-Za-z0-9_>.])(?:quick_)?exit\s*\(": r"(^|/)main(_mpi)?\.c$",
}

# pattern that C code must not contain -> its replacement
DIALECT = {
    r"[!=]=\s*NULL\b": "a pointer is tested by itself, 'if (p)' or 'if (!p)'",
    r"\(void\)\s*[A-Za-z_]\w*(?:(?:->|\.)\w+)*\s*\(": "a result that is not needed is dropped without a cast",
}

# A reader in a pipe of shell commands that may leave before the end. The writer then dies of SIGPIPE, and where pipefail is set the pipe fails with
# it. GNU grep without -q reads to the end, also when its output is /dev/null.
EARLY_READER = re.compile(r"""(?<![|\\])\|&?(?!\|)\s*(?:[({]\s*)*(?:(?:\w+=\S*|command|exec|env)\s+)*(?:
    head(?=[\s;&|)'"`]|$)(?!(?:\s+-\S+)*?\s+(?:-[nc]\s*-|--(?:lines|bytes)=-))
  | [ef]?grep(?:\s+(?:-\S+|\d+))*?\s+(?:-[a-zA-Z]*[qmlL]|--(?:quiet|silent|max-count|files))
  | sed(?:\s+-\S+)*\s+(?:'[^']*?|"[^"]*?|[^\s'"]*?)(?<![A-Za-z\\])[qQ]\d*(?=[\s;}'"]|$)
  | [gm]?awk\s[^'|]*'(?:(?!END)[^'])*?\bexit\b
  | read(?=[\s;&)'"]|$))""", re.X | re.M)

TOP_LEVEL = {"base", "device", "collectives", "s3io", "runtime", "entrypoint", "examples", "programs", "python", "tests", "docs", "Dockerfile", "meson.build",
             "meson_options.txt", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE"}
CODE = {".c", ".h", ".cc", ".cu", ".cuh"}
SPDX = CODE | {".sh", ".py", ".build"}
MAX_LINES = 800  # a file above 600 needs a reason; no reason allows more than this. Python files count non-blank lines only
MAX_COLUMNS = 120
MAX_FILES = 40  # per folder
SMALL = 60  # a file of fewer lines is a fragment: budget.txt bounds their number
COUNTED = {".c", ".h", ".cc", ".inc"}  # what budget.txt counts in a room; in python/ and tests/ scripts, too
NARROW = CODE | {".inc", ".md"}
WORDED = SPDX | {".inc", ".S", ".md", ".json", ".txt", ".map"}  # where words.txt's words are looked for
UNWORDED = r"tests/support/words\.txt|docs/internals/glossary\.md|tests/unit/house/test_layers\.py|tests/(?:fuzz/seeds|data)/.*"
UNFINISHED = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"]) + r")\b")
MACHINE_PATH = re.compile(r"(?<![A-Za-z0-9_.])/(?:wo" + r"rk|home/[a-z]+|root|Users/[A-Za-z]+)/[a-z]")


def key_of(name):
    """The sub-room that a file lies in; on top of a room the file, if ARROWS has a place for it, else the room."""
    parts = name.split("/")
    if len(parts) > 2:
        return "/".join(parts[:2])
    file = name.rsplit(".", 1)[0] + ".c"
    return file if file in ARROWS else parts[0]


def may_know(user, owner):
    """May this file include that header, or use that file's functions?"""
    room, other = user.split("/", 1)[0], owner.split("/", 1)[0]
    if room != other or key_of(user) == key_of(owner) or not any(key.startswith(room + "/") for key in ARROWS):
        return other in ARROWS.get(room, {other})
    known, ahead = {room}, [key_of(user)] if key_of(user) != room else []
    while ahead:
        key = ahead.pop()
        known.add(key)
        ahead += ARROWS.get(key, set()) - known
    return key_of(owner) in known


def source_files(root):
    try:
        listed = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                                capture_output=True, check=True).stdout.decode()
        names = [name for name in listed.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):  # not a git checkout
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


def installed_headers(root):
    """What runtime/meson.build installs: all of ours that a program outside the tree, and an example, may include."""
    build = root / "runtime/meson.build"
    table = re.search(r"(?s)public_headers = \{(.*?)\n\}", build.read_text()) if build.exists() else None
    return {f"{folder}/{name}.h" for folder, names in re.findall(r"'(\w+)': \[([^\]]*)\]", table.group(1) if table else "")
            for name in re.findall(r"'(\w+)'", names)}


def check_code(name, text, installed):
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
        elif quote == '"' and not may_know(name, header):
            yield line, f"{key_of(name)} must not know {key_of(header)} ('{header}')"
        elif quote == '"' and top == "examples" and folder != "examples" and header not in installed:
            yield line, f"examples include installed headers only, which '{header}' is not"
    code = code_only(text)
    for pattern, instead in DIALECT.items():
        for line, match in lines_matching(pattern, code):
            yield line, f"'{match.group(0)}': {instead}"
    if top != "tests":
        for word, place in GUARDED_WORDS.items():
            for line, match in lines_matching(word, code):
                if not re.search(place, name):
                    yield line, f"'{match.group(0).strip()}' belongs in files like {place} only"


def check_text(name, text):
    lines = text.split("\n")
    suffix = pathlib.PurePath(name).suffix
    if text.strip() and (suffix in SPDX or name == "Dockerfile") and not any("SPDX-License-Identifier: Apache-2.0" in line for line in lines[:3]):
        yield 1, "no SPDX line among the first three"
    if suffix in SPDX and sum(bool(line.strip()) or suffix != ".py" for line in lines) > MAX_LINES + 1:
        yield len(lines), f"longer than {MAX_LINES} lines"
    for number, line in enumerate(lines, 1):
        if suffix in NARROW and len(line) > MAX_COLUMNS:
            yield number, f"{len(line)} columns, more than {MAX_COLUMNS}"
    if name != "tests/support/layers.py" and name != "LICENSE":
        for line, match in lines_matching(UNFINISHED, text):
            yield line, f"unfinished work is not landed ('{match.group(0)}')"
        for line, match in lines_matching(MACHINE_PATH, text):
            yield line, f"a path of one machine ('{match.group(0)}')"


def shell_text(name, text):
    """What of a file may be commands of a shell: scripts, also those in Python's texts, and the blocks of a page; lines keep their numbers."""
    suffix = pathlib.PurePath(name).suffix
    if suffix == ".md":
        text = re.sub(r"(?ms)(?:\A|^```\n).*?(?:^```(?:sh|dockerfile)\n|\Z)", blank, text)
    elif suffix not in {".sh", ".py", ".yml"} and name != "Dockerfile" and not re.match(r"#!.*sh\n", text):
        return ""
    return re.sub(r"(?m)^[ \t]*#.*$", "", text)


def check_pipes(name, text):
    for line, match in lines_matching(EARLY_READER, shell_text(name, text)):
        yield line, f"'{' '.join(match.group(0).split())}' may leave the pipe early and kill its writer: sed -n 1p, or grep >/dev/null without -q, reads to the end"


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


def check_folders(names):
    for folder, count in collections.Counter(str(pathlib.PurePath(name).parent) for name in names).items():
        if count > MAX_FILES and not folder.startswith("tests/"):
            yield folder, f"{count} files, more than {MAX_FILES}: it wants folders"


def budget_rows(root):
    """The rows of budget.txt: (room, most lines, most files, most files of fewer than SMALL lines)."""
    path = root / "tests/support/budget.txt"
    for line in path.read_text().splitlines() if path.exists() else []:
        if line.strip() and not line.startswith("#"):
            room, *most = line.split()
            yield room, *map(int, most)


def check_budget(root, names):
    """A room above its budget says by how much."""
    for room, most_lines, most_files, most_small in budget_rows(root):
        kinds = COUNTED | ({".py", ".sh"} if room in ("python", "tests") else set())
        lines = [(root / name).read_bytes().count(b"\n") for name in names
                 if name.startswith(room + "/") and pathlib.PurePath(name).suffix in kinds]
        for found, most, what in ((sum(lines), most_lines, "lines"), (len(lines), most_files, "files"),
                                  (sum(count < SMALL for count in lines), most_small, f"files of fewer than {SMALL} lines")):
            if found > most:
                yield room, f"{found} {what}, {found - most} more than budget.txt allows; raising it is a commit of its own that says for what"


def before_code(text):
    """The text between the SPDX line and the first line of code."""
    head = re.match(r"(?:#!.*\n)?[^\n]*SPDX[^\n]*\n((?:\s|//[^\n]*|/\*.*?\*/)*)", text, re.S)
    return head.group(1) if head else ""


def check_first_comment(root, name, text):
    """Check that a unit test names the files that it covers, and a product file its purpose."""
    if re.fullmatch(r"tests/unit/.*/test_[^/]*\.(c|sh|py)", name):
        said = re.search(r"\bCovers (.*?)\.\s", before_code(text) if name.endswith(".c") else text[:1000], re.S)
        files = re.split(r",\s+(?:[#*] )?", said.group(1)) if said else []
        if not files:
            yield 2, "a unit test says in its first comment what it covers: Covers folder/file.c, folder/other.c."
        for file in files:
            if not (root / file).is_file():
                yield 2, f"covers '{file}', which does not exist"
    elif name.endswith(".c") and name.split("/", 1)[0] in ARROWS.keys() - {"tests", "examples"}:
        if not before_code(text).strip():
            yield 2, "no line that says what the file is for, before its first #include"


class Word(typing.NamedTuple):
    """A row of words.txt."""
    refused: bool
    text: str
    pattern: re.Pattern
    starts: tuple  # fixed text with which a match begins; a search for it first saves most of the time
    instead: str
    where: str
    exceptions: str

    def lines_in(self, name, text, spaced, low):
        if (self.where and not re.search(self.where, name)) or (self.exceptions and re.search(self.exceptions, name)):
            return
        if not any(start in low for start in self.starts):
            return
        if self.pattern.search(name if "_" in self.text else name.replace("_", " ")):
            yield 1, name
        for line, match in lines_matching(self.pattern, text if "_" in self.text else spaced):
            yield line, match.group(0)


def words_list(root):
    """The tree's own list, or for a tree that has none this one's."""
    path = root / "tests/support/words.txt"
    for line in (path if path.exists() else pathlib.Path(__file__).parent / "words.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            state, text, instead, where, exceptions = ([cell.strip() for cell in re.split(r"\s\|", line)] + ["", ""])[:5]
            starts = tuple(re.match(r"[a-z]*?(?=[a-z]?\?|[^a-z]|$)", part).group(0) for part in text.split("|"))
            yield Word(state == "on", text, re.compile(rf"(?i)(?<![a-z])(?:{text})(?![a-z])"), starts, instead, where, exceptions)


def words_in(root, names, words):
    """Yield (word, file, line, match) for texts and names of files. Identifiers are words with _ between them."""
    for name in names:
        if pathlib.PurePath(name).suffix in WORDED and not re.fullmatch(UNWORDED, name):
            text = (root / name).read_text(errors="replace")
            spaced, low = text.replace("_", " "), (name + "\n" + text).lower()
            for word in words:
                for line, found in word.lines_in(name, text, spaced, low):
                    yield word, name, line, found


def count_words(root, names):
    """Word of words.txt -> number of its matches in the tree."""
    words = list(words_list(root))
    counts = collections.Counter(word.text for word, *_ in words_in(root, names, words))
    return {word: counts[word.text] for word in words}


def check_words(root, names):
    for word, name, line, found in words_in(root, names, [word for word in words_list(root) if word.refused]):
        yield f"{name}:{line}", f"'{found}' is called {word.instead} here (words.txt)"


def check_header_alone(root, name):
    """Report a header that does not compile on its own."""
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
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("root", type=pathlib.Path, nargs="?", default=pathlib.Path("."))
    parser.add_argument("--words", action="store_true")
    options = parser.parse_args()
    root = options.root.resolve()
    names = source_files(root)
    if options.words:
        for word, count in count_words(root, names).items():
            print(f"{count:6} {'on' if word.refused else 'off':4} {word.text:40} {word.instead}" + (f"  [in {word.where}]" if word.where else ""))
        return 0
    findings = []
    installed = installed_headers(root)
    for name in names:
        data = (root / name).read_bytes()
        if name.split("/", 1)[0] not in TOP_LEVEL and not name.startswith("."):
            findings.append((name, "does not belong at the top level"))
        if name.endswith(".cc") and name != "runtime/tensorflow/tensorflow_done.cc":
            findings.append((name, "C++, where C is expected"))
        if b"\0" in data[:8192]:
            continue
        text = data.decode("utf-8", errors="replace")
        suffix = pathlib.PurePath(name).suffix
        for line, what in check_text(name, text):
            findings.append((f"{name}:{line}", what))
        for line, what in check_pipes(name, text) if not re.fullmatch(UNWORDED, name) else []:
            findings.append((f"{name}:{line}", what))
        for line, what in check_first_comment(root, name, text):
            findings.append((f"{name}:{line}", what))
        for line, what in check_code(name, text, installed) if suffix in CODE else []:
            findings.append((f"{name}:{line}", what))
    findings += check_registered(root, names)
    findings += check_folders(names)
    findings += check_budget(root, names)
    findings += check_words(root, names)
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
