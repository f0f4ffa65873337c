#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stops programs that are trees of processes, drawn from a seed, and compares who gets the signal with a model.

    stop_trees.py SEED COUNT     COUNT trees, the first from SEED
    stop_trees.py tree JSON      be such a tree: {"name", "kind", "scope", "orphan", "save_s", "children"}

A process that handles the signal (by a handler, sigwait() or a signalfd) gets it once, if no process above it handles it, and has the time to save. `timeout`
and the others that do not handle it keep running until then. At the end nobody is left.
"""
import concurrent.futures
import ctypes
import json
import os
import pathlib
import random
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

HANDLES = ("handler", "once", "sigwait", "thread", "signalfd")  # "once" ignores the signal from the first on
PLAIN = ("plain", "ignores", "blocks", "timeout")
SIGTIMEDWAIT = "128" if os.uname().machine == "x86_64" else "137"  # the number of the system call
WAIT_S = 120


def note(name, word):
    descriptor = os.open("notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{name} {word}\n".encode())
    os.close(descriptor)


def be(node):
    """Run as `node` of the tree; its children have started."""
    got = []
    kind, term = node["kind"], {signal.SIGTERM}
    if kind in ("handler", "once"):
        def handle(*_):
            if kind == "once":
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            got.append(1)
            note(node["name"], "got")
        signal.signal(signal.SIGTERM, handle)
    elif kind == "ignores":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK if kind in ("blocks", "sigwait", "thread", "signalfd") else signal.SIG_UNBLOCK, term)
    if kind == "signalfd":
        mask = struct.pack("Q", 1 << (signal.SIGTERM - 1)).ljust(128, b"\0")
        descriptor = ctypes.CDLL(None).signalfd(-1, mask, 0)

    def wait():
        note(node["name"], f"runs {threading.get_native_id()} sigwait")
        signal.sigwait(term)
        note(node["name"], "got")
    if kind == "sigwait":
        wait()
    elif kind == "thread":
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join()
    else:
        note(node["name"], f"runs {os.getpid()} {kind}")
    if kind == "signalfd":
        os.read(descriptor, 128)
        note(node["name"], "got")
    while kind not in HANDLES or (kind in ("handler", "once") and not got):
        time.sleep(0.02)
        if kind not in HANDLES and not node["stays"]:  # it ends with its children, as a shell does
            try:
                while os.waitpid(-1, os.WNOHANG)[0] != 0:
                    pass
            except ChildProcessError:
                os._exit(0)
    until = time.monotonic() + node["save_s"]
    while time.monotonic() < until:
        time.sleep(0.02)
    if kind in ("sigwait", "thread", "signalfd") and signal.sigpending():
        note(node["name"], "got")  # once more
    note(node["name"], "saved")
    os._exit(0)


def start(node):
    """Start a child, in the group or session that it is to have; the parent of an orphan ends."""
    parent = os.getpid()
    if os.fork() != 0:
        if node["orphan"]:
            os.wait()
        return
    if node["orphan"]:
        parent = os.getpid()
        if os.fork() != 0:
            os._exit(0)
        while os.getppid() == parent:
            time.sleep(0.001)
    if node["scope"] == "group":
        os.setpgid(0, 0)
    elif node["scope"] == "session":
        os.setsid()
    run(node)


def run(node):
    if node["kind"] == "timeout":
        inner = {**node, "kind": node["below"]}
        os.execvp("timeout", ["timeout", "1000", sys.executable, __file__, "tree", json.dumps(inner)])
    for child in node["children"]:
        start(child)
    be(node)


def draw(rng, name="0", depth=1):
    node = {"name": name, "kind": rng.choice(HANDLES + PLAIN if depth > 1 else HANDLES + ("plain", "timeout")), "scope": rng.choice(("same", "same", "group", "session")),
            "below": rng.choice(HANDLES + ("plain",)), "orphan": depth > 1 and rng.random() < 0.2, "save_s": round(rng.uniform(0, 1.5), 2)}
    count = rng.choice((0, 1, 1, 2, 2, 3)) if depth < 5 else 0
    node["children"] = [draw(rng, f"{name}.{number}", depth + 1) for number in range(max(count, depth == 1))]
    node["stays"] = rng.random() < 0.3 or all(child["orphan"] for child in node["children"])
    return node


def model(node, below_handler, tree):
    """Add to `tree`, by name, whether the process handles the signal, and whether it must get it."""
    kind = node["below"] if node["kind"] == "timeout" else node["kind"]
    handles = kind in HANDLES
    below_handler = below_handler and not node["orphan"]
    tree[node["name"]] = handles and not below_handler
    for child in node["children"]:
        model(child, below_handler or handles, tree)
    return tree


def in_sigwait(pid):
    return pathlib.Path(f"/proc/{pid}/syscall").read_text().split()[0] == SIGTIMEDWAIT


def all_run(notes, count):
    """Whether all processes run, and those that are to be in sigwait() are in it."""
    running = [line.split() for line in notes.splitlines()]
    return len(running) == count and all(kind != "sigwait" or in_sigwait(pid) for _, _, pid, kind in running)


def members(folder):
    """Ids of the processes that the tree of this folder has left."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
        try:
            found += [path.parent.name] if os.fsencode(f"PACELINE_TREE={folder}") in path.read_bytes().split(b"\0") else []
        except OSError:  # the process has ended
            pass
    return found


