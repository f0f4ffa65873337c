# SPDX-License-Identifier: Apache-2.0
"""Under Keras 3 `horovod.tensorflow.keras` and `horovod.keras` are paceline_horovod.keras; under Keras 2 they are Horovod's own.

`horovod.tensorflow` also gets `callbacks`, which some tutorials use, and a DistributedGradientTape that takes variables of Keras 3; the optimizers of
`horovod.torch` compare the ranks' weights, and elastic states outlive the ranks of a job that is started again. No file of an installed Horovod is changed. Every start of a Python that has Horovod imports this module, so
it imports nothing itself.
"""
import sys

_OURS = {horovods + part: "paceline_horovod.keras" + part for horovods in ("horovod.tensorflow.keras", "horovod.keras") for part in ("", ".callbacks", ".elastic")}


def _version(name):
    """The version of Keras for which a module of this name is wanted: that of TensorFlow if a program has asked TensorFlow for Keras 2."""
    import os
    if name.startswith("horovod.tensorflow") or os.environ.get("TF_USE_LEGACY_KERAS") in ("true", "True", "1"):
        import tensorflow
        return getattr(tensorflow.keras, "__version__", "2")  # Keras 2.15 has no such attribute
    import keras
    return keras.__version__


class _Alias:
    """Loads a module that exists under another name."""

    def __init__(self, name):
        self._name = name

    def create_module(self, spec):
        import importlib
        return importlib.import_module(self._name)

    def exec_module(self, module):
        pass


def _add_keras(module):
    """Adds `callbacks`, imported at first use, and the tape to horovod.tensorflow."""
    import importlib

    def absent(name):
        if name == "callbacks":
            return importlib.import_module("horovod.tensorflow.keras.callbacks")
        raise AttributeError(f"module 'horovod.tensorflow' has no attribute '{name}'")
    vars(module).setdefault("__getattr__", absent)
    module.DistributedGradientTape = importlib.import_module("paceline_horovod.tape").with_keras(module.DistributedGradientTape)


def _add_comparison(module):
    import importlib
    importlib.import_module("paceline_horovod.weights").add_to_torch(module)


def _add_kept_state(module):
    import importlib
    importlib.import_module("paceline_horovod.elastic").add_to(module)


_ADDITIONS = {"horovod.tensorflow": _add_keras, "horovod.torch.optimizer": _add_comparison, "horovod.common.elastic": _add_kept_state}


class _With:
    """Loads Horovod's own module, and then calls `add` with it."""

    def __init__(self, loader, add):
        self._loader, self._add = loader, add

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def exec_module(self, module):
        self._loader.exec_module(module)
        self._add(module)


class _Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name not in _ADDITIONS and name not in _OURS:
            return None
        from importlib.machinery import ModuleSpec, PathFinder
        if name in _OURS:
            try:
                return ModuleSpec(name, _Alias(_OURS[name]), is_package=name.endswith("keras")) if int(_version(name).split(".")[0]) >= 3 else None
            except ImportError:
                return None  # Horovod's own error names what is missing
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _With(spec.loader, _ADDITIONS[name])
        return spec


if not any(finder is _Finder for finder in sys.meta_path):
    sys.meta_path.insert(0, _Finder)
