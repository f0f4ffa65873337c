# SPDX-License-Identifier: Apache-2.0
"""Starts train_ddp.py with version 3 of the SageMaker SDK (pip install "sagemaker>=3"), on spot instances."""
import sys

from sagemaker.core.training.configs import CheckpointConfig, Compute, SourceCode, StoppingCondition
from sagemaker.train import ModelTrainer
from sagemaker.train.distributed import Torchrun

image, role, bucket = sys.argv[1:]
trainer = ModelTrainer(
    training_image=image,
    source_code=SourceCode(source_dir="examples/pytorch", entry_script="train_ddp.py"),
    distributed=Torchrun(),
    role=role,
    compute=Compute(instance_count=2, instance_type="ml.c5.xlarge", enable_managed_spot_training=True),
    hyperparameters={"epochs": 20},
    stopping_condition=StoppingCondition(max_runtime_in_seconds=3600, max_wait_time_in_seconds=7200),
    checkpoint_config=CheckpointConfig(s3_uri=f"s3://{bucket}/ddp/checkpoints"),
)
trainer.train()
