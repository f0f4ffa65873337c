# SPDX-License-Identifier: Apache-2.0
"""Additions to Horovod's own Python files: horovod.tensorflow.keras for Keras 3, in `keras`, and others in `redirect`.

`paceline horovod` puts this package beside an installed Horovod, and makes Python import `redirect` at its start. Importing either costs nothing
until a program imports Horovod.
"""
