# SPDX-License-Identifier: Apache-2.0
"""What programs that import Horovod have besides Horovod's own Python: horovod.tensorflow.keras for Keras 3, in `keras`, and more in `redirect`.

`paceline horovod` puts this package beside an installed Horovod, and has Python import `redirect` at its start. Importing either costs nothing
until a program imports Horovod.
"""
