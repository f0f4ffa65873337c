#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`paceline local` with real data and on bad ground: each record of CIFAR-10 comes once over all hosts, by Pipe Mode, by ShardedByS3Key and by a manifest;
a kernel that refuses namespaces, a full disk and a removed folder are told, and nothing is left.

The pictures are those of ../shared/data/cifar10 where they are, else drawn records of the same form.
"""
import ctypes
import hashlib
import io
import json
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from waiting import wait_until  # noqa: E402

BUILD = pathlib.Path(os.environ["PACELINE_BUILD"])
SOURCE = pathlib.Path(os.environ["PACELINE_SOURCE"])
PACELINE = BUILD / "entrypoint/paceline"
REAL = SOURCE.parent / "shared/data/cifar10"
OBJECTS, HOSTS = 7, 2
DEADLINE_S = 300

# Reads TFRecord files, or the FIFO of Pipe Mode, to the end: a hash of each record goes to output/data.
READER = '''#!/usr/bin/python3
import hashlib, os, struct
root = "/opt/ml/input/data/training"
names = [root + "_0"] if os.path.exists(root + "_0") else sorted(os.path.join(root, name) for name in os.listdir(root) if name.startswith("part"))
with open(os.environ["SM_OUTPUT_DATA_DIR"] + "/records-" + os.environ["SM_CURRENT_HOST"], "w") as out:
    for name in names:
        with open(name, "rb") as records:
            while head := records.read(12):
                size, = struct.unpack("<Q", head[:8])
                data = records.read(size + 4)
                assert len(data) == size + 4, "a record was cut"
                out.write(hashlib.sha256(data[:size]).hexdigest() + "\\n")
'''


def local(folder, *words, code=0, before=(), **more):
    command = [*before, PACELINE, "local", *words]
    done = subprocess.run([str(word) for word in command], cwd=folder, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=DEADLINE_S, **more)
    print("$", *command, "\n" + done.stdout, flush=True)
    assert code is None or done.returncode == code, f"exit code {done.returncode}"
    return done.stdout


def records():
    """All records with their frames."""
    found = []
    for path in sorted(REAL.glob("train-*.tfrecord")):
        data = path.read_bytes()
        at = 0
        while at < len(data):
            size = 16 + struct.unpack("<Q", data[at:at + 8])[0]
            found.append(data[at:at + size])
            at += size
    drawn = random.Random(1)
    return found or [struct.pack("<Q", 3073) + bytes(4) + drawn.randbytes(3073) + bytes(4) for _ in range(2000)]


def hashes(framed):
    return sorted(hashlib.sha256(one[12:-4]).hexdigest() for one in framed)


def counted(folder, all_records):
    """The hashes that each host wrote are those of the records, each once."""
    (folder / "reader").write_text(READER)
    (folder / "reader").chmod(0o755)
    data = folder / "data"
    data.mkdir()
    parts = [all_records[i::OBJECTS] for i in range(OBJECTS)]
    for number, part in enumerate(parts):
        (data / f"part-{number}.tfrecord").write_bytes(b"".join(part))
    named = [0, 2, 3, 5, 6]
    (folder / "manifest").write_text(json.dumps([{"prefix": "s3://bucket/cifar/"}, *[f"part-{i}.tfrecord" for i in named]]))
    some = hashes([one for i in named for one in parts[i]])
    whole = hashes(all_records)
    cases = {"pipe": ("pipe:sharded", whole), "sharded": ("sharded", whole), "manifest": (f"sharded:manifest={folder}/manifest", some),
             "pipe-manifest": (f"pipe:sharded:manifest={folder}/manifest", some), "replicated": ("pipe", sorted(HOSTS * whole))}
    for name, (words, want) in cases.items():
        local(folder, "--name", name, "--hosts", HOSTS, "--channel", f"training={data}:{words}", "--", "./reader")
        with tarfile.open(folder / f"paceline-local/{name}/output.tar.gz") as archive:
            by_host = [io.TextIOWrapper(archive.extractfile(member)).read().split() for member in archive if member.isfile()]
        assert len(by_host) == HOSTS and all(by_host), [len(one) for one in by_host]
        assert sorted(sum(by_host, [])) == want, f"{name}: {[len(one) for one in by_host]} records, expected {len(want)} in all"
        print(f"{name}: {[len(one) for one in by_host]} of {len(want)} records, each once", flush=True)


def refuse_namespaces():
    """Makes the kernel refuse new namespaces to this process, as Docker's seccomp filter does."""
    load, jump_equal, jump_set, give = 0x20, 0x15, 0x45, 0x06
    allow, refuse, unknown = 0x7fff0000, 0x00050000 | 1, 0x00050000 | 38
    unshare, clone, clone3, setns = (272, 56, 435, 308) if os.uname().machine == "x86_64" else (97, 220, 435, 268)
    program = [(load, 0, 0, 0), (jump_equal, 6, 0, unshare), (jump_equal, 5, 0, setns), (jump_equal, 3, 0, clone3), (jump_equal, 0, 4, clone), (load, 0, 0, 16),
               (jump_set, 1, 2, 0x7e020000), (give, 0, 0, unknown), (give, 0, 0, refuse), (give, 0, 0, allow)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *one) for one in program))
    libc = ctypes.CDLL(None, use_errno=True)
    filters = ctypes.create_string_buffer(struct.pack("@HP", len(program), ctypes.addressof(code)))
    assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, filters, 0, 0) == 0, os.strerror(ctypes.get_errno())


