/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The job description: everything under /opt/ml/input/config and in the container's environment that decides what this
 * host runs, read once and then not changed. Launchers and the supervisor look only at this.
 *
 * Source  docs/contract.md
 * Test    tests/unit/entrypoint/job/test_job.c, tests/integration/golden.py
 */
#ifndef PL_ENTRYPOINT_JOB_JOB_H
#define PL_ENTRYPOINT_JOB_JOB_H

#include "base/environment.h"
#include "base/json/python_json.h"
#include "base/status.h"
#include "entrypoint/job/drivers.h"
#include "entrypoint/job/settings.h"
#include "entrypoint/job/strv.h"

enum {
    PL_JOB_HOSTS_MAX = 4096,
    PL_JOB_PROCESSES_MAX = 65536,
    PL_JOB_MASTER_PORT = 7777, /* where torchrun's ranks meet, on the first host */
};

/** Absolute paths below the base directory (/opt/ml, or SAGEMAKER_BASE_DIR). */
struct pl_job_paths {
    char *base;
    char *code;
    char *input;
    char *input_config;
    char *input_data;
    char *model;
    char *output;
    char *output_data;
    char *output_intermediate;
};

struct pl_job_channel {
    const char *name;
    char *path; /* input/data/NAME */
};

/**
 * What kind of launch the hyperparameters ask for; the first that is switched on, in the order of the launcher table.
 */
struct pl_job_switches {
    bool mpi;
    bool parameter_server; /* TensorFlow's */
    bool native_server;    /* Paceline's own parameter servers */
    bool multi_worker_mirrored;
    bool torch_distributed;
    bool smddp; /* dataparallel or pytorch_ddp */
    bool xla;
};

struct pl_job {
    const struct pl_environment *process; /* the container's environment at start; not owned, outlives the job */
    const char *self_path;                /* absolute path of the paceline binary; not owned */
    struct pl_job_paths paths;

    /* resourceconfig.json */
    struct pl_python_json *resource; /* the whole file */
    const char *current_host;
    struct pl_strv hosts; /* order of the file */
    const char *network_interface;
    const char *instance_type;
    const char *group_name;
    const struct pl_python_json *groups;   /* instance_groups, NULL when absent */
    const struct pl_python_json *topology; /* NULL when absent or empty */

    /* inputdataconfig.json */
    struct pl_python_json *input_data; /* the whole file; an empty object when there is none */
    struct pl_job_channel *channels;
    size_t channels_count;

    struct pl_python_json *checkpoint_config; /* checkpointconfig.json; an empty object when there is none */
    const char *checkpoint_dir;               /* its LocalPath, NULL when it names none */

    /* hyperparameters.json, each value decoded once */
    struct pl_python_json *hyperparameters; /* the user's: name -> typed value, in file order */
    struct pl_python_json *framework;       /* sagemaker_* that are not consumed: SM_FRAMEWORK_PARAMS */
    struct pl_python_json *platform;        /* every sagemaker_* and the other reserved names */
    /* "PACELINE_NAME=value" from paceline_* hyperparameters; the environment wins */
    struct pl_strv setting_values;
    struct pl_job_settings settings;

    struct pl_drivers
        drivers; /* what version 3 of the SDK says: it comes first, hyperparameters decide what it leaves */
    struct pl_strv conflicts; /* sentences about what has no effect beside it */

    /* derived */
    const char *program; /* as given, NULL when none is named */
    /* the program of sagemaker_program, when SAGEMAKER_PROGRAM overrides it with another; NULL otherwise */
    const char *overridden_program;
    struct pl_strv
        command; /* the arguments after `--`, or the SDK's command: run instead of a program; usually empty */
    const char *requirements; /* the file in the code directory for pip; NULL: none */
    const char *submit_uri;   /* sagemaker_submit_directory, NULL when none */
    const char *module_dir;   /* submit_uri or the code directory */
    const char *job_name;     /* TRAINING_JOB_NAME, NULL when unset */
    const char *sagemaker_job_name;
    char *region;                     /* SAGEMAKER_REGION's value, "" when unknown */
    struct pl_python_json *log_level; /* an integer unless the hyperparameter says otherwise */
    const char *framework_module;     /* SAGEMAKER_TRAINING_MODULE, NULL when unset or empty */
    struct pl_strv user_args;         /* --name value ..., in the order and form of the Python toolkit */
    struct pl_job_switches switches;
    struct pl_strv distribution_groups;
    struct pl_strv distribution_hosts; /* may be empty; the first is the master */
    const char *master_host;           /* first distribution host, else first host */
    int distribution_index;            /* this host's index in distribution_hosts, -1 when it is not one */
    int host_index;                    /* this host's index in hosts */
    /* those that are not part of the distribution although its groups are named, and end when it does */
    struct pl_strv outside_hosts;
    int processes_per_host;          /* of this host, at least 1 */
    int *host_processes;             /* of each distribution host; 0: only the host itself knows, by its devices */
    int named_processes;             /* sagemaker_mpi_num_processes; 0: not given */
    int processes;                   /* over all distribution hosts */
    enum pl_log_level own_log_level; /* of Paceline's own lines */
    int devices;                     /* GPUs, else Neuron cores, else 1 */
    int cpus;
    int gpus;
    int neuron_cores;
    bool efa;        /* this host has an adapter, whatever its instance type is called */
    bool is_check;   /* not the job itself but the check of its hosts: see check/check.h */
    bool is_partial; /* from pl_job_new_partial() */
};

/**
 * Read the job of this host.
 *
 * `command` holds the arguments after `--` and may be NULL. Unknown files and keys are ignored; of the files only
 * resourceconfig.json must exist, and of its keys current_host and hosts.
 *
 * Errors  PL_NOT_FOUND (no resourceconfig.json), PL_INVALID with "FILE:LINE:COLUMN: expected ..., found ...", PL_LIMIT,
 *         PL_MEMORY.
 */
enum pl_status pl_job_new(const struct pl_environment *process, const char *self_path, const struct pl_strv *command,
                          struct pl_job **ret_job, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * What is known of a job that pl_job_new() has refused: this host and the job's hosts, and of the rest what could be
 * read. Good for notifying the other hosts and for nothing else: distribution_hosts and distribution_index are those
 * that are linked, the settings have values that they can have, and what is derived from other values may be absent.
 *
 * Errors  as pl_job_new(), where resourceconfig.json or a variable PACELINE_* is wrong.
 */
enum pl_status pl_job_new_partial(const struct pl_environment *process, const char *self_path, struct pl_job **ret_job,
                                  struct pl_error *reterr) PL_MUST_CHECK;

void pl_job_free(struct pl_job *job);
void pl_job_free_at(struct pl_job **job_at);

#define PL_AUTO_JOB __attribute__((cleanup(pl_job_free_at)))

/**
 * The base directory: SAGEMAKER_BASE_DIR when set and not empty, else "/opt/ml". Usable when the job cannot be read, to
 * place `output/failure`.
 */
const char *pl_job_base_dir(const struct pl_environment *process);

/** The program's arguments from the hyperparameters, in the form of who named the program. */
enum pl_status pl_job_set_arguments(struct pl_job *job, struct pl_error *reterr) PL_MUST_CHECK;

#endif
