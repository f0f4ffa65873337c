#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains with a checkpoint every ten steps, and goes on from the newest one when it is started again.

    python3 checkpoint_torch.py [--steps 60]       checkpoints are in PACELINE_CHECKPOINT_DIR, which `paceline train` sets
"""
import argparse

import torch

from paceline.checkpoint import Checkpoints

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
options = parser.parse_args()

torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
with Checkpoints() as checkpoints:
    first, tensors, state = checkpoints.load() or (0, None, None)
    if tensors:
        model.load_state_dict(tensors)
        optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])
        print(f"step={first} goes on", flush=True)
    for step in range(first + 1, options.steps + 1):
        samples = torch.rand(32, 16)
        optimizer.zero_grad()
        loss = (model(samples) - samples.sum(dim=1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step={step} loss={loss.item():.6f}", flush=True)
            checkpoints.save(step, model.state_dict(), {"optimizer": optimizer.state_dict(), "random": torch.get_rng_state()})
