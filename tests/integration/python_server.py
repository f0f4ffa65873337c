#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Workers of parameter servers in Python: numpy and torch, by `paceline server` and under `paceline train`.

With the word `long`: the optimizers that are not in the short run. Needs a Python that has numpy; without torch the cases that need it are left out with a message.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

SOURCE, BUILD = os.environ["PACELINE_SOURCE"], os.environ["PACELINE_BUILD"]
sys.path.insert(0, f"{SOURCE}/tests/support")
from python_with import python_with  # noqa: E402

WITH_TORCH = python_with("numpy", "torch")
PYTHON = WITH_TORCH or python_with("numpy")
PACELINE = f"{BUILD}/entrypoint/paceline"
ENVIRONMENT = dict(os.environ, PYTHONPATH=f"{SOURCE}/python", PACELINE_LIBRARY=f"{BUILD}/runtime/libpaceline.so", OMP_NUM_THREADS="1",
                   OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
SKIP = 77

# A line is one write, since the workers' lines meet in one pipe.
# Two workers in step, whose gradients have the average 2 and then 6: by hand, in numbers that float32 has.
IN_STEP = r'''
import sys
import numpy
import paceline
from paceline.data import _ranks
kind = sys.argv[1]
options = {"sgd": dict(momentum=0.5, weight_decay=0.25), "nesterov": dict(momentum=0.5, nesterov=True), "adam": dict(betas=(0.5, 0.75)),
           "adamw": dict(betas=(0.5, 0.75), weight_decay=0.25), "adagrad": dict(eps=1e-6)}[kind]
first = {"w": numpy.full((300, 7), 4, numpy.float32), "a number": numpy.array(4, numpy.float32)}
with paceline.Server(first, "sgd" if kind == "nesterov" else kind, lr=0.5, staleness=0, **options) as server:
    assert (server.values["w"] == 4).all() and server.values["w"].shape == (300, 7) and (server.worker, server.workers) in ((0, 2), (1, 2))
    assert _ranks()[0] == (server.worker, server.workers) and _ranks()[1] == (server.local_worker, server.local_workers), _ranks()
    for gradient in (1, 3) if server.worker == 0 else (3, 9):
        server.step({"w": numpy.full((300, 7), gradient), "a number": gradient})
        server.lr = 0.25
    w, slots = 4.0, [0.0, 0.0]
    for number, (g, rate) in enumerate(((2.0, 0.5), (6.0, 0.25)), 1):
        if kind in ("sgd", "nesterov"):
            g += options.get("weight_decay", 0.0) * w
            slots[0] = 0.5 * slots[0] + g
            w -= rate * (slots[0] if kind == "sgd" else g + 0.5 * slots[0])
        elif kind == "adagrad":
            slots[0] += g * g
            w -= rate * g / (slots[0] ** 0.5 + 1e-6)
        else:
            w -= rate * options.get("weight_decay", 0.0) * w
            slots = [0.5 * slots[0] + 0.5 * g, 0.75 * slots[1] + 0.25 * g * g]
            w -= rate * slots[0] / (1 - 0.5 ** number) / ((slots[1] / (1 - 0.75 ** number)) ** 0.5 + 1e-8)
    expected = numpy.float32(w)
    for values in server.values.values():
        same = (values == expected).all() if kind in ("sgd", "nesterov") else numpy.allclose(values, expected, rtol=1e-6)
        assert same, f"{kind}: values differ from {expected!r}: {values}"
print(f"in step: fine in worker {server.worker}\n", end="")
'''

# Two workers, each at its own pace: every call, and what is refused.
CALLS = r'''
import ctypes
import os
import numpy
import paceline

def refuses(error, text, call, *arguments, **keywords):
    try:
        call(*arguments, **keywords)
    except error as said:
        assert text in str(said), said
    else:
        raise AssertionError(f"'{text}' was expected")

arrays = {"a": numpy.zeros((1000, 2), numpy.float32), "b": numpy.full(3, os.getpid(), numpy.float32)}
refuses(ValueError, "optimizer is one of sgd, adam, adamw, adagrad, eps and betas are above 0; not 'lamb'", paceline.Server, arrays, "lamb")
refuses(ValueError, "eps and betas are above 0", paceline.Server, arrays, "adam", betas=(0.0, 0.9))
refuses(TypeError, "'c': a parameter server has float32 in host memory, not float64", paceline.Server, {"c": numpy.zeros(2)})
refuses(ValueError, "'soon'", paceline.Server, arrays, staleness="soon")
refuses(ValueError, "without tensors", paceline.Server, {})
socket = os.environ.pop("PACELINE_PS_SOCKET")
refuses(ValueError, "no parameter server runs beside this process", paceline.Server, arrays)
os.environ["PACELINE_PS_SOCKET"] = socket

server = paceline.Server(arrays, lr=-1.0)
r, n = server.worker, server.workers
started = ctypes.c_int(7)
ctypes.CDLL("libmpi.so.40").MPI_Initialized(ctypes.byref(started))
assert started.value == 0, "a worker has started MPI"
assert n == 2 and (server.local_worker, server.local_workers) == (r, n)
firsts = server.sum([os.getpid() if r == 0 else 0, 1])
assert firsts[1] == n and (server.values["b"] == firsts[0]).all() and server.sum(r + 1) == 3.0 and server.sum().size == 0
assert server.sum(numpy.ones((2, 100))).shape == (2, 100)
for step in range(10):
    server.push({"b": [r + 1] * 3})
    server.gradients["a"][:] = r + 1
    server.push({"a": server.gradients["a"]})
    server.wait()
server.step({"b": numpy.zeros(3)})  # nothing of a
refuses(ValueError, "'c': a gradient of shape (3,), and there is no such array", server.step, {"c": numpy.zeros(3)})
refuses(ValueError, "'b': a gradient of shape (4,), and the array has (3,)", server.step, {"b": numpy.zeros(4)})
server.push({"a": numpy.zeros((1000, 2))})
refuses(ValueError, "'a'", server.push, {"a": numpy.zeros((1000, 2))})
server.wait()
server.sum()
server.pull()
assert (server.values["a"] == 30).all() and (server.values["b"] == firsts[0] + 30).all(), server.values
server.sum()
if r == 0:
    server.values["b"][:] = 5
    server.assign()
server.sum()
server.pull()
assert (server.values["b"] == 5).all() and (server.values["a"] == 30).all()
refuses(ValueError, "joined", paceline.Server, arrays, lr=-1.0)
if os.fork() == 0:
    raise SystemExit(0)  # whose end is not this worker's
os.wait()
server.sum()
if r == 0:
    server.leave()
    server.leave()
    refuses(ValueError, "has left", server.step, {})
    assert (server.values["a"] == 30).all()
else:
    for step in range(5):
        server.step({"b": numpy.ones(3)})
    assert (server.values["b"] == 10).all()
print(f"calls: fine in worker {r}\n", end="")  # worker 1 leaves by its end
'''

# Two workers and a table of rows.
ROWS = r'''
import sys
import numpy
import paceline
try:
    import torch
except ImportError:
    torch = None

def refuses(text, call, *arguments, **keywords):
    try:
        call(*arguments, **keywords)
    except (ValueError, paceline.PacelineError) as said:
        assert text in str(said), said
    else:
        raise AssertionError(f"'{text}' was expected")

a = {"a": numpy.zeros(3, numpy.float32)}
refuses("a table's optimizer is sgd or adagrad, not 'adam'", paceline.Server, a, staleness="none", tables={"t": dict(columns=2, optimizer="adam")})
refuses("with ps_staleness 0", paceline.Server, a, staleness=0, tables={"t": dict(columns=2)})
with paceline.Server(a, staleness="none", tables={"zeros": dict(columns=2, lr=-1.0), "drawn": dict(columns=3, bound=0.5, seed=7, optimizer="adagrad", lr=0.5)}) as server:
    r, last = server.worker, 2 ** 62
    server.push_rows("zeros", [[5, 5], [last, -1]], numpy.full((2, 2, 2), r + 1))
    server.sum()
    assert server.pull_rows("zeros", [5, last, -1, 9]).tolist() == [[6, 6], [3, 3], [3, 3], [0, 0]], server.pull_rows("zeros", [5, last, -1, 9])
    first = server.pull_rows("drawn", numpy.array([1, 2, 1]))
    assert first.dtype == numpy.float32 and (first[0] == first[2]).all() and (first[0] != first[1]).all() and abs(first).max() <= 0.5
    server.sum()
    if r == 0:
        server.push_rows("drawn", [2, 1], [[1, 2, 3], [4, 0, 0]])
        server.save_rows("drawn", sys.argv[1])
        moved = server.pull_rows("drawn", [1, 2])
        assert numpy.allclose(first[:2] - moved, [[0.5, 0, 0], [0.5, 0.5, 0.5]], atol=1e-6), first[:2] - moved
        server.push_rows("drawn", [1], [[1, 1, 1]])
        server.load_rows("drawn", sys.argv[1])
        assert (server.pull_rows("drawn", [1, 2]) == moved).all() and server.count_rows("drawn") == 2 and server.count_rows("zeros") == 3
    if torch:
        rows = server.pull_rows("zeros", torch.tensor([[9], [5]]))
        assert rows.shape == (2, 1, 2) and rows.dtype == torch.float32 and rows[1, 0].tolist() == [6, 6]
    server.sum()
    if torch and r == 1:
        server.push_rows("zeros", torch.tensor([9]), torch.ones(1, 2, requires_grad=True))
        assert server.pull_rows("zeros", [9]).tolist() == [[1, 1]]
    refuses("'none': there is no such table", server.pull_rows, "none", [1])
    refuses("'zeros': gradients of shape (2, 3), and ids and columns have (2, 2)", server.push_rows, "zeros", [1, 2], numpy.zeros((2, 3)))
print(f"rows: fine in worker {r}\n", end="")
'''

# The mistakes of worker 1.
WRONG = r'''
import os
import sys
import numpy
import paceline
second = os.environ["PACELINE_PS_WORKER"] == "1"
with paceline.Server({"a": numpy.zeros(3, numpy.float32), "table": numpy.zeros((4, 6 if second and sys.argv[1] == "shape" else 5), numpy.float32)}) as server:
    server.step({"a": numpy.ones(3)})
    server.sum()
    if second:
        raise KeyError("a mistake in the program")
    server.sum()
'''

# Two workers of a torch optimizer in step are one process with the whole batch; without step they reach what it reaches.
TORCH = r'''
import copy
import sys
import torch
import paceline
kind, staleness = sys.argv[1:3]
torch.manual_seed(1)
x = torch.randn(64, 8)
y = x @ torch.randn(8, 3) + 1
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))
model[0].bias.requires_grad_(False)
make = {"SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3), "Adam": lambda p: torch.optim.Adam(p, lr=0.02),
        "AdamW": lambda p: torch.optim.AdamW(p, lr=0.02, weight_decay=0.1), "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1)}[kind]

def loss_of(model, part):
    return torch.nn.functional.mse_loss(model(x[part]), y[part])

def train(model, optimizer, part, steps, closure=False):
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, steps // 2, gamma=0.5)
    for _ in range(steps):
        def backward():
            optimizer.zero_grad()
            loss = loss_of(model, part)
            loss.backward()
            return loss
        if closure:
            assert optimizer.step(backward) > 0
        else:
            backward()
            optimizer.step()
        scheduler.step()

alone = copy.deepcopy(model)
train(alone, make(alone.parameters()), slice(None), 100)
torch.manual_seed(2)
frozen = model[0].bias.clone()

def refuses(text, call):
    try:
        call()
    except ValueError as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"'{text}' was expected")

two = [{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": 0.5}]
for wrong, text in ((torch.optim.Adam(model.parameters(), amsgrad=True), "amsgrad"), (torch.optim.RMSprop(model.parameters()), "not RMSprop"),
                    (torch.optim.SGD(two, lr=0.1), "options differ")):
    refuses(text, lambda: paceline.ServerOptimizer(wrong, model.named_parameters()))
refuses("named_parameters", lambda: paceline.ServerOptimizer(make(model[2].parameters()), model.named_parameters()))

optimizer = make(model.parameters())
assert paceline.ServerOptimizer(optimizer, model.named_parameters(), staleness=staleness, overlap=kind != "Adam") is optimizer
server = optimizer.server
assert isinstance(optimizer, getattr(torch.optim, kind)) and type(optimizer).__name__ == kind and server.workers == 2
server.sum()  # a worker that joins later would begin at the others' step, and with a bound wait for them when they have ended
part = slice(server.worker, None, 2)
train(model, optimizer, part, 100, closure=kind == "Adagrad")
server.sum()
server.pull()
loss, reached = float(loss_of(model, slice(None))), float(loss_of(alone, slice(None)))
first = float(loss_of(copy.deepcopy(model).apply(lambda m: hasattr(m, "reset_parameters") and m.reset_parameters()), slice(None)))
print(f"{kind}, staleness {staleness}: loss {loss:.6f}, {reached:.6f} in one process, {first:.3f} at first\n", end="")
assert torch.equal(frozen, model[0].bias), "a frozen parameter moved"
if staleness == "0":
    for (name, ours), theirs in zip(model.named_parameters(), alone.parameters()):
        assert torch.allclose(ours, theirs, rtol=1e-3, atol=1e-4), f"{name} has other values than in one process"
assert loss < 1.5 * reached + 0.02 * first, (loss, reached)

# What would be lost without a word.
server.sum()
optimizer.zero_grad()
loss_of(model, part).backward()
if kind == "Adam":  # sent in step()
    loss_of(model, part).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
else:
    try:
        optimizer.zero_grad()
        raise RuntimeError("gradients that have been sent were cleared")
    except AssertionError as error:
        assert "have been sent" in str(error), error
    rate = optimizer.param_groups[0]["lr"]
    optimizer.param_groups[0]["lr"] = rate + 1
    refuses("between backward() and step()", optimizer.step)
    optimizer.param_groups[0]["lr"] = rate
    loss_of(model, part).backward()
    refuses("was changed between backward() and step()", optimizer.step)
    print(f"torch: fine in worker {server.worker}\n", end="")
    raise SystemExit
optimizer.step()
optimizer.param_groups[0]["eps"] = 1e-3
refuses("lr alone may change", optimizer.step)
refuses("add_param_group()", lambda: optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))]}))
print(f"torch: fine in worker {server.worker}\n", end="")
'''


def run(command, expected=0, environment=None):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, timeout=240,
                          env=dict(ENVIRONMENT, **(environment or {})))
    if (done.returncode == 0) != (expected == 0):
        print(done.stdout)
        sys.exit(f"exit status {done.returncode}: {' '.join(map(str, command))[-200:]}")
    return done.stdout


