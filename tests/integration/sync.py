#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`paceline sync` if the kernel or the directory does not report every change.

  sync.py PACELINE_SYNC

A case that needs user namespaces is left out with a message if they are refused.
"""
import concurrent.futures
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from waiting import wait_until  # noqa: E402

SOURCE = pathlib.Path(os.environ["PACELINE_SOURCE"])
TOOL = sys.argv[1]
LIMIT_S = 120  # far beyond two looks of 10 s

NO_WATCHES = ["unshare", "-Ur", "sh", "-c", 'echo 1 >/proc/sys/user/max_inotify_watches && exec "$@"', "sh"]
NO_INOTIFY = ["unshare", "-Ur", "sh", "-c", 'echo 0 >/proc/sys/user/max_inotify_instances && exec "$@"', "sh"]
NOBODY = ["unshare", "-U"]  # without the right to read everything
SAYS = "not all changes are reported"


class Sync:
    """The program between a directory and a server that keeps what it gets as files."""

    def __init__(self, folder, prefix=(), words=(), silent=False):
        self.watched, self.store, self.message = folder / "watched", folder / "store", ""
        self.store.mkdir()
        self.server = subprocess.Popen([sys.executable, SOURCE / "tests/fakes/fake_s3.py", "--keep", self.store], stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, text=True)
        self.port = int(self.server.stdout.readline().split()[1])
        environment = dict(os.environ, AWS_ENDPOINT_URL_S3=f"http://127.0.0.1:{self.port}", AWS_ACCESS_KEY_ID="AKIDTEST", AWS_SECRET_ACCESS_KEY="secret",
                           AWS_REGION="us-east-1", NO_PROXY="*")
        if silent:
            self.server.send_signal(signal.SIGSTOP)
        self.process = subprocess.Popen([*prefix, TOOL, *words, self.watched, "s3://bkt/up"], env=environment, stderr=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in (self.process, self.server):
            process.kill()
            process.wait()

    def wait(self, name, text):
        path = self.store / "up" / name
        self.wait_until(lambda: path.exists() and path.read_text() == text, f"{name} does not arrive")

    def wait_until(self, happens, problem):
        wait_until(happens, problem, self.process)

    def wait_begun(self):
        self.wait_until(lambda: heeds_stop(self.process, "SigBlk"), "it does not begin")

    def wait_asking(self):
        self.wait_until(lambda: is_connected(self.port), "the server is not asked")

    def wait_told(self):
        self.wait_until(lambda: not heeds_stop(self.process, "ShdPnd"), "it does not look for a stop request")

    def stop(self, code=0):
        self.process.terminate()
        self.end(code)

    def end(self, code=0):
        _, self.message = self.process.communicate(timeout=LIMIT_S)
        assert self.process.returncode == code, f"exit status {self.process.returncode}\n{self.message}"

    def has_given_up(self):
        assert "the time for the last uploads is over" in self.message and "1 of 1 files are not on S3" in self.message, self.message

    def has(self, name, text):
        path = self.store / "up" / name
        assert path.exists() and path.read_text() == text, f"{name} is not on the server\n{self.message}"


def allowed(prefix):
    return subprocess.run([*prefix, "true"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0


def heeds_stop(process, field):
    """Whether SIGTERM no longer ends the process but is kept for it (SigBlk), or lies there and was not taken (ShdPnd)."""
    for line in pathlib.Path(f"/proc/{process.pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field + ":"):
            return bool(int(line.split()[1], 16) >> signal.SIGTERM - 1 & 1)
    return False


def is_connected(port):
    """Whether somebody has a connection to that port of this host."""
    lines = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()]
    return any(line[2].endswith(f":{port:04X}") and line[3] == "01" for line in lines)


def make(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def changes_are_looked_for(folder, prefix):
    """With less or no inotify, files arrive later, and files that were never closed arrive at the end; the log says it once."""
    make(folder / "watched/below/before", "before")
    make(folder / "watched/other/before", "other")
    with Sync(folder, prefix) as sync:
        sync.wait("below/before", "before")
        make(folder / "watched/below/later", "later")
        make(folder / "watched/new/later", "new")
        sync.wait("below/later", "later")
        sync.wait("new/later", "new")
        (folder / "watched/below/before").write_text("again")
        sync.wait("below/before", "again")
        with open(folder / "watched/below/open", "w", encoding="ascii") as file:
            file.write("never closed")
            file.flush()
            sync.stop()
        sync.has("below/open", "never closed")
        assert sync.message.count(SAYS) == 1 and len(sync.message.splitlines()) == 1, sync.message


def out_of_watches(folder):
    changes_are_looked_for(folder, NO_WATCHES)


def no_inotify(folder):
    changes_are_looked_for(folder, NO_INOTIFY)


def unreadable(folder):
    """A directory that cannot be read holds up nothing else; what is in it goes up once it can be read, or the end reports it."""
    make(folder / "watched/a/here", "here")
    for name in ("closed", "locked"):
        make(folder / "watched" / name / "inside", "inside")
        (folder / "watched" / name).chmod(0)
    try:
        with Sync(folder, NOBODY) as sync:
            sync.wait("a/here", "here")
            (folder / "watched/closed").chmod(0o755)
            sync.wait("closed/inside", "inside")
            make(folder / "watched/z/last", "last")
            sync.stop(code=1)
            sync.has("z/last", "last")
            assert sync.message.count(SAYS) == 1 and "locked': Permission denied (1 directories could not be read)" in sync.message, sync.message
    finally:
        (folder / "watched/locked").chmod(0o755)


def locked_late(folder):
    """A file that cannot be asked for when its turn comes is not taken for a removed one."""
    make(folder / "watched/locked/before", "before")
    try:
        with Sync(folder, NOBODY) as sync:
            sync.wait("locked/before", "before")
            with open(folder / "watched/locked/file", "w", encoding="ascii") as file:
                file.write("text")
                (folder / "watched/locked").chmod(0)
            make(folder / "watched/then", "then")  # its turn comes after the file's, in time and by name
            sync.wait("then", "then")
            (folder / "watched/locked").chmod(0o755)
            sync.stop()
            sync.has("locked/file", "text")
            assert "cannot upload 'locked/file': cannot stat '" in sync.message and "Permission denied" in sync.message, sync.message
    finally:
        (folder / "watched/locked").chmod(0o755)


def deep(folder):
    """A tree of any depth."""
    before, after = "/".join(["deep"] * 200), "/".join(["more"] * 150)
    make(folder / "watched" / before / "file", "before")
    with Sync(folder) as sync:
        sync.wait(f"{before}/file", "before")
        make(folder / "watched" / after / "file", "after")
        sync.wait(f"{after}/file", "after")
        sync.stop()
        assert sync.message == "", sync.message


def moved(folder):
    """Files of a directory that was renamed go under its new name."""
    make(folder / "watched/old/in/first", "first")
    with Sync(folder) as sync:
        sync.wait("old/in/first", "first")
        (folder / "watched/old").rename(folder / "watched/new")
        sync.wait("new/in/first", "first")
        make(folder / "watched/new/in/second", "second")
        sync.wait("new/in/second", "second")
        sync.stop()
        assert not (sync.store / "up/old/in/second").exists()


def cleared(folder):
    """A program that clears the directory, itself with all that is in it, is followed into the new one."""
    make(folder / "watched/first", "first")
    with Sync(folder) as sync:
        sync.wait("first", "first")
        shutil.rmtree(folder / "watched")
        make(folder / "watched/below/second", "second")
        sync.wait("below/second", "second")
        sync.stop()
        assert sync.message.count(SAYS) == 1 and len(sync.message.splitlines()) == 1, sync.message


def same_tick(folder):
    """Of two writes of the same size in one tick of a file system's clock, here one of whole seconds, the second counts."""
    make(folder / "watched/before", "before")
    with Sync(folder) as sync:
        sync.wait("before", "before")
        for number in range(20):
            path, tick = folder / f"watched/file{number}", int(time.time())
            path.write_text("one")
            os.utime(path, (tick, tick))
            time.sleep(0.8)  # time enough to send what counts as written
            path.write_text("two")
            os.utime(path, (tick, tick))
            if time.time() < tick + 2:  # as FAT's clock may count; a machine that was slower tries again
                break
        sync.wait(path.name, "two")
        sync.stop()


