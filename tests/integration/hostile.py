#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Harmful input to a job, on purpose or by accident: archives, configurations, names, servers, programs and machines. Each is refused with its name, or does no harm to others.

`hostile.py full`: a sweep of 5,000 trials.
"""
import contextlib
import http.server
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

from contract import archive
from job_tree import BUILD, PACELINE, Tree, expect, refused
from sweep import Job

MIB = 1 << 20
PROBE = BUILD / "tests/integration/mpi_probe"
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


class Skip(Exception):
    pass


def an_archive_that_grows_beyond_its_limit():
    with Tree(env={"PACELINE_SOURCE_MAX_BYTES": str(16 * MIB)}) as tree:
        tree.write("input/data/code/sourcedir.tar.gz", archive([("run.sh", b"#!/bin/sh\n"), ("zeros", bytes(80 * MIB))]))
        expect((tree.base / "input/data/code/sourcedir.tar.gz").stat().st_size < MIB, "the archive is not a bomb")
        tree.write("input/config/hyperparameters.json",
                   json.dumps({"sagemaker_program": "run.sh", "sagemaker_submit_directory": f"{tree.base}/input/data/code/sourcedir.tar.gz"}))
        refused(tree, "sourcedir.tar.gz", str(16 * MIB))
        left = sum(path.stat().st_size for path in tree.base.rglob("*") if path.is_file())
        expect(left < 18 * MIB, f"{left} bytes are left")


def a_set_user_id_bit_is_dropped():
    with Tree() as tree:
        path = tree.base / "input/data/code/sourcedir.tar.gz"
        path.parent.mkdir(parents=True)
        (tree.base / "run.sh").write_text("#!/bin/sh\n")
        with tarfile.open(path, "w:gz") as tar:
            tar.add(tree.base / "run.sh", "run.sh", filter=lambda info: setattr(info, "mode", 0o6777) or info)
        tree.write("input/config/hyperparameters.json", json.dumps({"sagemaker_program": "run.sh", "sagemaker_submit_directory": str(path)}))
        expect(tree.train() == 0, tree.done.stderr)
        expect((tree.base / "code/run.sh").stat().st_mode & 0o7022 == 0, oct((tree.base / "code/run.sh").stat().st_mode))


def configurations_of_other_kinds():
    for text, place in (("{}".encode("utf-16"), ""), (b"", ""), (b"{\"a\": 1}\0", ", line 1, column 9"), (b"[]", ", line 1, column 1"), (b"{\"a\": \"\xff\"}", ", line 1"),
                        (b"{\"a\": " + b"[" * 200 + b"]" * 200 + b"}", ", line 1"), (b"{\"a\": 1}" + b" " * 20 * MIB + b"x", "")):
        with Tree() as tree:
            tree.write("input/config/hyperparameters.json", text)
            refused(tree, "hyperparameters.json" + place)
    with Tree({"sagemaker_program": "run.sh", "deep": "[" * 100000}, {"run.sh": "#!/bin/sh\nprintf %s \"$SM_HP_DEEP\" | wc -c >\"$SM_OUTPUT_DATA_DIR/bytes\"\n"}) as tree:
        expect(tree.train() == 0, tree.done.stderr)  # a value that is not JSON stays text
        expect(tree.read("output/data/bytes") == "100000\n", tree.read("output/data/bytes"))


NAMES = {"a=b": "1", "$(touch x)": "2", "../x": "3", "two words": "it's \"so\"", "line\nend": "line\nend", "\u202e": "\u202etxt", "n" * 101: "`id`;\\", "*": "~"}


def names_and_values_pass_byte_for_byte():
    """Each name and value reaches the program as it is, or is refused by name, and no shell sees any."""
    show = '#!/bin/sh\nfor a in "$@"; do printf "%s\\0" "$a"; done >"$SM_OUTPUT_DATA_DIR/args"\n'
    for name, value in NAMES.items():
        with Tree({"sagemaker_program": "run.sh", name: value}, {"run.sh": show}) as tree:
            expect(tree.train() == 0, tree.done.stderr)
            expect(tree.read("output/data/args").split("\0")[:-1] == ["-" * min(len(name), 2) + name, value], (name, tree.read("output/data/args")))
            expect(sorted(path.name for path in tree.base.iterdir()) == ["code", "input", "output"] or (tree.base / "model").exists(), list(tree.base.iterdir()))
            expect(not (tree.base / "code/x").exists(), "a shell ran a value")


def output_that_is_no_directory():
    for make in (lambda path: path.write_text("kept"), lambda path: path.symlink_to("/nonexistent/there")):
        with Tree({"sagemaker_program": "run.sh"}, {"run.sh": "#!/bin/sh\n"}) as tree:
            make(tree.base / "output")
            expect(tree.train() == 1, (tree.done.returncode, tree.done.stderr))
            expect(f"{tree.base}/output".encode() in tree.done.stderr, tree.done.stderr)
            expect((tree.base / "output").is_symlink() or (tree.base / "output").read_text() == "kept", "it was replaced")


@contextlib.contextmanager
def server(answer):
    """An HTTP server on this machine: `answer(handler)` for each request. Yields its address and the requests' headers."""
    seen = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            seen.append(dict(self.headers))
            with contextlib.suppress(OSError):
                answer(self)
            self.close_connection = True

        do_HEAD = do_PUT = do_GET

        def log_message(self, *_):
            pass

    listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener.daemon_threads = True
    threading.Thread(target=listener.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.server_port}", seen
    finally:
        listener.shutdown()
        listener.server_close()


