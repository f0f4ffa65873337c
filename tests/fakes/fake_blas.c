/* SPDX-License-Identifier: Apache-2.0 */
/* An OpenBLAS that is older than the processor, which it takes for a Prescott unless OPENBLAS_CORETYPE is set. */
#include <stdlib.h>

const char *openblas_get_corename(void);
const char *openblas_get_corename(void)
{
    const char *named = getenv("OPENBLAS_CORETYPE");

    return named ? named : "Prescott";
}
