/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A failure that is not reported yet. If ranks call different collectives, moving their data fails as well, but the
 * check of the calls gives the better message, which names both sides. Internal to collectives/.
 */
#ifndef PL_COLLECTIVES_CORE_DEFERRED_ERROR_H
#define PL_COLLECTIVES_CORE_DEFERRED_ERROR_H

#include "base/status.h"

struct pl_deferred_error {
    bool failed;
    struct pl_error error; /* valid if `failed`; the caller writes it */
};

/**
 * Report the failure if `checked`: the calls are equal, or the check is not waited for any longer. Until then PL_OK.
 */
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