def s3(address, *words):
    """`paceline s3` with keys, against a server; its resident memory is bounded by what the test says."""
    environment = {"PATH": os.environ["PATH"], "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE", "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                   "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL_S3": f"http://{address}", "AWS_MAX_ATTEMPTS": "2", "NO_PROXY": "*"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([BUILD / "programs/paceline-s3", *words], env=environment, capture_output=True, timeout=120, check=False)
    assert b"wJalrXUtnFEMI" not in done.stdout + done.stderr, "the secret is in a message"
    return done, max(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss - before.ru_maxrss, 0) // 1024


def an_answer(handler, status, headers=(), body=b""):
    handler.send_response(status)
    for name, value in headers:
        handler.send_header(name, value)
    if not any(name == "Content-Length" for name, _ in headers):
        handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body)


def no_redirect_takes_keys_elsewhere():
    with server(lambda handler: an_answer(handler, 200, body=b"stolen")) as (thief, seen):
        for status in 301, 302, 307, 308:
            for headers in ([("Location", f"http://{thief}/bkt/obj")], [("Location", f"http://{thief}/bkt/obj"), ("x-amz-bucket-region", f"{thief}/")]):
                body = f"<Error><Code>TemporaryRedirect</Code><Endpoint>{thief}</Endpoint></Error>".encode()
                with server(lambda handler: an_answer(handler, status, headers, body)) as (address, _):
                    done, _ = s3(address, "cat", "s3://bkt/obj")
                    expect(done.returncode != 0 and done.stdout == b"", (status, done))
                    expect(done.stderr.strip(), "nothing is said")
        expect(not seen, f"the other server was asked: {seen}")


def answers_without_measure():
    def endless_list(handler):
        an_answer(handler, 200, [("Content-Length", str(1200 * MIB))], b"<ListBucketResult>")
        for _ in range(1200):
            handler.wfile.write(b"<Contents><Key>" + b"k" * MIB + b"</Key></Contents>")

    def many_headers(handler):
        an_answer(handler, 200, [(f"x-{number}", "y" * 60) for number in range(100_000)], b"data")

    for answer, words in ((endless_list, ("ls", "s3://bkt/")), (many_headers, ("cat", "s3://bkt/obj")),
                          (lambda handler: an_answer(handler, 200, [("Content-Length", str(10**20))], b"data"), ("cat", "s3://bkt/obj"))):
        with server(answer) as (address, _):
            begun = time.monotonic()
            done, grown_mib = s3(address, *words)
            expect(done.returncode != 0 and done.stderr.strip(), (words, done))
            expect(b"bkt" in done.stderr, done.stderr)
            expect(grown_mib < 128, f"{words}: {grown_mib} MiB more than any process before ({time.monotonic() - begun:.1f} s)")


