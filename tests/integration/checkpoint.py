#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""paceline.checkpoint: what is loaded is what was saved, also after SIGKILL of the writer; what is cut or corrupt is passed over, with a warning that names it; torch's
Adam goes on bit for bit; keep() in a job that is started again. Needs numpy; without torch its part is left out with a message.

Each case is a function, which runs in a Python of its own: checkpoint.py CASE.
"""
import ctypes
import json
import logging
import os
import pathlib
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

SOURCE, BUILD = os.environ["PACELINE_SOURCE"], os.environ["PACELINE_BUILD"]
sys.path.insert(0, f"{SOURCE}/tests/support")
from python_with import python_with  # noqa: E402

SKIP, LIMIT_S, KILLS = 77, 300, 20
FOLDER = pathlib.Path(os.environ.get("PACELINE_CHECKPOINT_FOLDER", ""))


class Warnings(logging.Handler):
    """The texts of the warnings since the last call of take()."""

    def __init__(self):
        super().__init__()
        self.texts = []
        logging.getLogger("paceline").addHandler(self)

    def emit(self, record):
        self.texts.append(record.getMessage())

    def take(self):
        texts, self.texts = self.texts, []
        return texts


def expect_error(kind, words, call):
    try:
        call()
    except kind as error:
        assert all(word in str(error) for word in words), f"'{error}' has not all of {words}"
        return
    raise AssertionError(f"no error with {words}")


def names():
    return sorted(os.listdir(FOLDER))


def files(*steps):
    return sorted(f"checkpoint-{step:012d}.{suffix}" for step in steps for suffix in ("json", "safetensors"))


def numpy_arrays():
    """Types, shapes and orders of arrays, all kinds of a state's values, and the file by the format's description."""
    import numpy
    from paceline.checkpoint import Checkpoints
    arrays = {dtype: (numpy.arange(6).reshape(2, 3) - 2).astype(dtype)
              for dtype in ("float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")}
    arrays.update(scalar=numpy.array(2.5), empty=numpy.empty((0, 3), "int8"), turned=numpy.arange(6.0).reshape(2, 3).T, big=numpy.arange(3, dtype=">i4"),
                  deep=numpy.ones((1,) * 8, "float32"), NaN=numpy.array([float("nan"), -0.0]), **{"a name with ü, \" and /": numpy.ones(1)})
    state = {"epoch": 3, "rate": 1e-07, "none": None, "text": "ü\n\"\ud800", "list": [1, (2, [True])], "large": 2**70, "inf": float("-inf"), "~odd": {1: {}, "1": 2},
             "random": numpy.random.RandomState(7).get_state(), "same": {"a/b": arrays["int8"], "a": {"b": arrays["int16"]}}, "scalar": numpy.float32(0.5)}
    with Checkpoints(FOLDER) as checkpoints:
        assert checkpoints.load() is None and names() == []
        checkpoints.save(7, arrays, state)
        for array in arrays.values():
            array[...] = 0  # the copy is what is written
        checkpoints.flush()
        step, tensors, found = Checkpoints(FOLDER).load()
        assert step == 7 and list(tensors) == list(arrays) and names() == files(7)
        for name, array in tensors.items():
            wanted = arrays[name]
            assert type(array) is numpy.ndarray and array.dtype == wanted.dtype.newbyteorder("=") and array.shape == wanted.shape and array.flags.writeable, name
        assert (tensors["int8"] == [[-2, -1, 0], [1, 2, 3]]).all() and tensors["uint64"][0, 0] == 2**64 - 2 and (tensors["bool"] == [[1, 1, 0], [1, 1, 1]]).all() and tensors["scalar"] == 2.5
        assert (tensors["turned"] == [[0, 3], [1, 4], [2, 5]]).all() and list(tensors["big"]) == [0, 1, 2] and numpy.signbit(tensors["NaN"][1])
        assert (found["random"][1] == state["random"][1]).all() and found["random"][2:] == state["random"][2:]
        assert (found["same"]["a/b"] == tensors["int8"]).all() and (found["same"]["a"]["b"] == tensors["int16"]).all() and found["scalar"] == 0.5
        for key in ("random", "same", "scalar"):
            del found[key], state[key]
        assert found == state and type(found["list"][1]) is tuple, found
        data = (FOLDER / files(7)[1]).read_bytes()
        length = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + length])
        begin, end = header["float32"]["data_offsets"]
        assert header["float32"]["dtype"] == "F32" and header["float32"]["shape"] == [2, 3] and header["__metadata__"]["format"] == "paceline-checkpoint"
        assert struct.unpack("<6f", data[8 + length + begin:8 + length + end]) == (-2, -1, 0, 1, 2, 3)
        for words, tensors, state in ((["'x'", "complex64"], {"x": numpy.ones(1, "complex64")}, None), (["'x'", "list"], {"x": [1]}, None), (["state/a/0", "set"], {}, {"a": [set()]}),
                                      (["9 dim"], {"x": numpy.ones((1,) * 9)}, None)):
            expect_error(TypeError, words, lambda: checkpoints.save(8, tensors, state))
        expect_error(ValueError, ["step -1"], lambda: checkpoints.save(-1, {}))
        for keep in (0, 3.0, float("inf")):
            expect_error(ValueError, ["keep"], lambda: Checkpoints(FOLDER, keep=keep))
        expect_error(ValueError, ["__metadata__"], lambda: checkpoints.save(8, {"__metadata__": numpy.ones(1)}))
        checkpoints.save(8, {})
    assert Checkpoints(FOLDER).load() == (8, {}, None)


def keeping():
    """`keep`, another run's later steps, what a killed run left, ranks that do not write, and a program in C."""
    import numpy
    from paceline._library import _call, _library
    from paceline.checkpoint import Checkpoints
    os.environ["PACELINE_CHECKPOINT_DIR"] = str(FOLDER)
    with Checkpoints(keep=1) as other:
        other.save(50, {"x": numpy.ones(1)})
    (FOLDER / ".checkpoint-000000000009.json.1.2").write_text("{")
    (FOLDER / "checkpoint-000000000009.safetensors").write_text("half")
    (FOLDER / "checkpoint-5.json").write_text("the program's")
    os.environ.update(RANK="1", WORLD_SIZE="2")
    before = names()
    with Checkpoints() as idle:
        idle.save(60, {"x": numpy.ones(1)})
        assert idle.load()[0] == 50
    assert names() == before, names()
    os.environ.update(RANK="0")
    with Checkpoints(keep=2) as checkpoints:
        for step in range(1, 6):
            checkpoints.save(step, {"x": numpy.full(step, step)})
    assert names() == sorted(files(4, 5, 50) + ["checkpoint-5.json"]), names()
    with Checkpoints(keep=2**32) as checkpoints:
        checkpoints.save(6, {})
    assert names() == sorted(files(4, 5, 6, 50) + ["checkpoint-5.json"]), names()
    assert json.loads((FOLDER / files(5)[0]).read_text())["state"]["world_size"] == 2
    (FOLDER / "c").mkdir()
    _call(_library.pl_checkpoint_write, os.fsencode(FOLDER / "c"), ctypes.c_uint64(1), 3, None, ctypes.c_size_t(0), b'{"step": 1}')
    expect_error(RuntimeError, ["000001", "program in C", "MISMATCH"], Checkpoints(FOLDER / "c").load)