def refused(folder):
    text = local(folder, "--name", "one", "--", "echo", "ran", preexec_fn=refuse_namespaces)
    assert "this machine refuses namespaces" in text and "on a plain host" in text and "[algo-1] ran" in text, text
    text = local(folder, "--name", "two", "--hosts", 2, "--", "echo", "ran", code=None, preexec_fn=refuse_namespaces)
    assert "--image IMAGE" in text and "[algo-1]" not in text, text


def in_memory(folder):
    """Data, code and the job's folder where a host has folders of its own."""
    for parent in ("/run", "/dev/shm", "/opt/ml"):
        had = os.path.isdir(parent)
        os.makedirs(parent, exist_ok=True)
        place = pathlib.Path(tempfile.mkdtemp(prefix="paceline-local-data-", dir=parent))
        try:
            (place / "data").mkdir()
            (place / "data/one").write_text("a record")
            (place / "script").write_text('#!/bin/sh\necho "read $(cat "$SM_CHANNEL_TRAINING/one")"; echo m >"$SM_MODEL_DIR/m"\n')
            (place / "script").chmod(0o755)
            jobs = place if shutil.disk_usage(place).free > 100 << 20 else folder
            text = local(place, "--folder", jobs, "--name", "memory", "--channel", f"training={place}/data", "--", "./script")
            assert "[algo-1] read a record" in text and (jobs / "memory/model.tar.gz").exists(), text
        finally:
            shutil.rmtree(place)
            if not had:
                os.rmdir(parent)


def nothing_is_left(folder):
    assert str(folder) not in pathlib.Path("/proc/mounts").read_text().replace(f"{folder}/disk ", ""), "a mount is left"
    wait_until(lambda: subprocess.run(["pgrep", "-f", f"{folder}/"], stdout=subprocess.DEVNULL).returncode != 0, "a process is left")


def full_disk(folder):
    disk = folder / "disk"
    disk.mkdir()
    for size, device, wanted in (("32m", "zero", "has less than 64 MiB free"), ("96m", "zero", "exit code: 1"), ("96m", "urandom", "cannot pack")):
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk], check=True)
        try:
            text = local(folder, "--folder", disk, "--name", "full", "--", "sh", "-c", f"head -c {60 if device == 'urandom' else 200}000000 /dev/{device} >/opt/ml/model/large", code=None)
            assert wanted in text and "Completed" not in text, text
            assert size == "32m" or ("Status: Failed" in text and "No space left on device" in text and not (disk / "full/model.tar.gz").exists()), text
            assert ("Trees: " in text) == (disk / "full/algo-1/model/large").exists() == (size == "96m"), text  # a model that is nowhere else stays
            nothing_is_left(folder)
        finally:
            subprocess.run(["umount", disk], check=True)


def removed_folder(folder):
    """The folder of a running job goes away: the call ends with an error, and leaves nothing."""
    with (folder / "log").open("w+") as log:
        job = subprocess.Popen([PACELINE, "local", "--name", "gone", "--", "sh", "-c", "echo runs; sleep 2"], cwd=folder, stdin=subprocess.DEVNULL, stdout=log,
                               stderr=subprocess.STDOUT)
        wait_until(lambda: "[algo-1] runs" in (folder / "log").read_text(), (folder / "log").read_text, job)
        shutil.rmtree(folder / "paceline-local/gone", ignore_errors=True)
        code = job.wait(DEADLINE_S)
        log.seek(0)
        text = log.read()
    print(text, flush=True)
    assert code == 1 and "Status: Failed" in text, (code, text)
    assert re.search(r"FailureReason \(algo-1\): ClientError: Artifact upload failed: cannot pack 'model\.tar\.gz': .*No such file or directory", text), text
    nothing_is_left(folder)


def main():
    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "--pid", "--fork", "--net", "true"], stderr=subprocess.DEVNULL).returncode != 0:
        print("SKIP: hosts in namespaces need root")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="paceline-local-data-") as name:
        folder = pathlib.Path(name)
        all_records = records()
        print(len(all_records), "records,", "real" if REAL.is_dir() else "drawn", flush=True)
        counted(folder, all_records)
        refused(folder)
        in_memory(folder)
        full_disk(folder)
        removed_folder(folder)


main()
