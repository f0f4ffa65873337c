/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The files of version 3 of the SageMaker SDK. Its channel sm_drivers holds sourcecode.json (what to run, and where the
 * code is), distributed.json (on how many processes), and a script sm_train.sh that would run the job itself.
 *
 * Source  docs/sdk.md, "What version 3 starts"
 * Test    tests/unit/entrypoint/test_jobs.c, tests/integration/sdk.py
 */
#ifndef PL_ENTRYPOINT_JOB_DRIVERS_H
#define PL_ENTRYPOINT_JOB_DRIVERS_H

#include "base/json/python_json.h"
#include "entrypoint/job/strv.h"

enum pl_drivers_launch {
    PL_DRIVERS_LAUNCH_OPEN, /* the files name no launcher; hyperparameters may name one */
    PL_DRIVERS_LAUNCH_MPI,
    PL_DRIVERS_LAUNCH_TORCHRUN,
    PL_DRIVERS_LAUNCH_OTHER, /* a driver that does not belong to the SDK: sm_train.sh runs it */
};

struct pl_drivers {
    /* sourcecode.json; NULL if the job comes from elsewhere, and then no other field is set */
    struct pl_python_json *source;
    struct pl_python_json *distributed; /* distributed.json; an empty object if there is none */
    const char *directory;              /* path of the channel sm_drivers */
    const char *script;                 /* path of sm_train.sh in this channel */
    const char *entry_script;           /* NULL if there is none, or if there is a command, which takes precedence */
    const char *source_dir;             /* path of the code on the user's machine; NULL if the job brings no code */
    const char *archive;                /* the archive (.tar.gz) in the code directory that holds the code, or NULL */
    const char *requirements;           /* a file in the code directory; NULL if nothing is to be installed */
    /* a command for a shell, followed by its quoted arguments; NULL if there is none, or if it is `paceline train` */
    const char *command;
    bool names_paceline; /* the command was `paceline train` or `paceline -- COMMAND` */
    bool ignores_driver; /* distributed.json asks for a launch, but the command is run without it */
    const char *driver;  /* the script that sm_train.sh would run; "" if it runs none, or if there is no sm_train.sh */
    enum pl_drivers_launch launch;
    int processes_per_host; /* 0 if the files give no number */
    /* words for mpirun; NULL if there are none */
    const struct pl_python_json *mpi_options;
};

struct pl_job;

/**
 * Read the files below the job's input/data into job->drivers. A missing sourcecode.json is not an error.
 *
 * Errors  PL_INVALID "FILE:LINE:COLUMN: KEY: expected ..., found ...", PL_MEMORY. Values that were read before are
 * kept.
 */
enum pl_status pl_drivers_read(struct pl_job *job, struct pl_error *reterr) PL_MUST_CHECK;

void pl_drivers_done(struct pl_drivers *drivers);

/*
 * The files take precedence over hyperparameters, and hyperparameters decide what the files leave open. Values without
 * an effect are listed in job->conflicts.
 */

/** Choose program, command, code directory and requirements. Call it after the hyperparameters have been read. */
enum pl_status pl_drivers_choose_program(struct pl_job *job, struct pl_error *reterr) PL_MUST_CHECK;

/** Choose the launch: job->launches. */
void pl_drivers_choose_launch(struct pl_job *job);

#endif
