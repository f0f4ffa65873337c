/* SPDX-License-Identifier: Apache-2.0 */
/**
 * OpenBLAS's kernels for Python programs. OpenBLAS treats an Intel or AMD processor that is newer than the library as a
 * Prescott or a Barcelona, which have no AVX2, and is then four times as slow. It reads OPENBLAS_CORETYPE only while it
 * is loaded, so the variable must be set before the program starts. Of the kernels with AVX-512, SkylakeX is the one
 * whose name every version knows.
 *
 * Source  OpenBLAS 0.3.21, driver/others/dynamic.c
 * Test    tests/integration/contract.py, an_openblas_older_than_the_processor
 */
#ifndef PL_ENTRYPOINT_SUPERVISE_BLAS_H
#define PL_ENTRYPOINT_SUPERVISE_BLAS_H

#include "base/environment.h"

#define PL_BLAS_VARIABLE "OPENBLAS_CORETYPE"

enum { PL_BLAS_CORE_BYTES = 32 };

/**
 * Asks the system's BLAS, libblas.so.3, in a child process which kernels it has chosen. `core` receives their name, or
 * "" if there is no OpenBLAS. Returns the name of better kernels for this processor, or NULL.
 */
const char *pl_blas_better_core(char core[PL_BLAS_CORE_BYTES]);

/**
 * Sets OPENBLAS_CORETYPE for a Python program that uses Debian's numpy or torch, if there are better kernels. A numpy
 * from PyPI brings its own, newer library and is left alone. If the variable is set already, it stays.
 */
enum pl_status pl_blas_set_core(const char *const *argv, struct pl_environment *environment,
                                struct pl_error *reterr) PL_MUST_CHECK;

#endif
