/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a list of ranks. */
#include "collectives/core/ranks.h"

enum pl_status pl_ranks_check(const char *what, const int *ranks, int count, int size, struct pl_error *reterr)
{
    if (count < 1 || count > size) {
        return pl_error_set(reterr, PL_INVALID, "%s needs 1 to %d ranks, found %d", what, size, count);
    }
    for (int i = 0; i < count; i++) {
        if (ranks[i] < 0 || ranks[i] >= size) {
            return pl_error_set(reterr, PL_INVALID, "%s: %d is not a rank; there are %d ranks", what, ranks[i], size);
        }
        for (int earlier = 0; earlier < i; earlier++) {
            if (ranks[earlier] == ranks[i]) {
                return pl_error_set(reterr, PL_INVALID, "%s: rank %d is in the list twice", what, ranks[i]);
            }
        }
    }
    return PL_OK;
}
