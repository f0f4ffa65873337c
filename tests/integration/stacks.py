#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`paceline stacks` on a real job of 4 ranks of which one hangs, on given processes, and with wrong arguments.

The job runs copies of paceline and its program, so that other tests' jobs are not taken for its own.
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from ranks import rank_of, running, survivors  # noqa: E402
from waiting import wait_until  # noqa: E402

BUILD = pathlib.Path(os.environ["PACELINE_BUILD"])
RANKS = 4
MOST_S = 120  # for what comes in a second on a machine that has time


def install(folder):
    """Where a container has them: bin/paceline, and its companions in libexec. The job's program too."""
    (folder / "bin").mkdir()
    shutil.copy2(BUILD / "entrypoint/paceline", folder / "bin/paceline")
    (folder / "libexec/paceline").mkdir(parents=True)
    for path in (BUILD / "libexec/paceline").iterdir():
        if path.is_file() and path.name in ("paceline-stacks", "libpaceline-hostname.so"):
            shutil.copy2(path, folder / "libexec/paceline")
    shutil.copy2(BUILD / "tests/integration/stuck_ranks", folder)
    return folder / "bin/paceline", folder / "stuck_ranks"


def stacks(paceline, *words, code=0):
    done = subprocess.run([str(paceline), "stacks", *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=MOST_S)
    assert done.returncode == code, f"stacks {words}: exit status {done.returncode}, not {code}\n{done.stdout}{done.stderr}"
    return done


def state_of(pid):
    return re.search(r"^State:\s+(\S)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)[1]


def reports(text):
    """[(rank or None, report)], as printed."""
    return [(int(m[1]) if (m := re.match(r"rank (\d+), ", part)) else None, part) for part in text.rstrip().split("\n\n")]


def start_job(paceline, probe, folder):
    base = folder / "ml"
    (base / "input/config").mkdir(parents=True)
    (base / "input/config/resourceconfig.json").write_text(json.dumps({"current_host": "algo-1", "hosts": ["algo-1"], "network_interface_name": "lo"}))
    (base / "input/config/hyperparameters.json").write_text(json.dumps({
        "sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": str(RANKS),
        "sagemaker_mpi_custom_mpi_options": "--oversubscribe --mca mpi_yield_when_idle 1"}))
    output = open(folder / "output", "w+")
    environment = dict(os.environ, SAGEMAKER_BASE_DIR=str(base), OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    job = subprocess.Popen([str(paceline), "--", str(probe), "--key", "a-secret"], env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    return job, output


def in_place(found):
    """All ranks have reached their final places."""
    return sorted(rank for rank, _ in found) == list(range(RANKS)) and all(("stuck_here" if rank == 2 else "Allreduce") in part for rank, part in found)


def job_that_hangs(paceline, probe, folder):
    job, output = start_job(paceline, probe, folder)
    try:
        found = []

        def look():
            nonlocal found
            assert job.poll() is None, f"the job has ended with {job.returncode}"
            done = subprocess.run([str(paceline), "stacks"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=MOST_S)
            found = reports(done.stdout) if done.returncode == 0 else []
            return in_place(found)

        wait_until(look, "rank 2 is in stuck_here, the others are in an allreduce")
        text = "\n\n".join(part for _, part in found)
        print(text)
        assert found[0][0] == 2, "rank 2 is not the first"
        assert [rank for rank, part in found if "stuck_here" in part] == [2], "stuck_here is on another rank's stack too"
        assert "a-secret" not in text and str(probe) in found[0][1], "the head names the arguments, or not the program"
        assert re.match(r"rank 2, process \d+: \S+, running, \d+\.\d\d s of CPU time since its start, now \d+ % of a core\n  thread ", found[0][1]), found[0][1]
        assert all(len(part.splitlines()) <= 200 for _, part in found)

        pids = {rank_of(pid): pid for pid in running(probe)}
        os.kill(pids[1], signal.SIGSTOP)
        wait_until(lambda: state_of(pids[1]) == "T", "rank 1 is stopped")
        found = reports(stacks(paceline).stdout)
        assert found[0][0] == 1 and ", stopped, " in found[0][1] and "Allreduce" in found[0][1], found[0][1]
        assert [rank for rank, _ in found][1] == 2, "rank 2 is not the first that runs"
        wait_until(lambda: state_of(pids[1]) == "T", "rank 1 is still stopped")
        os.kill(pids[1], signal.SIGCONT)

        programs = json.loads(stacks(paceline, "--json").stdout)["programs"]
        assert programs[0]["rank"] == 2 and sorted(program["process"] for program in programs) == sorted(pids.values()), programs
        assert all(f"process {program['process']}: " in program["report"] for program in programs), programs
        found = reports(stacks(paceline, pids[3], pids[0]).stdout)
        assert sorted(rank for rank, _ in found) == [0, 3], "others than those named are printed"

        os.kill(pids[2], signal.SIGUSR2)
        assert job.wait(MOST_S) == 0, f"the job ended with {job.returncode}"
        output.seek(0)
        assert len(re.findall(rf"rank \d sum {RANKS}", output.read())) == RANKS
    except BaseException:
        output.seek(0)
        print(f"the job's output:\n{output.read()}")
        raise
    finally:
        if job.poll() is None:
            job.terminate()
            try:
                job.wait(MOST_S)
            finally:
                job.kill()
    assert not survivors(probe), "a rank survived"


def no_job(paceline):
    done = stacks(paceline, code=1)
    assert not done.stdout and "no training program runs on this host" in done.stderr, done


def words(paceline):
    for word, wanted in (("x", "expected the numbers of processes, found 'x'"), ("0", "found '0'"), ("--all", "there is no option --all")):
        done = stacks(paceline, word, code=2)
        assert not done.stdout and wanted in done.stderr, done.stderr
    done = stacks(paceline, "--help")
    assert done.stdout.startswith("usage: paceline stacks") and not done.stderr, done
    done = subprocess.Popen(["true"])
    done.wait()
    lines = stacks(paceline, done.pid, os.getpid())
    assert f"process {done.pid} does not run here" in lines.stderr and f"process {os.getpid()}: " in lines.stdout, lines
    assert f"process {done.pid} does not run here" in stacks(paceline, done.pid, code=1).stderr


def python(paceline):
    """A Python program's own stack is not shown, and it is said how to get it, and whether the program is ready for that."""
    code = "import faulthandler, signal, sys\nif sys.argv[1]: faulthandler.register(signal.SIGUSR1)\nprint(flush=True)\nsignal.pause()"
    for handles, wanted in (("", "would die of it"), ("yes", "this program handles SIGUSR1")):
        program = subprocess.Popen([sys.executable, "-c", code, handles, "a-secret"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        program.stdout.readline()
        text = stacks(paceline, program.pid).stdout
        assert "faulthandler.register(signal.SIGUSR1)" in text and "docker kill --signal USR1 CONTAINER" in text and wanted in text, text
        assert "a-secret" not in text and "faulthandler, signal" not in text, text
        assert program.poll() is None, "the program has ended"
        program.kill()
        program.wait()


def not_allowed(paceline):
    """Without the right to trace, states and waits are still shown, with the reason."""
    if not shutil.which("setpriv") or os.getuid() != 0:
        print("not tried, which needs root and setpriv: a user that may not trace")
        return
    program = subprocess.Popen(["sleep", "600"])
    done = subprocess.run(["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace", str(paceline), "stacks", str(program.pid)], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=MOST_S)
    assert done.returncode == 0 and "no native stacks: ptrace: " in done.stdout and "--cap-add SYS_PTRACE" in done.stdout, done
    assert re.search(rf"^  thread {program.pid} \(\w+\), \w+", done.stdout, re.M), done.stdout
    program.kill()
    program.wait()


def may_trace():
    """Is ptrace allowed here? What a container without it prints is tried by not_allowed()."""
    program = subprocess.Popen(["sleep", "600"])
    done = subprocess.run([BUILD / "entrypoint/paceline", "stacks", str(program.pid)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=MOST_S)
    program.kill()
    program.wait()
    return "no native stacks: ptrace: " not in done.stdout


def main():
    if not (BUILD / "libexec/paceline/paceline-stacks").exists():
        print("paceline-stacks is not built: no libdw-dev, or option stacks")
        sys.exit(77)
    if not may_trace():
        print("ptrace is not allowed here")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="paceline-stacks-") as scratch:
        paceline, probe = install(pathlib.Path(scratch))
        no_job(paceline)
        words(paceline)
        python(paceline)
        not_allowed(paceline)
        job_that_hangs(paceline, probe, pathlib.Path(scratch))


main()
