#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the way of one warm sum by name through the library, on two ranks of this host: hvd.allreduce below its module.

Usage: sum_way.py BUILD. The build folder is made if it is not there: without optimisation, with -finstrument-functions.
The sum counted is the one of many that polls least. A move is a step from a function to one in another file.
"""
import collections
import os
import subprocess
import sys

LOOK_UPS = ("pl_named_table_find", "find_name")


def main():
    top = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    build = sys.argv[1]
    if not os.path.exists(os.path.join(build, "build.ninja")):
        subprocess.run(["meson", "setup", build, top, "--buildtype=debug", "-Dc_args=-finstrument-functions"], check=True, stdout=subprocess.DEVNULL)
    program = "tests/bench/sum_way"
    subprocess.run(["ninja", "-C", build, program], check=True, stdout=subprocess.DEVNULL)
    count(os.path.join(build, program))


def count(program):
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    output = subprocess.run(["mpirun", "-n", "2", "--oversubscribe", program], check=True, capture_output=True, text=True, env=environment).stdout
    allocations, *addresses = output.splitlines()
    lines = subprocess.run(["addr2line", "-f", "-e", program], check=True, capture_output=True, text=True, input="\n".join(addresses)).stdout.splitlines()
    steps = [(name, os.path.normpath(place.rsplit(":", 1)[0])) for name, place in zip(lines[::2], lines[1::2])]
    moves = sum(before[1] != after[1] for before, after in zip(steps, steps[1:]))
    times = collections.Counter(name for name, _ in steps)
    print(f"functions entered {len(steps)}, different ones {len(times)}, files {len({place for _, place in steps})}, moves between files {moves}, "
          f"{allocations}, look-ups by name {sum(times[name] for name in LOOK_UPS)}")
    for name, often in times.most_common(12):
        print(f"  {often} x {name}")


main()
