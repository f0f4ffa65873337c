#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Covers README.md, docs/troubleshooting.md, docs/internals/supervision.md, entrypoint/verbs.c, entrypoint/main.c, tests/models/stop.pml, tests/models/hosts.pml.
"""No run of eight words is on two pages. What the pages name is there: links and their anchors, files, functions, PACELINE_* variables, verbs of paceline and, on
the page of troubles, messages. So is what the table of verbs names: mains of the front binary, programs, the options of a script.
The states of a stop follow each other alike on the page, in the code and in the model that is checked."""
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1])
FOLDERS = ["base", "device", "collectives", "s3io", "runtime", "entrypoint", "programs", "examples", "python", "tests"]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/README.md"), ROOT / "tests/conformance.md"]
EXAMPLES = {"pl_part_open", "PACELINE_NAME"}  # names that stand for others


def anchors(text):
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in re.findall(r"^#+ (.*)$", text, re.M)}


def findings(page, text, words, verbs):
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not target.startswith("http") and (not there.exists() or (anchor and anchor not in anchors(there.read_text()))):
            yield f"link {target}"
    for path in re.findall(r"`((?:" + "|".join(FOLDERS) + r")/[\w./-]+\.\w+)", text):
        if not (ROOT / path).exists():
            yield f"file {path}"
    for name in set(re.findall(r"\b(pl_\w+)\(|\b(PACELINE_[A-Z_0-9]+)", text)):
        if not set(name) & (words | EXAMPLES):
            yield f"name {name[0] or name[1]}"
    for verb in re.findall(r"(?:^ {4}|`|&& |\d )paceline ([a-z]\w*)", text, re.M):
        if verb not in verbs:
            yield f"verb {verb}"


def repetitions(texts, words=8):
    """Runs of eight words of prose that two pages have. Code, links, messages in backquotes, tables' lines and pictures do not count."""
    seen = collections.defaultdict(set)
    for page, text in texts.items():
        text = re.sub(r"(?ms)^```.*?^```|^ {4}.*?$|`[^`]*`|!\[[^]]*\]", " | ", text)
        for run in re.split(r"[|\n]\s*\n|\|", re.sub(r"\]\([^)]*\)", "]", text)):
            run = re.findall(r"\w[\w.'+-]*\w|\w", run.lower())
            for start in range(len(run) - words + 1):
                seen[" ".join(run[start:start + words])].add(page)
    return [f"{' and '.join(sorted(pages))} both have '{run}': one of them should link to the other" for run, pages in seen.items() if len(pages) > 1]


def messages(files):
    """Every text of the C sources, adjacent literals joined, what printf() fills in as "...", one a line."""
    literal = r'"(?:\\.|[^"\\\n])*"'
    for path in files:
        code = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
        for run in re.findall(rf"(?:{literal}(?:\s|PRI\w+|\\\n)*)+", code):
            text = re.sub(r"PRI\w+", "...", "".join(re.findall(rf"{literal}|PRI\w+", run)).replace('"', ""))
            yield re.sub(r"%(?:-?[\d.*]*(?:hh|ll|[hlzjt])?[a-zA-Z]|(?=\.\.\.))", "...", text).replace("......", "...")


def troubles(page, known):
    for quoted in re.findall(r"^- `([^`]+)`", page, re.M):
        pattern = re.compile(".*?".join(re.escape(part) for part in quoted.split("...")))
        if not any(pattern.search(text) for text in known):
            yield f"message '{quoted}'"


def verbs_of(table):
    """The verbs, and what does not agree with the table."""
    verbs, wrong = {}, []
    for name, rest in re.findall(r'\{\.name = "([a-z0-9]+)"(.*?)(?=\{\.name|\n\};)', table, re.S):
        verbs[name] = f'.program = "paceline-{name}"' in rest
    built_in = set(re.findall(r'\{"(\w+)", \w+\},', (ROOT / "entrypoint/main.c").read_text()))
    if built_in != {name for name, has_program in verbs.items() if not has_program}:
        wrong.append(f"entrypoint/main.c: what it runs is not what entrypoint/verbs.c says: {sorted(built_in)}")
    build = (ROOT / "programs/meson.build").read_text()
    mains = set(re.findall(r"'(\w+)': \[files\(", build)) | set(re.findall(r"'(\w+)'", re.search(r"foreach script : \[(.*)\]", build).group(1)))
    if {name for name, has_program in verbs.items() if has_program} != mains - built_in:  # mpirun starts the program of a built-in verb
        wrong.append("entrypoint/verbs.c: its programs are not those of programs/")
    # Not programs, which take their options from their rows, but scripts.
    for verb, script, pattern in (("demo", "programs/demo/paceline-demo.sh", r"for name in (--[^;]*);"), ("setup", "entrypoint/install.sh", r"case \$word in(.*?)\n  esac")):
        listed = set(re.findall(r'\{"--([a-z0-9-]+)"', re.search(verb + r"_options\[\] = \{(.*?)\n\};", table, re.S).group(1)))
        taken = set(re.findall(r"(?<=[ |])--([\w-]+)", re.search(pattern, (ROOT / script).read_text(), re.S).group(1))) - {"help"}
        if listed != taken:
            wrong.append(f"entrypoint/verbs.c: options of {verb}: {sorted(listed ^ taken)}")
    return set(verbs) | {"help"}, wrong


