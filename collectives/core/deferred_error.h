/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A failure that is not reported yet: where ranks call different collectives, moving their data fails as well, and the
 * check of the calls then has the better words, which name both sides. Internal to collectives/.
 */
#ifndef PL_COLLECTIVES_CORE_DEFERRED_ERROR_H
#define PL_COLLECTIVES_CORE_DEFERRED_ERROR_H

#include "base/status.h"

struct pl_deferred_error {
    bool failed;
    struct pl_error error; /* valid when `failed`: the caller's functions write it */
};

/** Report it once the calls are `checked` and equal, or that is waited for no longer; until then PL_OK. */
static inline enum pl_status pl_deferred_error_report(const struct pl_deferred_error *deferred, bool checked,
                                                      struct pl_error *reterr)
{
    if (!deferred->failed || !checked) {
        return PL_OK;
    }
    if (reterr) {
        *reterr = deferred->error;
    }
    return deferred->error.status;
}

#endif
