/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The job description: everything in /opt/ml/input/config and in the container's environment that decides what this
 * host runs. It is read once and not changed afterwards. Launchers and the supervisor use only this.
 *
 * Source  docs/contract.md
 * Test    tests/unit/entrypoint/test_jobs.c, tests/integration/golden.py, groups.sh
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

/** Absolute paths below the base directory (/opt/ml, or SAGEMAKER_BASE_DIR); drivers.c may put `code` elsewhere. */
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
    struct pl_pool pool;                  /* owns the texts and lists of the job */
    const struct pl_environment *process; /* the container's environment at start; not owned, outlives the job */
    const char *self_path;                /* absolute path of the paceline binary; not owned */
    struct pl_job_paths paths;

    /* resourceconfig.json */
    struct pl_python_json *resource; /* the whole resourceconfig.json */
    const char *current_host;
    struct pl_strv hosts; /* names, in the order of the file */
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
    /* directory for checkpoints: PACELINE_CHECKPOINT_DIR, else LocalPath of checkpointconfig.json, else
     * BASE/checkpoints */
    const char *checkpoint_dir;

    /* hyperparameters.json, each value decoded once */
    struct pl_python_json *hyperparameters; /* the user's: name -> typed value, in file order */
    struct pl_python_json *framework;       /* the sagemaker_* that Paceline does not use; for SM_FRAMEWORK_PARAMS */
    struct pl_python_json *platform;        /* every sagemaker_*, and the other reserved names */
    struct pl_python_json *setting_values;  /* "PACELINE_NAME": text, of paceline_*; the environment wins */
    struct pl_job_settings settings;

    /* the files of version 3 of the SDK: they take precedence, and hyperparameters decide what they leave open */
    struct pl_drivers drivers;
    struct pl_strv conflicts; /* sentences about values that have no effect because of the SDK's files */

    /* derived */
    const char *program; /* the program's name as the job gives it; NULL if it names none */
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
    /* hosts outside the distribution, which end when the distribution ends; empty unless it names groups */
    struct pl_strv outside_hosts;
    int processes_per_host;          /* number of processes on this host, at least 1 */
    int *host_processes;             /* number on each distribution host; 0: not known yet, the host will report it */
    int named_processes;             /* sagemaker_mpi_num_processes; 0 if absent */
    int processes;                   /* the sum over all distribution hosts */
    enum pl_log_level own_log_level; /* level of Paceline's own lines */
    int devices;                     /* GPUs, else Neuron cores, else 1 */
    int cpus;
    int cpu_limit; /* number of CPUs that this container can keep busy; 0: all */
    int gpus;
    int neuron_cores;
    bool efa;        /* this host has an EFA adapter, whatever its instance type */
    bool is_check;   /* this is not the job itself but the check of its hosts: see check/check.h */
    bool is_partial; /* pl_job_new_partial() made it */
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

void pl_job_free(struct pl_job *job);

/** PL_INVALID if the directory for checkpoints is the model's or in it: trials keep their models there. Makes both. */
enum pl_status pl_job_check_checkpoints(const struct pl_job *job, struct pl_error *reterr) PL_MUST_CHECK;

PL_CLEANUP(pl_job_free_at, struct pl_job, pl_job_free)
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

/* The parts of pl_job_new() that other files call too: hosts.c, hyperparameters.c. */

/** Read resourceconfig.json. Errors as pl_job_new(). */
enum pl_status pl_hosts_read(struct pl_job *job, struct pl_error *reterr) PL_MUST_CHECK;

/** Returns the name of a group of job->groups. */
const char *pl_hosts_group_name(const struct pl_python_json *group);

/**
 * Choose the distribution's hosts, in a job whose launches are known: the hosts of its groups in file order, or all
 * hosts if the file has no groups. All other hosts become outside_hosts.
 *
 * The hosts of one capacity unit in the file's `topology` have the fast links of an UltraServer between them, and ranks
 * send most data to their neighbours. So these hosts are put next to each other, at the index of the first of them.
 * Otherwise the order stays, and the first host remains the first. `topology` is a list of {"hostName": TEXT,
 * "capacityUnitId": TEXT}. If an entry has another form, or a host has no entry, its unit is not known, and the host
 * stays where it is.
 */
