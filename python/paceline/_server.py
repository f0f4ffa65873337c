# SPDX-License-Identifier: Apache-2.0
"""Workers of parameter servers."""
from __future__ import annotations

import ctypes
import functools
import math
import os
import sys
from typing import Any, Dict, Iterable, Optional, Tuple, Union

from ._library import InvalidError, _Optimizer, _ServerOptions, _Table, _call, _library
from ._operations import _gpu_of, _is_torch, _view, numpy

_SERVER_KINDS = ["sgd", "adam", "adamw", "adagrad"]  # enum pl_optimizer_kind


class Server:
    """This process as a worker of Paceline's parameter servers (docs/parameter-servers.md), one of which has started it. A process joins once, without init().

    `arrays` are initial values by name, float32, in the order of the forward pass, with the same names and shapes in all workers. Worker 0's values are used.
    Arrays of the same kinds are in `values`, which step() updates, and in `gradients`, where a program may compute in place.
    The servers apply `optimizer` (one of _SERVER_KINDS, with torch's options) at the rate `lr`, which may be set before each step.
    `staleness` is "none" or a number; None means the setting ps_staleness. `tables` describe rows by id that only the servers hold: {"users": dict(columns=64,
    bound=0.05, seed=1, optimizer="adagrad", lr=0.1, eps=1e-8)}. Initial values are drawn from -bound to bound by seed and id; without bound they are
    zeros. The optimizer is "adagrad" or "sgd"."""

    def __init__(self, arrays: Dict[str, Any], optimizer: str = "sgd", lr: float = 0.01, staleness: Union[str, int, None] = None, momentum: float = 0.0,
                 nesterov: bool = False, betas: Tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0,
                 tables: Optional[Dict[str, Dict[str, Any]]] = None) -> None:
        if optimizer not in _SERVER_KINDS or not min(eps, *betas) > 0:
            raise ValueError(f"optimizer is one of {', '.join(_SERVER_KINDS)}, eps and betas are above 0; not {optimizer!r}, {eps}, {betas}")
        for name, array in arrays.items():
            if _gpu_of(array) is not None or _view(array)[2] != "float32":
                raise TypeError(f"'{name}': a parameter server has float32 in host memory, not {array.dtype}{'' if _gpu_of(array) is None else ' on a GPU'}")
        self.lr, self._indices, self._tables, self._runtime, self._server = lr, {}, {}, ctypes.c_void_p(), ctypes.c_void_p()
        options = _ServerOptions(_Optimizer(_SERVER_KINDS.index(optimizer), momentum, nesterov, weight_decay, *betas, eps),
                                 staleness=None if staleness is None else str(staleness).encode())
        _call(_library.pl_runtime_start, ctypes.byref(self._runtime))
        options.trace = _library.pl_runtime_trace(self._runtime)
        world = ctypes.c_void_p(_library.pl_runtime_world(self._runtime))
        _call(_library.pl_server_new, world, ctypes.byref(options), ctypes.byref(self._server))
        self._plan = ctypes.c_void_p(_library.pl_server_plan(self._server))
        for name, array in arrays.items():
            self._indices[name], dims = ctypes.c_size_t(), len(array.shape)
            _call(_library.pl_plan_add, self._plan, name.encode(), dims, (ctypes.c_uint64 * dims)(*array.shape), ctypes.byref(self._indices[name]))
        for name, options in (tables or {}).items():
            self._add_table(name, **options)
        _call(_library.pl_server_join, self._server)
        self.worker, self.workers = _library.pl_server_worker(self._server), _library.pl_server_workers(self._server)
        self.local_worker, self.local_workers = _library.pl_server_local_worker(self._server), _library.pl_server_local_workers(self._server)
        self.values, self.gradients = ({name: self._array(name, what, array) for name, array in arrays.items()} for what in ("value", "gradient"))
        for name, array in arrays.items():
            self._put(self.values[name], array)
        _call(_library.pl_server_start, self._server)
        _call(_library.pl_abi_leave_servers_at_exit, self._runtime, self._server)  # the library keeps the arrays until then

    def _array(self, name, what, like):
        """The library's memory of a tensor, as an array of the same kind as `like`."""
        tensor = _library.pl_plan_tensor(self._plan, self._indices[name]).contents
        array = numpy.frombuffer((ctypes.c_float * tensor.count_elems).from_address(getattr(tensor, what)), numpy.float32).reshape(like.shape)
        return sys.modules["torch"].from_numpy(array) if _is_torch(like) else array

    @staticmethod
    def _put(target, source):
        if _is_torch(source):
            source = (source if source.layout is sys.modules["torch"].strided else source.to_dense()).detach().float().numpy()
        (target.numpy() if _is_torch(target) else target)[...] = source

    def push(self, gradients: Dict[str, Any]) -> None:
        """Hand over gradients by name, each once per step, as soon as they are computed: they are sent in the background. wait() ends the step."""
        _library.pl_server_set_rate(self._server, ctypes.c_double(self.lr))  # the rate may change until the step's first piece is sent
        for name, gradient in gradients.items():
            own = self.gradients.get(name)
            if own is None or numpy.shape(gradient) != numpy.shape(own):
                raise InvalidError(f"'{name}': a gradient of shape {tuple(numpy.shape(gradient))}, and " +
                                   ("there is no such array" if own is None else f"the array has {tuple(own.shape)}"))
            if gradient is not own:
                self._put(own, gradient)
            _call(_library.pl_plan_ready, self._plan, self._indices[name])

    def wait(self) -> None:
        """End the step: gradients that were not pushed count as zeros. On return the servers have applied the step, and `values` are the newest."""
        self.push({})
        _call(_library.pl_server_step, self._server)

    def step(self, gradients: Dict[str, Any]) -> None:
        """push() and wait()."""
        self.push(gradients)
        self.wait()

    def pull(self) -> None:
        """Get the newest values without a step, to evaluate them."""
        _call(_library.pl_server_pull, self._server)

    def assign(self) -> None:
        """Copy `values`, which the program has changed, to the servers."""
        _call(_library.pl_server_assign, self._server)

    def sum(self, values: Any = ()) -> Any:
        """The sums of `values` over all workers, as float64; without values it is a barrier. All workers that have not left call it."""
        total = numpy.array(values, numpy.float64, order="C")
        _call(_library.pl_server_sum, self._server, ctypes.c_void_p(total.ctypes.data), ctypes.c_size_t(total.size))
        return total if total.ndim else float(total)

    def _add_table(self, name, columns, bound=0.0, seed=0, optimizer="sgd", lr=0.01, eps=1e-8):
        if optimizer not in ("sgd", "adagrad"):
            raise ValueError(f"'{name}': a table's optimizer is sgd or adagrad, not {optimizer!r}")
        number, kind = ctypes.c_size_t(), _SERVER_KINDS.index(optimizer)
        table = _Table(name.encode(), columns, int(bound > 0), bound, seed, kind, lr, eps if optimizer == "adagrad" else 0.0)
        _call(_library.pl_server_rows_add, self._server, ctypes.byref(table), ctypes.byref(number))
        self._tables[name] = number, columns

    def _table(self, name):
        if name not in self._tables:
            raise InvalidError(f"'{name}': there is no such table")
        return self._tables[name]

    def _list_rows(self, call, table, ids, rows):
        _call(call, self._server, self._table(table)[0], ctypes.c_void_p(_view(ids)[0]), ctypes.c_uint64(math.prod(ids.shape)), ctypes.c_void_p(_view(rows)[0]))

    def pull_rows(self, table: str, ids: Any) -> Any:
        """The rows of `ids`, which are whole numbers in an array or tensor of any shape. The result is of the same kind, float32, and has the columns as one
        more dimension."""
        ids = ids.detach().long().contiguous() if _is_torch(ids) else numpy.ascontiguousarray(ids, numpy.int64)
        shape = (*ids.shape, self._table(table)[1])
        rows = sys.modules["torch"].empty(shape) if _is_torch(ids) else numpy.empty(shape, numpy.float32)
        self._list_rows(_library.pl_server_rows_pull, table, ids, rows)
        return rows

    def push_rows(self, table: str, ids: Any, gradients: Any) -> None:
        """Take a step with the rows of `ids`; `gradients` have the shape that pull_rows() returns. Gradients of the same id are added up first."""
        ids, gradients = (array.detach().cpu().numpy() if _is_torch(array) else array for array in (ids, gradients))
        ids, gradients = numpy.ascontiguousarray(ids, numpy.int64), numpy.ascontiguousarray(gradients, numpy.float32)
        if gradients.shape != (*ids.shape, self._table(table)[1]):
            raise InvalidError(f"'{table}': gradients of shape {gradients.shape}, and ids and columns have {(*ids.shape, self._table(table)[1])}")
        self._list_rows(_library.pl_server_rows_push, table, ids, gradients)

    def count_rows(self, table: str) -> int:
        """The number of rows that the servers keep, since they were pushed."""
        count = ctypes.c_uint64()
        _call(_library.pl_server_rows_count, self._server, self._table(table)[0], ctypes.byref(count))
        return count.value

    def save_rows(self, table: str, directory: Union[str, os.PathLike]) -> None:
        """Each server writes its part of the table to that directory. One worker calls it, after sum() as a barrier."""
        _call(_library.pl_server_rows_save, self._server, self._table(table)[0], os.fspath(directory).encode())

    def load_rows(self, table: str, directory: Union[str, os.PathLike]) -> None:
        """Replace the table by what was saved in that directory. One worker calls it, between two barriers."""
        _call(_library.pl_server_rows_load, self._server, self._table(table)[0], os.fspath(directory).encode())

    def leave(self) -> None:
        """Leave the job; the other workers continue. A program that succeeds leaves by itself."""
        _call(_library.pl_server_leave, self._server)

    __enter__ = lambda self: self

    def __exit__(self, kind, *_):
        if kind is None:  # a worker that failed does not leave: the servers treat it as lost
            self.leave()


