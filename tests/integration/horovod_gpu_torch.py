#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Horovod's own Python with torch's tensors on GPUs, on the tests' driver: it ends with the bits that tensors in host memory end with.

    horovod_gpu_torch.py          two ranks, with a GPU each through NCCL and with a shared one
    horovod_gpu_torch.py full     1, 2 and 4 ranks, with and without NCCL, with waits that return early too
    horovod_gpu_torch.py --rank   one rank, under mpirun
"""
import os
import subprocess
import sys
import warnings

sys.path[0] = os.path.join(os.path.dirname(os.path.realpath(__file__)), "../support")  # not this folder, which has a horovod.py
BUILD = os.environ["PACELINE_BUILD"]
COPIES = "copied to host memory"


def rank():
    import torch
    import horovod.torch as hvd
    import gpu_tensors

    warnings.filterwarnings("error", message=f".*{COPIES}.*")
    hvd.init(process_sets="dynamic")
    n, r = hvd.size(), hvd.rank()
    gpu = gpu_tensors.start(hvd.local_rank() % int(os.environ["TEST_GPUS"]))
    streams = [gpu.stream, gpu.new_stream()]
    floats, integers, moved = [torch.float16, torch.float32], [torch.int64], [torch.uint8]
    if os.environ["TEST_TYPES"] == "all":
        floats, integers, moved = floats + [torch.float64], integers + [torch.int32], moved + [torch.int8, torch.int16]
    cases, turn = [0], [0]

    def host(found):
        return [host(one) for one in found] if isinstance(found, (list, tuple)) else found.cpu()

    def check(found, wanted, *about):
        found, wanted = (host(one) if isinstance(one, (list, tuple)) else [host(one)] for one in (found, wanted))
        cases[0] += 1
        for one, other in zip(found, wanted):
            same = one.shape == other.shape and one.dtype == other.dtype and torch.equal(one, other)
            assert same, f"rank {r}, {about}: {one} of a GPU differs from {other}"
        assert len(found) == len(wanted), about

    def both(work, *about):
        """work(place) with place() as it is, and then onto the GPU."""
        turn[0] += 1
        wanted = work(lambda tensor: tensor)
        with gpu.on_stream(streams[turn[0] % 2]):
            found = work(lambda tensor: tensor.cuda())
            for one in found if isinstance(found, (list, tuple)) else [found]:
                assert one.is_cuda or one.dtype == torch.int32, about
            check(found, wanted, *about)

    def values(count, dtype, salt=0):
        return ((torch.arange(count) * 3 + r * 5 + salt) % 7 + 1).to(dtype)

    def table(rows, dtype, salt=0):
        return values(3 * rows, dtype, salt).view(rows, 3)

    def in_place(function, tensors, **words):
        function(tensors, **words)
        return tensors

    def operations(members, about, **words):
        """Each kind and type; `members` ranks take part."""
        m, own = len(members), members.index(r)
        for dtype in floats + integers:
            for op in (hvd.Sum, hvd.Average, hvd.Min, hvd.Max, hvd.Product) if dtype.is_floating_point else (hvd.Sum, hvd.Min, hvd.Max, hvd.Product):
                for count in (1, 1000, 70001) if op == hvd.Sum else (100,):
                    both(lambda place: hvd.allreduce(place(values(count, dtype)), op=op, **words), about, "allreduce", dtype, op, count)
                both(lambda place: in_place(hvd.allreduce_, place(values(50, dtype)), op=op, **words), about, "allreduce_", dtype, op)
                both(lambda place: hvd.grouped_allreduce([place(values(10 * t + 3, dtype, t)) for t in range(4)], op=op, **words), about, "grouped", dtype, op)
            both(lambda place: in_place(hvd.grouped_allreduce_, [place(values(10 * t + 3, dtype, t)) for t in range(4)], op=hvd.Sum, **words), about, "grouped_", dtype)
            both(lambda place: hvd.grouped_allreduce([place(values(5, dtype)), place(table(8, dtype)).t()], op=hvd.Sum, **words), about, "a transposed tensor", dtype)
            for before, after in ((0.5, 1.0), (1.0, 4.0), (2.0, 0.25)) if dtype.is_floating_point else ((2.0, 1.0), (1.0, 3.0)):
                factors = {"prescale_factor": before, "postscale_factor": after, **words}
                both(lambda place: hvd.allreduce(place(values(60, dtype)), op=hvd.Sum, **factors), about, "scaled", dtype, before, after)
                both(lambda place: hvd.reducescatter(place(table(2 * m, dtype)), op=hvd.Sum, **factors), about, "a scaled reducescatter", dtype, before, after)
            for op in (hvd.Sum, hvd.Average) if dtype.is_floating_point else (hvd.Sum,):
                for rows in (m, 3 * m, 2 * m + 1):
                    both(lambda place: hvd.reducescatter(place(table(rows, dtype)), op=op, **words), about, "reducescatter", dtype, op, rows)
                both(lambda place: hvd.grouped_reducescatter([place(table(t * m + 1, dtype, t)) for t in (1, 2, 3)], op=op, **words), about, "reducescatters", dtype, op)
        for dtype in floats + integers + moved:
            for root in members:
                both(lambda place: hvd.broadcast(place(values(77, dtype)), root, **words), about, "broadcast", dtype, root)
            both(lambda place: in_place(hvd.broadcast_, place(values(77, dtype)), root_rank=members[-1], **words), about, "broadcast_", dtype)
            for rows in (2, own, 5 * (own == m - 1)):  # equal, none on the first, all on the last
                both(lambda place: hvd.allgather(place(table(rows, dtype)), **words), about, "allgather", dtype, rows)
            both(lambda place: hvd.grouped_allgather([place(table(own + t, dtype, t)) for t in range(3)], **words), about, "allgathers", dtype)
            both(lambda place: hvd.alltoall(place(table(2 * m, dtype)), **words), about, "alltoall", dtype)
            for splits in (torch.arange(1, m + 1), torch.arange(m), [0] * (m - 1) + [4]):
                splits = torch.as_tensor(splits).to(torch.int32)
                whole = table(int(splits.sum()), dtype)
                both(lambda place: hvd.alltoall(place(whole), splits=splits, **words), about, "alltoall with splits", dtype, splits)
                both(lambda place: hvd.alltoall(place(whole), splits=place(splits), **words), about, "alltoall with splits there", dtype, splits)

    def many():
        """Names come in different orders on the ranks, and are waited for late."""
        for step in range(3):
            order = range(30) if (r + step) % 2 else reversed(range(30))
            handles = {t: hvd.allreduce_async(values(40 * t + 1, torch.float32, t).cuda(), op=hvd.Sum, name=f"many.{t}") for t in order}
            wanted = {t: hvd.allreduce_async(values(40 * t + 1, torch.float32, t), op=hvd.Sum, name=f"many.host.{t}") for t in range(30)}
            for t in range(30):
                check(hvd.synchronize(handles[t]), hvd.synchronize(wanted[t]), "many", t)

    def gradients():
        """Of each operation, by autograd."""
        def of(work, *shapes):
            def run(place):
                inputs = [place(values(torch.Size(shape).numel(), torch.float64, at).view(shape)).requires_grad_() for at, shape in enumerate(shapes)]
                made = work(inputs)
                made = made if isinstance(made, (list, tuple)) else [made]
                made = [one for one in made if one.is_floating_point()]
                total = sum((one * place(values(one.numel(), torch.float64, 2 + at).view(one.shape))).sum() for at, one in enumerate(made))
                total.backward()
                return [one.detach() for one in made] + [one.grad for one in inputs]
            both(run, "the gradient", shapes)

        splits = torch.arange(1, n + 1, dtype=torch.int32)
        of(lambda inputs: hvd.allreduce(inputs[0], op=hvd.Sum), (4, 3))
        of(lambda inputs: hvd.allreduce(inputs[0], op=hvd.Average, prescale_factor=2.0), (4, 3))
        of(lambda inputs: hvd.grouped_allreduce(inputs, op=hvd.Sum), (4, 3), (2,))
        of(lambda inputs: hvd.allgather(inputs[0]), (r + 1, 3))
        of(hvd.grouped_allgather, (r + 1, 3), (2, 2))
        of(lambda inputs: hvd.broadcast(inputs[0], n - 1), (4, 3))
        of(lambda inputs: hvd.alltoall(inputs[0]), (2 * n, 3))
        of(lambda inputs: hvd.alltoall(inputs[0], splits=splits), (n * (n + 1) // 2, 3))
        of(lambda inputs: hvd.reducescatter(inputs[0], op=hvd.Sum), (2 * n + 1, 3))
        of(lambda inputs: hvd.grouped_reducescatter(inputs, op=hvd.Average), (n, 3), (2 * n, 1))

    def joins():
        """Ranks have different numbers of batches."""
        for first in (0, n - 1):
            for place, device in ((lambda tensor: tensor, -1), (lambda tensor: tensor.cuda(), gpu.ordinal)):
                batches = 2 + (r == first) * 3
                for step in range(batches):
                    there = n if step < 2 else 1
                    found = hvd.allreduce(place(torch.full((10,), 2.0)), op=hvd.Sum, name=f"batch.{step}")
                    check(found, torch.full((10,), 2.0 * there), "a sum with joined ranks", step)
                assert hvd.join(device) == (first if n > 1 else 0), "another rank has joined last"

    def sparse():
        """A gradient with few rows."""
        def run(place):
            layer = torch.nn.Embedding(20, 4, sparse=True)
            layer.weight = torch.nn.Parameter(place(values(80, torch.float32).view(20, 4)))
            layer(place(torch.tensor([1, r + 2, 3]))).sum().backward()
            return layer.weight.grad

        found, wanted = (hvd.sparse_allreduce_async(run(place), name=f"sparse.{name}", op=hvd.Average)() for name, place in
                         (("gpu", lambda tensor: tensor.cuda()), ("host", lambda tensor: tensor)))
        check([found._indices(), found._values()], [wanted._indices(), wanted._values()], "sparse")

    def normalisation():
        """SyncBatchNorm has the numbers of all ranks' batches."""
        whole = torch.randn(4 * n, 3, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        alone, together = torch.nn.BatchNorm1d(3).double(), hvd.SyncBatchNorm(3).double()
        on_gpu(together)
        for step in range(2):
            wanted_in, found_in = whole.clone().requires_grad_(), whole[4 * r:4 * r + 4].cuda().requires_grad_()
            wanted, found = alone(wanted_in), together(found_in)
            (wanted ** 3).sum().backward()
            (found ** 3).sum().backward()
            for one, other in ((found, wanted[4 * r:4 * r + 4]), (found_in.grad, wanted_in.grad[4 * r:4 * r + 4]), (together.running_mean, alone.running_mean),
                               (together.running_var, alone.running_var)):
                cases[0] += 1
                assert torch.allclose(host(one.detach()), other, rtol=1e-9, atol=1e-11), f"step {step}: {one} of SyncBatchNorm differs from {other}"

    def adasum():
        """It is copied, and one warning says so."""
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for step in range(2):
                both(lambda place: hvd.allreduce(place(values(100, torch.float32, step)), op=hvd.Adasum), "Adasum")
        assert sum(COPIES in str(one.message) and "Adasum" in str(one.message) for one in said) == 1, [str(one.message) for one in said]

    def on_gpu(module):
        for part in module.modules():
            for name, value in [*part._parameters.items()]:
                part._parameters[name] = torch.nn.Parameter(value.data.cuda())
            for name, value in [*part._buffers.items()]:
                part._buffers[name] = value.cuda() if value.is_floating_point() else value
        return module

    def trained(is_on_gpu, passes=1, rate=0.05, **words):
        """The weights after some steps of a DistributedOptimizer."""
        torch.manual_seed(r)  # other weights on each rank
        model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 32), torch.nn.Tanh(), torch.nn.Linear(32, 2))
        if is_on_gpu:
            on_gpu(model)
        descent = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        descent = hvd.DistributedOptimizer(descent, named_parameters=model.named_parameters(), backward_passes_per_step=passes, **words)
        batches = torch.randn(6 * passes, 4, 8, generator=torch.Generator().manual_seed(50 + r))
        for at, batch in enumerate(batches):
            if at % passes == 0:
                descent.zero_grad()
            model(batch.cuda() if is_on_gpu else batch).square().mean().backward()
            if at == 3 * passes - 1:  # in the middle: what is clipped is there
                descent.synchronize()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                with descent.skip_synchronize():
                    descent.step()
            elif at % passes == passes - 1:
                descent.step()
        hvd.broadcast_optimizer_state(descent, root_rank=0)
        momentum = [descent.state[value]["momentum_buffer"] for value in model.parameters()]
        assert all(value.is_cuda == is_on_gpu for value in [*model.parameters(), *momentum])
        return host([value.detach() for value in model.parameters()]), host(momentum)

    def optimizers():
        variants = {"plain": {}, "two passes": {"passes": 2}, "groups": {"num_groups": 2}, "a sum": {"op": hvd.Sum}, "divided before": {"gradient_predivide_factor": 2.0},
                    "compressed": {"compression": hvd.Compression.fp16}, "two passes, groups": {"passes": 2, "num_groups": 1}}
        for name, words in variants.items():
            (found, momentum), (wanted, wanted_momentum) = trained(True, **words), trained(False, **words)
            for one, other in zip(found + momentum, wanted + wanted_momentum):
                cases[0] += 1
                near = torch.equal(one, other) if n <= 2 else torch.allclose(one, other, rtol=1e-3 if "compression" in words else 1e-5, atol=1e-6)
                assert near, f"{name}: the weights {one} differ from the host's {other}"

    assert hvd.mpi_ops._basics.cuda_built() and not hvd.nccl_built()
    optimizers()
    operations(list(range(n)), "all ranks")
    if n > 1:
        some = hvd.add_process_set([0, n - 1] if n > 2 else [1])
        if some.included():
            operations(some.ranks, f"the set {some.ranks}", process_set=some)
        hvd.remove_process_set(some)
    many()
    gradients()
    joins()
    sparse()
    normalisation()
    adasum()
    late = hvd.allreduce_async(torch.ones(5).half(), op=hvd.Sum, postscale_factor=0.5, name="late")
    while not hvd.poll(late):
        pass
    hvd.mpi_ops._basics.shutdown()  # hvd.shutdown() also forgets what has ended
    assert hvd.synchronize(late).tolist() == [0.5 * n] * 5, "a sum that is waited for after the end differs"
    print(f"rank {r} is right: {cases[0]} comparisons", flush=True)
    hvd.shutdown()


