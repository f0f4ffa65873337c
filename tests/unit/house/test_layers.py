#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The layer check finds each thing that it is there to find, and nothing in a clean tree."""
import pathlib
import subprocess
import sys
import tempfile

CHECK = pathlib.Path(__file__).resolve().parents[2] / "support" / "layers.py"
SPDX = "/* SPDX-License-Identifier: Apache-2.0 */\n"

# path -> (content, what the findings about it must say; none for a clean file)
TREE = {
    "base/good.h": ("#ifndef GOOD\n#define GOOD\n\n#include <stddef.h>\n\nstruct good {\n    size_t bytes;\n};\n\n#endif\n", []),
    "base/environment.c": ('#include <stdlib.h>\n\nconst char *home(void)\n{\n    return getenv("HOME");\n}\n', []),
    "collectives/world_mpi.c": ("#include <mpi.h>\n", []),
    "entrypoint/main.c": ("#include <stdlib.h>\n\nvoid leave(void)\n{\n    exit(3);\n}\n", []),
    "base/words.c": ('/* mpi.h and exit( in a comment */\nconst char *text = "getenv(";\n', []),
    "base/upward.c": ('#include "runtime/plan.h"\n', ["base/ must not know runtime/"]),
    "s3io/mpi.c": ("#include <mpi.h>\n", ["'mpi.h' belongs"]),
    "s3io/http/http_curl.c": ("#include <curl/curl.h>\n", []),
    "s3io/load.c": ("#include <curl/curl.h>\n", ["'curl/curl.h' belongs"]),
    "runtime/device.c": ("#include <cuda_runtime.h>\n", ["'cuda_runtime.h' belongs"]),
    "runtime/sideways.c": ('#include "sideways.h"\n', ["included from the top"]),
    "runtime/leave.c": ("void leave(void)\n{\n    exit(3);\n}\n", ["'exit(' belongs"]),
    "runtime/ask.c": ('const char *ask(void)\n{\n    return secure_getenv("HOME");\n}\n', ["'secure_getenv(' belongs"]),
    "runtime/alone.h": ("struct alone {\n    size_t bytes;\n};\n", ["does not compile alone"]),
    "runtime/later.c": ("/* TO" + "DO: all of it */\n", ["unfinished work"]),
    "runtime/here.c": ('const char *here = "/ho' + 'me/someone/data";\n', ["a path of one machine"]),
    "runtime/wide.c": ("/* " + "w" * 120 + " */\n", ["columns, more than"]),
    "runtime/long.c": ("\n" * 900, ["longer than"]),
    "tests/unit/base/test_ghost.c": ("int ghost;\n", ["no test in tests/unit/base/meson.build names it"]),
    "tests/unit/base/attic/test_ghost.c": ("int ghost;\n", ["no test in tests/unit/base/meson.build names it"]),
    "tests/unit/base/attic/test_named.c": ("int named;\n", []),
}


def main():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, (content, _) in TREE.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(SPDX + content)
        (root / "base/nameless.c").write_text("int nameless;\n")
        (root / "tests/unit/base/meson.build").write_text("# SPDX-License-Identifier: Apache-2.0\n# 'attic/named'\n")
        done = subprocess.run([sys.executable, CHECK, root], capture_output=True, text=True, check=False)
        found = [line for line in done.stdout.splitlines() if "clang-format" not in line]
    wrong = [] if done.returncode == 1 else [f"exit code {done.returncode}"]
    expected = {name: says for name, (_, says) in TREE.items()} | {"base/nameless.c": ["no SPDX line"]}
    for name, says in expected.items():
        rows = [line for line in found if line.startswith(name + ":")]
        if len(rows) != len(says) or not all(any(word in row for row in rows) for word in says):
            wrong.append(f"{name}: expected {says}, found {rows}")
    print("\n".join(wrong + [done.stderr]) if wrong else f"{len(found)} findings, all expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
