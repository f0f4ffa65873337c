#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Computes the structure of the rooms from the symbols that a build's object files define and use, and from #include lines.

    structure.py BUILD [--root SOURCE]             findings, one per line; exits with 1 if there is any
    structure.py BUILD [--root SOURCE] --summary   figures for a comparison of two trees
    structure.py BUILD [--root SOURCE] --names     exported functions that are not named after their file

A box is a direct member of a room: a file, with its header, or a sub-room. An arrow goes from a file (or box) to another
one whose functions or data it uses. "Arrows back" are those whose removal leaves no cycle, in the best order found.
The build must be complete; a source that is compiled more than once counts once, and sources that only tests compile do not count.
"""
import argparse
import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys

import layers

ROOMS = ["base", "device", "collectives", "s3io", "runtime", "entrypoint", "programs"]
PRODUCT = {".c", ".h", ".inc", ".cu", ".S"}
LARGEST_CYCLE = collections.defaultdict(lambda: 2, collectives=1)  # files of a room that may use each other: pairs, and none
# Suffixes of file names for a processor or a library; names of functions do not contain them.
VARIANT = re.compile(r"_(mpi|cuda|nccl|none|plain|avx2|avx512|neon)$")

# Exported names: ours, those that Horovod and CPython look for, and main.
OWN_NAME = re.compile(r"pl_|horovod_|PyInit_|main$")


def objects_of(build, root):
    """Source, relative to the tree -> its object files."""
    found = collections.defaultdict(list)
    for line in (build / "build.ninja").read_text().splitlines():
        match = re.match(r"build (\S+\.o): \S+ (\S+\.[cS])(?: |$)", line)
        source = match and os.path.relpath(os.path.normpath(build / match.group(2)), root)
        if source and room_of(source) in ROOMS and not match.group(1).startswith("tests/"):
            found[source].append(build / match.group(1))
    return found


def symbols_of(objects):
    """Source -> names that it defines, with nm's letter, and source -> names that it uses."""
    missing = [str(path) for paths in objects.values() for path in paths if not path.exists()]
    if missing or not objects:
        sys.exit(f"not built: {missing[0]} and {len(missing) - 1} more" if missing else "no object files: is this a build folder?")
    source_of = {str(path): source for source, paths in objects.items() for path in paths}
    listed = subprocess.run(["nm", "-A", "-P", "-g", *source_of], capture_output=True, text=True, check=True).stdout
    defines, uses = collections.defaultdict(dict), collections.defaultdict(set)
    for line in listed.splitlines():
        path, _, rest = line.partition(": ")
        name, letter = rest.split()[:2]
        if letter in "Uwv":
            uses[source_of[path]].add(name)
        else:
            defines[source_of[path]][name] = letter
    return defines, uses


def room_of(name):
    return name.split("/", 1)[0]


def box_of(name):
    parts = name.split("/")
    return "/".join(parts[:2]) if len(parts) > 2 else name.rsplit(".", 1)[0]


def arrows_between_files(defines, uses):
    """(user, owner) -> names. A name that two programs define, each for itself, is the own room's. Names of others' libraries that
    we define for them (main, what is preloaded) are not arrows."""
    owners = collections.defaultdict(list)
    for source, names in sorted(defines.items()):
        for name in names:
            owners[name].append(source)
    arrows = collections.defaultdict(set)
    for user, names in sorted(uses.items()):
        for name in names:
            if name.startswith("pl_") and name in owners and name not in defines[user]:
                near = [owner for owner in owners[name] if room_of(owner) == room_of(user)]
                for owner in near or owners[name][:1]:
                    arrows[user, owner].add(name)
    twice = {name: where for name, where in owners.items() if name.startswith("pl_") and len(where) > 1}
    return arrows, twice


def tags_twice(root, names):
    """Tag of ours -> files that define a struct, union or enum of that name, where there are several."""
    found = collections.defaultdict(list)
    for name in names:
        text = layers.without_comments((root / name).read_text(errors="replace"))
        for tag in re.findall(r"(?m)^(?:struct|union|enum)\s+(pl_\w+)\s*\{", text):
            found[tag].append(name)
    return {tag: where for tag, where in found.items() if len(where) > 1}


def include_arrows(root, names):
    """(file, header of ours that exists) -> line"""
    found = {}
    known = set(names)
    for name in names:
        if room_of(name) in ROOMS and pathlib.PurePath(name).suffix in layers.CODE:
            text = layers.without_comments((root / name).read_text(errors="replace"))
            for line, match in layers.lines_matching(r'(?m)^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', text):
                if match.group(1) in known:
                    found[name, match.group(1)] = line
    return found


