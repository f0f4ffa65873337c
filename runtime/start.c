/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/start.h"

#include "base/memory.h"

#include <stdlib.h>

struct pl_runtime {
    struct pl_environment *environment;
    struct pl_bootstrap *bootstrap; /* NULL when the caller's */
    struct pl_world *world;
};

static void free_runtime(struct pl_runtime *runtime)
{
    pl_world_free(runtime->world);
    if (runtime->bootstrap) {
        pl_bootstrap_free(runtime->bootstrap);
    }
    pl_environment_free(runtime->environment);
    free(runtime);
}

static enum pl_status start(struct pl_runtime *runtime, struct pl_bootstrap *bootstrap, struct pl_error *reterr)
{
    struct pl_world_options options = {0};
    struct pl_knobs knobs;

    PL_TRY(pl_environment_new(&runtime->environment, reterr));
    PL_TRY(pl_knobs_resolve(runtime->environment, &knobs, reterr));
    options.knobs = &knobs;
    if (!bootstrap) {
        PL_TRY(pl_bootstrap_under_mpi() ? pl_bootstrap_new_mpi(NULL, &runtime->bootstrap, reterr)
                                        : pl_bootstrap_new_self(&runtime->bootstrap, reterr));
        bootstrap = runtime->bootstrap;
    }
    return pl_world_new(bootstrap, &options, &runtime->world, reterr);
}

enum pl_status pl_runtime_start_over(struct pl_bootstrap *bootstrap, struct pl_runtime **ret_runtime, struct pl_error *reterr)
{
    struct pl_runtime *runtime = pl_memory_new(1, sizeof(*runtime), reterr);
    enum pl_status status;

    if (!runtime) {
        return PL_MEMORY;
    }
    status = start(runtime, bootstrap, reterr);
    if (status != PL_OK) {
        free_runtime(runtime);
        return status;
    }
    *ret_runtime = runtime;
    return PL_OK;
}

enum pl_status pl_runtime_start(struct pl_runtime **ret_runtime, struct pl_error *reterr)
{
    return pl_runtime_start_over(NULL, ret_runtime, reterr);
}

struct pl_world *pl_runtime_world(const struct pl_runtime *runtime)
{
    return runtime->world;
}

const struct pl_environment *pl_runtime_environment(const struct pl_runtime *runtime)
{
    return runtime->environment;
}

void pl_runtime_stop(struct pl_runtime *runtime)
{
    if (runtime) {
        free_runtime(runtime);
    }
}
