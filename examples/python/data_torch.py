#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains on TFRecords that paceline.data reads: from a channel of SageMaker in any mode, a directory or S3.

    python3 data_torch.py [--data s3://BUCKET/PREFIX]       under `paceline train`, torchrun or mpirun each rank reads its share

A record is a tf.Example with "image", 3 x 8 x 8 bytes, and "label".
"""
import argparse

import torch
from torch.utils.data import DataLoader

from paceline.data import Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--data", default="training")
parser.add_argument("--workers", type=int, default=0)
options = parser.parse_args()

fields = {"image": ("uint8", (3, 8, 8)), "label": "int64"}
dataset = Dataset(options.data, fields, batch=32, shuffle=500, seed=1).torch()
loader = DataLoader(dataset, batch_size=None, num_workers=options.workers)

torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(5):
    dataset.set_epoch(epoch)  # another order in each epoch
    right = samples = 0
    for batch in loader:
        scores = model(batch["image"].float() / 255)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(scores, batch["label"]).backward()
        optimizer.step()
        right, samples = right + int((scores.argmax(1) == batch["label"]).sum()), samples + len(scores)
    print(f"epoch={epoch} samples={samples} accuracy={right / samples:.3f}", flush=True)
