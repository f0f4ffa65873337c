# SPDX-License-Identifier: Apache-2.0
"""paceline_horovod.keras under the names of horovod.keras, for Keras 3."""
import sys

import keras

if int(keras.__version__.split(".")[0]) < 3:
    raise ImportError(f"horovod.keras for Keras {keras.__version__} is Horovod's own: HOROVOD_SKIP_COMPILE=1 pip install horovod==0.28.1 "
                      "&& paceline horovod")
import paceline_horovod.keras as _keras  # noqa: E402

sys.modules[f"{__name__}.callbacks"] = _keras.callbacks
sys.modules[__name__] = _keras