def keys_that_leave_the_folder():
    for key in "../escaped", "a/../../escaped", "/etc/escaped":
        keys = "".join(f"<Contents><Key>p/{name}</Key><Size>4</Size><ETag>\"e\"</ETag></Contents>" for name in ("good", key))
        listing = f"<ListBucketResult><IsTruncated>false</IsTruncated>{keys}</ListBucketResult>".encode()
        with tempfile.TemporaryDirectory() as folder:
            with server(lambda handler: an_answer(handler, 200, [("ETag", '"e"')], listing if "list-type" in handler.path else b"data")) as (address, _):
                done, _ = s3(address, "cp", "--recursive", "s3://bkt/p/", f"{folder}/in/dest/")
            expect(done.returncode != 0 and key.encode() in done.stderr, (key, done))
            expect(not [path for path in pathlib.Path(folder).rglob("escaped")], "it escaped")


def a_second_start_waits_for_no_other_sweep():
    """Two sweeps in one folder of checkpoints: the second is refused, the first goes on."""
    job = Job('while [ ! -e $job/go ]; do sleep 0.02; done; echo score=$SM_HP_X\n', space={"x": [1, 2]}).start()
    first, log = job.process, job.log
    job.await_text("trial 1")
    job.log = None
    second = subprocess.run([PACELINE, "train"], env={**os.environ, "SAGEMAKER_BASE_DIR": str(job.base)}, capture_output=True, text=True, timeout=60, check=False)
    expect(second.returncode == 1 and "belongs to a sweep that is running" in second.stderr, (second.returncode, second.stderr))
    (job.base / "go").touch()
    job.process, job.log = first, log
    job.end()
    expect(job.states() == ["completed"] * 2, job.rows())


def a_trial_that_forks_without_end_costs_itself():
    """A trial fills its limit of processes; its end frees them all, and the next trials run."""
    if os.geteuid() != 0:
        raise Skip("only root can take another user's number")
    job = Job('if [ $SM_HP_X = 2 ]; then b() { b | b & }; b; sleep 2; exit 7; fi\necho score=$SM_HP_X\n', space={"x": [1, 2, 3]}, slots=1, max_failed=1)
    job.base.chmod(0o755)
    for path in [job.base, *job.base.rglob("*")]:
        os.chown(path, 64123, 64123)
    job.command = ["setpriv", "--reuid=64123", "--regid=64123", "--clear-groups", "prlimit", "--nproc=120"]
    job.run(HOME=str(job.base))
    rows = job.rows()
    expect([row["state"] for row in rows] == ["completed", "failed", "completed"], rows)
    left = [entry for entry in pathlib.Path("/proc").glob("[0-9]*") if entry.exists() and entry.stat().st_uid == 64123]
    expect(not left, left)


def a_small_dev_shm_holds_four_ranks():
    if not PROBE.exists() or not shutil.which("mpirun"):
        raise Skip("no Open MPI")
    words = ["unshare", "--mount", "sh", "-c", 'mount -o remount,size=64m /dev/shm 2>/dev/null || mount -t tmpfs -o size=64m tmpfs /dev/shm; exec "$@"', "sh"]
    if subprocess.run([*words, "true"], capture_output=True, check=False).returncode != 0:
        raise Skip("nothing can be mounted here")
    done = subprocess.run([*words, "mpirun", "--oversubscribe", "-np", "4", BUILD / "programs/paceline-bench", "allreduce", "--min-bytes", "64MiB", "--max-bytes", "64MiB",
                           "--pairs", "1", "--loop-ms", "1", "--json"], env={**os.environ, **AS_ROOT}, capture_output=True, text=True, timeout=300, check=False)
    expect(done.returncode == 0 and "67108864" in done.stdout, done)


