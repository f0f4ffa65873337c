#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Horovod's own Python on Paceline: `paceline horovod` in an environment of its own, and programs for torch with 1 to 4 ranks.

Needs a Python with torch, Python.h at build time, mpirun, and PyPI for Horovod's package, which is not compiled; skips without.
"""
import json
import os
import subprocess
import sys
import tempfile

SOURCE, BUILD = os.environ["PACELINE_SOURCE"], os.environ["PACELINE_BUILD"]
sys.path.insert(0, f"{SOURCE}/tests/support")
from python_with import python_with  # noqa: E402

SKIP = 77
PACELINE = f"{BUILD}/entrypoint/paceline"
SECONDS = 300  # far away: what hangs is found by it

OPERATIONS = r'''
import torch
import horovod.torch as hvd
hvd.init(process_sets="dynamic")
n, r = hvd.size(), hvd.rank()
assert hvd.is_initialized() and hvd.local_size() == n and hvd.local_rank() == r and hvd.cross_size() == 1
assert hvd.mpi_built() and not hvd.gloo_built() and not hvd.nccl_built()

x = torch.arange(6.).reshape(2, 3) + r
total = torch.arange(6.).reshape(2, 3) * n + n * (n - 1) / 2
for dtype in (torch.int32, torch.int64, torch.float16, torch.float32, torch.float64):
    assert hvd.allreduce(x.to(dtype), op=hvd.Sum, name=f"sum.{dtype}").equal(total.to(dtype)), dtype
assert torch.allclose(hvd.allreduce(x), total / n) and x[0, 0] == r
assert hvd.allreduce(x, op=hvd.Max).equal(torch.arange(6.).reshape(2, 3) + n - 1)
assert hvd.allreduce(x, op=hvd.Min).equal(torch.arange(6.).reshape(2, 3))
assert hvd.allreduce(torch.tensor(2.), op=hvd.Product) == 2 ** n
assert torch.allclose(hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0), total * 2)
y = x.clone()
assert hvd.allreduce_(y, op=hvd.Sum) is y and y.equal(total)
handles = [hvd.allreduce_async(x * i, op=hvd.Sum, name=f"many.{i}") for i in (range(50) if r % 2 else reversed(range(50)))]
while not all(map(hvd.poll, handles)):
    pass
for i, handle in zip(range(50) if r % 2 else reversed(range(50)), handles):
    assert hvd.synchronize(handle).equal(total * i)
g = hvd.grouped_allreduce([x, x * 2], op=hvd.Sum)
assert g[0].equal(total) and g[1].equal(total * 2)

rows = hvd.allgather(torch.full((r + 1, 2), r))
assert rows.equal(torch.cat([torch.full((i + 1, 2), i) for i in range(n)])) and rows.dtype == torch.int64
a, b = hvd.grouped_allgather([torch.full((r,), r), torch.full((1, 1), r, dtype=torch.uint8)])
assert len(a) == n * (n - 1) // 2 and b.flatten().tolist() == list(range(n))
assert hvd.broadcast(torch.tensor([r, r]), n - 1).tolist() == [n - 1] * 2
z = torch.full((3,), r)
assert hvd.broadcast_(z, 0) is z and z.tolist() == [0, 0, 0]
assert hvd.alltoall(torch.full((2 * n,), r)).tolist() == [i // 2 for i in range(2 * n)]
got, came = hvd.alltoall(torch.full((sum(range(n)), 2), r), splits=torch.arange(n, dtype=torch.int32))
assert came.tolist() == [r] * n and got.tolist() == [[i, i] for i in range(n) for _ in range(r)]
part = hvd.reducescatter(torch.ones(n * 2 + 1, 2), op=hvd.Sum)
assert part.shape == ((3 if r == 0 else 2), 2) and (part == n).all()
hvd.barrier()
w = torch.ones(3, requires_grad=True)
(hvd.allreduce(w, op=hvd.Sum) * (r + 1)).sum().backward()
assert w.grad.tolist() == [n * (n + 1) / 2] * 3
assert hvd.broadcast_object({"rank": r}, n - 1) == {"rank": n - 1} and hvd.allgather_object(r) == list(range(n))

# What is refused, and where.
try:
    hvd.allreduce(x.to(torch.int8))
    raise SystemExit("int8 was taken")
except ValueError:
    pass
if n > 1:
    try:
        hvd.allreduce(torch.ones(r + 1), name="shapes")
        raise SystemExit("shapes that differ were taken")
    except hvd.HorovodInternalError as error:
        assert "'allreduce.shapes'" in str(error), error
    try:
        hvd.add_process_set(list(range(n)))
        raise SystemExit("the whole world was added")
    except ValueError:
        pass
    last = hvd.add_process_set([n - 1])
    assert last.size() == 1 and last.included() == (r == n - 1) and last.process_set_id == 1
    if last.included():
        assert last.rank() == 0 and hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=last) == 1
        assert hvd.broadcast(torch.tensor([5]), n - 1, process_set=last) == 5
    assert hvd.remove_process_set(last) and last.process_set_id is None

    # Strict join: sums go on, gathering fails.
    if r == 0:
        assert hvd.join() != 0
    else:
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum, name="joined") == n - 1
        try:
            hvd.allgather(torch.ones(1), name="gather")
            raise SystemExit("an allgather went on after a join")
        except hvd.HorovodInternalError:
            pass
        hvd.join()
hvd.shutdown()
assert not hvd.is_initialized()
print("rank", r, "is right")
'''

TRAINING = r'''
import torch
import horovod.torch as hvd
hvd.init()
torch.manual_seed(hvd.rank())
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
first = last = None
for step in range(30):
    x = torch.randn(16, 4)
    optimizer.zero_grad()
    loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
    loss.backward()
    optimizer.step()
    last = hvd.allreduce(loss.detach(), name="loss").item()
    first = first or last
assert last < first / 2, (first, last)
weights = torch.cat([p.detach().flatten() for p in model.parameters()])
every = hvd.allgather(weights.unsqueeze(0), name="weights")
assert all(row.equal(weights) for row in every)
print("rank", hvd.rank(), "is right")
'''

# Rank 0 raises while the others wait for it.
RAISING = r'''
import torch
import horovod.torch as hvd
hvd.init()
hvd.allreduce(torch.ones(1))
if hvd.rank() == 0:
    raise KeyError("rank 0 raises")
try:
    hvd.allreduce(torch.ones(1), name="never")
except hvd.HorovodInternalError as error:
    print("rank", hvd.rank(), "got", type(error).__name__, error, flush=True)
'''


# Whoever joins says so; started by itself, with what a launcher by Gloo, on Ray or in Spark sets, it must not train alone.
ALONE = r'''
import torch
import horovod.torch as hvd
hvd.init()
print("rank", hvd.rank(), "of", hvd.size())
'''


def skip(why):
    print(f"SKIP: {why}")
    sys.exit(SKIP)


def run(*words, expect=0, **more):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS, **more)
    if expect is not None and done.returncode != expect:
        sys.exit(f"{' '.join(words[:8])}: exit {done.returncode}, not {expect}\n{done.stdout}")
    return done.stdout


def ranks(python, count, program, expect=0, **more):
    environment = {**os.environ, **more, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"}
    return run("mpirun", "-n", str(count), "--oversubscribe", python, "-c", program, expect=expect, env=environment)


def train(python, folder, requirements, expect):
    """`paceline train` of two ranks of TRAINING, whose requirements.txt is this; everything that was said."""
    base = tempfile.mkdtemp(dir=folder)
    hyperparameters = {"sagemaker_program": "train.py", "sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "2"}
    for path, text in {"code/train.py": TRAINING, "code/requirements.txt": requirements, "input/config/hyperparameters.json": json.dumps(hyperparameters),
                       "input/config/resourceconfig.json": '{"current_host": "algo-1", "hosts": ["algo-1"], "network_interface_name": "lo"}'}.items():
        os.makedirs(os.path.dirname(f"{base}/{path}"), exist_ok=True)
        with open(f"{base}/{path}", "w") as file:
            file.write(text)
    return run(PACELINE, "train", expect=expect, env={**os.environ, "SAGEMAKER_BASE_DIR": base, "PACELINE_PYTHON": python, "OMP_NUM_THREADS": "1"})


def requirements_start_no_compiler(base, folder):
    """A line `horovod` in requirements.txt is served by the modules; one that asks for another version is refused by pip, which says so."""
    python = f"{folder}/required/bin/python"
    run(base, "-m", "venv", "--system-site-packages", f"{folder}/required")
    text = train(python, folder, "horovod\n", 0)
    assert text.count("is right") == 2 and "runs on Paceline" in text, text
    module = run(python, "-c", "import horovod, os, sysconfig; print(os.path.dirname(horovod.__file__) + '/torch/mpi_lib_v2' + "
                 "sysconfig.get_config_var('EXT_SUFFIX'))").strip()
    for wanted in ("horovod==0.27.0", "horovod[torch]<0.28"):
        text = train(python, folder, f"{wanted}\n", 1)
        assert "horovod==0.28.1" in text and "onflict" in text and "is right" not in text, text
        assert os.path.islink(module)
    text = train(python, folder, "horovod[torch]>=0.20\n", 0)
    assert text.count("is right") == 2 and os.path.islink(module), text
    os.unlink(module)
    with open(module, "w") as file:  # a compiled one
        file.write("compiled")
    text = train(python, folder, "horovod\n", 1)  # Python refuses the file
    assert "was compiled and stays" in text and open(module).read() == "compiled", text


def what_is_not_there_is_said(python):
    """Each line of the table in docs/horovod.md that can be tried without Ray or Spark."""
    bin = os.path.dirname(python)
    environment = {**os.environ, "PATH": f"{bin}:{os.environ['PATH']}"}
    gloo = {**environment, "HOROVOD_RANK": "0", "HOROVOD_SIZE": "2", "HOROVOD_CONTROLLER": "gloo", "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1"}
    assert "horovodrun --mpi" in run(python, "-c", ALONE, expect=1, env=gloo)
    assert "rank 0 of 1" in run(python, "-c", ALONE, env={**gloo, "HOROVOD_SIZE": "1"})
    for words, said in {("--gloo", "-np", "2", python, "-c", ALONE): "Gloo support has not been built",
                        ("--min-np", "1", "-np", "2", "--host-discovery-script", "/bin/true", python): "Gloo support is required"}.items():
        assert said in run(f"{bin}/horovodrun", *words, expect=1, env=environment)
    for module, said in {"mxnet": "horovod.mxnet has not been built", "spark": "No module named 'pyspark'", "ray": "No module named 'ray'"}.items():
        assert said in run(python, "-c", f"import horovod.{module}", expect=1), module


def names_without_the_package(base, python):
    """A folder for PYTHONPATH gives a Python without Horovod the names, from paceline.py; an installed Horovod it does not hide."""
    names = {"PYTHONPATH": f"{BUILD}/libexec/paceline/horovod:{SOURCE}/examples/python", "PACELINE_LIBRARY": f"{BUILD}/runtime/libpaceline.so"}
    program = TRAINING + "\nimport horovod.torch.mpi_ops, paceline\nassert hvd is paceline and horovod.torch.mpi_ops.allreduce is hvd.allreduce\n"
    assert ranks(base, 2, program, **names).count("is right") == 2
    assert "without Horovod's package" in run(base, "-c", "import horovod; horovod.run", expect=1, env={**os.environ, **names})
    assert f"in {os.path.dirname(os.path.dirname(python))}" in run(PACELINE, "horovod", "--python", python, env={**os.environ, **names})
    said = run(python, "-c", "import horovod, horovod.torch; print(horovod.run.__module__, horovod.torch.__file__)", env={**os.environ, **names})
    assert f"horovod.runner {os.path.dirname(os.path.dirname(python))}" in said, said
    assert ranks(python, 2, TRAINING, **names).count("is right") == 2


def main():
    base = python_with("torch", "venv")
    if not base:
        skip("no Python here has torch and venv")
    if not os.path.exists(f"{BUILD}/libexec/paceline/libpaceline-horovod-torch.so"):
        skip("built without Python.h")
    with tempfile.TemporaryDirectory() as folder:
        python = f"{folder}/venv/bin/python"
        run(base, "-m", "venv", "--system-site-packages", f"{folder}/venv")
        missing = run(PACELINE, "horovod", "--python", python, expect=None)
        if "pip install horovod" not in missing and "horovod" not in missing:
            sys.exit(f"without Horovod: {missing}")
        installed = subprocess.run([python, "-m", "pip", "install", "-q", "horovod==0.28.1"], env={**os.environ, "HOROVOD_SKIP_COMPILE": "1"},
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS)
        if installed.returncode != 0:
            skip("pip cannot install horovod==0.28.1 here: " + installed.stdout.strip().splitlines()[-1])

        assert "not there: paceline horovod" in run(PACELINE, "horovod", "--check", "--python", python, expect=1)
        assert "runs on Paceline" in run(PACELINE, "horovod", "--python", python)
        assert "horovod.torch works" in run(PACELINE, "horovod", "--check", "--python", python)
        module = run(python, "-c", "import horovod, os, sysconfig; print(os.path.dirname(horovod.__file__) + '/torch/mpi_lib_v2' + "
                     "sysconfig.get_config_var('EXT_SUFFIX'))").strip()
        os.unlink(module)
        with open(module, "w") as file:  # a compiled one is a file
            file.write("compiled")
        assert "was compiled" in run(PACELINE, "horovod", "--python", python, expect=1)
        assert open(module).read() == "compiled"
        run(PACELINE, "horovod", "--force", "--python", python)

        for count in (1, 2, 3, 4):
            for program in (OPERATIONS, TRAINING):
                text = ranks(python, count, program)
                assert text.count("is right") == count, text
        text = ranks(python, 3, RAISING, expect=None)
        assert "rank 0 raises" in text and "got HorovodInternalError rank 0 shut" in text, text
        what_is_not_there_is_said(python)
        if python_with("torch", "numpy", "venv") == base:
            names_without_the_package(base, python)
        else:
            print("left out: the names without the package, the Python with torch has no numpy")
        requirements_start_no_compiler(base, folder)
    print("horovod.torch: as it should be")


main()
