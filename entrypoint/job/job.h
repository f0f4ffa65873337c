/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The job description: everything in /opt/ml/input/config and in the container's environment that decides what this
 * host runs. It is read once and not changed afterwards. Launchers and the supervisor use only this.
 *
 * Source  docs/contract.md
 * Test    tests/unit/entrypoint/test_jobs.c, tests/integration/golden.py
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
    PL_JOB_MASTER_PORT = 7777, /* the port on the first host where torchrun's ranks meet */
};

/** Absolute paths below the base directory (/opt/ml, or SAGEMAKER_BASE_DIR). */
struct pl_job_paths {
    const char *base;
    const char *code;
    const char *input;
    const char *input_config;
    const char *input_data;
    const char *model;
    const char *output;
    const char *output_data;
    const char *output_intermediate;
};

struct pl_job_channel {
    const char *name;
    const char *path; /* input/data/NAME */
};

/** The launches that hyperparameters ask for. The first of them in the order of the launcher table counts. */
enum pl_job_launch {
    PL_JOB_MPI = 1 << 0,
    PL_JOB_PARAMETER_SERVER = 1 << 1, /* TensorFlow's */
    PL_JOB_NATIVE_SERVER = 1 << 2,    /* Paceline's own parameter servers */
    PL_JOB_MULTI_WORKER_MIRRORED = 1 << 3,
    PL_JOB_TORCHRUN = 1 << 4,
    PL_JOB_SMDDP = 1 << 5, /* dataparallel or pytorch_ddp */
    PL_JOB_XLA = 1 << 6,
};

struct pl_job {
    struct pl_pool pool;                  /* the memory of its texts and lists */
    const struct pl_environment *process; /* the container's environment at start; not owned, outlives the job */
    const char *self_path;                /* absolute path of the paceline binary; not owned */
    struct pl_job_paths paths;

    /* resourceconfig.json */
    struct pl_python_json *resource; /* the whole resourceconfig.json */
    const char *current_host;
    struct pl_strv hosts; /* in the order of the file */
    const char *network_interface;
    const char *instance_type;
    const char *group_name;
    const struct pl_python_json *groups;   /* instance_groups; NULL if absent */
    const struct pl_python_json *topology; /* NULL if absent or empty */

    /* inputdataconfig.json */
    struct pl_python_json *input_data; /* the whole inputdataconfig.json; an empty object if there is no file */
    struct pl_job_channel *channels;
    size_t channels_count;

    struct pl_python_json *checkpoint_config; /* checkpointconfig.json; an empty object if there is no file */
    const char *checkpoint_dir;               /* its LocalPath; NULL if it has none */

    /* hyperparameters.json, each value decoded once */
    struct pl_python_json *hyperparameters; /* the user's: name -> typed value, in file order */
    struct pl_python_json *framework;       /* sagemaker_* that are not consumed: SM_FRAMEWORK_PARAMS */
    struct pl_python_json *platform;        /* every sagemaker_*, and the other reserved names */
    struct pl_python_json *setting_values;  /* "PACELINE_NAME": text, of paceline_*; the environment wins */
    struct pl_job_settings settings;

    /* the files of version 3 of the SDK: they take precedence, and hyperparameters decide what they leave open */
    struct pl_drivers drivers;
    struct pl_strv conflicts; /* sentences about values that have no effect because of the SDK's files */

