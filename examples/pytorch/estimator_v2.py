# SPDX-License-Identifier: Apache-2.0
"""Starts train_ddp.py with version 2 of the SageMaker SDK (pip install "sagemaker<3"), on spot instances."""
import sys

from sagemaker.pytorch import PyTorch

image, role, bucket = sys.argv[1:]
estimator = PyTorch(
    image_uri=image,
    entry_point="train_ddp.py",
    source_dir="examples/pytorch",
    distribution={"torch_distributed": {"enabled": True}},
    role=role,
    instance_count=2,
    instance_type="ml.c5.xlarge",
    hyperparameters={"epochs": 20},
    metric_definitions=[{"Name": "train:loss", "Regex": "loss=([0-9.]+)"}],
    use_spot_instances=True,
    max_run=3600,
    max_wait=7200,
    checkpoint_s3_uri=f"s3://{bucket}/ddp/checkpoints",
)
estimator.fit()