class _Served:
    """The base class that ServerOptimizer() puts before an optimizer's own class."""

    def _serve(self, kind, named, staleness, overlap):
        self._kind, self._options, self._sent, self._hooks, self._problem = kind, None, {}, [], None
        self._options = self._wanted()
        self._served = {name: parameter for name, parameter in named if parameter.requires_grad}
        if {id(parameter) for parameter in self._served.values()} != {id(p) for group in self.param_groups for p in group["params"] if p.requires_grad}:
            raise ValueError("named_parameters are not the parameters of the optimizer; model.named_parameters() gives them")
        self.server = Server({name: parameter.detach().contiguous() for name, parameter in self._served.items()}, kind, staleness=staleness, **self._options)
        for name, parameter in self._served.items():
            parameter.data = self.server.values[name]
            if overlap:
                self._hooks.append(parameter.expand_as(parameter).grad_fn.next_functions[0][0])  # its hook runs when the gradient of this pass is complete
                self._hooks[-1].register_hook(functools.partial(self._passed, name, parameter))

    def _wanted(self):
        """The options of the groups. They must be the same in all groups, and all but lr the same in all steps."""
        names = ["dampening", "amsgrad", "maximize", "lr_decay", "initial_accumulator_value"] + ["decoupled_weight_decay"] * (self._kind == "adam")
        refused = [name for name in names if any(group.get(name) for group in self.param_groups)]
        if refused:
            raise ValueError(f"parameter servers do not have {refused[0]}")
        names = ["lr", "momentum", "nesterov", "betas", "eps", "weight_decay"]
        wanted, *others = ({name: group[name] for name in names if name in group} for group in self.param_groups)
        if any(options != wanted for options in others):
            raise ValueError(f"the groups' options differ, {wanted} and {others}: parameter servers have one optimizer for all parameters")
        if {**(self._options or wanted), "lr": wanted["lr"]} != wanted:
            raise ValueError(f"options are {wanted} after {self._options}: lr alone may change")
        return {**wanted, "lr": float(wanted["lr"])}

    def _send(self, name, parameter):
        if not self._sent:
            self.server.lr = self._wanted()["lr"]
        self.server.push({name: parameter.grad})
        self._sent[name] = parameter.grad, parameter.grad._version

    def _passed(self, name, parameter, *_):
        """Runs in the backward pass. An exception there would keep torch's graph alive beyond the interpreter's exit, so step() raises it."""
        if self._problem is None and name not in self._sent:
            try:
                self._send(name, parameter)
            except Exception as error:
                self._problem = error

    def step(self, closure=None):
        with sys.modules["torch"].enable_grad():
            loss = closure() if closure else None
        problem, self._problem = self._problem, None
        if problem is not None:
            raise problem
        sent_at, self.server.lr = self.server.lr, self._wanted()["lr"]
        for name, parameter in self._served.items():
            sent, grad = self._sent.get(name), parameter.grad
            if sent and (sent_at != self.server.lr or grad is not sent[0] or grad._version != sent[1]):
                raise ValueError(f"lr or the gradient of '{name}' was changed between backward() and step(), when it had been sent; with overlap=False "
                                 "gradients are sent in step()")
            if not sent and grad is not None:
                self._send(name, parameter)
        self.server.wait()
        self._sent.clear()
        return loss

    step.hooked = True  # otherwise torch would run the optimizer's step hooks here too, before the gradients are complete

    def zero_grad(self, *arguments, **keywords):
        if self._sent:
            raise AssertionError("zero_grad() between backward() and step() would clear gradients that have been sent")
        return super().zero_grad(*arguments, **keywords)

    def add_param_group(self, param_group):
        raise ValueError("add_param_group(): a worker's parameters are those it joined with; add them before ServerOptimizer()")


