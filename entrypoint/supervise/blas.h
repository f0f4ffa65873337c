/* SPDX-License-Identifier: Apache-2.0 */
/**
 * OpenBLAS's kernels for Python programs. The library takes a processor of Intel or AMD that is newer than itself for a
 * Prescott or a Barcelona, which had no AVX2, and is then four times as slow. It reads OPENBLAS_CORETYPE only while it
 * is loaded, so the variable has to be there when the program starts. Of the kernels with AVX-512 it is SkylakeX that
 * each version takes by name.
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
 * Asks the system's BLAS, libblas.so.3, in a child process which kernels it has chosen. `core` is their name, or empty
 * where there is no OpenBLAS. Returns the name of better kernels for this processor, or NULL.
 */
const char *pl_blas_better_core(char core[PL_BLAS_CORE_BYTES]);

/**
 * Sets OPENBLAS_CORETYPE for a program that is Python with Debian's numpy or torch, where there are better kernels. A
 * numpy from PyPI brings its own, newer library and is left alone. A variable that is set stays.
 */
enum pl_status pl_blas_set_core(const char *const *argv, struct pl_environment *environment,
                                struct pl_error *reterr) PL_MUST_CHECK;

#endif