def two_mpi_jobs_in_one_container():
    if not PROBE.exists() or not shutil.which("mpirun"):
        raise Skip("no Open MPI")
    program = '#!/bin/sh\nwhile [ "$(ls "$MEET" | wc -l)" -lt 4 ]; do touch "$MEET/$JOB-$OMPI_COMM_WORLD_RANK"; sleep 0.02; done\necho "job=$JOB rank=$OMPI_COMM_WORLD_RANK of=$OMPI_COMM_WORLD_SIZE"\n'
    with tempfile.TemporaryDirectory() as meet, contextlib.ExitStack() as stack:
        jobs = []
        for name in "one", "two":
            tree = stack.enter_context(Tree({"sagemaker_program": "run.sh", "sagemaker_mpi_enabled": True, "sagemaker_mpi_num_of_processes_per_host": 2},
                                            {"run.sh": program}, env={"MEET": meet, "JOB": name, **AS_ROOT}))
            jobs.append((name, subprocess.Popen([PACELINE, "train"], env=tree.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)))
        for name, process in jobs:
            text = process.communicate(timeout=120)[0]
            expect(process.returncode == 0, text)
            for rank in 0, 1:
                expect(f"job={name} rank={rank} of=2" in text, text)


def stacks_show_no_escapes():
    """Names that a process gives to itself and its threads control no terminal."""
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder) / "esc\x1b[31mape.py"
        script.write_text("import ctypes, time\nctypes.CDLL(None).prctl(15, b'\\x1b[31mred\\n\\x9b', 0, 0, 0)\nprint('ready', flush=True)\ntime.sleep(600)\n")
        process = subprocess.Popen([sys.executable, script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        try:
            expect(process.stdout.readline() == b"ready\n", "no start")
            done = subprocess.run([PACELINE, "stacks", str(process.pid)], capture_output=True, timeout=60, check=False)
        finally:
            process.kill()
            process.wait()
        expect(done.returncode == 0 and b"red" in done.stdout, done)
        expect(not [byte for byte in done.stdout + done.stderr if byte < 32 and byte != 10 or byte == 127], done.stdout)


def five_thousand_trials(count=5000):
    job = Job("echo score=$((SM_HP_X * 7919 % 5003))\n", space={"x": {"int": [1, count]}}, slots=8)
    job.start()
    expect(job.process.wait(timeout=1800) == 0, job.text()[-2000:])
    best = max(range(1, count + 1), key=lambda x: x * 7919 % 5003)
    expect(job.states() == ["completed"] * count, "not all completed")
    expect(f"\nbest_score={best * 7919 % 5003}.0 trial={best - 1}\n" in job.text(), job.text()[-2000:])
    job.run()  # all are over
    expect(job.text().count(" runs on host ") == 0, "a trial ran twice")


CASES = [an_archive_that_grows_beyond_its_limit, a_set_user_id_bit_is_dropped, configurations_of_other_kinds, names_and_values_pass_byte_for_byte,
         output_that_is_no_directory, no_redirect_takes_keys_elsewhere, answers_without_measure, keys_that_leave_the_folder, a_second_start_waits_for_no_other_sweep,
         a_trial_that_forks_without_end_costs_itself, a_small_dev_shm_holds_four_ranks, two_mpi_jobs_in_one_container, stacks_show_no_escapes]

if __name__ == "__main__":
    for case in [five_thousand_trials] if sys.argv[1:] == ["full"] else [case for case in CASES if not sys.argv[1:] or case.__name__ in sys.argv[1:]]:
        begun = time.monotonic()
        try:
            case()
            print(f"{case.__name__.replace('_', ' ')} ({time.monotonic() - begun:.1f} s)", flush=True)
        except Skip as reason:
            print(f"skipped {case.__name__}: {reason}")