def cycles(edges):
    """Strongly connected sets of more than one node, largest first (Tarjan, without recursion)."""
    nexts = collections.defaultdict(list)
    for a, b in sorted(edges):
        nexts[a].append(b)
    index, low, stack, on_stack, found = {}, {}, [], set(), []
    for start in sorted({node for edge in edges for node in edge}):
        work = [(start, iter(nexts[start]))] if start not in index else []
        if work:
            index[start] = low[start] = len(index)
            stack.append(start)
            on_stack.add(start)
        while work:
            node, rest = work[-1]
            for other in rest:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(nexts[other])))
                    break
                if other in on_stack:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    at = stack.index(node)
                    members = stack[at:]
                    del stack[at:]
                    on_stack.difference_update(members)
                    if len(members) > 1:
                        found.append(sorted(members))
    return sorted(found, key=lambda members: (-len(members), members))


def run_back(edges):
    """Arrows that go against the best order found: within each cycle, greedily (Eades, Lin and Smyth)."""
    back = 0
    for members in cycles(edges):
        inside = {(a, b) for a, b in edges if a in members and b in members}
        left, head, tail = set(members), [], []
        while left:
            live = [(a, b) for a, b in inside if a in left and b in left]
            out, into = collections.Counter(a for a, _ in live), collections.Counter(b for _, b in live)
            sinks, sources = sorted(n for n in left if not out[n]), sorted(n for n in left if not into[n])
            node = (sinks or sources or [max(sorted(left), key=lambda n: out[n] - into[n])])[0]
            tail.insert(0, node) if sinks else head.append(node)
            left.remove(node)
        order = {node: at for at, node in enumerate(head + tail)}
        back += sum(order[a] > order[b] for a, b in inside)
    return back


def floors(edges, nodes):
    """The longest way down, a cycle being one floor."""
    group = {node: node for node in nodes}
    for members in cycles(edges):
        group.update({node: members[0] for node in members})
    nexts = collections.defaultdict(set)
    for a, b in edges:
        if group[a] != group[b]:
            nexts[group[a]].add(group[b])
    height = {}

    def climb(node):
        if node not in height:
            height[node] = 1 + max((climb(other) for other in nexts[node]), default=0)
        return height[node]
    return max((climb(group[node]) for node in nodes), default=0)


def misnamed(defines):
    """Exported functions that are named neither after their file (plan_seal.c: pl_plan_seal_ or pl_plan_), nor sub-room, nor room."""
    for source, names in sorted(defines.items()):
        if source.endswith("_preload.c") or room_of(source) == "programs":
            continue  # names of the C library; a program's own, which no library exports
        parts = source.split("/")
        words = VARIANT.sub("", parts[-1].rsplit(".", 1)[0]).split("_")
        accepted = {parts[0]} | {"_".join(words[:count]) for count in range(1, len(words) + 1)}
        if len(parts) > 2:
            accepted |= {parts[1], f"{parts[1]}_{'_'.join(words)}"}
        for name, letter in sorted(names.items()):
            if letter in "TWi" and name != "main" and not any(re.match(rf"pl_{part}(_|$)", name) for part in accepted):
                yield source, name


