# SPDX-License-Identifier: Apache-2.0
"""Allreduce: each rank gives a vector, and each rank gets the sum of all vectors.

    PYTHONPATH=../python mpirun -n 2 python3 01_allreduce.py
"""
import numpy

import paceline

paceline.init()
x = numpy.arange(4, dtype=numpy.float32) + paceline.rank()
paceline.allreduce_(x, op=paceline.Sum, name="x")  # in place; operations of the ranks with the same name belong together
print(f"rank {paceline.rank()} of {paceline.size()}:", *(f"{value:g}" for value in x), flush=True)
