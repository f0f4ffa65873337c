#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Allreduce, allgather and broadcast of 2 to 16 ranks on this machine, in arena and private buffers, beside Open MPI's best.

For each operation, number of ranks and placement, a first pass runs `paceline bench` once with each way that Open MPI has: its defaults, each
algorithm of coll/tuned, coll/sm, coll/han, coll/adapt, and its transport without reading other processes' memory (CMA). A second pass takes, for
each size, the way that was fastest, and repeats it with both kinds of buffers. In each process the loops of the two libraries alternate, and every
result is compared with the right values. The table has medians over the repeats, the ratio Open MPI / Paceline, and the range of this ratio.

The placement comes from /sys: one rank a physical core, other threads of the cores only when these are used up; from two to eight ranks also spread
over the L3 caches, where there are several. With more ranks than processors nothing is bound; such rows are marked, and goals do not hold for them.
"""
import argparse
import ctypes
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]
MODEL = SOURCE / "examples/synthetic/resnet50.json"
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_plm_rsh_agent="", PRTE_MCA_plm_ssh_agent="")
TUNED = {"allreduce": ("allreduce", 6), "allgather": ("allgather", 6), "broadcast": ("bcast", 9)}  # its name there, how many algorithms
BUFFERS = ("arena", "private")
RUN_S = 120  # limit of one process group
BIND = 'exec taskset -c "$(echo "$RANK_CPUS" | cut -d, -f$((OMPI_COMM_WORLD_LOCAL_RANK + 1)))" "$@"'


def ways_of(operation):
    """Open MPI's ways, by name: settings of its components."""
    name, algorithms = TUNED[operation]
    ways = {"defaults": {}, "coll/sm": {"coll_sm_priority": 100}, "coll/han": {"coll_han_priority": 100}, "coll/adapt": {"coll_adapt_priority": 100},
            "no CMA": {"btl_vader_single_copy_mechanism": "none"}}
    for number in range(1, algorithms + 1):
        ways[f"tuned {number}"] = {"coll_tuned_use_dynamic_rules": 1, f"coll_tuned_{name}_algorithm": number}
    return ways


# ---- the machine ----

def read(path, missing="?"):
    try:
        return pathlib.Path(path).read_text().strip()
    except OSError:
        return missing


def cpu_list(text):
    """The numbers of a list such as 0-3,8."""
    numbers = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def find_processors():
    """This process's processors, physical cores first, and the same by L3 cache."""
    allowed = sorted(os.sched_getaffinity(0))
    cores, threads, caches = [], [], {}
    for cpu in allowed:
        base = pathlib.Path(f"/sys/devices/system/cpu/cpu{cpu}")
        siblings = cpu_list(read(base / "topology/thread_siblings_list", str(cpu)))
        (threads if any(other in cores for other in siblings) else cores).append(cpu)
        caches.setdefault(read(base / "cache/index3/shared_cpu_list", "all"), []).append(cpu)
    groups = [[cpu for cpu in cores if cpu in group] for group in caches.values()]
    return cores, threads, [group for group in groups if group]


def placements(ranks, cores, threads, groups):
    """Name -> the processor of each rank; None: not bound."""
    if ranks > len(cores) + len(threads):
        return {"more ranks than processors": None}
    if ranks > len(cores):
        return {"threads of cores too": (cores + threads)[:ranks]}
    if len(groups) == 1 or ranks > 8:
        return {"cores": cores[:ranks]}
    found = {"one L3": group[:ranks] for group in groups if len(group) >= ranks}
    turns = [group[i] for i in range(max(map(len, groups))) for group in groups if i < len(group)]
    return {**found, "spread over L3s": turns[:ranks]}


