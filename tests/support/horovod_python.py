# SPDX-License-Identifier: Apache-2.0
"""Horovod's own Python on Paceline in an environment of a test's own, and programs that ranks run there."""
import os
import subprocess
import sys

SKIP = 77
SECONDS = 900  # far away: what hangs is found by it


def skip(why):
    print(f"SKIP: {why}")
    sys.exit(SKIP)


def run(*words, expect=0, **more):
    """Its output; the test ends where `words` end with another code than `expect`, None: any."""
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS, **more)
    if expect is not None and done.returncode != expect:
        sys.exit(f"{' '.join(words[:8])}: exit {done.returncode}, not {expect}\n{done.stdout}")
    return done.stdout


def pip(python, *packages):
    """Install `packages`, Horovod's without compiling it; the test is skipped where that cannot be."""
    done = subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages], env={**os.environ, "HOROVOD_SKIP_COMPILE": "1"},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS)
    if done.returncode != 0:
        skip(f"pip cannot install {' '.join(packages)} here: {(done.stdout.strip().splitlines() or ['no word'])[-1]}")


def ranks(python, count, program, *words, expect=0, flags=(), **variables):
    """What `count` ranks of `program` print; `flags` are Python's, `variables` come into the environment."""
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1", **variables}
    return run("mpirun", "-n", str(count), "--oversubscribe", python, *flags, "-c", program, *words, expect=expect, env=environment)
