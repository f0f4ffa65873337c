# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel, with the address and the ranks from the environment."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import mistake

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(2, 4) * dist.get_rank()).sum().backward()
    optimizer.step()
print(f"rank {dist.get_rank()} of {dist.get_world_size()} has {sum(p.sum() for p in model.parameters()).item():.6f}", flush=True)
dist.destroy_process_group()
