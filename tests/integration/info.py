#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`paceline info`, in words and as JSON: packages' versions without importing them, secrets that are not printed, a Python that does not answer, and a
machine on which the runtime's part cannot be loaded."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

BUILD = pathlib.Path(os.environ["PACELINE_BUILD"])
PROGRAM = BUILD / "libexec/paceline/paceline-info"
PATH = "/usr/local/bin:/usr/bin:/bin"


def info(*words, program=PROGRAM, code=0, path=PATH, **variables):
    environment = {"HOME": "/", "PATH": path, **variables}
    done = subprocess.run([program, *words], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, f"exit status {done.returncode}, not {code}: {done.stdout}{done.stderr}"
    return done.stdout


def words_and_json_say_the_same(_):
    found = json.loads(info("--json"))
    assert found.pop("version") == 1 and list(found) == ["paceline", "system", "open_mpi", "python", "ssh", "devices", "environment", "runtime", "missing"], list(found)
    assert found["paceline"]["version"] and found["paceline"]["horovod"] in (True, False) and found["system"]["dev_shm_mib"] > 0, found
    assert found["runtime"]["works"] and any(line.startswith("backend self: on") for line in found["runtime"]["lines"]), found["runtime"]
    text = info()
    for section in found:
        assert f"\n{section}:\n" in "\n" + text, f"there is no section '{section}' in: {text}"
    assert "\nbackend self: on\n" in text and f"{found['system']['kernel']}\n" in text, text


def packages_are_not_imported(folder):
    site = folder / "site"
    for name in ("torch", "tensorflow"):
        (site / name).mkdir(parents=True)
        (site / name / "__init__.py").write_text(f"open({str(folder / 'imported')!r}, 'w').close()\n")
        (site / f"{name}-9.8.7.dist-info").mkdir()
        (site / f"{name}-9.8.7.dist-info" / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 9.8.7\n")
    found = json.loads(info("--json", PYTHONPATH=str(site), PACELINE_PYTHON=sys.executable))["python"]
    assert found["torch"] == found["tensorflow"] == "9.8.7" and found["python"] == sys.version.split()[0], found
    assert not (folder / "imported").exists(), "a package was imported"


def secrets_are_not_printed(_):
    text = info(PACELINE_SSH_SECRET="/opt/ml/input/data/secret/key", PACELINE_HANG_S="600", PIP_INDEX_URL="https://aws:wordofpass@example.invalid/simple",
                HOROVOD_API_TOKEN="wordofpass", AWS_SECRET_ACCESS_KEY="wordofpass")
    assert "wordofpass" not in text and "/secret/key" not in text, text
    assert any(line.split() == ["PACELINE_HANG_S:", "600"] for line in text.splitlines()), text
    assert json.loads(info("--json", PACELINE_SSH_SECRET="/x"))["ssh"]["secret"] is True


def a_python_that_does_not_answer_costs_seconds(folder):
    hanging = folder / "python-that-hangs"
    hanging.write_text("#!/bin/sh\nsleep 1000 &\nsleep 1000\n")
    hanging.chmod(0o755)
    found = json.loads(info("--json", PACELINE_PYTHON=str(hanging)))
    assert "did not end in time" in found["python"]["versions"] and found["runtime"]["works"], found


def the_runtime_that_cannot_be_loaded_is_a_line(folder):
    shutil.copy(PROGRAM, folder / "paceline-info")
    (folder / "paceline-world").write_text("#!/bin/sh\necho 'error while loading shared libraries: libmpi.so.40: no such file' >&2\nexit 127\n")
    (folder / "paceline-world").chmod(0o755)
    found = json.loads(info("--json", program=folder / "paceline-info", path="/nowhere"))
    assert found["runtime"]["works"] is False and "libmpi.so.40" in found["runtime"]["why_not"], found
    assert found["open_mpi"]["mpirun"] is None and found["python"]["program"] is None, found


def what_is_missing_is_named_with_what_brings_it(_):
    lacks = {"PACELINE_SSH_DIR": "/nowhere"}
    found = json.loads(info("--json", path="/nowhere", **lacks))["missing"]
    assert {"mpirun", "ssh", "keys", "BASH_ENV"} <= set(found) and "openmpi-bin" in found["mpirun"] and "paceline setup" in found["keys"], found
    front = BUILD / "entrypoint/paceline"  # it removes BASH_ENV from the environment of all other verbs
    found = json.loads(info("info", "--json", program=front, path="/nowhere", BASH_ENV="/x/bash-env.sh", PACELINE_SSH_SECRET="/x", **lacks))
    assert "BASH_ENV" not in found["missing"] and "keys" not in found["missing"] and "BASH_ENV" not in found["environment"], found


for case in (words_and_json_say_the_same, packages_are_not_imported, secrets_are_not_printed, a_python_that_does_not_answer_costs_seconds,
             the_runtime_that_cannot_be_loaded_is_a_line, what_is_missing_is_named_with_what_brings_it):
    with tempfile.TemporaryDirectory(prefix="paceline-info-") as scratch:
        case(pathlib.Path(scratch))
    print(case.__name__)
