/* SPDX-License-Identifier: Apache-2.0 */
#include "entrypoint/region.h"

#include "base/memory.h"
#include "s3io/profile.h"

enum pl_status pl_region_default(const struct pl_environment *environment, char **ret_region, struct pl_error *reterr)
{
    PL_AUTO_PROFILE struct pl_profile profile = {.access_key = NULL};
    const char *region = pl_environment_get_or(environment, "AWS_DEFAULT_REGION", NULL);

    if (!region && pl_profile_read(environment, &profile, NULL) == PL_OK) {
        region = profile.region; /* files that cannot be read say nothing; who needs their keys says so */
    }
    *ret_region = pl_memory_string(region ? region : "", reterr);
    return *ret_region ? PL_OK : PL_MEMORY;
}