def transitions(prefix, names, source, model, marker, in_model, in_page):
    """Compares the table of the states PREFIX_NAME in a source with the go() of a model and with a list in docs/internals/supervision.md."""
    tables = re.findall(r"may_follow\[.*?\n    \};", (ROOT / source).read_text(), re.S)
    table = next(table for table in tables if f"[{prefix}_" in table)
    code = {(state.lower(), after.lower()) for state, row in re.findall(rf"\[{prefix}_(\w+)\] =\s+\{{(.*?)\}}", table, re.S)
            for after in re.findall(rf"\[{prefix}_(\w+)\] = true", row)}
    words = re.search(rf"inline {marker}.*?assert\((.*?)\);", (ROOT / model).read_text(), re.S).group(1)
    words = " ".join(words.replace("&&", " and ").replace("||", " or ").split())
    values = {in_model + name.upper(): name for name in names}
    name_of = re.search(r"(\w+) == ", words).group(1)
    model_has = {(state, after) for state in names for after in names if eval(words, {**values, name_of: state, "next": after})}
    rows = re.findall(rf"^    {in_page}(\w+) -> ([\w, ]+)$", (ROOT / "docs/internals/supervision.md").read_text(), re.M)
    page = {(state, after) for state, row in rows if state in names for after in row.split(", ")}
    for where, there in ((model, model_has), ("docs/internals/supervision.md", page)):
        for state, after in sorted(code ^ there):
            yield f"{where}: {in_page}{state} -> {after} is {'missing' if (state, after) in code else 'not in ' + source}"


def states():
    folder = "entrypoint/supervise/"
    yield from transitions("PL_STOP", ("running", "saving", "held", "deferred", "released"), folder + "shim.c", "tests/models/stop.pml", r"go\(next\)", "", "")
    for kind, file, names in (("host", "host.c", "preparing linking running closing ended"), ("connection", "supervise.c", "open ready ended dropped"),
                              ("session", "links.c", "away refused linked idle done lost")):
        yield from transitions(f"PL_{kind.upper()}", names.split(), folder + file, "tests/models/hosts.pml", rf"go_{kind}\(", kind.upper() + "_", kind + ": ")


def main():
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")) if path.suffix in (".c", ".h", ".py", ".sh")]
    words = set(re.findall(r"\w+", "\n".join(path.read_text() for path in files))) - {""}
    words |= {f"PACELINE_{name}" for name in re.findall(r'^    X\((\w+), "', (ROOT / "base/knob.h").read_text(), re.M)}
    words |= {f"PACELINE_{name}" for name in re.findall(r'"(\w+)"', (ROOT / "entrypoint/job/settings.c").read_text())}
    verbs, found = verbs_of((ROOT / "entrypoint/verbs.c").read_text())
    found += [f"{page.relative_to(ROOT)}: {what} is not there" for page in PAGES for what in findings(page, page.read_text(), words, verbs)]
    sources = [path for path in files if path.suffix == ".c" and path.relative_to(ROOT).parts[0] not in ("tests", "examples")]
    known = list(messages(sources))
    assert len(known) > 1000 and list(troubles("- `a message that nothing says`", known)), "the check of messages finds nothing"
    page = (ROOT / "docs/troubleshooting.md").read_text()
    found += [f"docs/troubleshooting.md: {what} is not there" for what in troubles(page, known)]
    found += states()
    assert repetitions({"a": "one two three four five six seven eight", "b": "So one two three\nfour five six seven eight."}), "repetitions finds nothing"
    found += repetitions({str(page.relative_to(ROOT)): page.read_text() for page in PAGES if page.parent in (ROOT, ROOT / "docs", ROOT / "docs/internals")
                          and page.name not in ("CHANGELOG.md", "CONTRIBUTING.md")})
    print("\n".join(found) or f"{len(PAGES)} pages name what there is")
    sys.exit(1 if found else 0)


main()
