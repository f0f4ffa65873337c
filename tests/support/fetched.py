#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files of other projects, which are not part of this tree.

`fetched.py REPOSITORY REVISION FILE...` prints the folder of fetched(); without one it prints why the test is skipped and exits with 77.
"""
import fcntl
import os
import pathlib
import shutil
import subprocess
import sys

SKIP = 77


def fetched(repository, revision, files):
    """A folder below the build folder with the files of a repository at a tag or commit, which git fetches once; the test is skipped if that is not possible."""
    folder = pathlib.Path(os.environ["PACELINE_BUILD"], repository.rsplit("/", 1)[-1] + "-source")
    with open(f"{folder}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests may run at the same time
        if not all((folder / name).is_file() for name in files):
            shutil.rmtree(folder, ignore_errors=True)
            for words in (["init", str(folder)], ["-C", str(folder), "fetch", "--depth", "1", repository, revision], ["-C", str(folder), "checkout", "FETCH_HEAD"]):
                done = subprocess.run(["git", "-c", "advice.detachedHead=false", *words[:-1], "-q", words[-1]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                      timeout=300, env={**os.environ, "GIT_TERMINAL_PROMPT": "0"})
                if done.returncode != 0:
                    print(f"skipped: git cannot fetch {files[0]} from {repository}: {(done.stdout.strip().splitlines() or ['no word'])[-1]}")
                    sys.exit(SKIP)
    return folder


if __name__ == "__main__":
    print(fetched(sys.argv[1], sys.argv[2], sys.argv[3:]))
