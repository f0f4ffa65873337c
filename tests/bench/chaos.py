#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What faults cost a job that is started again: MNIST's example program, whose ranks, mpirun or orted are killed at times drawn from a seed.

    tests/bench/chaos.py --data DIR [--minutes 30] [--seed 1] [--mean-s 100] [--hosts 1|2] [--size mnist|resnet50] [--batch-size N] [--build build]
    tests/bench/chaos.py --data DIR --by-hand ...
    tests/bench/chaos.py --data DIR --script paceline|torchrun [--python PYTHON] [--torchrun-words=WORDS] ...
    tests/bench/chaos.py --data DIR --faults NUMBER ...
    tests/bench/chaos.py --data DIR --keeping ROUNDS ...

One host with four ranks or two hosts with two each, as namespaces (root only). The job runs without, with and without faults, each time as many steps
as about --minutes take. A fault comes --mean-s after the first step since the one before on average, and is a SIGKILL of a process other than the last one,
each as likely as the others, or between two hosts as likely a cut of 5 s, which nobody may notice. One JSON object is printed:

    throughput    the seconds that the steps take without faults (the mean of both runs) over those with them; same_bits: the models are equal;
                  repeated_steps: those that were lost with the attempts; lost: the share of recoveries and repeated steps in that run's seconds
    recovery_s    from the fault to the end of the first new step; cold_start_s is from a job's start to the end of its first one
    cuts_s        from a cut's begin to the end of the first step after its end
    where_s       medians of its parts: noticed (process 1 knows), decided (half a second for a worse cause), ended (until mpirun is started: all processes
                  have ended, and with two hosts both are linked again), mpirun (until its first rank is), program (until the rank has made its world),
                  loading (data, model, checkpoint, and the first step); by hand and below torchrun ended is from the fault to the start of the first rank

Other bits, or another number of restarts than of processes killed, is a failure; not other bits with --script, because DistributedDataParallel chooses its
buckets again after a process's first step.

--size resnet50: images of 116 x 116 pixels, so that the network has 25.7 million parameters, 0.6 % more than ResNet-50.
--by-hand: the job may not be started again, saves a file each second or so, and is started again by this program when it has ended.
--script: the same network as a program of torch's that saves a file each second, on one host, started by torchrun --max_restarts 1000 or by paceline with as many
          restarts; only ranks are killed, in both cases with the same seed the same ones at the same times after a step. --python: one that has torch.
          --torchrun-words='--monitor_interval 0.1': torch 1.13 looks at its ranks every 5 s unless told otherwise, torch 2 every 0.1 s.
--faults: so many faults, in jobs that become longer until all have come, with keep_steps 1; no process and no file in /dev/shm, /tmp and /run may be left.
--keeping: no faults; steps per second without restarts, with them, and with keep_steps 1, in turns.
"""
import argparse
import contextlib
import gzip
import hashlib
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
sys.path.insert(0, str(SOURCE / "tests/support"))
from python_with import python_with  # noqa: E402

RANKS = 4
CUT_S = 5
SIDE = 116  # of a picture with --size resnet50
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


def idx_values(folder, kind):
    """The values of MNIST's training file of that kind: images or labels."""
    path = next(folder.glob(f"train-{kind}-*"))
    with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
        data = file.read()
    return data[4 + 4 * data[3]:]


