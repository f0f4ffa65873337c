#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What faults cost a job that is started again: MNIST's example program, whose ranks, mpirun or orted are killed at times drawn from a seed.

    tests/bench/chaos.py [--minutes 30] [--seed 1] [--mean-s 100] [--hosts 1|2] [--build build] [--data DIR] [--by-hand]
    tests/bench/chaos.py --keeping ROUNDS [--hosts 1|2] [--minutes 1] ...

One host with four ranks or two hosts with two each, as namespaces (root only). The job runs without, with and without faults, each time as many steps
as about --minutes take. A fault is one SIGKILL, --mean-s after the first step since the one before on average, at least a second. One JSON object is printed:

    throughput    the seconds that the steps take without faults (the mean of both runs) over those with them; same_bits: the models are equal;
                  repeated_steps: those that were lost with the attempts; lost: the share of recoveries and repeated steps in that run's seconds
    recovery_s    from the fault to the end of the first new step; cold_start_s is from a job's start to the end of its first one
    where_s       medians of its parts: noticed (process 1 knows), decided (half a second for a worse cause), ended (until mpirun is started: all processes
                  have ended, and with two hosts both are linked again), mpirun (until its first rank is), program (until the rank has made its world),
                  loading (data, model, checkpoint, and the first step)

--by-hand: the job may not be started again (PACELINE_MAX_RESTARTS=0), saves a file each second or so, and is started again by this program when it has ended.
--keeping: no faults; steps per second without restarts, with them, and with keep_steps 1, in turns.
"""
import argparse
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]
RANKS = 4
HEAD_BYTES, RECORD_BYTES = 128, 64  # runtime/trace_ring.h
PARTS = ("noticed", "decided", "ended", "mpirun", "program", "loading")
SHELL = '''
set -e
source "$PACELINE_SOURCE/tests/support/cluster.sh"
source "$PACELINE_SOURCE/tests/support/job.sh"
trap cluster_down EXIT
cluster_up "$1"
echo "$cluster"
while read -r line; do eval "$line" </dev/null; echo done; done
'''


class Cluster:
    """Hosts in namespaces, and a shell that knows the verbs of tests/support/cluster.sh and job.sh."""
    def __init__(self, options):
        self.hosts = [f"algo-{number + 1}" for number in range(options.hosts)]
        self.build = options.build.resolve()
        environment = {**os.environ, "PACELINE_SOURCE": str(SOURCE), "PACELINE_BUILD": str(self.build)}
        self.bash = subprocess.Popen(["bash", "-c", SHELL, "bash", str(options.hosts)], env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.folder = pathlib.Path(self.bash.stdout.readline().strip())
        if not self.folder.is_absolute():
            sys.exit(f"chaos.py: no hosts: {self.folder}")
        self.data = options.data / "training" if (options.data / "training").is_dir() else options.data

    def __call__(self, line):
        print(line, file=self.bash.stdin, flush=True)
        if self.bash.stdout.readline() != "done\n":
            sys.exit(f"chaos.py: failed: {line}")

    def end(self):
        self.bash.stdin.close()
        self.bash.wait()

    def prepare(self):
        for host in self.hosts:
            self(f"job_config {host} '{' '.join(self.hosts)}' {RANKS // len(self.hosts)}")
            training = self.folder / host / "ml/input/data/training"
            training.mkdir(parents=True)
            for file in self.data.glob("train-*"):
                shutil.copy(file, training)
            (self.folder / host / "ml/input/config/inputdataconfig.json").write_text('{"training": {"TrainingInputMode": "File"}}')

    def start(self, program, variables):
        self(f"cluster_environment=({' '.join(variables)})")
        for host in reversed(self.hosts):  # the master last
            self(f'host_start {host} "$paceline" -- {program}')

    def codes(self):
        """The exit codes of the hosts once all have ended, else None."""
        files = [self.folder / f"{host}.code" for host in self.hosts]
        return [int(file.read_text()) for file in files] if all(file.exists() for file in files) else None

    def processes(self, *names):
        """Id -> (name, time of its start) of the hosts' processes of these names."""
        found, boot = {}, time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended
                name, _, rest = (path / "stat").read_text().partition("(")[2].rpartition(")")
                if name in names and rest.split()[0] != "Z" and str(self.folder).encode() in (path / "environ").read_bytes():
                    found[int(path.name)] = name, boot + int(rest.split()[19]) / os.sysconf("SC_CLK_TCK")
        return found