def ServerOptimizer(optimizer: Any, named_parameters: Iterable[Tuple[str, Any]], staleness: Union[str, int, None] = None, overlap: bool = True) -> Any:
    """Make parameter servers (see Server) do the step() of a torch.optim.SGD, Adam, AdamW or Adagrad; this call joins them. Returns the same object.

    The model's parameters become `values` of its `server`. Gradients are sent as soon as the backward pass has computed them; step() waits for the newest
    values. Schedulers work: they set the lr of param_groups, which must be equal in all groups. With `overlap` False gradients are sent in step(), for
    programs that change them after backward() or call backward() several times. Frozen parameters are not changed, nor are values that are not parameters,
    such as the statistics of a BatchNorm."""
    torch = sys.modules["torch"]
    kinds = dict(zip((torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad), _SERVER_KINDS))
    if type(optimizer) not in kinds:
        raise ValueError(f"parameter servers have SGD, Adam, AdamW and Adagrad, not {type(optimizer).__name__}")
    vars(optimizer).pop("step", None)  # a scheduler that was made before has replaced the class's step() by its own
    kind = kinds[type(optimizer)]
    optimizer.__class__ = type(type(optimizer).__name__, (_Served, type(optimizer)), {})
    optimizer._serve(kind, named_parameters, staleness, overlap)
    return optimizer