def enlarge(source, target, count=1000):
    """Writes MNIST's first images with 116 x 116 pixels: each pixel becomes 4 x 4, and around them is a border of two."""
    images, border = idx_values(source, "images"), bytes(2 * SIDE)
    target.mkdir()
    with (target / "train-images-idx3-ubyte").open("wb") as file:
        file.write(struct.pack(">4I", 0x803, count, SIDE, SIDE))
        for image in range(count):
            rows = [images[at:at + 28] for at in range(784 * image, 784 * (image + 1), 28)]
            file.write(border + b"".join(4 * (b"\0\0" + bytes(value for value in row for _ in range(4)) + b"\0\0") for row in rows) + border)
    (target / "train-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, count) + idx_values(source, "labels")[:count])


class Cluster:
    """Hosts in namespaces, and a shell that knows the verbs of tests/support/cluster.sh and job.sh."""
    def __init__(self, options):
        self.hosts = [f"algo-{number + 1}" for number in range(options.hosts)]
        self.build, self.options, self.steps_per_s = options.build.resolve(), options, 1
        environment = {**os.environ, "PACELINE_SOURCE": str(SOURCE), "PACELINE_BUILD": str(self.build)}
        self.bash = subprocess.Popen(["bash", "-c", SHELL, "bash", str(options.hosts)], env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        answer = self.bash.stdout.readline().strip()
        if not answer.startswith("/"):
            print(answer)
            sys.exit(self.bash.wait())  # 77: no hosts here
        self.folder = pathlib.Path(answer)
        self.data = options.data / "training" if (options.data / "training").is_dir() else options.data
        if options.size == "resnet50":
            enlarge(self.data, self.folder / "images")
            self.data = self.folder / "images"

    def __call__(self, line):
        print(line, file=self.bash.stdin, flush=True)
        answer = self.bash.stdout.readline()
        if answer != "done\n":
            sys.exit(f"chaos.py: failed: {line}\n{answer}{self.bash.stdout.read()}")

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

    def start(self, words, variables):
        self(f"cluster_environment=({' '.join(variables)})")
        looks = 'sh -c "$(cat "$PACELINE_SOURCE/tests/support/looks.sh")" sh' if self.options.faults else ""
        for host in reversed(self.hosts):  # the master last
            self(f"host_start {host} {looks} {words}")

    def codes(self):
        """The exit codes of the hosts once all have ended, else None."""
        files = [self.folder / f"{host}.code" for host in self.hosts]
        return [int(file.read_text()) for file in files] if all(file.exists() for file in files) else None

    def processes(self, *names):
        """Id -> (name, time of its start) of the hosts' processes of these names."""
        found, boot = {}, time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended
                name, _, rest = (path / "stat").read_text(errors="replace").partition("(")[2].rpartition(")")
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


class Notes:
    """What rank 0 of --script notes in the first attempt that is connected after `after`; as Ring."""
    def __init__(self, path, after):
        self.path, self.after, self.made = path, after, None

    def steps(self):
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        notes = [(what, float(at)) for what, at in map(str.split, lines)]
        self.made = self.made or next((at for what, at in notes if what == "made" and at > self.after), None)
        return [at for what, at in notes if what == "step" and self.made and at > self.made]


class Job:
    """A job of so many steps, with the faults of the options if it is `faulty`."""
    def __init__(self, cluster, steps, restarts=1000, keep_steps=0, faulty=False):
        options = cluster.options
        self.cluster, self.script, self.by_hand = cluster, options.script, faulty and options.by_hand
        self.attempt, self.executed, self.faults, self.next = 0, 0, [], None
        self.draw = random.Random(options.seed) if faulty else None
        self.victims = [("rank", number) for number in range(RANKS)]
        if not self.script:
            self.victims += [("mpirun", 0), ("orted", 0), ("cut", 0)][:3 if options.hosts == 2 else 1]
        restarts = 0 if self.by_hand else restarts
        self.expected_restarts = self.script != "torchrun" and restarts > 0
        self.words = '"$paceline" -- '
        if self.script == "torchrun":
            self.words = f"{options.python} {SOURCE}/tests/support/torchrun.py --standalone --nproc_per_node {RANKS} --max_restarts {restarts} {options.torchrun_words} "
        elif self.script:
            self.words += f"{options.python} "
        if self.script:
            self.words += f"{SOURCE}/tests/bench/chaos.py rank {steps} {options.batch_size}"
        else:
            self.words += f"{cluster.build}/libexec/paceline/mnist --epochs 1000000 --max-steps {steps} --batch-size {options.batch_size}"
        if self.by_hand and not self.script:
            self.words += f" --checkpoint-steps {max(1, round(cluster.steps_per_s))}"
        self.variables = [f"PACELINE_MAX_RESTARTS={restarts}", "PACELINE_TRACE=/opt/ml/output/data/trace.json", "PACELINE_REPRODUCIBLE=1",
                          f"PACELINE_KEEP_STEPS={1 if options.faults else keep_steps}", "OPENBLAS_NUM_THREADS=1", "OMP_NUM_THREADS=1"]

    def ring(self):
        if self.script:
            return Notes(self.cluster.folder / "algo-1/ml/output/notes", self.faults[-1]["at"] if self.faults else 0)
        name = f"trace-restart{self.attempt}" if self.attempt and not self.by_hand else "trace"
        return Ring(self.cluster.folder / f"algo-1/ml/output/data/{name}.json.rank0.ring")

    def inject(self):
        kind, number = self.next
        found = self.cluster.processes("mnist", "mpirun", "orted")
        victims = sorted(pid for pid, (name, _) in found.items() if name == ("mnist" if kind == "rank" else kind))
        if kind != "cut" and number >= len(victims):
            return False
        fault = {"kind": kind, "restart": 0, "at": time.time(), "before": set(found)}
        if kind == "cut":
            self.cluster("host_cut algo-2")
            time.sleep(CUT_S)
            self.cluster("host_join algo-2")
        else:
            try:
                os.kill(victims[number], signal.SIGKILL)
            except ProcessLookupError:
                return False
            self.attempt += 1
            fault["restart"] = self.attempt
        fault["over"] = time.time() if kind == "cut" else fault["at"]
        self.faults.append(fault)
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
        """Returns when the next fault is due, once a step has been made since the last one; 0: never."""
        fault = self.faults[-1] if self.faults else {"restart": 0, "over": 0}
        if fault["restart"]:
            self.watch(fault)
        first = next((end for end in ring.steps() if end > fault["over"]), None)
        if not first:
            return None
        self.first = self.first or first
        fault.update(made=ring.made, step=first)
        if not self.draw or len(self.faults) == self.cluster.options.faults:
            return 0
        self.next = self.draw.choice([victim for victim in self.victims if victim != self.next])
        least_s, mean_s = min(1, self.cluster.options.mean_s / 2), self.cluster.options.mean_s
        return time.time() + least_s + self.draw.expovariate(1 / (mean_s - least_s))

    def run(self):
        """Runs the job to its end; `first` and `last` are the times of its steps."""
        self.cluster.prepare()
        for host in self.cluster.hosts if self.by_hand or self.script else []:
            (self.cluster.folder / host / "ml/checkpoints").mkdir()
        self.begun = time.time()
        self.cluster.start(self.words, self.variables)
        ring, self.first, due = self.ring(), None, None
        while not (codes := self.cluster.codes()) or (self.by_hand and any(codes)):
            if codes:
                self.cluster.start(self.words, self.variables)
            if due is None:
                due = self.look(ring)
            elif due and time.time() >= due and self.inject():
                if self.faults[-1]["restart"]:
                    self.executed += len(ring.steps())
                    if self.by_hand and not self.script:  # the next attempt's has the same name
                        ring.path.unlink()
                    ring = self.ring()
                due = None
            time.sleep(0.02 if due is None else 0.1)
        if any(codes):
            sys.exit(f"chaos.py: the job ended with {codes}:\n" + "".join((self.cluster.folder / f"{host}.log").read_text(errors="replace")[-3000:] for host in self.cluster.hosts))
        if self.cluster.options.faults:
            self.cluster("expect_nobody; expect_nothing")
        if due is None:  # the attempt has ended since the last look
            self.look(ring)
        times = ring.steps()  # none: the last fault came after the last step
        self.last, self.executed = times[-1] if times else self.faults[-1]["at"], self.executed + len(times)
        self.rows = list(self.parts())
        if self.expected_restarts and self.faults and self.faults[-1]["restart"] == self.restarts + 1 and "step" not in self.faults[-1]:
            self.faults.pop()  # its victim had ended already
            self.attempt -= 1
        self.model = hashlib.sha256(next((self.cluster.folder / "algo-1/ml/model").glob("model.*")).read_bytes()).digest()
        return self

    def seconds(self):
        return self.last - self.first

    def parts(self):
        """Seconds of each part, of the faults after which a step came."""
        lines = []
        with contextlib.suppress(FileNotFoundError):
            lines = [json.loads(line) for line in (self.cluster.folder / "algo-1/ml/output/data/restarts.jsonl").read_text().splitlines()]
        self.restarts = sum("cause" in line for line in lines)
        lost = {line["restart"]: line["lost_s"] for line in lines if "lost_s" in line}
        for fault in self.faults:
            if "step" in fault:
                row, names, times = {"kind": fault["kind"], "recovery": fault["step"] - fault["at"]}, (), ()
                if fault["restart"] in lost and all(fault.get(name) for name in ("decided", "runs", "mpirun", "mnist", "made")):
                    names, times = PARTS, [fault["at"], fault["runs"] - lost[fault["restart"]], *(fault[name] for name in ("decided", "mpirun", "mnist", "made", "step"))]
                elif not self.expected_restarts and all(fault.get(name) for name in ("mnist", "made")):
                    names, times = ("ended", "program", "loading"), [fault[name] for name in ("at", "mnist", "made", "step")]
                row.update({part: end - begin for part, begin, end in zip(names, times, times[1:])})
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


def middle(values):
    return {"median": round(statistics.median(values), 2), "worst": round(max(values), 2)} if values else None


def compare(cluster, steps, cold_start_s):
    """Jobs of so many steps without, with and without faults."""
    calm = [Job(cluster, steps).run()]
    faulty = Job(cluster, steps, faulty=True).run()
    calm.append(Job(cluster, steps).run())  # the machine may have become faster or slower meanwhile
    calm_s, faulty_s = statistics.mean(job.seconds() for job in calm), faulty.seconds()
    rows, recovery_s = faulty.rows, sum(row["recovery"] for row in faulty.rows)
    repeated = faulty.executed - steps
    lost_s = recovery_s + repeated * (faulty_s - recovery_s) / faulty.executed
    return {
        "throughput": round(calm_s / faulty_s, 3), "lost": round(lost_s / faulty_s, 3), "seconds": [round(job.seconds(), 1) for job in (calm[0], faulty, calm[1])],
        "faults": len(faulty.faults), "killed": faulty.attempt, "restarts": faulty.restarts if faulty.expected_restarts else None,
        "same_bits": all(job.model == faulty.model for job in calm), "repeated_steps": repeated,
        "cold_start_s": [cold_start_s, *(round(job.first - job.begun, 2) for job in (calm[0], faulty, calm[1]))],
        "recovery_s": middle([row["recovery"] for row in rows if row["kind"] != "cut"]), "cuts_s": middle([row["recovery"] for row in rows if row["kind"] == "cut"]),
        "where_s": {part: round(statistics.median(some), 2) for part in PARTS if (some := [row[part] for row in rows if part in row])},
        "each": [{name: round(value, 2) if isinstance(value, float) else value for name, value in row.items()} for row in rows]}


def torch_rank(steps, batch_size):
    """A rank of --script. Its batches and dropout depend on rank and step alone. Rank 0 saves a file each second, and notes when the ranks are connected and when
    a step has ended."""
    pathlib.Path("/proc/self/comm").write_text("mnist")  # for Cluster.processes()
    import torch
    import torch.distributed as dist
    from torch_peer import network

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ml = dist.get_rank(), pathlib.Path("/opt/ml")
    notes, state = (ml / "output/notes").open("a", buffering=1), ml / "checkpoints/state"
    if rank == 0:
        notes.write(f"made {time.time()}\n")
    images, labels = (torch.frombuffer(bytearray(idx_values(ml / "input/data/training", kind)), dtype=torch.uint8) for kind in ("images", "labels"))
    torch.manual_seed(1)
    net = network("mnist", torch.nn)[0]
    optimizer, first, saved_s = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9), 0, time.time()
    if state.exists():
        first, parameters, momentum = torch.load(state)
        net.load_state_dict(parameters)
        optimizer.load_state_dict(momentum)
    model = torch.nn.parallel.DistributedDataParallel(net)
    for step in range(first, steps):
        torch.manual_seed(RANKS * step + rank)
        batch = torch.randint(len(labels), (batch_size,))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images.view(-1, 1, 28, 28)[batch] / 255), labels[batch].long()).backward()
        optimizer.step()
        if rank == 0:
            notes.write(f"step {time.time()}\n")
        if rank == 0 and time.time() >= saved_s + 1:
            torch.save((step + 1, net.state_dict(), optimizer.state_dict()), f"{state}.new")
            os.replace(f"{state}.new", state)
            saved_s = time.time()
    if rank == 0:
        (ml / "model/model.floats").write_bytes(b"".join(parameter.detach().numpy().tobytes() for parameter in net.parameters()))
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mean-s", type=float, default=100)
    parser.add_argument("--hosts", type=int, choices=(1, 2), default=1)
    parser.add_argument("--size", choices=("mnist", "resnet50"), default="mnist")
    parser.add_argument("--batch-size", type=int, help="images per rank and step; default: 64, with resnet50 1")
    parser.add_argument("--build", type=pathlib.Path, default=SOURCE / "build")
    parser.add_argument("--data", type=pathlib.Path, required=True, help="MNIST's files, or the same below training/")
    parser.add_argument("--by-hand", action="store_true")
    parser.add_argument("--script", choices=("paceline", "torchrun"))
    parser.add_argument("--python", help="default: the first one that has torch")
    parser.add_argument("--torchrun-words", default="")
    parser.add_argument("--faults", type=int, metavar="NUMBER")
    parser.add_argument("--keeping", type=int, metavar="ROUNDS")
    options = parser.parse_args()
    if options.script:
        if options.hosts == 2 or options.size != "mnist" or options.keeping or options.faults:
            parser.error("--script goes without --hosts 2, --size resnet50, --keeping and --faults")
        options.python = options.python or python_with("torch") or parser.error("no Python here has torch: name one by --python")
    options.batch_size = options.batch_size or (64 if options.size == "mnist" else 1)
    cluster = Cluster(options)
    try:
        short = Job(cluster, 30).run()
        cluster.steps_per_s = 29 / short.seconds()
        steps = max(30, round(60 * options.minutes * cluster.steps_per_s))
        result = {"hosts": options.hosts, "ranks": RANKS, "size": options.size, "script": options.script, "seed": options.seed, "mean_s": options.mean_s, "steps": steps}
        if options.keeping:
            result["keeping"] = keeping(cluster, steps, options.keeping)
        else:
            cold_start_s = round(short.first - short.begun, 2)
            result.update(compare(cluster, steps, cold_start_s))
            while result["faults"] < (options.faults or 0):  # the job ended before
                result["steps"] *= 2
                result.update(compare(cluster, result["steps"], cold_start_s))
        print(json.dumps(result), flush=True)
    finally:
        cluster.end()
    if not options.keeping and (not result["same_bits"] and not options.script or result["restarts"] not in (None, result["killed"])):
        sys.exit(f"chaos.py: {result['restarts']} restarts after {result['killed']} kills; the model has {'the same' if result['same_bits'] else 'other'} bits")


if __name__ == "__main__":
    sys.exit(torch_rank(*map(int, sys.argv[2:])) if sys.argv[1:2] == ["rank"] else main())