def reads_other_memory():
    """Whether a process may read another one's memory, which Open MPI's CMA needs."""
    libc = ctypes.CDLL(None, use_errno=True)
    data, copy = ctypes.create_string_buffer(b"here", 8), ctypes.create_string_buffer(8)
    ready, done = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(done)
        os.read(ready, 1)
        os._exit(0)

    class Vector(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("bytes", ctypes.c_size_t)]

    there, here = Vector(ctypes.addressof(data), 8), Vector(ctypes.addressof(copy), 8)
    got = libc.process_vm_readv(child, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    why = os.strerror(ctypes.get_errno()) if got < 0 else ""
    os.close(done)
    os.close(ready)
    os.waitpid(child, 0)
    return "works" if got == 8 and copy.value == b"here" else f"does not work ({why})"


def cgroup():
    return pathlib.Path("/sys/fs/cgroup" + read("/proc/self/cgroup").rpartition("::")[2])


def throttled():
    found = re.search(r"nr_throttled (\d+)", read(cgroup() / "cpu.stat", ""))
    return int(found[1]) if found else 0


def machine(cores, threads, groups):
    model = re.search(r"model name\s*: (.*)", read("/proc/cpuinfo"))
    brackets = re.search(r"\[(\w+)\]", read("/sys/kernel/mm/transparent_hugepage/enabled"))
    return {
        "processor": model[1] if model else "?", "cores": len(cores), "further_threads": len(threads), "l3_caches": [len(group) for group in groups],
        "quota": read(cgroup() / "cpu.max", "none"), "huge_pages": brackets[1] if brackets else "?",
        "huge_pages_shared_memory": read("/sys/kernel/mm/transparent_hugepage/shmem_enabled"),
        "reading_other_memory": reads_other_memory(), "load": os.getloadavg()[0],
        "open_mpi": subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=True).stdout.split("\n")[0],
        "commit": subprocess.run(["git", "-C", SOURCE, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()}


# ---- measuring ----

class Bench:
    def __init__(self, args):
        self.args = args
        self.ends = time.monotonic() + args.limit
        self.left_out = []

    def has_time(self, what):
        if time.monotonic() < self.ends:
            return True
        if (text := f"{what}: no time was left (--limit)") not in self.left_out:
            self.left_out.append(text)
        return False

    def ranks(self, what, cpus, ranks, settings, command):
        """The JSON lines that the ranks print; None, with a note, if they fail or take too long."""
        words = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)]
        for name, value in settings.items():
            words += ["--mca", name, str(value)]
        environment = ENVIRONMENT
        if cpus:
            environment = dict(environment, RANK_CPUS=",".join(map(str, cpus)))
            words += ["sh", "-c", BIND, "sh"]
        else:
            words += ["--mca", "mpi_yield_when_idle", "1"]
        try:
            done = subprocess.run([*words, *map(str, command)], env=environment, capture_output=True, text=True, timeout=RUN_S, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            self.left_out.append(f"{what}: stopped after {RUN_S} s")
            return None
        if done.returncode:
            said = [line for line in (done.stderr + done.stdout).splitlines() if line.strip() and not line.startswith("-")]
            self.left_out.append(f"{what}: {said[0][:100] if said else ''} (status {done.returncode})")
            return None
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    def bench(self, what, cpus, ranks, settings, operation, buffers, sizes, pairs, loop_ms):
        command = [self.args.build / "programs/paceline-bench", operation, "--json", "--peer", "mpi", "--buffers", buffers, "--pairs", pairs, "--loop-ms",
                   loop_ms, "--min-bytes", sizes[0], "--max-bytes", sizes[-1], "--factor", self.args.factor]
        lines = self.ranks(what, cpus, ranks, settings, command)
        if lines and any(line["wrong"] for line in lines):
            sys.exit(f"many_ranks.py: {what}: wrong values: {lines}")
        return dict(zip(sizes, lines)) if lines else {}

    def operation(self, operation, ranks, place, cpus):
        """Rows of the table for one operation."""
        sizes, ways, best = self.args.all_sizes, ways_of(operation), {}
        for way, settings in ways.items():
            what = f"{operation}, {ranks} ranks, {place}, {way}"
            if not self.has_time(what):
                return []
            for size, line in self.bench(what, cpus, ranks, settings, operation, "arena", sizes, 1, 3).items():
                if size not in best or line["peer_time_us"] < best[size][0]:
                    best[size] = (line["peer_time_us"], way)
        runs = []  # neighbouring sizes with the same best way share their processes
        for size in best:
            if runs and runs[-1][0] == best[size][1]:
                runs[-1][1].append(size)
            else:
                runs.append((best[size][1], [size]))
        rows = {size: {"operation": operation, "ranks": ranks, "placement": place, "bytes": size, "way": way[1]} for size, way in best.items()}
        for way, some in runs:
            for _ in range(self.args.repeats):
                for buffers in BUFFERS:
                    what = f"{operation}, {ranks} ranks, {place}, {way}, {buffers}"
                    if not self.has_time(what):
                        return []
                    for size, line in self.bench(what, cpus, ranks, ways[way], operation, buffers, some, 5, self.args.loop_ms).items():
                        row = rows[size]
                        row.setdefault(f"{buffers}_us", []).append(line["time_us"])
                        row.setdefault("open_mpi_us", []).append(line["peer_time_us"])
                        row.setdefault(f"{buffers}_ratio", []).append(line["ratio"])
        return [row for row in rows.values() if "arena_us" in row and "private_us" in row]

    def steps(self, ranks, place, cpus):
        what = f"a step of ResNet-50's gradients, {ranks} ranks, {place}"
        if not self.has_time(what):
            return []
        lines = self.ranks(what, cpus, ranks, {}, [self.args.build / "tests/bench/step_mpi", "--rounds", 3, MODEL])
        return [dict(line, placement=place) for line in lines or []]


def text_of(size):
    for unit, bytes_ in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= bytes_ and size % bytes_ == 0:
            return f"{size // bytes_} {unit}"
    return f"{size} B"


def ratio_of(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def show(rows):
    head = ""
    for row in rows:
        if (title := f"{row['operation']}, {row['ranks']} ranks, {row['placement']}") != head:
            head = title
            print(f"\n{head}\n\n| bytes | arena us | private us | Open MPI us | its way | arena: times as fast | private: times as fast |\n|---|---|---|---|---|---|---|")
        middle = [f"{statistics.median(row[name]):.2f}" for name in ("arena_us", "private_us", "open_mpi_us")]
        print(f"| {text_of(row['bytes'])} | {' | '.join(middle)} | {row['way']} | {ratio_of(row['arena_ratio'])} | {ratio_of(row['private_ratio'])} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--ranks", default="2,4,8,16", help="numbers of ranks (%(default)s)")
    parser.add_argument("--operations", default=",".join(TUNED), help="(%(default)s)")
    parser.add_argument("--min-bytes", type=int, default=64)
    parser.add_argument("--max-bytes", type=int, default=64 << 20)
    parser.add_argument("--factor", type=int, default=16, help="from one size to the next (%(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="processes for each row and kind of buffers (%(default)s)")
    parser.add_argument("--loop-ms", type=float, default=4, help="shortest loop that is timed (%(default)s)")
    parser.add_argument("--limit", type=float, default=7200, help="seconds after which nothing more begins (%(default)s)")
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    args.all_sizes = [args.min_bytes]
    while args.all_sizes[-1] <= args.max_bytes // args.factor:
        args.all_sizes.append(args.all_sizes[-1] * args.factor)
    cores, threads, groups = find_processors()
    bench = Bench(args)
    result = {"machine": machine(cores, threads, groups), "rows": [], "steps": []}
    for name, value in result["machine"].items():
        print(f"{name.replace('_', ' ')}: {value}")
    before = throttled()
    for ranks in map(int, args.ranks.split(",")):
        for place, cpus in placements(ranks, cores, threads, groups).items():
            for operation in args.operations.split(","):
                rows = bench.operation(operation, ranks, place, cpus)
                show(rows)
                result["rows"] += rows
            for step in bench.steps(ranks, place, cpus):
                print(f"step of {step['model']}, {ranks} ranks, {place}, {step['way']}: {step['step_us']:.0f} us, {step['ratio']:.2f} times as fast as packed for MPI_Allreduce",
                      flush=True)
                result["steps"].append(step)
            result["left_out"] = bench.left_out
            if args.json:
                args.json.write_text(json.dumps(result, indent=1) + "\n")
    print(f"\nthrottled while this ran: {throttled() - before} times\nnot run:" + "".join(f"\n  {text}" for text in bench.left_out or ["nothing was left out"]))


if __name__ == "__main__":
    main()
