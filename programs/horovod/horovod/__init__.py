# SPDX-License-Identifier: Apache-2.0
"""The names that programs made for Horovod import, for Pythons without Horovod's package: PYTHONPATH names the folder that this lies in.

An installed Horovod comes first all the same: then this module becomes it. Otherwise horovod.torch is paceline.py, and horovod.tensorflow,
horovod.tensorflow.keras and horovod.keras are paceline_horovod's. `horovodrun` and horovod.run() come with the package only.
"""
import os
import sys
from importlib.machinery import PathFinder

_folder = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
_spec = PathFinder.find_spec("horovod", [entry for entry in sys.path if os.path.realpath(entry) != _folder])
if _spec is not None and _spec.loader is not None:
    __path__, __file__, __spec__ = list(_spec.submodule_search_locations), _spec.origin, _spec
    import paceline_horovod.redirect  # noqa: F401  as beside an installed one
    _spec.loader.exec_module(sys.modules[__name__])
else:
    __version__ = "0.28.1"

    def __getattr__(name):
        raise AttributeError(f"horovod has no '{name}' without Horovod's package: HOROVOD_SKIP_COMPILE=1 pip install horovod==0.28.1 && paceline horovod")
