# SPDX-License-Identifier: Apache-2.0
"""Lightning, without mpi4py in the image; at SIGTERM it saves."""
import json
import os

import lightning
import torch
from lightning.pytorch.utilities.exceptions import SIGTERMException

import mistake


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, _):
        return self.layer(batch[0]).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


class SaveAtStop(lightning.Callback):
    def on_exception(self, trainer, module, exception):
        if isinstance(exception, SIGTERMException):
            trainer.save_checkpoint("/opt/ml/checkpoints/stopped.ckpt")


lightning.seed_everything(1)
model = Model()
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.rand(16, 4)), batch_size=2)
trainer = lightning.Trainer(accelerator="cpu", devices=2, num_nodes=len(json.loads(os.environ["SM_HOSTS"])), strategy="ddp", max_epochs=1, logger=False,
                            callbacks=[SaveAtStop()], enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer.fit(model, data)
print(f"rank {trainer.global_rank} of {trainer.world_size} has {sum(p.sum() for p in model.parameters()).item():.6f}", flush=True)
