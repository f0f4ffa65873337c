# SPDX-License-Identifier: Apache-2.0
"""paceline.py, which lies beside the examples where this is installed, under the names of horovod.torch."""
import os
import sys

try:
    import paceline
except ImportError:
    sys.path.append(os.path.realpath(os.path.dirname(os.path.realpath(__file__)) + "/../../../../share/paceline/examples/python"))
    import paceline

paceline.__path__ = []  # programs import these of it
for part in ("mpi_ops", "functions", "compression", "optimizer"):
    sys.modules[f"{__name__}.{part}"] = vars(paceline)[part] = paceline
sys.modules[__name__] = paceline