def corruption():
    """Each file with a byte changed, cut, empty or gone: the older one is loaded with a warning that names the file, or nothing was lost."""
    import numpy
    from paceline.checkpoint import Checkpoints
    warnings, kept, draw = Warnings(), FOLDER / "kept", random.Random(3)

    def save(step):
        checkpoints.save(step, {"x": numpy.arange(40) * step, "other": numpy.ones((2, 3), "float32")}, {"step": step, "moment": numpy.full(3, step)})

    def load():
        step, tensors, state = checkpoints.load()
        assert (tensors["x"] == numpy.arange(40) * step).all() and tensors["other"].shape == (2, 3) and list(tensors) == ["x", "other"], "what was loaded differs"
        assert state["step"] == step and (state["moment"] == step).all(), "what was loaded differs"
        return step

    checkpoints = Checkpoints(FOLDER)
    save(1)
    save(2)
    checkpoints.close()
    kept.mkdir()
    for name in files(2):
        data, passed = (FOLDER / name).read_bytes(), 0
        for at in range(0, len(data), 3):
            changed = bytearray(data)
            changed[at] ^= 1 << draw.randrange(7)
            (FOLDER / name).write_bytes(changed)
            passed += load() == 1
            texts = warnings.take()
            assert all(name in text and "step 2" in text for text in texts), texts
        assert passed > len(data) / 3 * 0.7, f"{name}: {passed} of {len(data) / 3}"
        for left in (0, 5, len(data) // 2, len(data) - 3):
            (FOLDER / name).write_bytes(data[:left])
            assert load() == 1 and name in warnings.take()[0], left
        (FOLDER / name).unlink()
        assert load() == 1 and len(warnings.take()) == name.endswith("safetensors")
        (FOLDER / name).mkdir()  # cannot be read, and may be good
        expect_error(RuntimeError, [name, "SYSTEM"], load)
        (FOLDER / name).rmdir()
        (FOLDER / name).write_bytes(data)
        assert load() == 2 and not warnings.take()
    for suffix in ("json", "safetensors"):  # whole files, but of another step
        shutil.copy(FOLDER / f"checkpoint-000000000001.{suffix}", FOLDER / f"checkpoint-000000000003.{suffix}")
    assert load() == 2 and "step 3" in warnings.take()[0]


def failing():
    """A disk that is full (here a limit on a file's size) and a directory that is gone: the error comes at the next call, and the older checkpoint stays."""
    import numpy
    from paceline.checkpoint import Checkpoints
    folder = FOLDER / "a/b"
    checkpoints, large = Checkpoints(folder), {"x": numpy.ones(1 << 20)}
    checkpoints.save(1, large)
    checkpoints.flush()
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    words = ["step 2", "too large", "checkpoint-000000000002.safetensors"]
    for call in (lambda: checkpoints.save(3, large), checkpoints.flush, checkpoints.close):
        checkpoints.save(2, large)
        expect_error(RuntimeError, words, call)
        assert sorted(os.listdir(folder)) == files(1)
    resource.setrlimit(resource.RLIMIT_FSIZE, resource.getrlimit(resource.RLIMIT_FSIZE)[1:] * 2)
    assert checkpoints.load()[0] == 1
    checkpoints.save(4, large)
    checkpoints.flush()
    assert checkpoints.load()[0] == 4
    checkpoints.save(5, {}, [1] * 1000000)
    expect_error(RuntimeError, ["step 5", "1000000 values"], checkpoints.flush)
    shutil.rmtree(folder)
    checkpoints.save(6, large)
    expect_error(RuntimeError, ["step 6", str(folder)], checkpoints.flush)
    (FOLDER / "file").write_text("")
    expect_error(OSError, [], lambda: Checkpoints(FOLDER / "file").load())
    print("ends", flush=True)
    checkpoints.save(7, large)  # nobody asks for this error: it is printed


def killed():
    """SIGKILL at a random moment: what was on disk before, or something newer, is loaded whole."""
    import numpy
    from paceline.checkpoint import Checkpoints
    newest, draw, size = 0, random.Random(), 1 << 19
    for number in range(KILLS):
        come, go = os.pipe()
        child = os.fork()
        if child == 0:
            checkpoints, step = Checkpoints(FOLDER, keep=1 + number % 3), newest
            while True:
                step += 1
                checkpoints.save(step, {"x": numpy.full(size, step)}, {"y": numpy.full(100, step)})
                if step % 3 == 0:
                    checkpoints.flush()
                    os.write(go, struct.pack("<Q", step))
        os.close(go)
        known = struct.unpack("<Q", os.read(come, 8))[0]
        time.sleep(draw.random() * 0.1)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        while True:
            more = os.read(come, 8)
            if not more:
                break
            known = struct.unpack("<Q", more)[0]
        os.close(come)
        before, reader = names(), Checkpoints(FOLDER, keep=3)
        newest, tensors, state = reader.load()
        assert names() == before, "a process that loads has removed files"
        assert newest >= known and (tensors["x"] == newest).all() and (state["y"] == newest).all(), f"step {newest}, {known} was on disk"
        reader.save(newest, tensors, state)
        reader.close()
        assert not [name for name in names() if name.startswith(".")] and len(names()) % 2 == 0, names()
    print(f"{KILLS} kills, {newest} steps")


ENDING = """import atexit, sys, threading
import numpy
from paceline.checkpoint import Checkpoints
checkpoints = Checkpoints(sys.argv[2])
save = lambda: checkpoints.save(1, {"x": numpy.ones(5_000_000)})
if sys.argv[1] == "atexit":
    atexit.register(save)
else:
    thread = threading.Thread(target=save, daemon=True)
    thread.start()
    thread.join()"""


def ending():
    """What a function of atexit or a daemon thread saves at the end of a program is written."""
    for where in ("atexit", "daemon"):
        subprocess.run([sys.executable, "-c", ENDING, where, FOLDER / where], check=True)
        assert sorted(os.listdir(FOLDER / where)) == files(1), where


def outlive():
    """This process has memory that outlives another, as process 1 of a job has."""
    memory_fd = os.memfd_create("kept", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.environ.update(PACELINE_KEPT=f"/proc/{os.getpid()}/fd/{memory_fd}", PACELINE_KEEP_STEPS="2")
    return memory_fd


def kept():
    """keep(): after SIGKILL the newest of files and kept copies is loaded; when a copy is due; what is of another part or directory, and memory that is short."""
    import numpy
    from paceline._library import _call, _library
    from paceline.checkpoint import Checkpoints
    warnings, x = Warnings(), numpy.arange(1000.0)

    def state_of(step):
        return {"x": x * step, "small": numpy.full(3, step, "int8"), "empty": numpy.empty((0, 2))}, {"step": step, "moment": x + step}

    def expect(step, found):
        assert found and found[0] == step, f"step {step}, not {found and found[0]}"
        for name, wanted in (*state_of(step)[0].items(), ("moment", x + step)):
            value = found[2][name] if name == "moment" else found[1][name]
            assert value.dtype == wanted.dtype and (value == wanted).all() and value.flags.owndata, f"{name} of step {step} differs"
        assert found[2]["step"] == step and len(found[1]) == 3

    with Checkpoints(FOLDER / "none") as checkpoints:  # a job that is not started again
        checkpoints.keep(1, *state_of(1))
        assert not checkpoints.keep_is_due(2) and checkpoints.load() is None
    memory_fd = outlive()
    child = os.fork()
    if child == 0:
        checkpoints = Checkpoints(FOLDER / "a")
        checkpoints.save(1, *state_of(1))
        assert os.fstat(memory_fd).st_size == 0  # nothing is kept by a program that does not call keep()
        for step in range(2, 8):
            assert checkpoints.keep_is_due(step) == (step % 2 == 0)
            checkpoints.keep(step, *state_of(step))
        checkpoints.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    checkpoints = Checkpoints(FOLDER / "a")
    expect(6, checkpoints.load())
    expect_error(RuntimeError, ["one part of a job may keep state"], lambda: Checkpoints(FOLDER / "b").keep(1, {}))
    assert Checkpoints(FOLDER / "b").load() is None and not warnings.take()
    checkpoints.keep(8, *state_of(8))
    checkpoints.save(9, *state_of(9))  # in the same memory, and a file
    expect(9, checkpoints.load())
    checkpoints.close()
    for name in files(9):
        (FOLDER / "a" / name).unlink()
    expect(9, Checkpoints(FOLDER / "a").load())
    with Checkpoints(FOLDER / "a") as checkpoints:
        checkpoints.save(10, *state_of(10))
    expect(10, Checkpoints(FOLDER / "a").load())

    with Checkpoints(FOLDER / "b") as other:
        assert other.load() is None and warnings.take() == [f"the kept copy of step 9 is passed over: it is of another model, with checkpoints in '{FOLDER}/a'"]
    memory = ctypes.c_void_p()
    _call(_library.pl_kept_open, ctypes.byref(memory))
    _call(_library.pl_kept_write, memory, ctypes.c_uint64(11), b"of C", ctypes.c_size_t(4))
    _library.pl_kept_close(memory)
    with Checkpoints(FOLDER / "a") as checkpoints:
        expect(10, checkpoints.load())
        assert warnings.take() == ["the kept copy of step 11 is passed over: it is of another part of the program"]

    del os.environ["PACELINE_KEEP_STEPS"]  # the time decides: a copy is due at some time, and not at once again
    with Checkpoints(FOLDER / "a") as checkpoints:
        step = 20
        for _ in range(3):
            while not checkpoints.keep_is_due(step):
                step += 1
            checkpoints.keep(step, *state_of(step))
            assert not checkpoints.keep_is_due(step)
        checkpoints.flush()
        expect(step, checkpoints.load())

    os.environ.update(RANK="0", WORLD_SIZE="2")
    with Checkpoints(FOLDER / "a") as checkpoints:
        expect(10, checkpoints.load())  # as the other ranks find it
        expect_error(ValueError, ["load(broadcast)"], lambda: checkpoints.keep(step, {}))
        sent = []
        expect(step, checkpoints.load(lambda found: sent.append(found) or found))
        checkpoints.keep(step + 1, *state_of(step + 1))
        os.environ.update(RANK="1")
        other = Checkpoints(FOLDER / "another host")
        expect(step, other.load(lambda nothing: sent[0]))
        assert not other.keep_is_due(step + 1)
        expect_error(RuntimeError, ["rank 0: no space"], lambda: other.load(lambda nothing: (None, "no space")))
    os.environ.update(RANK="0", WORLD_SIZE="1")

    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    with Checkpoints(FOLDER / "a") as checkpoints:
        checkpoints.keep(100, {"x": numpy.ones(1 << 20)})
        text, = warnings.take()
        assert "no state is kept in memory" in text and "too large" in text, text
        assert not checkpoints.keep_is_due(101)
        checkpoints.save(101, *state_of(101))
        expect(101, checkpoints.load())


def torch():
    """Types of torch, and Adam that goes on bit for bit from a checkpoint that is written while the program trains."""
    import torch
    from paceline.checkpoint import Checkpoints
    torch.manual_seed(1)
    kinds = {str(dtype): (torch.arange(6).reshape(2, 3) - 2).to(dtype)
             for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool)}
    kinds.update(turned=torch.rand(3, 4).t(), scalar=torch.tensor(3), empty=torch.empty(0, 2), grown=torch.rand(2, requires_grad=True), part=torch.rand(8)[::2])
    checkpoints = Checkpoints(FOLDER)
    checkpoints.save(1, kinds)
    outlive()
    checkpoints.keep(0, kinds)
    checkpoints.flush()
    for tensors in checkpoints._load(1)[0], checkpoints._load_kept()[1]:
        for name, value in kinds.items():
            assert tensors[name].dtype is value.dtype and tensors[name].shape == value.shape and torch.equal(tensors[name], value), name
    checkpoints.close()
    del os.environ["PACELINE_KEPT"]
    with torch.inference_mode():
        checkpoints.save(2, {"x": torch.ones(3)})
    checkpoints.save(2, {"x": torch.zeros(3)})
    assert torch.equal(checkpoints.load()[1]["x"], torch.zeros(3))
    expect_error(TypeError, ["'x'", "sparse"], lambda: checkpoints.save(2, {"x": torch.eye(2).to_sparse()}))
    expect_error(TypeError, ["'x'", "complex64"], lambda: checkpoints.save(2, {"x": torch.ones(1, dtype=torch.complex64)}))

    def start():
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Dropout(0.5), torch.nn.Linear(16, 1))
        optimizer = torch.optim.Adam([{"params": model[0].parameters()}, {"params": [*model[1].parameters(), *model[3].parameters()], "lr": 0.02}], amsgrad=True)
        return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2)

    def train(model, optimizer, scheduler, steps):
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.rand(10, 8)).square().mean().backward()
            optimizer.step()
            scheduler.step()

    first = start()
    train(*first, 3)
    checkpoints.save(3, first[0].state_dict(), {"optimizer": first[1].state_dict(), "scheduler": first[2].state_dict(), "random": torch.get_rng_state()})
    train(*first, 4)  # at once: the copy is what is written
    checkpoints.close()
    second = start()
    step, tensors, state = Checkpoints(FOLDER).load()
    second[0].load_state_dict(tensors)
    second[1].load_state_dict(state["optimizer"])
    second[2].load_state_dict(state["scheduler"])
    torch.set_rng_state(state["random"])
    train(*second, 4)
    for name, value in first[0].state_dict().items():
        assert torch.equal(value, second[0].state_dict()[name]), f"{name} differs"
    assert step == 3 and str(first[1].state_dict()) == str(second[1].state_dict()), "Adam's state differs"
    directory = FOLDER / "example"
    outputs = [subprocess.run([sys.executable, f"{SOURCE}/examples/python/checkpoint_torch.py", "--steps", steps], stdout=subprocess.PIPE, text=True, check=True,
                              env=dict(os.environ, PACELINE_CHECKPOINT_DIR=str(path))).stdout.splitlines()
               for steps, path in (("60", directory / "whole"), ("30", directory / "parts"), ("60", directory / "parts"))]
    assert outputs[2][0] == "step=30 goes on" and outputs[2][-1] == outputs[0][-1] and outputs[1] + outputs[2][1:] == outputs[0], outputs


CASES = [numpy_arrays, keeping, corruption, failing, killed, ending, kept]


def main():
    if sys.argv[1:]:
        return globals()[sys.argv[1]]()
    with_torch = python_with("numpy", "torch")
    python = with_torch or python_with("numpy")
    if not python:
        print("skipped: no Python here has numpy (python3-numpy)")
        sys.exit(SKIP)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SM_", "OMPI_", "PMI", "RANK", "WORLD_SIZE"))}
    environment.update(PYTHONPATH=f"{SOURCE}/python", PACELINE_LIBRARY=f"{BUILD}/runtime/libpaceline.so", OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
    for case in CASES + [torch] * bool(with_torch):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([python, __file__, case.__name__], env=dict(environment, PACELINE_CHECKPOINT_FOLDER=folder), stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S)
        assert done.returncode == 0, f"{case.__name__}: exit {done.returncode}\n{done.stdout}"
        assert case is not failing or "writing the checkpoint of step 7" in done.stdout.split("ends\n")[1], done.stdout
        print(f"ok: {case.__name__} {done.stdout.splitlines()[-1:] if case is killed else ''}", flush=True)
    if not with_torch:
        print("not shown: torch, which no Python here has (python3-torch)")


if __name__ == "__main__":
    main()