def silent(folder):
    """Uploads to a server that does not answer are aborted when the time for the last uploads is over."""
    make(folder / "watched/file", "text")
    with Sync(folder, words=["--finish", "1"], silent=True) as sync:
        sync.wait_begun()
        time.sleep(2)  # the upload waits for its answer by now; where it does not yet, the end is the same
        begun = time.monotonic()
        sync.stop(code=1)
        assert time.monotonic() - begun < 60, "the time to finish did not count"
        sync.has_given_up()


def told_late(folder):
    """A stop request that comes while the last upload waits for its answer is not a reason to wait for another one."""
    make(folder / "watched/file", "text")
    with Sync(folder, silent=True) as sync:
        sync.wait_asking()
        sync.process.terminate()
        sync.wait_told()
        sync.server.send_signal(signal.SIGCONT)
        sync.end()
        sync.has("file", "text")


def urged(folder):
    """Uploads to a server that does not answer are aborted when the other signal comes."""
    make(folder / "watched/file", "text")
    with Sync(folder, words=["--finish", "3600"], silent=True) as sync:
        sync.wait_begun()
        sync.process.terminate()
        sync.process.send_signal(signal.SIGINT)
        sync.stop(code=1)
        sync.has_given_up()


def main():
    cases = [(deep, None), (silent, None), (told_late, None), (urged, None), (moved, None), (cleared, None), (same_tick, None),
             (out_of_watches, NO_WATCHES), (no_inotify, NO_INOTIFY), (unreadable, NOBODY), (locked_late, NOBODY)]
    running = {}
    failed = False
    with tempfile.TemporaryDirectory(prefix="paceline-sync-") as base, concurrent.futures.ThreadPoolExecutor(len(cases)) as pool:
        for case, prefix in cases:
            if prefix and not allowed(prefix):
                print(f"left out: {case.__name__}, no user namespaces here")
                continue
            folder = pathlib.Path(base, case.__name__)
            folder.mkdir()
            running[pool.submit(case, folder)] = case.__name__
        for future in concurrent.futures.as_completed(running):
            problem = future.exception()
            failed = failed or problem is not None
            print(f"FAIL {running[future]}: {problem}" if problem else f"ok   {running[future]}", flush=True)
    sys.exit(1 if failed else 0)


main()
