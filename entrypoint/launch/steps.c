/* SPDX-License-Identifier: Apache-2.0 */
/* Builds a plan's list of steps. */
#include "entrypoint/launch/steps.h"

#include "base/environment.h"
#include "base/memory.h"

#include <stdlib.h>

enum pl_status pl_steps_add(struct pl_launch_plan_steps *steps, const char *what, const char *cwd,
                            struct pl_strv **ret_argv, struct pl_error *reterr)
{
    PL_AUTO_FREE char *own_what = pl_memory_string(what, reterr);
    PL_AUTO_FREE char *own_cwd = cwd ? pl_memory_string(cwd, reterr) : NULL;
    struct pl_launch_plan_step *step;

    if (!own_what || (cwd && !own_cwd)) {
        return PL_MEMORY;
    }
    PL_TRY(pl_memory_grow(&steps->items, &steps->capacity, steps->count + 1, sizeof(*steps->items), reterr));
    step = &steps->items[steps->count++];
    *step = (struct pl_launch_plan_step){.what = PL_TAKE(own_what), .cwd = PL_TAKE(own_cwd), .argv = PL_STRV_NONE};
    *ret_argv = &step->argv;
    return PL_OK;
}

enum pl_status pl_steps_add_look(struct pl_launch_plan_steps *steps, const char *what, struct pl_strv **ret_argv,
                                 struct pl_error *reterr)
{
    PL_TRY(pl_steps_add(steps, what, NULL, ret_argv, reterr));
    steps->items[steps->count - 1].only_looks = true;
    return PL_OK;
}

enum pl_status pl_steps_set(struct pl_launch_plan_steps *steps, const char *name, const char *value,
                            struct pl_error *reterr)
{
    struct pl_launch_plan_step *step = &steps->items[steps->count - 1];

    if (!step->additions) {
        PL_TRY(pl_environment_new_empty(&step->additions, reterr));
    }
    return pl_environment_set(step->additions, name, value, reterr);
}

void pl_steps_done(struct pl_launch_plan_steps *steps)
{
    for (size_t i = 0; i < steps->count; i++) {
        free(steps->items[i].what);
        free(steps->items[i].cwd);
        pl_strv_done(&steps->items[i].argv);
        pl_environment_free(steps->items[i].additions);
    }
    free(steps->items);
    *steps = (struct pl_launch_plan_steps){.items = NULL};
}