def main():
    from horovod_python import python_for
    python = python_for("torch")
    subprocess.run([f"{BUILD}/entrypoint/paceline", "horovod", "install", "--python", python], check=True)
    fakes = f"{BUILD}/tests/fakes"
    plan, is_full = [(2, 2, True, {}), (2, 1, False, {})], sys.argv[1:] == ["full"]
    if is_full:
        early = {"HOROVOD_ENABLE_ASYNC_COMPLETION": "1"}
        plan += [(1, 1, True, {}), (1, 1, False, early), (2, 2, False, {}), (2, 2, True, early), (4, 4, True, {}), (4, 2, False, {}), (4, 4, True, early)]
    for ranks, gpus, nccl, more in plan:
        environment = {**os.environ, **more, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1", "TEST_GPUS": str(gpus),
                       "TEST_TYPES": "all" if is_full else "some", "FAKE_CUDA": f"devices={gpus},delay_us=20", "LD_LIBRARY_PATH": f"{fakes}/{'nccl' if nccl else 'no_nccl'}:{fakes}"}
        done = subprocess.run(["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), python, os.path.realpath(__file__), "--rank"], env=environment,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900)
        what = f"{ranks} ranks, {gpus} GPUs, NCCL {nccl}, {more}"
        if done.returncode != 0 or done.stdout.count("is right") != ranks:
            sys.exit(f"{what}: exit {done.returncode}\n{done.stdout}")
        print(f"{what}: {done.stdout.strip().splitlines()[-1]}", flush=True)


if __name__ == "__main__":
    rank() if sys.argv[-1] == "--rank" else main()