enum pl_status pl_hosts_choose(struct pl_job *job, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Fill processes_per_host, host_processes, named_processes and processes of a job whose devices and distribution hosts
 * are known. sagemaker_mpi_num_of_processes_per_host gives the numbers: one number, or one for each group. Without it
 * the devices determine them. Only a host itself knows the devices of its instance type: until it has reported its
 * number, this host's number stands in for it.
 *
 * Errors  PL_INVALID, PL_LIMIT naming the hyperparameter and what was expected; PL_MEMORY.
 */
enum pl_status pl_hosts_count_processes(struct pl_job *job, struct pl_error *reterr) PL_MUST_CHECK;

/** Returns the number of processes on all hosts of the distribution, whatever sagemaker_mpi_num_processes says. */
int64_t pl_hosts_sum_processes(const struct pl_job *job);

/** Each of these hyperparameters switches on one launch. The last name is NULL. */
extern const struct pl_hyperparameters_launch {
    const char *name;
    enum pl_job_launch launch;
} pl_hyperparameters_launch_names[];

/**
 * Decode and sort the members of `raw`, the whole file, into hyperparameters, framework, platform and setting_values of
 * `job`, and set the launches that they switch on.
 */
enum pl_status pl_hyperparameters_sort(const struct pl_python_json *raw, struct pl_job *job,
                                       struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Add a warning for each name in `framework` that is similar to a name that SageMaker knows: it is probably mistyped,
 * and would be ignored without a message.
 */
void pl_hyperparameters_check(const struct pl_python_json *framework, struct pl_strv *warnings);

/**
 * Whether a decoded value is true in Python; absent and null are false. One difference: the text "False", in any case,
 * is false, because some SDK calls send the boolean in this form.
 */
bool pl_hyperparameters_is_true(const struct pl_python_json *node);

/* What variables.c and secrets.c make from a job. */

/** The most bytes that Linux passes in one argument or one "NAME=value", with the NUL (MAX_ARG_STRLEN). */
enum { PL_VARIABLES_STRING_MAX_BYTES = 131072 };

/**
 * Set in `environment` every variable that `job` gives its program, in the toolkit's order: SM_* (the names that mpirun
 * exports), then SAGEMAKER_JOB_NAME, CURRENT_HOST, SAGEMAKER_REGION, then PYTHONPATH, PYTHONUNBUFFERED if the container
 * does not set it, and Paceline's own settings.
 *
 * A value above Linux's limit for one string (128 KiB) is left out, because with it the program could not start; this
 * may happen to SM_HPS, SM_TRAINING_ENV, SM_USER_ARGS and similar variables. The name is also removed from the other
 * variables of the program, `inherited` (may be NULL), because a value there would be of another job. A hyperparameter
 * with '=' in its name has no variable. Each such case adds a sentence to `warnings`.
 */
enum pl_status pl_variables_add(const struct pl_job *job, struct pl_environment *environment,
                                struct pl_environment *inherited, struct pl_strv *warnings,
                                struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Append the bytes that a program gets for a text in the inner form of base/json/python_json.h: lone surrogates
 * DC80..DCFF become the bytes that they stand for, others U+FFFD. PL_INVALID for U+0000, which neither arguments nor
 * variables can hold.
 */
enum pl_status pl_variables_os_text(const char *inner, struct pl_text *text) PL_MUST_CHECK;

/**
 * Whether `name` is probably the name of a secret, as a variable or hyperparameter: it contains PASSWORD, SECRET or
 * CREDENTIALS, or one of the words KEY, TOKEN, PRIVATE, CREDS.
 */
bool pl_secrets_is_name(const char *name);

/**
 * Replace by "***" every value whose name looks like the name of a secret, whatever its type and however deep it lies,
 * so that output made from `job` may be shown. This covers the hyperparameters of the user, of the framework
 * (sagemaker_*) and of Paceline, and the value of each NAME=value in the custom MPI options. Empty texts and null stay.
 * Use it for `paceline plan`: a job that is to run must not be masked.
 */
enum pl_status pl_secrets_mask(struct pl_job *job, struct pl_error *reterr) PL_MUST_CHECK;

#endif