def beside_a_server(script, *words, **keywords):
    return run([PACELINE, "server", "--workers", "2", PYTHON, "-c", script, *words], **keywords)


def both(output, text):
    assert all(f"{text} {worker}" in output for worker in (0, 1)), output
    assert "without leaving" not in output, output


def train(folder, script):
    """`script` as user code of a job with parameter servers, two workers on its host."""
    files = {
        "hyperparameters.json": {"sagemaker_parameter_server_enabled": "true", "paceline_ps": "native", "paceline_ps_workers_per_host": "2",
                                 "sagemaker_program": "train.py"},
        "resourceconfig.json": {"current_host": "algo-1", "hosts": ["algo-1"], "network_interface_name": "lo"},
    }
    os.makedirs(os.path.join(folder, "input", "config"))
    os.makedirs(os.path.join(folder, "code"))
    for name, content in files.items():
        with open(os.path.join(folder, "input", "config", name), "w") as file:
            json.dump(content, file)
    shutil.copytree(f"{SOURCE}/python/paceline", os.path.join(folder, "code", "paceline"))
    with open(os.path.join(folder, "code", "train.py"), "w") as file:
        file.write(script)
    return run([PACELINE, "train"], environment={"SAGEMAKER_BASE_DIR": folder, "PACELINE_PYTHON": PYTHON, "PYTHONPATH": ""})


