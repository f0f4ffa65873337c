# SPDX-License-Identifier: Apache-2.0
"""paceline.data for torch: the dataset that a DataLoader takes, and pinned memory."""
from __future__ import annotations

import ctypes
from typing import Any, Dict, Iterator

import torch
import torch.utils.data

from .data import DataError, Dataset, Varying

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
        self._dataset, self._pin, self._turn = dataset, pin, 0
        # Processes share it: how often set_epoch() was called, its last epoch, whether workers have read, the seed of the DataLoader's epoch that went on at a
        # place from load_state_dict(), and whether a worker has said which rank reads.
        self._shared = torch.zeros(5, dtype=torch.int64).share_memory_()
        dataset._functions.insert(0, (self._convert, 0))

    def _convert(self, batch):
        return _tensors(batch, {name: field.type for name, field in self._dataset._fields.items()})

    def set_epoch(self, epoch: int) -> None:
        """The epoch that the next iteration reads. With workers, which are made again for each epoch, call it before each; workers that persist count by themselves, and
        see it too."""
        self._dataset.set_epoch(epoch)
        self._shared[1], self._shared[3] = epoch, 0
        self._shared[0] += 1
        self._turn = int(self._shared[0])

    def state_dict(self) -> Dict[str, Any]:
        """See Dataset.state_dict(). With workers each has its own: torchdata's StatefulDataLoader gathers them."""
        if self._shared[2] and not self._dataset._is_worker:
            raise DataError("a DataLoader's workers have read this dataset, and each has a place of its own: use torchdata's StatefulDataLoader and its state_dict()")
        return self._dataset.state_dict()

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """See Dataset.load_state_dict()."""
        self._dataset.load_state_dict(state)
        self._shared[3] = 0

    def __iter__(self) -> Iterator[Any]:
        worker = torch.utils.data.get_worker_info()
        self._dataset._is_worker = worker is not None
        self._shared[2] = worker is not None
        if self._turn != int(self._shared[0]):  # the parent has called set_epoch() since this worker was made
            self._turn = int(self._shared[0])
            self._dataset.set_epoch(int(self._shared[1]))
        if worker:  # one of them says once which rank reads
            self._dataset._says_so &= worker.id == 0 and not self._shared[4]
            self._shared[4] |= worker.id == 0
        if worker and self._dataset._saved is not None:
            seed = worker.seed - worker.id
            if int(self._shared[3]) not in (0, seed):
                raise DataError("the rest of the epoch has been read for which load_state_dict() was called: call set_epoch() before the next epoch")
            self._shared[3] = seed
        self._dataset._memory = _pinned_memory if self._pin and not worker else None  # a worker has no GPU: DataLoader(pin_memory=True) pins after it
        return self._dataset._iterate(*((worker.id, worker.num_workers) if worker else (0, 1)))
