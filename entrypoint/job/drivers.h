/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What version 3 of the SageMaker SDK says about a job: its channel sm_drivers holds sourcecode.json (what to run, and
 * where the code is) and distributed.json (over which processes), beside a script sm_train.sh that would do it.
 *
 * Source  docs/contract.md, "Version 3 of the SDK"
 * Test    tests/unit/entrypoint/job/test_drivers.c, tests/integration/sdk.py
 */
#ifndef PL_ENTRYPOINT_JOB_DRIVERS_H
#define PL_ENTRYPOINT_JOB_DRIVERS_H

#include "base/json/python_json.h"
#include "entrypoint/job/strv.h"

enum pl_drivers_launch {
    PL_DRIVERS_LAUNCH_OPEN, /* the files ask for none: hyperparameters may */
    PL_DRIVERS_LAUNCH_MPI,
    PL_DRIVERS_LAUNCH_TORCHRUN,
    PL_DRIVERS_LAUNCH_OTHER, /* a driver that is not the SDK's own: sm_train.sh runs it */
};

struct pl_drivers {
    struct pl_python_json *source;      /* sourcecode.json; NULL: the job comes from elsewhere, all else is unset */
    struct pl_python_json *distributed; /* distributed.json; an empty object if there is none */
    char *directory;                    /* the channel sm_drivers */
    char *script;                       /* its sm_train.sh */
    const char *entry_script;           /* NULL: none, or there is a command, which wins */
    const char *source_dir;             /* as the user's machine called it; NULL: the job brings no code */
    const char *requirements;           /* a file in the code directory; NULL: none is to be installed */
    /* a command for a shell, its arguments quoted after it; NULL: none, or `paceline train`, which names nothing */
    char *command;
    bool names_paceline; /* the command was `paceline train` or `paceline -- COMMAND` */
    bool ignores_driver; /* distributed.json asks for a launch, but a command is run without one */
    char *driver;        /* the script that sm_train.sh would run; "" where it runs none, or is not there */
    enum pl_drivers_launch launch;
    int processes_per_host; /* 0: not named */
    /* words for mpirun; NULL: none are named */
    const struct pl_python_json *mpi_options;
};

/**
 * Read the files below `input_data` (/opt/ml/input/data). A missing sourcecode.json is not an error.
 *
 * Errors  PL_INVALID "FILE:LINE:COLUMN: KEY: expected ..., found ...", PL_MEMORY. What was read before is kept.
 */
enum pl_status pl_drivers_read(const char *input_data, struct pl_drivers *ret_drivers,
                               struct pl_error *reterr) PL_MUST_CHECK;

/** The archive (.tar.gz) in the code directory that holds the code: its name there, else NULL. */
const char *pl_drivers_archive(const struct pl_drivers *drivers);

void pl_drivers_done(struct pl_drivers *drivers);

#endif
