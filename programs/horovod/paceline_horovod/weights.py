# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer() has ranks compare their weights once, as nothing else makes them equal but a broadcast that a program may lack."""
import ctypes


def compare(mpi_ops, name, process_set, checksum, cure):
    """Rank 0 warns where the ranks that call with this name have other checksums; nobody waits for that. `mpi_ops` is a framework's."""
    function = getattr(mpi_ops._basics.MPI_LIB_CTYPES, "horovod_paceline_compare_weights", None)
    if function is None:  # a compiled Horovod was installed since
        return
    function.argtypes, function.restype = [ctypes.c_char_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_char_p], None
    function(f"weights.{name}".encode(), process_set.process_set_id, checksum & (1 << 64) - 1, cure.encode())


_made = {}  # how many of a name there were: optimizers may have the same names of parameters


def _bits(torch, parameter):
    """The sum of the parameter's elements, whose bits are taken for integers."""
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
    """Let the optimizers of horovod.torch.optimizer compare before their first step changes anything."""
    synchronize = module._DistributedOptimizer.synchronize

    def synchronize_and_compare(self):
        if not self.__dict__.get("_paceline_compared"):
            self._paceline_compared = True
            process_set = getattr(self, "process_set", None)  # which an older Horovod, compiled and installed since, has not
            if process_set is not None and process_set.included() and process_set.size() > 1:
                _compare_torch(self)
        return synchronize(self)
    module._DistributedOptimizer.synchronize = synchronize_and_compare
