#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains on tar shards, as WebDataset writes them, that paceline.data reads from S3.

    python3 data_tar_s3.py --data s3://BUCKET/PREFIX

A sample is KEY.bin, 3 x 8 x 8 bytes, and KEY.cls, its label as text. Keys and region are found as by AWS's own tools.
"""
import argparse

import torch

from paceline.data import Dataset, Field

parser = argparse.ArgumentParser()
parser.add_argument("--data", required=True)
options = parser.parse_args()

fields = {"image": Field("uint8", (3, 8, 8), name="bin"), "label": Field("int64", name="cls")}
dataset = Dataset(options.data, fields, batch=32, shuffle=500, seed=1, epochs=5, format="tar", shuffle_objects=True)
dataset = dataset.map(lambda batch: {**batch, "image": batch["image"].float() / 255}, threads=2).torch()

torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(5):
    right = samples = 0
    for batch in dataset:  # iterating again is the next epoch, which has begun meanwhile
        scores = model(batch["image"])
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(scores, batch["label"]).backward()
        optimizer.step()
        right, samples = right + int((scores.argmax(1) == batch["label"]).sum()), samples + len(scores)
    print(f"epoch={epoch} samples={samples} accuracy={right / samples:.3f}", flush=True)
