/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A training job, described as the body of SageMaker's CreateTrainingJob describes it: read from a file (--job), edited
 * by options, checked, saved (--save-job), and taken by the rest of the program, which lays out trees and starts hosts.
 *
 * pl_local_job_new() makes an empty job with the defaults: one host, no channels, a name from the clock. Then
 * pl_local_job_read() and the setters in any order of the command line (options win over the file), and at last
 * pl_local_job_check(), after which every member below is filled and within SageMaker's limits.
 *
 * Ownership  the job owns all its texts; they are valid until pl_local_job_free().
 * Errors     PL_INVALID names file, line, column and the path of the key, or the option, with what was expected.
 * Test       tests/unit/programs/local/test_job.c, tests/integration/local_job.py
 */
#ifndef PL_PROGRAMS_LOCAL_JOB_H
#define PL_PROGRAMS_LOCAL_JOB_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct pl_local_job;

enum pl_local_mode { PL_LOCAL_FILE, PL_LOCAL_FAST_FILE, PL_LOCAL_PIPE };
enum pl_local_from { PL_LOCAL_FROM_FOLDER, PL_LOCAL_FROM_MANIFEST, PL_LOCAL_FROM_AUGMENTED };

/** A channel. `from` is a folder of this machine, or an s3:// address that must be fetched first. */
struct pl_local_channel {
    const char *name;
    const char *from;     /* the folder or prefix; the address of a manifest that lies on S3 */
    const char *manifest; /* a ManifestFile of this machine, which names files below the folder `from`; NULL */
    enum pl_local_from kind;
    enum pl_local_mode mode;
    bool sharded;     /* ShardedByS3Key: object i of the sorted names on host i mod n */
    bool recordio;    /* RecordWrapperType RecordIO */
    bool is_gzip;     /* CompressionType Gzip */
    bool is_shuffled; /* ShuffleConfig */
    uint64_t shuffle_seed;
    const char *content_type;  /* NULL if the job names none */
    const char *attributes;    /* of an augmented manifest, with commas; NULL */
    const char *const *groups; /* InstanceGroupNames; NULL for all hosts */
    size_t group_count;
};

struct pl_local_pair {
    const char *name, *value;
};

/** MetricDefinitions: `name`, and `value` is the regular expression. */
struct pl_local_group {
    const char *name, *instance_type;
    size_t hosts;
};

/** What a checked job says. Lists are in the order of the file, then of the options. */
struct pl_local_view {
    const char *name;              /* TrainingJobName */
    const char *image;             /* AlgorithmSpecification.TrainingImage or --image; NULL */
    const char *const *entrypoint; /* ContainerEntrypoint; NULL if there is none */
    size_t entrypoint_words;
    const char *const *arguments; /* ContainerArguments, or the words after -- */
    size_t argument_words;
    const struct pl_local_pair *hyperparameters, *environment, *metrics;
    size_t hyperparameter_count, environment_count, metric_count;
    const struct pl_local_channel *channels;
    size_t channel_count;
    const struct pl_local_group *groups; /* always at least one; InstanceCount as one group without a name */
    size_t group_count;
    size_t hosts; /* the sum over the groups */
    const char *instance_type;
    const char *checkpoint_path; /* CheckpointConfig.LocalPath (/opt/ml/checkpoints); NULL without CheckpointConfig */
    uint64_t max_run_s;          /* StoppingCondition.MaxRuntimeInSeconds; 0 without a limit */
    bool is_spot;                /* EnableManagedSpotTraining */
    const char *const *ignored;  /* keys of the API that have no meaning here, for one line on standard error */
    size_t ignored_count;
};

enum pl_status pl_local_job_new(struct pl_local_job **ret_job, struct pl_error *reterr) PL_MUST_CHECK;
void pl_local_job_free(struct pl_local_job *job);

/** Reads the body of CreateTrainingJob; `path` "-" is standard input. Called before the setters. */
enum pl_status pl_local_job_read(struct pl_local_job *job, const char *path, struct pl_error *reterr) PL_MUST_CHECK;

/* One for each option of the command line. Each checks its own value at once. */
enum pl_status pl_local_job_set_name(struct pl_local_job *job, const char *name, struct pl_error *reterr);
enum pl_status pl_local_job_set_image(struct pl_local_job *job, const char *image, struct pl_error *reterr);
enum pl_status pl_local_job_set_hosts(struct pl_local_job *job, uint64_t hosts, struct pl_error *reterr);
/** NAME=VALUE; the last one of a name wins. */
enum pl_status pl_local_job_add_hyperparameter(struct pl_local_job *job, const char *pair, struct pl_error *reterr);
enum pl_status pl_local_job_add_environment(struct pl_local_job *job, const char *pair, struct pl_error *reterr);
enum pl_status pl_local_job_add_metric(struct pl_local_job *job, const char *pair, struct pl_error *reterr);
/** NAME=FROM[:WORD...]: pipe, fastfile, sharded, recordio, shuffle=SEED, manifest=FILE, augmented=NAMES. */
enum pl_status pl_local_job_add_channel(struct pl_local_job *job, const char *channel, struct pl_error *reterr);
enum pl_status pl_local_job_set_max_run(struct pl_local_job *job, uint64_t seconds, struct pl_error *reterr);
/** The words after --, which become ContainerArguments. */
enum pl_status pl_local_job_set_words(struct pl_local_job *job, char *const *words, size_t count,
                                      struct pl_error *reterr);

/** Checks the whole against SageMaker's limits. The view is valid until the next change of the job. */
enum pl_status pl_local_job_check(struct pl_local_job *job, const struct pl_local_view **ret_view,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/** Writes the body that `aws sagemaker create-training-job --cli-input-json` takes, keys without a meaning here too. */
enum pl_status pl_local_job_save(struct pl_local_job *job, const char *path, struct pl_error *reterr) PL_MUST_CHECK;

#endif
