/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Paceline's settings: their names, their values, and warnings for mistyped names, which would otherwise be ignored
 * without a message. The runtime's settings are in base/knob.h.
 *
 * `environment` is the container's environment. `hyperparameters` is an object with "PACELINE_NAME": text for each
 * hyperparameter paceline_*, or NULL. A variable that is not empty takes precedence.
 *
 * Test  tests/unit/entrypoint/test_jobs.c, tests/unit/entrypoint/job/test_job.c
 */
#ifndef PL_ENTRYPOINT_JOB_SETTINGS_H
#define PL_ENTRYPOINT_JOB_SETTINGS_H

#include "base/environment.h"
#include "base/log.h"
#include "entrypoint/job/strv.h"

#include <stdint.h>

/**
 * The value of each setting that the entry point reads. docs/settings.md lists the settings.
 * A text is NULL if it is not set and has no default. It lies in the environment or in the hyperparameters.
 */
struct pl_job_settings {
    const char *python;
    bool install;
    bool uv;           /* install packages with uv, if the image has uv */
    const char *check; /* a boolean, or options of `paceline check` */
    int64_t source_max_bytes;
    const char *mpi_version;
    int64_t peer_wait_ns;
    int64_t silence_ns;
    int64_t stop_ns;
    int64_t ssh_port;
    const char *ssh_dir;
    const char *ssh_secret;
    bool link;
    bool sdk_drivers;
    bool tf_chief;
    const char *ps; /* kind of parameter servers: "native" or "tensorflow" */
    int64_t ps_workers_per_host;
    const char *ps_min_workers; /* "all" or a number */
    int64_t intermediate_ns;
    const char *sse;
    const char *sse_kms_key_id;
    bool bucket_key_enabled;
    int64_t hang_ns; /* 0: no watch for hangs */
    bool independent_ranks;
    const char *hang_action; /* "report" or "end" */
    int64_t progress_ns;     /* time between two lines of a progress bar; -1 (keep): the output is not changed */
    const char *rank_tags;   /* "auto", "rank" or "off", which `paceline rank` reads */
    bool divide_pipes;       /* channels in Pipe Mode are divided among a host's ranks */
    bool report;             /* the master writes output/data/report.html at the end */
    int64_t max_restarts;    /* how often the job may be started again after a failure */
    const char *sweep;       /* a JSON object, or the name of a file */
    int64_t sweep_time_ns;   /* 0: no limit */
    int64_t sweep_fresh;     /* not 0: start a new sweep */
    const char *checkpoint_dir;
    const char *trial;  /* the number of the trial, in a trial of a sweep */
    int64_t trial_cpus; /* the number of CPUs that the trial may use of its host; 0 outside a trial */
    int64_t trial_gpus;
    bool names_log_level; /* PACELINE_LOG is set */
    enum pl_log_level log_level;
};

/**
 * Set all values. A value that a setting cannot have is refused, also in Horovod's variables that stand for knobs.
 * pl_job_new() calls this function, so that a job is refused before anything is fetched or started.
 *
 * Errors  PL_INVALID naming the first wrong variable or hyperparameter, its value and what was expected; all other
 *         values are set.
 */
enum pl_status pl_settings_read(const struct pl_environment *environment, const struct pl_python_json *hyperparameters,
                                struct pl_job_settings *values, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Whether `text` is the default of the setting `name`, of the entry point or the runtime. `name` is a variable or a
 * hyperparameter, in upper or lower case. False if there is no such setting, or it has no default.
 */
bool pl_settings_is_default(const char *name, const char *text);

/** Replace each text that is the string at `before` by the string at `after`. */
void pl_settings_replace_text(struct pl_job_settings *values, const char *before, const char *after);

/**
 * Add a warning for each hyperparameter paceline_* that is not a setting, because no program gets it either, and for
 * each variable PACELINE_* that is similar to a setting. Other variables PACELINE_* may belong to the user's program.
 */
enum pl_status pl_settings_check(const struct pl_environment *environment, const struct pl_python_json *hyperparameters,
                                 struct pl_strv *warnings, struct pl_error *reterr) PL_MUST_CHECK;

#endif