class Ring:
    """The trace of rank 0 in an attempt, and when it was made."""
    def __init__(self, path):
        self.path, self.made = path, None

    def steps(self):
        """The times at which the first bucket of gradients was added up, of the steps that the ring still has."""
        data = self.path.read_bytes() if self.path.exists() else b""
        if len(data) <= HEAD_BYTES:
            return []
        self.made = self.made or self.path.stat().st_mtime
        records, offset_ns, written = struct.unpack_from("<I", data, 12)[0], *struct.unpack_from("<qQ", data, 32)
        places = (HEAD_BYTES + number % records * RECORD_BYTES for number in range(max(written - records, 0), written))
        return [(struct.unpack_from("<q", data, place + 8)[0] + offset_ns) / 1e9 for place in places if data[place + 40:place + 56].rstrip(b"\0") == b"gradients.0"]


class Job:
    def __init__(self, cluster, steps, restarts=1000, keep_steps=0, draw=None, mean_s=0, by_hand=False):
        self.cluster, self.draw, self.mean_s, self.by_hand = cluster, draw, mean_s, by_hand
        self.attempt, self.executed, self.faults = 0, 0, []
        self.program = f"{cluster.build}/libexec/paceline/mnist --epochs 1000000 --max-steps {steps}" + (" --checkpoint-steps 20" if by_hand else "")
        self.variables = [f"PACELINE_MAX_RESTARTS={0 if by_hand else restarts}", "PACELINE_TRACE=/opt/ml/output/data/trace.json", "PACELINE_REPRODUCIBLE=1",
                          f"PACELINE_KEEP_STEPS={keep_steps}", "OPENBLAS_NUM_THREADS=1", "OMP_NUM_THREADS=1"]

    def ring(self):
        name = f"trace-restart{self.attempt}" if self.attempt and not self.by_hand else "trace"
        return Ring(self.cluster.folder / f"algo-1/ml/output/data/{name}.json.rank0.ring")

    def inject(self):
        kind = self.draw.choice(["rank", "mpirun", "orted"][:1 + len(self.cluster.hosts)])
        victims = sorted(self.cluster.processes("mnist" if kind == "rank" else kind))
        if not victims:
            return False
        victim = self.draw.choice(victims)
        self.faults.append({"kind": kind, "at": time.time(), "before": set(self.cluster.processes("mnist", "mpirun"))})
        os.kill(victim, signal.SIGKILL)
        self.attempt += 1
        return True

    def watch(self, fault):
        """Notes what has come since the fault."""
        with contextlib.suppress(FileNotFoundError):  # each restart writes two lines
            file = self.cluster.folder / "algo-1/ml/output/data/restarts.jsonl"
            lines = file.read_text().count("\n")
            if lines >= 2 * self.attempt - 1:
                fault.setdefault("decided" if lines % 2 else "runs", file.stat().st_mtime)
        for pid, (name, start) in self.cluster.processes("mnist", "mpirun").items():
            if pid not in fault["before"] and start > fault["at"]:
                fault[name] = min(start, fault.get(name, start))

    def look(self, ring):
        """Returns when the next fault is due, once the attempt has made a step; 0: never."""
        fault = self.faults[-1] if self.faults else {"at": 0}
        if self.faults:
            self.watch(fault)
        first = next((end for end in ring.steps() if end > fault["at"]), None)
        if not first:
            return None
        self.first = self.first or first
        fault.update(made=ring.made, step=first)
        return time.time() + 1 + self.draw.expovariate(1 / max(self.mean_s - 1, 1)) if self.draw else 0

    def run(self):
        """Runs the job to its end; `first` and `last` are the times of its steps."""
        self.cluster.prepare()
        for host in self.cluster.hosts if self.by_hand else []:
            (self.cluster.folder / host / "ml/checkpoints").mkdir()
        self.begun = time.time()
        self.cluster.start(self.program, self.variables)
        ring, self.first, due = self.ring(), None, None
        while not (codes := self.cluster.codes()) or (self.by_hand and any(codes)):
            if codes:
                self.cluster.start(self.program, self.variables)
            if due is None:
                due = self.look(ring)
            elif due and time.time() >= due and self.inject():
                self.executed += len(ring.steps())
                if self.by_hand:  # the next attempt's has the same name
                    ring.path.unlink()
                ring, due = self.ring(), None
            time.sleep(0.02 if due is None else 0.1)
        if any(codes):
            sys.exit(f"chaos.py: the job ended with {codes}:\n" + "".join((self.cluster.folder / f"{host}.log").read_text(errors="replace")[-3000:] for host in self.cluster.hosts))
        times = ring.steps()
        self.last, self.executed = times[-1], self.executed + len(times)
        self.rows = list(self.parts())
        self.model = (self.cluster.folder / "algo-1/ml/model/model.safetensors").read_bytes()
        return self

    def seconds(self):
        return self.last - self.first

    def parts(self):
        """Seconds of each part, of the faults after which a step came."""
        lines = []
        with contextlib.suppress(FileNotFoundError):
            lines = [json.loads(line) for line in (self.cluster.folder / "algo-1/ml/output/data/restarts.jsonl").read_text().splitlines()]
        lost = {line["restart"]: line["lost_s"] for line in lines if "lost_s" in line}
        for number, fault in enumerate(self.faults, 1):
            if "step" in fault:
                row = {"kind": fault["kind"], "recovery": fault["step"] - fault["at"]}
                if number in lost and all(fault.get(name) for name in ("decided", "runs", "mpirun", "mnist", "made")):
                    times = [fault["at"], fault["runs"] - lost[number], fault["decided"], fault["mpirun"], fault["mnist"], fault["made"], fault["step"]]
                    row.update({part: end - begin for part, begin, end in zip(PARTS, times, times[1:])})
                yield row


