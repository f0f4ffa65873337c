#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Covers tests/support/layers.py.
"""The layer check finds each thing that it is there to find, and nothing in a clean tree."""
import pathlib
import subprocess
import sys
import tempfile

CHECK = pathlib.Path(__file__).resolve().parents[2] / "support" / "layers.py"
COVERS = "/* Covers base/good.h. */\n"
WORDS = """# state | word | instead | in | not in
on  | wombats? | marsupial |  | ^base/
on  | new_quoll | new marsupial
on  | zebras? | horse | ^runtime/
off | echidnas? | other
"""
BUDGET = """# room | lines | files | small files
collectives 5000 50 50
s3io 10 3 2
"""
SPDX = "/* SPDX-License-Identifier: Apache-2.0 */\n"
PURPOSE = "/* What it is for. */\n"
SILENT = {"base/silent.c"}

# path -> (content, what the findings about it must say; none for a clean file)
TREE = {
    "base/good.h": ("#ifndef GOOD\n#define GOOD\n\n#include <stddef.h>\n\nstruct good {\n    size_t bytes;\n};\n\n#endif\n", []),
    "base/environment.c": ('#include <stdlib.h>\n\nconst char *home(void)\n{\n    return getenv("HOME");\n}\n', []),
    "collectives/world_mpi.c": ("#include <mpi.h>\n", []),
    "entrypoint/main.c": ("#include <stdlib.h>\n\nvoid leave(void)\n{\n    exit(3);\n}\n", []),
    "base/words.c": ('/* mpi.h and exit( in a comment */\nconst char *text = "getenv(";\n', []),
    "base/silent.c": ("#include <stddef.h>\n", ["no line that says what the file is for"]),
    "base/upward.c": ('#include "runtime/plan.h"\n', ["base/ must not know runtime/"]),
    "s3io/mpi.c": ("#include <mpi.h>\n", ["'mpi.h' belongs"]),
    "s3io/http/http_curl.c": ("#include <curl/curl.h>\n", []),
    "s3io/load.c": ("#include <curl/curl.h>\n", ["'curl/curl.h' belongs"]),
    "runtime/device.c": ("#include <cuda_runtime.h>\n", ["'cuda_runtime.h' belongs"]),
    "runtime/sideways.c": ('#include "sideways.h"\n', ["included from the top"]),
    "runtime/leave.c": ("void leave(void)\n{\n    exit(3);\n}\n", ["'exit(' belongs"]),
    "runtime/ask.c": ('const char *ask(void)\n{\n    return secure_getenv("HOME");\n}\n', ["'secure_getenv(' belongs"]),
    "runtime/pointer.c": ("int is_set(const char *text)\n{\n    return text != NULL;\n}\n", ["a pointer is tested by itself"]),
    "runtime/cast.c": ("#include <stdio.h>\n\nvoid say(void)\n{\n    (void)puts(\"(void)puts(\");\n}\n", ["dropped without a cast"]),
    "runtime/alone.h": ("struct alone {\n    size_t bytes;\n};\n", ["does not compile alone"]),
    "runtime/later.c": ("/* TO" + "DO: all of it */\n", ["unfinished work"]),
    "runtime/here.c": ('const char *here = "/ho' + 'me/someone/data";\n', ["a path of one machine"]),
    "runtime/wide.c": ("/* " + "w" * 120 + " */\n", ["columns, more than"]),
    "runtime/long.c": ("\n" * 900, ["longer than"]),
    "collectives/shm/down.c": ('#include "collectives/core/types.h"\n#include "collectives/world.h"\n', []),
    "collectives/core/up.c": ('#include "collectives/shm/layout.h"\n', ["collectives/core must not know collectives/shm"]),
    "collectives/hier/far.c": ('#include "collectives/reduce/kernel.h"\n#include "collectives/shm/layout.h"\n',
                               ["collectives/hier must not know collectives/shm"]),
    "collectives/backends.c": ('#include "collectives/shm/layout.h"\n', []),
    "s3io/small.c": ('#include "s3io/s3/s3_get.h"\n', ["s3io must not know s3io/s3"]),
    "entrypoint/job/job.c": ('#include "s3io/s3/credentials.h"\n', []),
    "examples/own.c": ('#include "examples/own.h"\n#include "base/good.h"\n', []),
    "examples/private.c": ('#include "base/silent.h"\n', ["installed headers only, which 'base/silent.h' is not"]),
    "runtime/worded.c": ("/* Wombats. */\nint pl_wombat_count; /* not wombatlike */\n", ["'Wombats' is called marsupial", "'wombat' is called marsupial"]),
    "runtime/named/wombat.c": ("int nothing;\n", ["'runtime/named/wombat.c' is called marsupial"]),
    "runtime/quoll.c": ("int pl_new_quoll; /* a new quoll */\n", ["'new_quoll' is called new marsupial"]),
    "base/zebra.c": ("/* a zebra and a wombat, in a folder where they may be */\n", []),
    "runtime/echidna.c": ("/* off, so far: an echidna */\n", []),
    "tests/unit/base/test_ghost.c": (COVERS + "int ghost;\n", ["no test in tests/unit/base/meson.build names it"]),
    "tests/unit/base/attic/test_ghost.c": (COVERS + "int ghost;\n", ["no test in tests/unit/base/meson.build names it"]),
    "tests/unit/base/attic/test_named.c": (COVERS + "int named;\n", []),
    "tests/unit/base/attic/test_two.c": ("/* Covers base/good.h,\n * base/words.c. What it does. */\n", []),
    "tests/unit/base/attic/test_silent.c": ("/* Tests something. */\nint named; /* Covers base/good.h. */\n", ["says in its first comment what it covers"]),
    "tests/unit/base/attic/test_wrong.c": ("/* Covers base/good.h, base/gone.c. */\nint named;\n", ["covers 'base/gone.c', which does not exist"]),
    "tests/pipes.sh": ("tar tzf a | grep -q b\nnm a |\n  head -n 1\nx=$(nm a | sed '/b/q')\nnm a | awk '/b/ { print; exit }'\nnm a | { read -r b; }\n"
                       "nm a | LC_ALL=C grep -a -m 1 b\nnm a 2>&1 | sed -n '2{p;q}'\nsh -c 'nm a | head'\n", ["may leave the pipe early"] * 8),
    "tests/whole.sh": ("# nm a | head\ngrep -q a b || head -n 1 b\nnm a | head -n -1\nnm a | sed 's/q/a/; /quick/d'\nnm a | grep 'a -q' >/dev/null\n"
                       "nm a | awk '{ n++ }\nEND { exit n }'\nnm a | while read -r b; do echo; done\ngrep -q a <<<\"$b\"\n", []),
    "tests/pipes.py": ("# SPDX-License-Identifier: Apache-2.0\nSCRIPT = 'nm a | head -n 1'\nhead = 1 | len(SCRIPT)\n", ["may leave the pipe early"]),
    "docs/pipes.md": ("A | head | of a table\n\n```sh\nnm a | grep -q b\n```\n\n    rank 0 | read all | work\n", ["may leave the pipe early"]),
    "tests/unit/base/attic/test_script.sh": ("# Covers base/good.h.\n", []),
}


