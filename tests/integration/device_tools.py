#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""paceline info, paceline bench and the benchmark of a step on the driver for tests, as processes: their output about device memory, and correct sums.

Also what is run by hand on other machines: tests/gpu.sh and tests/bench/many_ranks.py.
"""
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import tempfile

BUILD = pathlib.Path(os.environ["PACELINE_BUILD"])
SOURCE = pathlib.Path(os.environ["PACELINE_SOURCE"])
FAKES = BUILD / "tests/fakes"


def run(program, *words, ranks=1, nccl=False, fake="devices=2", status=0, **settings):
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", ranks] if ranks > 1 else []
    command += [BUILD / program, *words]
    environment = dict(os.environ, FAKE_CUDA=fake + ",delay_us=20,leaks", LD_LIBRARY_PATH=f"{FAKES}/{'nccl' if nccl else 'no_nccl'}:{FAKES}",
                       OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", **settings)
    done = subprocess.run([str(word) for word in command], env=environment, text=True, timeout=120, stdin=subprocess.DEVNULL, capture_output=True)
    print("$", *command, done.stdout, done.stderr, sep="\n")
    assert done.returncode == status, f"exit status {done.returncode}, not {status}"
    return done.stdout + done.stderr


def says(text, *wanted):
    for words in wanted:
        assert words in text, f"'{words}' is missing"


def info():
    says(run("libexec/paceline/paceline-info"), "backend self_gpu: on\n  device memory", "devices: 2\n  0: Fake GPU 0")
    says(run("libexec/paceline/paceline-info", ranks=2, nccl=True), "backend nccl: on\n  NCCL 2.", "backend device: on", "left to the backend device")
    says(run("libexec/paceline/paceline-info", ranks=2), "backend nccl: off, NCCL cannot be loaded", "backend device: on\n  allreduce between device arenas")
    says(run("libexec/paceline/paceline-info", ranks=2, fake="devices=1"), "no device is used: ", "backend nccl: off, this world was given no device")
    says(run("libexec/paceline/paceline-info", ranks=2, nccl=True, fake="devices=1", PACELINE_SHARE_DEVICE="1"), "share GPU-", "backend device: on")
    says(run("libexec/paceline/paceline-info", fake="no_device"), "devices: no GPU is used: the driver is there")


def bench():
    words = ["allreduce", "--buffers", "device", "--min-bytes", "64", "--max-bytes", "64KiB", "--factor", "32", "--pairs", 1, "--loop-ms", 1, "--json"]
    ways = [dict(ranks=1), dict(ranks=2, nccl=True), dict(ranks=2), dict(ranks=2, fake="devices=1", PACELINE_SHARE_DEVICE="1")]
    for way in ways:
        lines = [json.loads(line) for line in run("libexec/paceline/paceline-bench", *words, **way).splitlines() if line.startswith("{")]
        assert [line["bytes"] for line in lines] == [64, 2048, 65536], lines
        assert all(line["wrong"] == 0 and line["buffers"] == "device" and line["time_us"] > 0 for line in lines), lines
    run("libexec/paceline/paceline-bench", *words, "--threads", 2)
    says(run("libexec/paceline/paceline-bench", *words, fake="no_device", status=1), "no GPU is used")
    says(run("libexec/paceline/paceline-bench", *words, PACELINE_DEVICE="off", status=1), "no GPU is used")
    mistakes = {"--bound": "without --peer and --bound", "--max-bytes=1MB": "--max-bytes is '1MB', expected", "--pears": "there is no option --pears (did you mean '--peer'?)",
                "--pairs": "--pairs needs a value", "alreduce": "expected one operation, allreduce, allgather or broadcast, found 'alreduce'", "--max-bytes=4": "above --max-bytes"}
    for word, wanted in mistakes.items():
        says(run("libexec/paceline/paceline-bench", *words, word, status=2), wanted)


def many_ranks():
    """A row for each operation, with right values; the placement of ranks on processors that this machine does not have."""
    path = SOURCE / "tests/bench/many_ranks.py"
    with tempfile.TemporaryDirectory() as folder:
        kept = pathlib.Path(folder) / "kept.json"
        done = subprocess.run([path, "--build", BUILD, "--ranks", "3", "--max-bytes", "64", "--repeats", "1", "--loop-ms", "0.1", "--json", kept], text=True, timeout=500,
                              capture_output=True)
        print(done.stdout, done.stderr)
        assert done.returncode == 0, done.returncode
        rows = json.loads(kept.read_text())["rows"]
    assert [(row["operation"], row["ranks"], row["bytes"]) for row in rows] == [("allreduce", 3, 64), ("allgather", 3, 64), ("broadcast", 3, 64)], rows
    assert all(len(row[f"{buffers}_{what}"]) == 1 for row in rows for buffers in ("arena", "private") for what in ("us", "ratio")), rows
    says(done.stdout, "| 64 B | ", "reading other memory: ", "throttled while this ran: ", "allgather, 3 ranks")

    spec = importlib.util.spec_from_file_location("many_ranks", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    groups = [[0, 1, 2, 3], [4, 5, 6, 7]]  # two L3 caches; 8 to 15 are the cores' other threads
    places = [module.placements(ranks, list(range(8)), list(range(8, 16)), groups) for ranks in (2, 8, 12, 17)]
    assert places == [{"one L3": [4, 5], "spread over L3s": [0, 4]}, {"spread over L3s": [0, 4, 1, 5, 2, 6, 3, 7]}, {"threads of cores too": list(range(12))},
                      {"more ranks than processors": None}], places


def report(work, step_rows):
    """The output and files of tests/gpu.sh when a step is stopped in the middle of a figure."""
    kernels = [{"case": "device", "peak_gb_s": 4300.2}, {"case": "pack, 16 tensors, 4 MiB", "of_peak": 0.89, "of_copy": 0.97},
               {"case": "scale float32, 4 MiB", "of_peak": 0.93, "of_copy": 0.85}, {"case": "AdamW, float32 gradients, 4 MiB", "of_peak": 0.91, "of_copy": 0.92}]
    (work / "bench_device.json").write_text("".join(json.dumps(row) + "\n" for row in kernels) + '{"case": "pack, 16 tens')
    (work / "examples.json").write_text('{"model": "mnist", "ranks": 1, "accuracy": 0.5, "cpu": 0.9}\n{"model": "mnist", "ranks": 2, "accuracy": 0.9, "cpu": 0.91}\n')
    (work / "horovod.json").write_text('{"case": "speed", "ranks": 1, "sixteen_ms": 9.0, "through_host_ms": 9.5, "whole_ms": 2.0, "copy_ms": 1.9}\n'
                                       '{"case": "speed", "ranks": 2, "sixteen_ms": 1.25, "through_host_ms": 28.0, "whole_ms": 2.0, "copy_ms": 1.0}\n'
                                       '{"case": "backward", "ranks": 1, "added": 0.04, "async_completion": "0"}\n')
    (work / "kernels.end").write_text("the last words\n")
    (work / "steps.tsv").write_text("build\tpassed\t30\tdone\nkernels\tFAILED\t90\tstopped after 90 s: \t\r\xc3\n", encoding="latin-1")
    done = subprocess.run([SOURCE / "tests/bench/gpu_report.py", work, work / "results.json", "A card", "torch: none"], text=True, capture_output=True)
    print(done.stdout, done.stderr)
    assert done.returncode == 1, done.returncode
    host, overhead = step_rows[0]["host_us"], step_rows[2]["overhead"]
    says(done.stdout, "A card, ", "kernels      FAILED      90 s  stopped after 90 s", "left out     torch: none", "| the ceiling | 4300 GB/s |  |",
         "| at least 85% of it (scale float32, 4 MiB), 89% of the ceiling (pack, 16 tensors, 4 MiB) | NO |",
         "| at least 92% of it (AdamW, float32 gradients, 4 MiB), 91% of the ceiling (AdamW, float32 gradients, 4 MiB) |  |", "| 2: 0.900, CPU 0.910 |  |",
         "| 1.5 ms | 1.25 ms | yes |", "| 28.00 ms |  |", "| 90 % | 95% | yes |", "| 3 % longer | +4.0% | NO |", "| 1 % longer | not measured |  |",
         f"| 20 us | {host:.1f} us | {'yes' if host < 20 else 'NO'} |", f"| 1 % | {overhead:+.2%} | {'yes' if overhead < 0.01 else 'NO'} |", "| not measured |  |")
    kept = json.loads((work / "results.json").read_text())
    assert [step["name"] for step in kept["steps"]] == ["build", "kernels"] and kept["figures"]["bench_device"] == kernels, kept["figures"]
    assert "log" not in kept["steps"][0] and kept["steps"][1]["log"] == ["the last words"], kept
    with (work / "examples.json").open("a") as figures:
        figures.write('{"model": "mnist", "ranks": 4, "accuracy": 0.9, "cpu": 0.91}\n')
    (work / "steps.tsv").write_text("kernels\tpassed\t30\tdone\n")
    done = subprocess.run([SOURCE / "tests/bench/gpu_report.py", work, work / "results.json", "A card"], text=True, capture_output=True)
    assert done.returncode == 0, done
    says(done.stdout, "(AdamW, float32 gradients, 4 MiB) | yes |", "| 2: 0.900, CPU 0.910; 4: 0.900, CPU 0.910 | yes |")


def step():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "step_device.json"
        run("tests/bench/step_device", "--backward-ms", 0, "--work-mib", 1, "--rounds", 1, "--json", path, fake="devices=1")
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        assert [row["case"] for row in rows] == ["host, the runtime's calls of a step", "one rank, bare loop", "one rank, runtime"], rows
        assert rows[0]["tensors"] == 8 and rows[0]["host_us"] > 0 and rows[1]["step_us"] > 0, rows
        report(pathlib.Path(folder), rows)
    run("tests/bench/step_device", fake="no_device", status=77)


def script():
    """tests/gpu.sh on a machine without ssh; the tests that it names are there."""
    words = (SOURCE / "tests/gpu.sh").read_text()
    cases = {case for file in (SOURCE / "tests/unit").rglob("test_*.c") for case in re.findall(r"(?:UNIT_)?TEST\((\w+)", file.read_text())}
    named = re.search(r"real_tests=\((.*?)\)", words, re.S)[1].split() + re.search(r"local tests=\((.*?)\)", words)[1].split()
    assert len(named) > 10, named
    for program, _, case in (name.partition(":") for name in named):
        assert program == "examples_cuda" or list(BUILD.glob(f"tests/unit/*/test_{program}")), f"no program {program}"
        assert not case or case in cases, f"no case {case}"
    with tempfile.TemporaryDirectory() as folder:
        work, build = pathlib.Path(folder), pathlib.Path(folder) / "build"
        (work / "bin").mkdir()
        (build / "tests/integration").mkdir(parents=True)
        (build / "build.ninja").touch()  # nothing is to be built
        for tool in {file.name: file for path in reversed(os.environ["PATH"].split(":")) for file in pathlib.Path(path).glob("*")}.values():
            if tool.name not in ("ssh", "rsh", "nvidia-smi"):
                (work / "bin" / tool.name).symlink_to(tool)
        ranks = build / "tests/integration/conformance_ranks"
        for program, does in ((work / "bin/nvidia-smi", "echo 'Fake GPU 0, 1.0, 1024 MiB'"), (ranks, "echo here")):
            program.write_text(f"#!/bin/sh\n{does}\n")
            program.chmod(0o755)
        command = [SOURCE / "tests/gpu.sh", "--build", build, "--only", "conformance", "--json", work / "kept.json"]
        for result, least in (("passed", 6), ("FAILED", 20)):  # two ranks and four; mpirun may end the others before they speak
            done = subprocess.run(command, env=dict(os.environ, PATH=f"{work}/bin"), text=True, stdin=subprocess.DEVNULL, capture_output=True)
            print(done.stdout, done.stderr)
            assert done.returncode == (result == "FAILED"), done.returncode
            steps = json.loads((work / "kept.json").read_text())["steps"]
            assert [(step["name"], step["result"]) for step in steps] == [("build", "passed"), ("conformance", result)], steps
            assert (work / "kept.log").read_text().count("here") >= least  # all that the steps printed
            ranks.write_text("#!/bin/sh\necho ERROR: no luck\nfor i in 1 2 3 4 5 6 7 8 9 10; do echo here; done\nexit 3\n")
        assert steps[1]["detail"] == "ERROR: no luck" and "here" in steps[1]["log"], steps
        (work / "torch.py").write_text("import os\n__version__ = 'none'\nprint('loads', os.environ['LD_LIBRARY_PATH'], flush=True)\n"
                                       "class cuda:\n  is_available = staticmethod(lambda: False)\n")
        command[command.index("conformance")] = "torch"
        subprocess.run(command, env=dict(os.environ, PATH=f"{work}/bin", PYTHONPATH=folder, LD_LIBRARY_PATH="/its/own"), check=True, stdin=subprocess.DEVNULL)
        assert "loads /its/own\n" in (work / "kept.log").read_text(), "PyTorch loads what our programs do"


info()
bench()
many_ranks()
step()
script()
