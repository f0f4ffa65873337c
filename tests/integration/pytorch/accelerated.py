# SPDX-License-Identifier: Apache-2.0
"""Hugging Face Accelerate, without its flag for CPUs."""
import torch
from accelerate import Accelerator

import mistake

accelerator = Accelerator()
torch.manual_seed(accelerator.process_index)
model = torch.nn.Linear(4, 1)
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
for _ in range(3):
    optimizer.zero_grad()
    accelerator.backward(model(torch.ones(2, 4) * accelerator.process_index).sum())
    optimizer.step()
print(f"rank {accelerator.process_index} of {accelerator.num_processes} has {sum(p.sum() for p in model.parameters()).item():.6f}", flush=True)
