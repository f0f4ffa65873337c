/* SPDX-License-Identifier: Apache-2.0 */
/** The square root for programs without libm. It uses only +, * and /, so that the result is the same everywhere. */
#ifndef PL_PROGRAMS_SWEEP_ROOT_H
#define PL_PROGRAMS_SWEEP_ROOT_H

/** Returns the square root of a finite number, or 0 for numbers up to 0. Newton's iteration, from above. */
static inline double pl_sweep_root(double number)
{
    double root = number > 1 ? number : 1;
    double next = root / 2 + number / root / 2;

    if (!(number > 0)) {
        return 0;
    }
    while (next < root) {
        root = next;
        next = root / 2 + number / root / 2;
    }
    return root;
}

#endif