def main():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, (content, _) in TREE.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            purpose = PURPOSE if name.endswith(".c") and not name.startswith("tests/") and name not in SILENT else ""
            (root / name).write_text((SPDX.replace("/*", "#") if name.endswith(".sh") else SPDX) + purpose + content)
        for number in range(41):
            (root / f"base/many/file_{number}.h").parent.mkdir(exist_ok=True)
            (root / f"base/many/file_{number}.h").write_text(SPDX)
        (root / "tests/support").mkdir(parents=True)
        (root / "tests/support/words.txt").write_text(WORDS)
        (root / "tests/support/budget.txt").write_text(BUDGET)
        (root / "runtime/meson.build").write_text("# SPDX-License-Identifier: Apache-2.0\npublic_headers = {\n  'base': ['good'],\n}\n")
        (root / "base/nameless.h").write_text("int nameless;\n")
        (root / "tests/unit/base/meson.build").write_text("# SPDX-License-Identifier: Apache-2.0\n# 'attic/named' 'attic/two' 'attic/silent' 'attic/wrong' 'attic/script'\n")
        done = subprocess.run([sys.executable, CHECK, root], capture_output=True, text=True, check=False)
        found = [line for line in done.stdout.splitlines() if "clang-format" not in line]
        counts = subprocess.run([sys.executable, CHECK, root, "--words"], capture_output=True, text=True, check=False).stdout
    wrong = [] if done.returncode == 1 else [f"exit code {done.returncode}"]
    expected = {name: says for name, (_, says) in TREE.items()} | {"base/nameless.h": ["no SPDX line"], "base/many": ["41 files, more than 40"],
                                                             "s3io": ["12 lines, 2 more", "4 files, 1 more", "4 files of fewer than 60 lines, 2 more"]}
    for name, says in expected.items():
        rows = [line for line in found if line.startswith(name + ":")]
        if len(rows) != len(says) or not all(any(word in row for row in rows) for word in says):
            wrong.append(f"{name}: expected {says}, found {rows}")
    if [row.split()[:3] for row in counts.splitlines()] != [["3", "on", "wombats?"], ["1", "on", "new_quoll"], ["0", "on", "zebras?"], ["2", "off", "echidnas?"]]:
        wrong.append(f"counts of words: {counts}")
    print("\n".join(wrong + [done.stderr]) if wrong else f"{len(found)} findings, all expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
