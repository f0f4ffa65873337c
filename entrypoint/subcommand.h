/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The subcommands of the front binary: main.c finds the subcommand by the first argument and calls one of these
 * functions. The result is the exit code.
 */
#ifndef PL_ENTRYPOINT_SUBCOMMAND_H
#define PL_ENTRYPOINT_SUBCOMMAND_H

#include "base/environment.h"
#include "entrypoint/job/strv.h"

struct pl_invocation {
    int argc; /* the subcommand's name and its arguments, as a program has them */
    char **argv;
    struct pl_strv words;                     /* the arguments alone; owned by the caller */
    const struct pl_environment *environment; /* the environment of this process at its start */
    const char *self_path;                    /* absolute path of this binary */
};

/** `paceline train`, and `paceline -- COMMAND`. With the latter, the arguments are the command. */
int pl_train_main(const struct pl_invocation *call);
/** Refuses the arguments of `paceline train`. If there is a job, its failure file says so too. */
int pl_train_refuse(const struct pl_invocation *call, bool has_job);
/** `paceline check`: like train, but runs the check of the job's hosts instead of the job. */
int pl_check_main(const struct pl_invocation *call);
int pl_rank_main(const struct pl_invocation *call);
/** The main function if the binary was started as PL_RUNDIR_PYTHON: torchrun starts a rank so. */
int pl_rank_python_main(const struct pl_invocation *call);

int pl_subcommand_plan_main(const struct pl_invocation *call);
int pl_subcommand_plan_env_main(const struct pl_invocation *call);

#endif
