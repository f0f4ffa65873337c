#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel over gloo with paceline.torch's hooks: the same parameters as gloo's within rounding and the same bits on all ranks, with the
options of DistributedDataParallel, started plainly and by mpirun; between hosts in 16 and 8 bits; the words when a rank dies or does not come.

ddp_hook.py [full]: `full` is with a torch 2 from PyPI, which it downloads. Needs a torch; hosts are PID namespaces, which need root.
"""
import os
import re
import socket
import subprocess
import sys
import tempfile

SOURCE, BUILD = os.environ["PACELINE_SOURCE"], os.environ["PACELINE_BUILD"]
sys.path.insert(0, f"{SOURCE}/tests/support")
from python_with import python_with  # noqa: E402

FULL = sys.argv[1:] == ["full"]
RANKS_PY = f"{SOURCE}/tests/scenarios/ddp_ranks.py"
SKIP, LIMIT_S = 77, 240
HOST = ["unshare", "--pid", "--fork", "--mount-proc"]  # ranks that cannot see each other's processes count as ranks of several hosts


def environment(**more):
    with socket.socket() as probe:  # a port of its own, which is free now
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return dict(os.environ, PYTHONPATH=f"{SOURCE}/python", PACELINE_LIBRARY=f"{BUILD}/runtime/libpaceline.so", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1", **more)


def plain(python, ranks, *words, before=(), **more):
    """Starts the ranks as torchrun does, by variables; returns each rank's exit status and output."""
    variables = environment(WORLD_SIZE=str(ranks), **more)
    with tempfile.TemporaryDirectory() as folder:
        files = [open(f"{folder}/{rank}", "w+") for rank in range(ranks)]
        started = [subprocess.Popen([*before, python, *map(str, words)], env=dict(variables, RANK=str(rank), LOCAL_RANK=str(rank)), stdin=subprocess.DEVNULL,
                                    stdout=file, stderr=subprocess.STDOUT) for rank, file in enumerate(files)]
        try:
            statuses = [process.wait(LIMIT_S) for process in started]
        finally:
            for process in started:
                process.kill()
        texts = []
        for file in files:
            file.seek(0)
            texts.append(file.read())
            file.close()
    return statuses, texts


def expect_ok(what, ranks, statuses, texts):
    assert not any(statuses) and all(f"rank {rank} of {ranks}: ok" in "\n".join(texts) for rank in range(ranks)), f"{what}: {statuses}\n" + "\n".join(texts)
    print(f"ok: {what}", flush=True)


def by_mpi(python, ranks, scene, *options, before=(), **more):
    done = subprocess.run(["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), *options, *before, python, RANKS_PY, scene], env=environment(**more),
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S)
    return [done.returncode], [done.stdout]


def faults(python):
    for scene, seconds, words in (("killed", 120, "the process of rank 1 on host"), ("late", 6, "rank 1")):
        statuses, texts = plain(python, 3, RANKS_PY, scene, GROUP_TIMEOUT_S=str(seconds))
        for rank in (0, 2):
            found = re.search(rf"rank {rank} after ([0-9.]+) s: (?:RuntimeError: )?PacelineError: (.*)", texts[rank])
            assert statuses[rank] == 5 and found, f"{scene}: {statuses}\n" + "\n".join(texts)
            assert re.search(rf"gradients' bucket \d+ \(\d+ bytes\), rank {rank} on host {socket.gethostname()}: .*{words}", found[2]), f"{scene}: {found[2]}"
            assert float(found[1]) < 100, f"{scene}: rank {rank} raised after {found[1]} s"
    print("ok: a rank that was killed, one that does not come", flush=True)


def main():
    python = python_with("torch")
    if FULL:
        folder = tempfile.TemporaryDirectory()
        subprocess.run([sys.executable, "-m", "venv", folder.name], check=True)
        subprocess.run([f"{folder.name}/bin/pip", "install", "-q", "torch", "numpy"], check=True)
        python = f"{folder.name}/bin/python"
    if not python:
        print("skipped: no Python here has torch (python3-torch)")
        sys.exit(SKIP)
    for ranks in (2, 4):
        expect_ok(f"{ranks} ranks by a store", ranks, *plain(python, ranks, RANKS_PY, "right"))
    expect_ok("2 ranks by mpirun", 2, *by_mpi(python, 2, "right"))
    expect_ok("2 ranks by mpirun, messages only", 2, *by_mpi(python, 2, "wires", PACELINE_BACKEND="p2p"))
    faults(python)
    statuses, texts = plain(python, 2, f"{SOURCE}/examples/python/ddp_hook.py")
    losses = [float(loss) for loss in re.findall(r"loss=([\d.]+)", texts[0])]
    assert not any(statuses) and len(losses) == 3 and losses[2] < losses[0] / 2, f"the example: {statuses}\n" + "\n".join(texts)
    if subprocess.run([*HOST, "true"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
        return print("not shown: ranks of several hosts, which need root for PID namespaces")
    expect_ok("2 hosts by mpirun", 2, *by_mpi(python, 2, "wires", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo", before=HOST))
    statuses, texts = plain(python, 2, RANKS_PY, "alone", before=HOST)
    expect_ok("2 hosts without mpirun", 2, statuses, texts)
    words = "paceline.torch: the process group gloo sums gradients itself: the ranks are on several hosts, and mpirun has not started them"
    assert [text.count(words) for text in texts] == [1, 0], "\n".join(texts)


main()
