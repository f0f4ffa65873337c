# SPDX-License-Identifier: Apache-2.0
"""Train. A network of one hidden layer learns y = sin(x). Each rank has its own samples; the library averages the gradients.

    PYTHONPATH=../python mpirun -n 2 python3 03_train.py       or as a job: paceline train, with sagemaker_program=03_train.py
"""
import os

import numpy

import paceline

paceline.init()
weights = {"in": numpy.tile(numpy.linspace(-2, 2, 16, dtype=numpy.float32), (2, 1)), "out": numpy.zeros(16, numpy.float32)}
paceline.broadcast_parameters(weights, root_rank=0)
steps = int(os.environ.get("SM_HP_STEPS", 1000))
for step in range(1, steps + 1):
    x = ((numpy.arange(32) * paceline.size() + paceline.rank() + step) % 61 / 10 - 3).astype(numpy.float32)
    h = numpy.tanh(x[:, None] * weights["in"][0] + weights["in"][1])
    off = h @ weights["out"] - numpy.sin(x)
    slope = off[:, None] * weights["out"] * (1 - h * h)
    gradients = {"in": numpy.stack([x @ slope, slope.sum(0)]) / 32, "out": off @ h / 32}
    names = list(gradients)
    averages = paceline.grouped_allreduce([gradients[name] for name in names], name="gradients")
    for name, average in zip(names, averages):
        weights[name] -= 0.1 * average
    if step % 100 == 0:
        loss = paceline.allreduce(numpy.array([numpy.mean(off * off)], numpy.float32), name="loss")
        if paceline.rank() == 0:
            print(f"step={step} loss={loss[0]:.5f}", flush=True)
if paceline.rank() == 0:
    numpy.savez(os.path.join(os.environ.get("SM_MODEL_DIR", "."), "model.npz"), **weights)
