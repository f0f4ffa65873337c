#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program of DistributedDataParallel whose gradients Paceline sums. What is new to such a program are the two lines with paceline.torch.

    torchrun --nproc-per-node 2 ddp_hook.py
    mpirun -n 2 -x MASTER_ADDR=127.0.0.1 -x MASTER_PORT=29500 python3 ddp_hook.py
"""
import os

import torch
import torch.distributed
from torch.nn.parallel import DistributedDataParallel

import paceline.torch

for name in ("RANK", "WORLD_SIZE"):  # mpirun's words for them
    os.environ.setdefault(name, os.environ.get(f"OMPI_COMM_WORLD_{name.split('_')[-1]}", ""))
torch.distributed.init_process_group("gloo")
rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()

torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(16, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
ddp = DistributedDataParallel(model, gradient_as_bucket_view=True)
ddp.register_comm_hook(None, paceline.torch.allreduce_hook)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)

samples = torch.rand(1024, 16)[rank::size]
wanted = samples.sum(dim=1, keepdim=True).sin()
for step in range(201):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(ddp(samples), wanted)
    loss.backward()
    optimizer.step()
    if step % 100 == 0 and rank == 0:
        print(f"step={step} loss={loss.item():.4f}", flush=True)
torch.distributed.destroy_process_group()
