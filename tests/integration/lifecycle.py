#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program's beginning, waiting and end, as real processes under mpirun.

    lifecycle.py [SECONDS]     a peer is late by SECONDS, by default 4; prints the cost of waiting and stopping

Numbers are behaviours of the conformance list (tests/conformance.md).
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from ranks import survivors  # noqa: E402
from waiting import wait_until  # noqa: E402

BUILD = pathlib.Path(os.environ["PACELINE_BUILD"])
PROBE = BUILD / "tests/integration/lifecycle_probe"
STOP_LATE_S = 14  # longer than any wait but timeout_s, also for who begins it late by some seconds
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


def run(ranks, *words, code=0, cwd=None, **variables):
    command = [PROBE, *words] if ranks == 0 else ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", ranks, PROBE, *words]
    done = subprocess.run([str(word) for word in command], env={**ENVIRONMENT, **variables}, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=120)
    codes = code if isinstance(code, tuple) else (code,)
    assert done.returncode in codes, f"{words}: exit status {done.returncode}, not {code}\n{done.stdout}{done.stderr}"
    return done


def topology():
    """A4, A5: the launcher determines the ranks; without a launcher there is one."""
    for ranks in (1, 2, 3, 4):
        lines = sorted(run(ranks, "topology").stdout.splitlines())
        assert lines == [f"rank {r} size {ranks} local {r} of {ranks} host 0 of 1" for r in range(ranks)], lines
    assert run(0, "topology").stdout == "rank 0 size 1 local 0 of 1 host 0 of 1\n"


def placement():
    """`paceline info` says on which CPUs the ranks of a host run."""
    cpu = min(os.sched_getaffinity(0))
    command = ["taskset", "-c", str(cpu), "mpirun", "--oversubscribe", "--bind-to", "none", "-n", "3", str(BUILD / "libexec/paceline/paceline-info")]
    done = subprocess.run(command, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, timeout=120, check=True)
    assert f"\nCPUs on host 0: ranks 0-2 bound to CPU {cpu}\n" in done.stdout, done.stdout


def bad_start():
    """A10, P3: a start that fails says why and ends every rank."""
    done = run(2, "topology", code=1, PACELINE_TIMEOUT_S="soon")
    assert "PACELINE_TIMEOUT_S is 'soon': expected a number" in done.stderr and not done.stdout, done.stderr


def horovods_variables(folder):
    """Those that have no effect are named once, with settings of ours that are gone; DYNAMIC names no file."""
    done = run(2, "topology", cwd=folder, PACELINE_SHM_STORE="stream", HOROVOD_CYCLE_TIME="5", HOROVOD_TIMELINE="DYNAMIC", HOROVOD_STALL_CHECK_TIME_SECONDS="30", HOROVOD_AUTOTUNE="")
    lines = [line for line in done.stderr.splitlines() if "HOROVOD_" in line]
    assert len(lines) == 1 and sorted(lines[0].split(": ")[-1].split(", ")) == ["HOROVOD_CYCLE_TIME", "HOROVOD_TIMELINE", "PACELINE_SHM_STORE"], done.stderr
    assert not list(folder.iterdir())


def again():
    """A1, A3: a second start gives a second world next to the first, and either outlives the other."""
    assert sorted(run(3, "again").stdout.splitlines()) == [f"rank {r} sum 9" for r in range(3)]
    for backend in "", "p2p":
        assert sorted(run(3, "swapped", PACELINE_BACKEND=backend).stdout.splitlines()) == [f"rank {r} sum 3" for r in range(3)]


def waiting(late_s):
    """Ranks that wait for a late peer sleep and do not spin, and one warning names the peer (O4)."""
    for ranks in (2, 3):
        for longer in (1, 2, 4):  # a rank that the machine has halted begins to wait when the late one is nearly there
            done = run(ranks, "wait", longer * late_s, PACELINE_STALL_S=str(longer * late_s / 4))
            costs = {int(m[1]): (float(m[2]), float(m[3])) for m in re.finditer(r"rank (\d+) waited_s (\S+) cpu_s (\S+) sum " + str(ranks), done.stdout)}
            assert len(costs) == ranks, done.stdout
            if all(costs[rank][0] > longer * late_s / 2 for rank in range(ranks - 1)):
                break
        for rank in range(ranks - 1):
            waited, cpu = costs[rank]
            print(f"rank {rank} of {ranks} waited {waited:.2f} s for a late peer and used {cpu:.4f} CPU s, {cpu / waited:.4f} of a core")
            assert waited > longer * late_s / 2, "a rank did not wait"
            assert cpu < 0.05 * waited, "a waiting rank spins"
            assert re.search(rf"rank {rank} has waited .* s for rank {ranks - 1} in allreduce 'late'", done.stderr), done.stderr