class Structure:
    """A tree and one build of it."""

    def __init__(self, root, build):
        self.root, self.names = root, layers.source_files(root)
        self.product = [n for n in self.names if room_of(n) in ROOMS and pathlib.PurePath(n).suffix in PRODUCT]
        self.defines, uses = symbols_of(objects_of(build, root))
        self.arrows, self.twice = arrows_between_files(self.defines, uses)
        self.includes = include_arrows(root, self.names)

    def within(self, room, arrows, node=lambda name: name):
        return {(node(a), node(b)) for a, b in arrows if room_of(a) == room == room_of(b) and node(a) != node(b)}

    def findings(self):
        for (user, owner), names in sorted(self.arrows.items()):
            if not layers.may_know(user, owner):
                yield user, f"uses {sorted(names)[0]} of {owner}, which {layers.key_of(user)} must not know"
        for source, names in sorted(self.defines.items()):
            for name in sorted(names):
                if not source.endswith("_preload.c") and not OWN_NAME.match(name):
                    yield source, f"exports '{name}': exported names begin with pl_"
        for name, sources in sorted(self.twice.items()):
            yield sources[0], f"defines {name}, and so does {', '.join(sources[1:])}: one name means one thing"
        for tag, sources in sorted(tags_twice(self.root, self.product).items()):
            yield sources[0], f"defines the tag {tag}, and so does {', '.join(sources[1:])}: one name means one thing"
        both = list(self.arrows) + list(self.includes)
        for room in ROOMS:
            rooms_edges = self.within(room, both, layers.key_of)
            for members in cycles({(a, b) for a, b in rooms_edges if room not in (a, b)}):
                yield room, f"a cycle joins {', '.join(members)}: " + self.show(members, both, layers.key_of)
            for members in cycles(self.within(room, self.arrows)):
                if len(members) > LARGEST_CYCLE[room]:
                    yield room, f"a cycle joins {len(members)} files: " + self.show(members, self.arrows)

    def show(self, members, arrows, node=lambda name: name):
        """One arrow for each two members."""
        seen = {}
        for a, b in sorted(arrows):
            if node(a) != node(b) and node(a) in members and node(b) in members:
                why = sorted(self.arrows.get((a, b), []))
                seen.setdefault((node(a), node(b)), f"{a} uses {why[0]} of {b}" if why else f"{a} includes {b}")
        return "; ".join(seen.values())

    def summary(self):
        rows = []
        for room in ROOMS:
            files = [n for n in self.product if room_of(n) == room]
            folders = collections.Counter(str(pathlib.PurePath(n).parent) for n in self.names if room_of(n) == room)
            between_boxes, between_files = self.within(room, self.arrows, box_of), self.within(room, self.arrows)
            boxes = {box_of(n) for n in files if n in self.defines} | {box for edge in between_boxes for box in edge}
            file_cycles = cycles(between_files)
            circles = cycles(self.within(room, self.includes, lambda name: name.rsplit(".", 1)[0]))
            rows.append([room, len(files), max(folders.values(), default=0), len(boxes), len(between_boxes), run_back(between_boxes),
                         floors(between_boxes, boxes), len(between_files), run_back(between_files),
                         max(map(len, file_cycles), default=0), len(cycles({(a, b) for a, b in between_boxes if
                         len(folders) > 1})), len(circles), max(map(len, circles), default=0)])
        total = ["all"] + [sum(row[at] for row in rows) for at in range(1, 13)]
        for at in (2, 6, 9, 12):
            total[at] = max(row[at] for row in rows)
        head = ["room", "files", "in a folder", "boxes", "arrows", "back up", "floors", "file arrows", "back up",
                "largest cycle", "box cycles", "#include circles", "largest"]
        return head, rows + [total]


def formatted_lines(root, names):
    """Lines that the product has in the style of this script's tree, whatever its own is. Comments keep their breaks."""
    tool, style = shutil.which("clang-format-14") or shutil.which("clang-format"), pathlib.Path(__file__).parents[2] / ".clang-format"
    if not tool or not style.exists():
        return None
    code = [n for n in names if pathlib.PurePath(n).suffix in {".c", ".h"}]
    done = subprocess.run([tool, f"--style=file:{style.resolve()}", *code], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.count("\n") + sum((root / n).read_text().count("\n") for n in names if n not in code)


def print_summary(tree):
    head, rows = tree.summary()
    cells = [head] + [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[at]) for row in cells) for at in range(len(head))]
    for row in cells:
        print("  ".join(cell.ljust(width) if at == 0 else cell.rjust(width) for at, (cell, width) in enumerate(zip(row, widths))))
    functions = sum(letter in "TWi" for names in tree.defines.values() for letter in names.values())
    wide = [sum(len(line) > layers.MAX_COLUMNS for line in (tree.root / n).read_text(errors="replace").split("\n"))
            for n in tree.names if pathlib.PurePath(n).suffix in {".c", ".h", ".md"}]
    counts = layers.count_words(tree.root, tree.names)
    present = [count for count in counts.values() if count]
    print(f"\nexported functions {functions}, not named after their file {len(list(misnamed(tree.defines)))}, "
          f"names with two owners {len(tree.twice)}")
    print(f"product lines {sum((tree.root / n).read_text().count(chr(10)) for n in tree.product)}, "
          f"at {layers.MAX_COLUMNS} columns {formatted_lines(tree.root, tree.product)}")
    print(f"lines over {layers.MAX_COLUMNS} columns in .c .h .md: {sum(wide)} in {sum(map(bool, wide))} files")
    print(f"private words of the list in use: {len(present)} of {len(counts)}, {sum(present)} times")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).parents[2])
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--names", action="store_true")
    options = parser.parse_args()
    tree = Structure(options.root.resolve(), options.build.resolve())
    if options.summary:
        print_summary(tree)
        return 0
    rows = list(misnamed(tree.defines) if options.names else tree.findings())
    for where, what in rows:
        print(f"{where}: {what}")
    return 1 if rows and not options.names else 0


if __name__ == "__main__":
    sys.exit(main())
