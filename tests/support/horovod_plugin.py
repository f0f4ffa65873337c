# SPDX-License-Identifier: Apache-2.0
"""pytest's plug-in for Horovod's own tests of torch: they name the GPU of a rank by its local rank, and run where there are fewer GPUs.

    TEST_DEVICE    cuda: the GPUs there are; fake: those of the tests' driver; cpu: none
    TEST_RESULTS   the folder in which each rank writes how its tests ended, as <rank>.json
"""
import json
import os

import torch

ENDS, RANK = {}, os.environ["OMPI_COMM_WORLD_RANK"]


def use_gpus_there_are():
    """cuda(n) is cuda(n modulo their number)."""
    there, to_gpu = torch.cuda.device_count(), torch.Tensor.cuda
    torch.Tensor.cuda = lambda self, device=None, *rest, **words: to_gpu(self, device % there if isinstance(device, int) else device, *rest, **words)
    torch.cuda.set_device(int(os.environ["OMPI_COMM_WORLD_LOCAL_RANK"]) % there)


if os.environ["TEST_DEVICE"] == "cuda":
    use_gpus_there_are()
elif os.environ["TEST_DEVICE"] == "fake":
    import gpu_tensors
    gpu_tensors.start(int(os.environ["OMPI_COMM_WORLD_LOCAL_RANK"]) % int(os.environ["TEST_GPUS"]))
    gpu_tensors.pretend(int(os.environ["TEST_GPUS"]))


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        text = report.longrepr[2].removeprefix("Skipped: ") if report.outcome == "skipped" else str(report.longrepr or "")
        ENDS[report.nodeid.rsplit("::", 1)[-1]] = (report.outcome, text)


def pytest_sessionfinish():
    with open(f"{os.environ['TEST_RESULTS']}/{RANK}.json", "w", encoding="utf-8") as file:
        json.dump(ENDS, file)
