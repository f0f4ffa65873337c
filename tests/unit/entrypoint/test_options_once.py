#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Covers entrypoint/options.h.
"""test_options_once.py BUILD SOURCE: an option is written once. Without its row, help, the parser, the manual page and both
shells' completions have it no more."""
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

BUILD, SOURCE = map(pathlib.Path, sys.argv[1:])
OPTION = "--first"  # of `paceline feed` alone


def has_it(program, pages):
    """Which of the five have the option, by what they print."""
    texts = {"help": [program, "--help"], "parser": [program, OPTION, "1", "FROM", "PATH", "ONE TOO MANY"]}
    texts.update((kind, [pages, kind]) for kind in ("man", "bash", "zsh"))
    for kind, words in texts.items():
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        text = (done.stdout + done.stderr).replace("\\-", "-")
        if f"there is no option {OPTION};" not in text if kind == "parser" else OPTION in text:
            yield kind


def build(target, sources, folder):
    """Links `target` with its own object files of `sources`, compiled with the headers in `folder`, instead of the build's."""
    program = folder / pathlib.Path(target).name
    objects = []
    for source, of in sources.items():
        entry = next(entry for entry in json.loads((BUILD / "compile_commands.json").read_text())
                     if entry["file"].endswith("/" + source) and entry["output"].startswith(of))
        objects.append(f"{program}-{len(objects)}.o")
        words = shlex.split(entry["command"].replace(entry["output"], objects[-1]))
        words.insert([word[:2] for word in words].index("-I"), f"-I{folder}")  # the first folder with headers
        subprocess.run(words, cwd=BUILD, check=True, timeout=300)
    links = re.search(rf"^build {target}: c_LINKER .*\n LINK_ARGS = (.*)", (BUILD / "build.ninja").read_text(), re.M).group(1)
    subprocess.run(["cc", "-o", program, *objects, *shlex.split(links)], cwd=BUILD, check=True, timeout=300)
    return program


def main():
    kinds = ["help", "parser", "man", "bash", "zsh"]
    before = list(has_it(BUILD / "programs/paceline-feed", BUILD / "entrypoint/print_pages"))
    with tempfile.TemporaryDirectory(prefix="paceline-options-") as scratch:
        folder = pathlib.Path(scratch)
        rows, count = re.subn(rf'^    ROW\("{OPTION}", [^\n]*\\\n', "", (SOURCE / "entrypoint/options.h").read_text(), flags=re.M)
        assert count == 1, f"{OPTION} has {count} rows"
        (folder / "entrypoint").mkdir()
        (folder / "entrypoint/options.h").write_text(rows)
        after = list(has_it(build("programs/paceline-feed", {"programs/feed/main.c": "programs/", "entrypoint/verbs.c": "entrypoint/"}, folder),
                            build("entrypoint/print_pages", {"entrypoint/print_pages.c": "entrypoint/", "entrypoint/verbs.c": "entrypoint/"}, folder)))
    if before != kinds or after:
        sys.exit(f"with its row {OPTION} is in {before}, expected in {kinds}; without it in {after}, expected in none")


main()
