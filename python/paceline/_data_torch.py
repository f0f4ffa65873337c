# SPDX-License-Identifier: Apache-2.0
"""paceline.data for torch: the dataset that a DataLoader takes, and pinned memory."""
from __future__ import annotations

import ctypes
from typing import Any, Dict, Iterator

import torch
import torch.utils.data

from .data import Dataset, Varying

_pinned: Dict[int, torch.Tensor] = {}  # by address: what the library has


@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
def _allocate(_, size_bytes):
    try:
        tensor = torch.empty(size_bytes, dtype=torch.uint8, pin_memory=True)
    except RuntimeError:  # no GPU, or no memory: NULL says so
        return None
    _pinned[tensor.data_ptr()] = tensor
    return tensor.data_ptr()


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
def _release(_, address, size_bytes):
    _pinned.pop(address, None)


def _pinned_memory():
    return ctypes.cast(_allocate, ctypes.c_void_p), ctypes.cast(_release, ctypes.c_void_p)


def _tensors(batch: Any, types: dict) -> Any:
    """Tensors that use the arrays' memory."""
    def one(name, array):
        tensor = torch.from_numpy(array)
        return tensor.view(torch.bfloat16) if types.get(name) == "bfloat16" else tensor
    return {name: Varying(one(name, value.data), torch.from_numpy(value.offsets)) if isinstance(value, Varying) else one(name, value)
            for name, value in batch.items()}


class TorchDataset(torch.utils.data.IterableDataset):
    """See Dataset.torch(). A function of map() gets tensors."""

    def __init__(self, dataset: Dataset, pin: bool = False) -> None:
        super().__init__()
        self._dataset, self._pin = dataset, pin
        dataset._functions.insert(0, (self._convert, 0))

    def _convert(self, batch):
        return _tensors(batch, {name: field.type for name, field in self._dataset._fields.items()})

    def set_epoch(self, epoch: int) -> None:
        """The epoch that the next iteration reads. With workers, which are made again for each epoch, call it before each; workers that persist count by themselves."""
        self._dataset.set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:
        worker = torch.utils.data.get_worker_info()
        self._dataset._memory = _pinned_memory if self._pin and not worker else None  # a worker has no GPU: DataLoader(pin_memory=True) pins after it
        return self._dataset._iterate(*((worker.id, worker.num_workers) if worker else (0, 1)))
