#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Covers tests/support/structure.py.
"""The look at object files finds each cycle and each use against the order of the rooms, and nothing in a tree without them."""
import pathlib
import re
import subprocess
import sys
import tempfile

CHECK = pathlib.Path(__file__).resolve().parents[2] / "support" / "structure.py"

# A tree that stands: file -> the functions that it defines, and those that it uses.
GOOD = {
    "base/text.c": (["pl_text_put"], []),
    "collectives/bootstrap/bootstrap.c": (["pl_bootstrap_new"], ["pl_text_put"]),
    "collectives/core/world.c": (["pl_world_new"], ["pl_bootstrap_new", "pl_request_wait_until"]),
    "collectives/core/request_wait.c": (["pl_request_wait_until"], ["pl_text_put"]),
    "collectives/shm/shm.c": (["pl_shm_run"], ["pl_world_new"]),
    "collectives/hier/hier.c": (["pl_hier_run"], ["pl_p2p_run"]),
    "collectives/p2p/p2p.c": (["pl_p2p_run"], ["pl_world_new", "pl_algorithm_step"]),
    "collectives/algorithms/algorithm.c": (["pl_algorithm_step"], []),
    "collectives/backends.c": (["pl_backends_table"], ["pl_hier_run", "pl_shm_run"]),
    "s3io/sampler.c": (["pl_sampler_next"], []),
    "s3io/record/record.c": (["pl_record_read"], ["pl_window_fill"]),
    "s3io/bytes/window.c": (["pl_window_fill", "pl_bytes_count"], ["pl_sampler_next"]),
    "s3io/s3/s3_get.c": (["pl_s3_get_part"], ["pl_s3_get_retry"]),
    "s3io/s3/s3_reply.c": (["pl_s3_get_retry"], ["pl_s3_get_part"]),  # a pair, which may be
    "runtime/start.c": (["pl_start_all"], ["pl_backends_table", "pl_sampler_next"]),
    "entrypoint/hostname_preload.c": (["gethostname"], []),
    "base/log.c": (["pl_log_line"], ["gethostname"]),  # the C library's
    "entrypoint/job/job.c": (["pl_job_read"], ["pl_record_read"]),
    "entrypoint/main.c": (["main"], ["pl_job_read"]),
    "programs/bench/main.c": (["main"], ["pl_backends_table", "pl_job_read"]),
    "programs/sync/main.c": (["main"], ["pl_s3_get_part"]),
}

# What is put into it, as file -> functions or #include lines; and what each finding must say, in any order.
BROKEN = [
    ("up among rooms", {"base/text.c": (["pl_text_put"], ["pl_world_new"])}, [],
     ["base/text.c: uses pl_world_new of collectives/core/world.c, which base must not know"]),
    ("sideways among rooms", {"s3io/bytes/window.c": (["pl_window_fill"], ["pl_shm_run"])}, [],
     ["s3io/bytes/window.c: uses pl_shm_run of collectives/shm/shm.c"]),
    ("a cycle of sub-rooms", {"collectives/core/topology.c": (["pl_topology_new"], ["pl_shm_run"])}, [],
     ["collectives/core/topology.c: uses pl_shm_run of collectives/shm/shm.c, which collectives/core must not know",
      "collectives: a cycle joins collectives/core, collectives/shm: "]),
    ("a cycle of sub-rooms by a header", {}, [("collectives/core/request_wait.c", "collectives/shm/layout.h")],
     ["collectives: a cycle joins collectives/core, collectives/shm: collectives/core/request_wait.c includes collectives/shm/layout.h"]),
    ("an arrow that is not declared", {"collectives/shm/shm.c": (["pl_shm_run"], ["pl_world_new", "pl_algorithm_step"])}, [],
     ["collectives/shm/shm.c: uses pl_algorithm_step of collectives/algorithms/algorithm.c"]),
    ("a small part on top of a room that uses a sub-room", {"s3io/sampler.c": (["pl_sampler_next"], ["pl_s3_get_part"])}, [],
     ["s3io/sampler.c: uses pl_s3_get_part of s3io/s3/s3_get.c, which s3io must not know"]),
    ("a pair in collectives", {"collectives/core/request_wait.c": (["pl_request_wait_until"], ["pl_world_new"])}, [],
     ["collectives: a cycle joins 2 files: collectives/core/request_wait.c uses pl_world_new of collectives/core/world.c; "]),
    ("three files elsewhere", {"s3io/s3/s3_reply.c": (["pl_s3_get_retry"], ["pl_s3_list_next"]),
                               "s3io/s3/s3_list.c": (["pl_s3_list_next"], ["pl_s3_get_part"])}, [],
     ["s3io: a cycle joins 3 files: s3io/s3/s3_get.c uses pl_s3_get_retry of s3io/s3/s3_reply.c; "]),
    ("a room that stands on programs", {"entrypoint/main.c": (["main"], ["pl_keys_derive"]), "programs/keys/keys.c": (["pl_keys_derive"], [])}, [],
     ["entrypoint/main.c: uses pl_keys_derive of programs/keys/keys.c, which entrypoint/main.c must not know"]),
    ("one program that uses another's", {"programs/sync/main.c": (["main"], ["pl_keys_derive"]), "programs/keys/keys.c": (["pl_keys_derive"], [])}, [],
     ["programs/sync/main.c: uses pl_keys_derive of programs/keys/keys.c, which programs/sync must not know"]),
    ("a name without pl_", {"s3io/record/record.c": (["record_read"], ["pl_window_fill"])}, [],
     ["s3io/record/record.c: exports 'record_read': exported names begin with pl_"]),
    ("one name for two things", {"runtime/plan.c": (["pl_job_read"], [])}, [],
     ["entrypoint/job/job.c: defines pl_job_read, and so does runtime/plan.c"]),
    ("one tag for two things", {"base/place.c": (["pl_place_find", "struct pl_place"], []), "runtime/plan.c": (["pl_plan_new", "struct pl_place"], [])}, [],
     ["base/place.c: defines the tag pl_place, and so does runtime/plan.c"]),
]

