# SPDX-License-Identifier: Apache-2.0
"""paceline_horovod.tensorflow under the names of horovod.tensorflow."""
import sys

import paceline_horovod.tensorflow as _tensorflow

_tensorflow.__path__ = __path__
for part in ("mpi_ops", "compression", "functions"):
    sys.modules[f"{__name__}.{part}"] = vars(_tensorflow)[part] = _tensorflow
sys.modules[__name__] = _tensorflow