def stop(seed, paceline):
    """Returns what is wrong."""
    with tempfile.TemporaryDirectory(prefix="paceline-trees-") as text:
        folder = pathlib.Path(text)
        spec = draw(random.Random(seed))
        wanted = model(spec, False, {})
        for name in ("input/config", "code", "model", "output/data"):
            (folder / name).mkdir(parents=True)
        host = os.uname().nodename
        (folder / "input/config/resourceconfig.json").write_text(json.dumps({"current_host": host, "hosts": [host], "network_interface_name": "lo"}))
        (folder / "code/p.sh").write_text(f"cd {folder}\nexec {sys.executable} {__file__} tree '{json.dumps(spec)}'\n")
        (folder / "input/config/hyperparameters.json").write_text(json.dumps({"sagemaker_program": "p.sh"}))
        (folder / "notes").touch()
        environment = {**os.environ, "SAGEMAKER_BASE_DIR": text, "PACELINE_TREE": text, "PACELINE_STOP_S": "30"}
        with open(folder / "log", "w") as log:
            job = subprocess.Popen([paceline, "train"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        until = time.monotonic() + WAIT_S
        while not all_run((folder / "notes").read_text(), len(wanted)) and job.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        job.send_signal(signal.SIGTERM)
        job.wait(WAIT_S)
        notes = (folder / "notes").read_text().splitlines()
        wrong = [f"{name} got it {notes.count(f'{name} got')} times, not {int(gets)}" for name, gets in wanted.items() if notes.count(f"{name} got") != gets]
        wrong += [f"{name} has not saved" for name, gets in wanted.items() if gets and f"{name} saved" not in notes]
        wrong += [f"process {pid} is left" for pid in members(text)]
        return [f"seed {seed}: {'; '.join(wrong)}\n{json.dumps(spec)}\n{(folder / 'log').read_text()}"] if wrong else []


def main(seed, count):
    paceline = pathlib.Path(os.environ["PACELINE_BUILD"]) / "entrypoint/paceline"
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        results = list(pool.map(lambda number: stop(number, paceline), range(seed, seed + count)))
    wrong = [text for result in results for text in result]
    print(*wrong, f"{count} trees, {len(wrong)} of them wrong", sep="\n")
    sys.exit(1 if wrong else 0)


if sys.argv[1] == "tree":
    run(json.loads(sys.argv[2]))
else:
    main(int(sys.argv[1]), int(sys.argv[2]))