def keeping(cluster, steps, rounds):
    ways = {"without restarts": {"restarts": 0}, "restarts": {}, "keep_steps 1": {"keep_steps": 1}}
    rates = {way: [] for way in ways}
    for _ in range(rounds):
        for way, named in ways.items():
            rates[way].append((steps - 1) / Job(cluster, steps, **named).run().seconds())
    base = rates["without restarts"]
    return {way: {"steps_per_s": round(statistics.median(some), 2), "share": [round(a / b, 4) for a, b in zip(some, base)],
                  "share_median": round(statistics.median(a / b for a, b in zip(some, base)), 4)} for way, some in rates.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mean-s", type=float, default=100)
    parser.add_argument("--hosts", type=int, choices=(1, 2), default=1)
    parser.add_argument("--build", type=pathlib.Path, default=SOURCE / "build")
    parser.add_argument("--data", type=pathlib.Path, required=True, help="MNIST's files, or the same below training/")
    parser.add_argument("--by-hand", action="store_true")
    parser.add_argument("--keeping", type=int, metavar="ROUNDS")
    options = parser.parse_args()
    cluster = Cluster(options)
    try:
        short = Job(cluster, 30).run()
        steps = max(30, round(60 * options.minutes * 29 / short.seconds()))
        result = {"hosts": options.hosts, "ranks": RANKS, "steps": steps}
        if options.keeping:
            result["keeping"] = keeping(cluster, steps, options.keeping)
        else:
            calm = [Job(cluster, steps).run()]
            faulty = Job(cluster, steps, draw=random.Random(options.seed), mean_s=options.mean_s, by_hand=options.by_hand).run()
            faulty_s = faulty.seconds()
            calm.append(Job(cluster, steps).run())  # the machine may have become faster or slower meanwhile
            calm_s = statistics.mean(job.seconds() for job in calm)
            whole = [row for row in faulty.rows if "loading" in row]
            recovery = [row["recovery"] for row in faulty.rows]
            repeated = faulty.executed - steps
            lost_s = sum(recovery) + repeated * (faulty_s - sum(recovery)) / faulty.executed
            result.update({
                "seed": options.seed, "mean_s": options.mean_s, "faults": len(faulty.faults), "throughput": round(calm_s / faulty_s, 3), "lost": round(lost_s / faulty_s, 3),
                "seconds": [round(job.seconds(), 1) for job in (calm[0], faulty, calm[1])], "same_bits": all(job.model == faulty.model for job in calm),
                "repeated_steps": repeated, "cold_start_s": [round(job.first - job.begun, 2) for job in (short, calm[0], faulty, calm[1])],
                "recovery_s": {"median": round(statistics.median(recovery), 2), "worst": round(max(recovery), 2)} if recovery else None,
                "where_s": {part: round(statistics.median(row[part] for row in whole), 2) for part in PARTS} if whole else None,
                "each": [{name: round(value, 2) if isinstance(value, float) else value for name, value in row.items()} for row in faulty.rows]})
        print(json.dumps(result), flush=True)
    finally:
        cluster.end()


if __name__ == "__main__":
    main()