def stopping():
    """The cost of a stop, including MPI's own end."""
    costs = [float(cost) for _ in range(3) for cost in re.findall(r"stop_s (\S+)", run(2, "stop").stdout)]
    assert len(costs) == 6
    print(f"pl_runtime_stop() took {1e3 * sorted(costs)[3]:.1f} ms, at most {1e3 * max(costs):.1f} ms")


def late_stop():
    """A rank that still writes the model is waited for, and named; one that outlasts timeout_s is left, with a message, and the job fails."""
    done = run(3, "stop", STOP_LATE_S, PACELINE_STALL_S="1")
    costs = sorted(float(cost) for cost in re.findall(r"stop_s (\S+)", done.stdout))
    assert len(costs) == 3 and costs[1] > STOP_LATE_S - 4, costs
    assert re.search("has waited .* s for rank 0 in barrier", done.stderr), done.stderr
    done = run(2, "stop", 300, code=1, PACELINE_TIMEOUT_S="6")  # longer than survivors are waited for
    assert re.search(r"leaving without the other ranks: .*barrier 'pl_runtime_stop', did not end before rank 1's deadline.*rank 0", done.stderr), done.stderr
    assert not survivors(PROBE), "a rank survived"


def leaving():
    """A9: a program that ends without a stop ends at once, with mpirun's message that MPI was not finalised; nothing of it stays."""
    before = set(os.listdir("/dev/shm"))  # where tests with the fake NCCL, which may run beside this one, have its files
    assert "without calling" in run(2, "leave", code=1).stderr
    assert not survivors(PROBE)
    new = {name for name in set(os.listdir("/dev/shm")) - before if "paceline" in name and "fake" not in name}
    wait_until(lambda: new.isdisjoint(os.listdir("/dev/shm")), f"left in /dev/shm: one of {sorted(new)}")  # those of other tests go
    run(0, "leave")


def vanishing():
    """Q13: a rank that ends in the middle, or while the others stop, ends the job at once, and no process is left."""
    began = time.monotonic()
    run(3, "vanish", code=(1, 3))  # 1 when mpirun sees the ends of those first that left without the dead one
    print(f"a rank left with status 3: the job ended after {time.monotonic() - began:.2f} s")
    assert not survivors(PROBE), "a rank survived"
    began = time.monotonic()
    run(3, "desert", code=(1, 3))
    print(f"a rank left with status 3 while the others stopped: the job ended after {time.monotonic() - began:.2f} s")
    assert not survivors(PROBE), "a rank survived"


def tracing(folder):
    """O1, O8: one JSON file with every rank's operations and the program's own spans; the rings stay, and say who was waited for."""
    run(3, "span", PACELINE_TRACE=str(folder / "trace.json"))
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    names = {(event["pid"], event["name"]) for event in events if event["ph"] == "X"}
    assert len({pid for pid, name in names if name == "my span"}) == 3, names
    assert len({pid for pid, name in names if name == "barrier"}) == 3, names
    rings = sorted(folder.glob("trace.json.rank?.ring"))
    assert len(rings) == 3 and len(list(folder.iterdir())) == 4, list(folder.iterdir())
    done = subprocess.run([BUILD / "programs/paceline-trace", "--summary", *rings], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and re.search(r"3 ranks on 1 host|too few to compare", done.stdout), done


def main():
    late_s = float(sys.argv[1]) if len(sys.argv) > 1 else 4.0
    topology()
    placement()
    bad_start()
    again()
    waiting(late_s)
    stopping()
    late_stop()
    leaving()
    vanishing()
    with tempfile.TemporaryDirectory(prefix="paceline-lifecycle-") as scratch:
        horovods_variables(pathlib.Path(scratch))
        tracing(pathlib.Path(scratch))


main()
