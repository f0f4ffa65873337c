# SPDX-License-Identifier: Apache-2.0
"""Horovod's elastic states in a job that may be started again after a failure (paceline_max_restarts): rank 0's commit() also keeps what the state has saved,
in memory that outlives the ranks, and the first sync() of a later attempt begins with it. Then the reset callbacks are called, as after a change of hosts."""
import ctypes
import functools
import os
import pickle
import sys

_SAVED = {  # where a class keeps what its save() has copied
    "ObjectState": ("_saved_state",),
    "TorchState": ("_saved_state", "_handlers"),
    "TensorFlowState": ("_saved_state", "_values"),
    "TensorFlowKerasState": ("_saved_state", "_saved_model_state", "_saved_optimizer_state"),
}
_OF_HANDLERS = ("_saved_model_state", "_saved_optimizer_state", "_saved_sampler_state")
_warned = []


def _library(state):
    """On rank 0 the framework's module with the C functions; None on others, and where a compiled Horovod was installed later."""
    if getattr(state, "_rank", lambda: 0)() != 0:
        return None
    for name in ("horovod.torch.mpi_ops", "horovod.tensorflow.mpi_ops"):
        basics = getattr(sys.modules.get(name), "_basics", None)
        library = getattr(basics, "MPI_LIB_CTYPES", None)
        if hasattr(library, "horovod_paceline_keep"):
            library.horovod_paceline_keeps.restype = ctypes.c_bool
            library.horovod_paceline_keep.argtypes, library.horovod_paceline_keep.restype = [ctypes.c_uint64, ctypes.c_char_p, ctypes.c_size_t], None
            library.horovod_paceline_kept.restype = ctypes.c_void_p
            return library
    return None


def _names(state):
    return next((_SAVED[kind.__name__] for kind in type(state).__mro__ if kind.__name__ in _SAVED and kind.__module__.startswith("horovod.")), None)


def _saved(state, names):
    """What save() has copied, with a handler's copies under its name."""
    saved = {name: getattr(state, name) for name in names if name != "_handlers"}
    if "_handlers" in names:
        saved["_handlers"] = {key: {name: value for name, value in vars(handler).items() if name in _OF_HANDLERS} for key, handler in state._handlers.items()}
    return saved


def _take(state, saved):
    for name, value in saved.items():
        if name != "_handlers":
            setattr(state, name, value)
    for key, values in saved.get("_handlers", {}).items():
        vars(state._handlers[key]).update(values)
    state.restore()


def _fits(state, saved):
    handlers = saved.get("_handlers", {})
    return set(saved) == set(_names(state)) and handlers.keys() == getattr(state, "_handlers", {}).keys() and saved["_saved_state"].keys() == state._saved_state.keys()


def _warn(text):
    if text not in _warned:
        _warned.append(text)
        print(f"paceline: warning: {text}", file=sys.stderr, flush=True)


def _keep(state):
    library, names = _library(state), _names(state)
    if not library or not library.horovod_paceline_keeps():
        return
    if not names:
        _warn(f"{type(state).__name__} is none of {', '.join(_SAVED)}: what it commits is not kept for a job that is started again")
        return
    state._paceline_commits = getattr(state, "_paceline_commits", 0) + 1
    try:
        data = b"hvd1" + pickle.dumps((type(state).__qualname__, _saved(state, names)), protocol=4)
    except Exception as error:  # classes of the program's may raise any
        _warn(f"what {type(state).__name__} commits is not kept for a job that is started again: pickle cannot write it ({error})")
        return
    library.horovod_paceline_keep(state._paceline_commits, data, len(data))


def _go_on(state):
    """Whether rank 0 has put what was kept into the state."""
    library, commit, size = _library(state), ctypes.c_uint64(), ctypes.c_size_t()
    at = library.horovod_paceline_kept(ctypes.byref(commit), ctypes.byref(size)) if library and _names(state) else None
    data = ctypes.string_at(at, size.value) if at else b""
    if not data.startswith(b"hvd1"):
        return False
    kind, saved = pickle.loads(data[4:])
    if kind != type(state).__qualname__ or not _fits(state, saved):
        _warn("the kept state is of another program: it is not used")
        return False
    _take(state, saved)
    state._paceline_commits = commit.value
    return True


def add_to(module):
    """Adds this to horovod.common.elastic."""
    plain = module.run_fn

    def commit(self):
        self.save()
        _keep(self)
        self.check_host_updates()
    module.State.commit = functools.wraps(module.State.commit)(commit)

    def run_fn(func, reset):
        going_on = []

        @functools.wraps(func)
        def begin(state, *args, **kwargs):
            if going_on and going_on.pop():
                state.on_reset()
            return func(state, *args, **kwargs)
        run = plain(begin, reset)

        @functools.wraps(func)
        def wrapper(state, *args, **kwargs):
            if int(os.environ.get("PACELINE_RESTART") or 0) > 0 and hasattr(state, "_bcast_object"):
                going_on.append(state._bcast_object(_go_on(state)))
            return run(state, *args, **kwargs)
        return wrapper
    module.run_fn = run_fn