def ends_and_calls():
    both(beside_a_server(CALLS), "calls: fine in worker")
    with tempfile.TemporaryDirectory() as folder:
        both(beside_a_server(ROWS, folder), "rows: fine in worker")
    output = beside_a_server(WRONG, "raise", expected=1)
    assert "KeyError: 'a mistake in the program'" in output and "worker 1 of this host exited with code 1" in output, output
    output = beside_a_server(WRONG, "shape", expected=1)
    assert "'table' [4, 6]" in output and "[MISMATCH]" in output, output
    print("each call counts once; a worker that raises, or has another shape, ends the job with its name")
    with tempfile.TemporaryDirectory() as folder:
        both(train(folder, CALLS), "calls: fine in worker")


def main():
    if not PYTHON:
        print("skipped: no Python here has numpy (python3-numpy)")
        sys.exit(SKIP)
    is_long = sys.argv[1:] == ["long"]
    for kind in ("nesterov", "adamw", "adagrad") if is_long else ("sgd", "adam"):
        both(beside_a_server(IN_STEP, kind), "in step: fine in worker")
    print("two workers in step have the values of a computation by hand")
    if not is_long:
        ends_and_calls()
    if not WITH_TORCH:
        print("left out: a torch optimizer, no Python here has torch and numpy (python3-torch)")
        return
    for kind, staleness in (("SGD", "0"), ("AdamW", "0"), ("Adagrad", "0"), ("Adagrad", "none")) if is_long else (("Adam", "0"),):
        output = beside_a_server(TORCH, kind, staleness)
        both(output, "torch: fine in worker")
        print(next(line for line in output.splitlines() if " in one process" in line))
    if is_long:
        return
    with tempfile.TemporaryDirectory() as folder:
        output = train(folder, "import sys\nsys.argv[1:] = ['SGD', '2']\n" + TORCH.replace("lr=0.1, momentum=0.9", "lr=0.02, momentum=0.5"))
        both(output, "torch: fine in worker")
    print("torch's optimizers train by parameter servers, by hand and under paceline train")


main()
