/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Decides what the job runs: the command that starts the user's program, and the steps before it.
 *
 * Source  docs/contract.md, "Which program runs"
 * Test    tests/unit/entrypoint/test_jobs.c, tests/integration/contract.py
 */
#ifndef PL_ENTRYPOINT_LAUNCH_PROGRAM_H
#define PL_ENTRYPOINT_LAUNCH_PROGRAM_H

#include "entrypoint/job/job.h"
#include "entrypoint/launch/plan.h"

enum pl_program_kind {
    PL_PROGRAM_SCRIPT,  /* PY name */
    PL_PROGRAM_PACKAGE, /* PY -m module */
    PL_PROGRAM_COMMAND, /* ./name, or a binary of the image */
    PL_PROGRAM_GIVEN,   /* the job's command: the words after `--`, or the SDK's command */
    PL_PROGRAM_BUNDLED, /* the example program that is installed with Paceline */
};

struct pl_program {
    enum pl_program_kind kind;
    const char *python; /* the interpreter; NULL if the program needs none or none was found */
    /* the words that name the program, without the interpreter: "train.py", "-m" "pkg", "./prog", or a given command's
     * first word */
    struct pl_strv words;
    bool may_install; /* pip installs packages for the code, or may do so because the code is not there yet */
};

/**
 * Decide what kind of program the job names, and find it; its texts live as long as the plan. Adds to `plan` the steps
 * that install its requirements, the file whose execute bits are missing, and warnings.
 *
 * Errors  PL_NOT_FOUND: there is code but no program is named, its file does not exist, or Python does not.
 */
enum pl_status pl_program_find(const struct pl_job *job, struct pl_program *program, struct pl_launch_plan *plan,
                               struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Add the words that name the program, after the interpreter if it needs one, and after `launcher_module` (may be NULL)
 * as in `PY -m mpi4py name`.
 */
void pl_program_add_name(const struct pl_program *program, const char *launcher_module, struct pl_strv *words);

/**
 * Add the program's arguments: the hyperparameters, as the bytes that the program gets, or the arguments of the given
 * command.
 */
enum pl_status pl_program_add_arguments(const struct pl_job *job, const struct pl_program *program,
                                        struct pl_strv *words, struct pl_error *reterr) PL_MUST_CHECK;

/** Make the program with its arguments the plan's own process. */
enum pl_status pl_program_use(const struct pl_job *job, const struct pl_program *program, struct pl_launch_plan *plan,
                              struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Add the steps that install requirements.txt and the package in the code directory, whatever the kind of the program,
 * and set `program->may_install`. `pending`: the code has yet to be fetched.
 *
 * Errors  PL_NOT_FOUND, PL_UNSUPPORTED where the image lacks what a step needs.
 * Test    tests/integration/contract.py, tests/integration/codeartifact.py
 */
enum pl_status pl_requirements_add(const struct pl_job *job, struct pl_program *program, bool pending,
                                   struct pl_launch_plan *plan, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * A file in the code directory that marks the code as incomplete: it exists from the start of a fetch until its
 * success.
 */
#define PL_PROGRAM_UNFINISHED ".paceline-unfinished"

/** Whether the code directory holds code. Code that an earlier run fetched only in part does not count. */
bool pl_program_has_code(const struct pl_job *job);

/** Whether `path` is a regular file, and whether the code directory has such a file `name`. */
bool pl_program_is_file(const char *path);
bool pl_program_in_code(const struct pl_job *job, const char *name);

#endif
