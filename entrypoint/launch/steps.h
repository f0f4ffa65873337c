/* SPDX-License-Identifier: Apache-2.0 */
/** Steps: programs that run one after the other before the job's own program. */
#ifndef PL_ENTRYPOINT_LAUNCH_STEPS_H
#define PL_ENTRYPOINT_LAUNCH_STEPS_H

#include "base/environment.h"
#include "entrypoint/job/strv.h"

/**
 * A program that must exit with 0 before the next step starts (unpack, pip). Its last stderr lines go into the failure
 * file.
 */
struct pl_launch_plan_step {
    char *what;          /* "installing requirements.txt" */
    struct pl_strv argv; /* argv[0] is an absolute path, or is searched on PATH */
    char *cwd;           /* NULL: the base directory */
    bool is_probe;       /* a probe: its exit code is an answer and no failure */
    bool is_long;        /* it may take minutes: its beginning is logged */
    bool only_looks;     /* it changes nothing: `paceline plan` runs it too, if all steps before it only look */

    struct pl_environment *additions; /* its variables besides those of its phase; may be NULL */
};

struct pl_launch_plan_steps {
    struct pl_launch_plan_step *items;
    size_t count;
    size_t capacity;
};

/**
 * Add a step without words. `*ret_argv`, to which the caller adds the words, is valid until the next step is added.
 * `cwd` may be NULL.
 */
enum pl_status pl_steps_add(struct pl_launch_plan_steps *steps, const char *what, const char *cwd,
                            struct pl_strv **ret_argv, struct pl_error *reterr) PL_MUST_CHECK;

/** The same for a step in the base directory that only looks. */
enum pl_status pl_steps_add_look(struct pl_launch_plan_steps *steps, const char *what, struct pl_strv **ret_argv,
                                 struct pl_error *reterr) PL_MUST_CHECK;

/** Set a variable for the step that was added last. */
enum pl_status pl_steps_set(struct pl_launch_plan_steps *steps, const char *name, const char *value,
                            struct pl_error *reterr) PL_MUST_CHECK;

void pl_steps_done(struct pl_launch_plan_steps *steps);

#define PL_AUTO_STEPS __attribute__((cleanup(pl_steps_done)))

#endif
