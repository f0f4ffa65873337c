# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer() makes the ranks compare their weights once: only a broadcast makes them equal, and a program may lack it."""
import ctypes


def compare(mpi_ops, name, process_set, checksum, cure):
    """Rank 0 warns if ranks that call this with the same name have different checksums; no rank waits for that. `mpi_ops` belongs to the framework."""
    function = getattr(mpi_ops._basics.MPI_LIB_CTYPES, "horovod_paceline_compare_weights", None)
    if function is None:  # a compiled Horovod was installed later
        return
    function.argtypes, function.restype = [ctypes.c_char_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_char_p], None
    function(f"weights.{name}".encode(), process_set.process_set_id, checksum & (1 << 64) - 1, cure.encode())


_made = {}  # number of optimizers by the name of their first parameter, since several may have the same names


def _bits(torch, parameter):
    """The sum of the parameter's elements, with their bits read as integers."""
    parameter = torch.view_as_real(parameter) if parameter.is_complex() else parameter
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[parameter.element_size()]
    return parameter.detach().contiguous().view(-1).view(integers).sum(dtype=torch.int64).cpu()


def _compare_torch(optimizer):
    import horovod.torch.mpi_ops as mpi_ops
    import torch
    parameters = sorted((name, parameter) for parameter, name in optimizer._parameter_names.items())
    sums = [int(_bits(torch, parameter)) for _, parameter in parameters]
    first = parameters[0][0]
    _made[first] = _made.get(first, 0) + 1
    compare(mpi_ops, f"{first}.{_made[first]}", optimizer.process_set, sum(number * (2 * i + 1) for i, number in enumerate(sums)),
            "call hvd.broadcast_parameters(model.state_dict(), root_rank=0) before the first step")


def add_to_torch(module):
    """Makes the optimizers of horovod.torch.optimizer compare weights before their first step changes them."""
    synchronize = module._DistributedOptimizer.synchronize

    def synchronize_and_compare(self):
        if not self.__dict__.get("_paceline_compared"):
            self._paceline_compared = True
            process_set = getattr(self, "process_set", None)  # an older Horovod, compiled and installed later, has no such attribute
            if process_set is not None and process_set.included() and process_set.size() > 1:
                _compare_torch(self)
        return synchronize(self)
    module._DistributedOptimizer.synchronize = synchronize_and_compare
