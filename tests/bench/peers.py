#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares allreduce with MPICH, Gloo and Open MPI, each in processes of its own that take turns with ours.

    tests/bench/peers.py [--build build] [--ranks 2] [--peers openmpi,mpich,gloo] [--sizes 4,1024,...] [--buffers arena|private]
                         [--rounds 7] [--json FILE]

Needs `tests/support/packages.sh install peers`; a peer that is not installed is named and left out. In each round every program runs once, one
after the other, with the same loop of float32: produce + allreduce + consume, minus the loop without the allreduce. Ratios are taken round by
round (peer's time / ours), so that a disturbance of a whole round cancels out, and the table shows their medians. `best` is the
ratio to the fastest peer of each round. Gloo is the backend of torch.distributed in Debian's python3-torch, over TCP on loopback.
"""
import argparse
import json
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
PYTHON = "/usr/bin/python3"  # Debian's: the one that sees python3-torch
REPEATS = 3
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
WRAPPERS = {"openmpi": ("mpicc.openmpi", "mpirun.openmpi"), "mpich": ("mpicc.mpich", "mpirun.mpich")}


def gloo_rank(rank, ranks, port, size, loop_ms):
    """One rank of the Gloo peer, a process of its own; rank 0 prints the cost in microseconds."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    data = torch.empty(size // 4, dtype=torch.float32)
    words = data.view(torch.int32)

    def time_loop(reduce, iterations):
        for i in range(-1, iterations):  # the first iteration does not count
            if i == 0:
                dist.barrier()
                begin = time.perf_counter()
            data.fill_(1.0 + rank / 8)
            if reduce:
                dist.all_reduce(data)
            words.sum()
        slowest = torch.tensor([(time.perf_counter() - begin) / iterations], dtype=torch.float64)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        return slowest.item() * 1e6

    iterations = 1 + int(1e3 / time_loop(True, 1))
    iterations = 1 + int(loop_ms * 1e3 / time_loop(True, iterations))
    cost = statistics.median(time_loop(True, iterations) - time_loop(False, iterations) for _ in range(REPEATS))
    if rank == 0:
        print(f"{cost:.3f}", flush=True)
    dist.destroy_process_group()


def output_of(command, environment=None):
    done = subprocess.run([str(word) for word in command], env=environment or ENVIRONMENT, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        sys.exit(f"peers.py: {' '.join(str(word) for word in command)} ended with status {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def mpirun(launcher, ranks, command):
    """Run the command by mpirun, bound to cores if there are enough, with each launcher's options."""
    bind = "core" if ranks <= os.cpu_count() else "none"
    if launcher == "mpirun.mpich":
        return output_of([launcher, "-bind-to", bind, "-n", ranks, *command])
    return output_of([launcher, "--oversubscribe", "--bind-to", bind, "-n", ranks, *command])


def ours_us(args, size):
    line = json.loads(mpirun("mpirun.openmpi", args.ranks, [
        args.build / "libexec/paceline/paceline-bench", "allreduce", "--json", "--buffers", args.buffers, "--min-bytes", size, "--max-bytes", size,
        "--pairs", REPEATS, "--loop-ms", args.loop_ms]))
    if line["wrong"]:
        sys.exit(f"peers.py: {line['wrong']} wrong elements at {size} bytes")
    return line["time_us"]


def gloo_us(args, size):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = dict(ENVIRONMENT, GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1")
    ranks = [subprocess.Popen([PYTHON, __file__, "--gloo-rank", *map(str, (rank, args.ranks, port, size, args.loop_ms))], env=environment,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for rank in range(args.ranks)]
    outputs = [rank.communicate(timeout=300) for rank in ranks]
    if any(rank.returncode for rank in ranks):
        sys.exit(f"peers.py: gloo failed: {outputs}")
    return float(outputs[0][0])


def find_peers(names, folder):
    """Functions (args, size) -> microseconds, by name, of the installed peers."""
    peers = {}
    for name in names:
        if name == "gloo":
            check = subprocess.run([PYTHON, "-c", "import torch.distributed as d; assert d.is_gloo_available()"], capture_output=True, check=False)
            if check.returncode != 0:
                print("# gloo is left out: python3-torch is not installed", file=sys.stderr)
                continue
            peers[name] = gloo_us
            continue
        compiler, launcher = WRAPPERS[name]
        if not shutil.which(compiler) or not shutil.which(launcher):
            print(f"# {name} is left out: {compiler} or {launcher} is not installed", file=sys.stderr)
            continue
        program = pathlib.Path(folder) / f"peer_{name}"
        output_of([compiler, "-O3", "-o", program, HERE / "peer_mpi.c"])
        peers[name] = lambda args, size, launcher=launcher, program=program: float(mpirun(launcher, args.ranks, [program, size, args.loop_ms, REPEATS]))
    if not peers:
        print("SKIP: no peer is installed")
        sys.exit(77)
    return peers


def measure(args, peers, size):
    times = {name: [] for name in ("ours", *peers)}
    for _ in range(args.rounds):
        times["ours"].append(ours_us(args, size))
        for name, peer in peers.items():
            times[name].append(peer(args, size))
    ratios = {name: statistics.median(theirs / ours for theirs, ours in zip(times[name], times["ours"])) for name in peers}
    best = statistics.median(min(row) / ours for ours, *row in zip(times["ours"], *(times[name] for name in peers)))
    return {"bytes": size, "ranks": args.ranks, "buffers": args.buffers, "rounds": args.rounds,
            "time_us": {name: round(statistics.median(values), 3) for name, values in times.items()},
            "ratio": {name: round(ratio, 3) for name, ratio in ratios.items()}, "ratio_best": round(best, 3)}


def main():
    if sys.argv[1:2] == ["--gloo-rank"]:
        rank, ranks, port, size = map(int, sys.argv[2:6])
        return gloo_rank(rank, ranks, port, size, float(sys.argv[6]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--peers", default="openmpi,mpich,gloo")
    parser.add_argument("--sizes", default=",".join(str(4 << shift) for shift in range(0, 27, 2)))
    parser.add_argument("--buffers", choices=["arena", "private"], default="private", help="buffers of our side; the peers have private ones only")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--loop-ms", type=float, default=8)
    parser.add_argument("--json", type=pathlib.Path, help="append one line per size to this file")
    args = parser.parse_args()
    args.build = args.build.resolve()
    with tempfile.TemporaryDirectory(prefix="paceline-peers-") as folder:
        peers = find_peers(args.peers.split(","), folder)
        print(f"# {args.ranks} ranks on one host, float32, our buffers {args.buffers}, medians of {args.rounds} rounds; times in us, ratios peer / ours")
        print(f"{'bytes':>12} {'ours':>12}" + "".join(f" {name:>12} {'ratio':>7}" for name in peers) + f" {'best':>7}")
        for size in map(int, args.sizes.split(",")):
            result = measure(args, peers, size)
            print(f"{size:>12} {result['time_us']['ours']:>12.2f}" +
                  "".join(f" {result['time_us'][name]:>12.2f} {result['ratio'][name]:>7.2f}" for name in peers) + f" {result['ratio_best']:>7.2f}", flush=True)
            if args.json:
                with args.json.open("a") as file:
                    file.write(json.dumps(result) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