objects = {}  # text -> object; most files are the same in every tree


def source_of(defined, used, headers):
    """C text that defines functions, of which the first calls those that are used."""
    calls = " ".join(f"{function}();" for function in used)
    lines = [f'#include "{header}"' for header in headers] + [f"void {function}(void);" for function in used]
    for function in defined:
        if function.startswith("struct "):
            lines.append(f"{function} {{\n    int number;\n}};")
            continue
        kind = "int" if function == "main" else "void"
        lines.append(f"{kind} {function}(void);\n{kind} {function}(void) {{ {calls if function == defined[0] else ''} }}")
    return "\n".join(lines) + "\n"


def make(root, files, includes):
    """Writes the files, and a build folder with their objects."""
    for _, header in includes:
        (root / header).parent.mkdir(parents=True, exist_ok=True)
        (root / header).write_text("#pragma once\n")
    ninja = ["# what Meson writes, in short"]
    (root / "build/lib.p").mkdir(parents=True)
    for name, (defined, used) in files.items():
        built = f"lib.p/{name.replace('/', '_')}.o"
        text = source_of(defined, used, [header for user, header in includes if user == name])
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
        if text not in objects:
            subprocess.run(["cc", "-c", "-fno-builtin", "-I", root, "-o", root / "build" / built, root / name], check=True)
            objects[text] = (root / "build" / built).read_bytes()
        (root / "build" / built).write_bytes(objects[text])
        ninja.append(f"build {built}: c_COMPILER ../{name}")
    (root / "build/build.ninja").write_text("\n".join(ninja) + "\n")


def findings(files, includes=(), *options):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        make(root, files, includes)
        done = subprocess.run([sys.executable, CHECK, root / "build", "--root", root, *options], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines(), done.stderr


def main():
    wrong = []
    code, found, errors = findings(GOOD)
    if code or found or errors:
        wrong.append(f"the tree that stands: {code} {found} {errors}")
    for what, change, includes, expected in BROKEN:
        code, found, errors = findings({**GOOD, **change}, includes)
        if code != 1 or len(found) != len(expected) or not all(any(says in row for row in found) for says in expected):
            wrong.append(f"{what}: {code} {found} {errors}")
    code, found, errors = findings({**GOOD, "base/text.c": (["pl_text_put", "pl_log_text"], [])}, (), "--names")
    if code or found != ["base/text.c: pl_log_text"]:
        wrong.append(f"names: {code} {found} {errors}")
    code, found, errors = findings(GOOD, (), "--summary")
    figures = {row.split()[0]: row.split() for row in found if row and row.split()[0] in ("collectives", "s3io", "all")}
    if code or figures.get("collectives", [])[4:7] != ["7", "0", "5"] or figures.get("s3io", [])[9:10] != ["2"]:
        wrong.append(f"summary: {code} {found} {errors}")
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        make(root, GOOD, ())
        (root / "build/lib.p/base_text.c.o").unlink()
        done = subprocess.run([sys.executable, CHECK, root / "build", "--root", root], capture_output=True, text=True, check=False)
    if done.returncode == 0 or not re.search(r"not built: .*base_text\.c\.o", done.stderr):
        wrong.append(f"an object that is missing: {done.returncode} {done.stderr}")
    print("\n".join(wrong) if wrong else f"{len(BROKEN)} broken trees, each found")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