    /* derived */
    const char *program; /* as given; NULL if no program is named */
    /* the program of sagemaker_program, if SAGEMAKER_PROGRAM overrides it with another one; else NULL */
    const char *overridden_program;
    /* the arguments after `--`, or the SDK's command, which is run instead of a program; usually empty */
    struct pl_strv command;
    const char *requirements; /* the file in the code directory for pip; NULL if there is none */
    const char *submit_uri;   /* sagemaker_submit_directory; NULL if absent */
    const char *module_dir;   /* submit_uri or the code directory */
    const char *job_name;     /* TRAINING_JOB_NAME; NULL if unset */
    const char *sagemaker_job_name;
    const char *region;               /* the value of SAGEMAKER_REGION; "" if unknown */
    struct pl_python_json *log_level; /* an integer, unless the hyperparameter has another type */
    const char *framework_module;     /* SAGEMAKER_TRAINING_MODULE; NULL if unset or empty */
    struct pl_strv user_args;         /* --name value ..., in the order and form of the Python toolkit */
    unsigned launches;                /* a set of enum pl_job_launch */
    struct pl_strv distribution_groups;
    struct pl_strv distribution_hosts; /* may be empty; the first is the master */
    const char *master_host;           /* first distribution host, else first host */
    int distribution_index;            /* this host's index in distribution_hosts; -1 if it is not one of them */
    int host_index;                    /* this host's index in hosts */
    /* the hosts outside the distribution, which end when it ends; only if its groups are named */
    struct pl_strv outside_hosts;
    int processes_per_host; /* the number on this host, at least 1 */
    int *host_processes;    /* the number on each distribution host; 0: only the host itself knows, by its devices */
    int named_processes;    /* sagemaker_mpi_num_processes; 0 if absent */
    int processes;          /* the sum over all distribution hosts */
    enum pl_log_level own_log_level; /* of Paceline's own lines */
    int devices;                     /* GPUs, else Neuron cores, else 1 */
    int cpus;
    int gpus;
    int neuron_cores;
    bool efa;        /* this host has an adapter, whatever its instance type */
    bool is_check;   /* this is not the job itself but the check of its hosts: see check/check.h */
    bool is_partial; /* from pl_job_new_partial() */
};

/**
 * Read the job of this host.
 *
 * `command` holds the arguments after `--` and may be NULL. Unknown files and keys are ignored. Only
 * resourceconfig.json must exist, with the keys current_host and hosts.
 *
 * Errors  PL_NOT_FOUND (no resourceconfig.json), PL_INVALID with "FILE:LINE:COLUMN: expected ..., found ...", PL_LIMIT,
 *         PL_MEMORY.
 */
enum pl_status pl_job_new(const struct pl_environment *process, const char *self_path, const struct pl_strv *command,
                          struct pl_job **ret_job, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Read as much as possible of a job that pl_job_new() has refused: this host, the job's hosts, and whatever else can be
 * read. Use it only to notify the other hosts: distribution_hosts and distribution_index are those of the linked hosts,
 * the settings have allowed values, and values that depend on others may be absent.
 *
 * Errors  as pl_job_new(), if resourceconfig.json or a variable PACELINE_* is wrong.
 */
enum pl_status pl_job_new_partial(const struct pl_environment *process, const char *self_path, struct pl_job **ret_job,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Appends the directory for checkpoints: PACELINE_CHECKPOINT_DIR, else the path in checkpointconfig.json, else
 * BASE/checkpoints.
 */
static inline void pl_job_checkpoints(const struct pl_job *job, struct pl_text *text)
{
    const char *named = job->settings.checkpoint_dir ? job->settings.checkpoint_dir : job->checkpoint_dir;

    pl_text_printf(text, "%s%s", named ? named : job->paths.base, named ? "" : "/checkpoints");
}

void pl_job_free(struct pl_job *job);
void pl_job_free_at(struct pl_job **job_at);

#define PL_AUTO_JOB __attribute__((cleanup(pl_job_free_at)))

/**
 * Returns the base directory: SAGEMAKER_BASE_DIR if it is set and not empty, else "/opt/ml". It places `output/failure`
 * even if the job cannot be read.
 */
const char *pl_job_base_dir(const struct pl_environment *process);

/** Whether the job's PATH has the program `name`. */
bool pl_job_has_program(const struct pl_job *job, const char *name);

/* Set the program's arguments from the hyperparameters, in the form that the SDK or the toolkit uses, depending on
 * which of them named the program. */
void pl_job_set_arguments(struct pl_job *job);

#endif
