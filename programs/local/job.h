/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A training job, described as the body of SageMaker's CreateTrainingJob describes it: read from a file (--job), edited
 * by options, and used by the rest of the program, which lays out trees and starts hosts. Only what these need is
 * checked; `aws sagemaker create-training-job` checks SageMaker's own limits before it sends a body.
 *
 * pl_local_job_init() makes an empty job with the defaults: one host, no channels, a name from the clock. Then call
 * pl_local_job_read() and the setters in any order of the command line (options win over the file), and at last
 * pl_local_job_check().
 *
 * Ownership  the job owns all its texts; they are valid until pl_local_job_done().
 * Errors     PL_INVALID names the file and the path of the key, or the option, with what was expected.
 * Test       tests/unit/programs/local/test_job.c
 */
#ifndef PL_PROGRAMS_LOCAL_JOB_H
#define PL_PROGRAMS_LOCAL_JOB_H

#include "base/json/json.h"
#include "base/options.h"
#include "entrypoint/job/strv.h"

#include <stddef.h>
#include <stdint.h>

enum {
    PL_LOCAL_MOST_HOSTS = 250, /* the addresses of one network */
    PL_LOCAL_MOST_ITEMS = 256, /* items of a list; SageMaker's own limits are smaller */
};

enum pl_local_mode { PL_LOCAL_FILE, PL_LOCAL_FAST_FILE, PL_LOCAL_PIPE };
enum pl_local_from { PL_LOCAL_FROM_FOLDER, PL_LOCAL_FROM_MANIFEST, PL_LOCAL_FROM_AUGMENTED }; /* values of S3DataType */

/** A channel. `from` is a folder of this machine, or an s3:// address that must be fetched first. */
struct pl_local_channel {
    const char *name;
    const char *from;     /* the folder or prefix; the address of a manifest that lies on S3 */
    const char *manifest; /* a ManifestFile of this machine, which names files below the folder `from`; else NULL */
    enum pl_local_from kind;
    enum pl_local_mode mode;
    bool sharded;     /* ShardedByS3Key: object i of the sorted names on host i mod n */
    bool recordio;    /* RecordWrapperType RecordIO */
    bool is_gzip;     /* CompressionType Gzip */
    bool is_shuffled; /* ShuffleConfig */
    uint64_t shuffle_seed;
    const char *content_type; /* NULL if the job names none */
    const char *attributes;   /* attributes of an augmented manifest, with commas; else NULL */
    struct pl_strv groups;    /* InstanceGroupNames; empty: all hosts */
    bool by_option;
};

struct pl_local_pair {
    const char *name, *value;
};

struct pl_local_pairs {
    struct pl_local_pair items[PL_LOCAL_MOST_ITEMS];
    size_t count;
};

struct pl_local_group {
    const char *name, *instance_type;
    size_t hosts;
};

/** Lists are in the order of the file, then of the options. */
struct pl_local_job {
    const char *name;          /* TrainingJobName */
    const char *image;         /* AlgorithmSpecification.TrainingImage or --image; NULL if neither is given */
    struct pl_strv entrypoint; /* ContainerEntrypoint */
    struct pl_strv arguments;  /* ContainerArguments, or the words after -- */
    struct pl_local_pairs hyperparameters, environment;
    struct pl_local_pairs metrics; /* MetricDefinitions; a value is the regular expression */
    struct pl_local_channel channels[PL_LOCAL_MOST_ITEMS];
    size_t channel_count;
    struct pl_local_group groups[PL_LOCAL_MOST_ITEMS]; /* InstanceCount is one group without a name */
    size_t group_count;
    size_t hosts; /* the sum over the groups; set by pl_local_job_check(), as are names and types of groups */
    const char *instance_type;
    const char *checkpoint_path; /* CheckpointConfig.LocalPath (/opt/ml/checkpoints); NULL without CheckpointConfig */
    uint64_t max_run_s;          /* StoppingCondition.MaxRuntimeInSeconds; 0 without a limit */
    struct pl_strv ignored;      /* keys that have no meaning here, for one line on standard error */
    struct pl_strv texts;        /* owns the job's texts */
    struct pl_json *document;    /* NULL without a file */
};

enum pl_status pl_local_job_init(struct pl_local_job *job, struct pl_error *reterr) PL_MUST_CHECK;
void pl_local_job_done(struct pl_local_job *job);

/** Reads the body of CreateTrainingJob; `path` "-" is standard input. Called before the setters. */
enum pl_status pl_local_job_read(struct pl_local_job *job, const char *path, struct pl_error *reterr) PL_MUST_CHECK;

/* The options of the command line, into a struct pl_local_job. */
pl_option_reader pl_local_job_set_name;
pl_option_reader pl_local_job_set_hosts;
/** Adds the NAME=VALUE of --hyperparameter, --environment or --metric; for equal names the last one wins. */
pl_option_reader pl_local_job_add;
/**
 * Adds a channel, NAME=FROM[:WORD...]: pipe, fastfile, sharded, recordio, shuffle=SEED, manifest=FILE, augmented=NAMES.
 */
pl_option_reader pl_local_job_add_channel;
/** Takes the words after --, which become ContainerArguments. */
enum pl_status pl_local_job_set_words(struct pl_local_job *job, char *const *words, size_t count,
                                      struct pl_error *reterr) PL_MUST_CHECK;

/** Whether hosts of the group get the channel. */
bool pl_local_channel_is_of(const struct pl_local_channel *channel, const char *group);

/** Checks that the parts fit together, and counts the hosts. */
enum pl_status pl_local_job_check(struct pl_local_job *job, struct pl_error *reterr) PL_MUST_CHECK;

#endif
