# SPDX-License-Identifier: Apache-2.0
"""Horovod's DistributedOptimizer for torch."""
import horovod.torch as hvd
import torch

import mistake

hvd.init()
torch.manual_seed(hvd.rank())
model = torch.nn.Linear(4, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
for _ in range(4):
    optimizer.zero_grad()
    model(torch.ones(2, 4) * hvd.rank()).sum().backward()
    optimizer.step()
print(f"rank {hvd.rank()} of {hvd.size()} has {sum(p.sum() for p in model.parameters()).item():.6f}", flush=True)
