# SPDX-License-Identifier: Apache-2.0
"""The Trainer of Hugging Face's transformers, with a tiny model that is made here."""
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import mistake

torch.manual_seed(1)
model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=16, n_embd=8, n_layer=1, n_head=2))
data = [{"input_ids": torch.randint(0, 32, (8,)), "labels": torch.randint(0, 32, (8,))} for _ in range(32)]
arguments = TrainingArguments(output_dir="/opt/ml/model", max_steps=3, use_cpu=True, report_to=[], per_device_train_batch_size=2)
Trainer(model=model, args=arguments, train_dataset=data).train()
print(f"rank {arguments.process_index} of {arguments.world_size} has {sum(p.sum() for p in model.parameters()).item():.6f}", flush=True)
