/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a job as the body of CreateTrainingJob: what the file had, with what the options changed. What only an account
 * of AWS can give, and the file had not, stands there with REPLACE in its value.
 */
#include "base/json/json_write.h"
#include "programs/local/job/job_private.h"
#include "programs/local/job/limits.h"

#include <string.h>

enum { FILE_MODE = 0644 };

static const char bucket[] = "s3://REPLACE-BUCKET/";

/* What the file has under this key; nothing without a file. */
static struct pl_json_value old_value(const struct pl_local_job *job, const char *key)
{
    return job->document ? pl_json_member(pl_json_root(job->document), key) : (struct pl_json_value){NULL};
}

/* Writes the members of `object`, which may be missing, but for those whose names are in `names`. */
static void write_others(struct pl_json_writer *writer, struct pl_json_value object, const char *const *names)
{
    for (struct pl_json_value item = pl_json_first(object); pl_json_exists(item); item = pl_json_next(item)) {
        const char *const *at = names;

        while (*at && strcmp(*at, pl_json_name(item)) != 0) {
            at++;
        }
        if (!*at) {
            pl_json_write_value(writer, pl_json_name(item), item);
        }
    }
}

/* `old` is the file's value. */
static void write_pairs(struct pl_json_writer *writer, const char *name, struct pl_json_value old,
                        const struct pl_local_pair *pairs, size_t count)
{
    if (count == 0 && !pl_json_exists(old)) {
        return;
    }
    pl_json_write_object(writer, name);
    for (size_t i = 0; i < count; i++) {
        pl_json_write_text(writer, pairs[i].name, pairs[i].value);
    }
    pl_json_write_close(writer);
}

static void write_words(struct pl_json_writer *writer, const char *name, const char *const *words, size_t count)
{
    if (count == 0) {
        return;
    }
    pl_json_write_list(writer, name);
    for (size_t i = 0; i < count; i++) {
        pl_json_write_text(writer, NULL, words[i]);
    }
    pl_json_write_close(writer);
}

static void write_algorithm(struct pl_json_writer *writer, const struct pl_local_job *job, struct pl_json_value old)
{
    static const char *const ours[] = {"TrainingImage",      "TrainingInputMode",   "MetricDefinitions",
                                       "ContainerArguments", "ContainerEntrypoint", NULL};
    struct pl_json_value mode = pl_json_member(old, "TrainingInputMode");

    pl_json_write_object(writer, "AlgorithmSpecification");
    if (job->view.image || !pl_json_exists(pl_json_member(old, "AlgorithmName"))) {
        pl_json_write_text(writer, "TrainingImage", job->view.image ? job->view.image : "REPLACE-IMAGE");
    }
    if (pl_json_exists(mode)) {
        pl_json_write_value(writer, "TrainingInputMode", mode);
    } else {
        pl_json_write_text(writer, "TrainingInputMode", "File");
    }
    if (job->view.metric_count > 0) {
        pl_json_write_list(writer, "MetricDefinitions");
        for (size_t i = 0; i < job->view.metric_count; i++) {
            pl_json_write_object(writer, NULL);
            pl_json_write_text(writer, "Name", job->metrics[i].name);
            pl_json_write_text(writer, "Regex", job->metrics[i].value);
            pl_json_write_close(writer);
        }
        pl_json_write_close(writer);
    }
    write_words(writer, "ContainerEntrypoint", job->entrypoint, job->view.entrypoint_words);
    write_words(writer, "ContainerArguments", job->arguments, job->view.argument_words);
    write_others(writer, old, ours);
    pl_json_write_close(writer);
}

/* A channel that an option gave. */
static void write_channel(struct pl_json_writer *writer, const struct pl_local_channel *channel)
{
    static const char *const types[] = {[PL_LOCAL_FROM_FOLDER] = "S3Prefix",
                                        [PL_LOCAL_FROM_MANIFEST] = "ManifestFile",
                                        [PL_LOCAL_FROM_AUGMENTED] = "AugmentedManifestFile"};
    static const char *const modes[] = {
        [PL_LOCAL_FILE] = "File", [PL_LOCAL_FAST_FILE] = "FastFile", [PL_LOCAL_PIPE] = "Pipe"};
    PL_AUTO_TEXT struct pl_text address = PL_TEXT_NONE;

    if (strncmp(channel->from, "s3://", 5) == 0) {
        pl_text_append(&address, channel->from);
    } else {
        pl_text_printf(&address, "%s%s", bucket, channel->name);
    }
    pl_json_write_object(writer, NULL);
    pl_json_write_text(writer, "ChannelName", channel->name);
    pl_json_write_object(writer, "DataSource");
    pl_json_write_object(writer, "S3DataSource");
    pl_json_write_text(writer, "S3DataType", types[channel->kind]);
    pl_json_write_text(writer, "S3Uri", pl_text_string(&address));
    pl_json_write_text(writer, "S3DataDistributionType", channel->sharded ? "ShardedByS3Key" : "FullyReplicated");
    if (channel->attributes) {
        pl_json_write_list(writer, "AttributeNames");
        for (const char *at = channel->attributes; *at;) {
            PL_AUTO_TEXT struct pl_text name = PL_TEXT_NONE;
            size_t length = strcspn(at, ",");

            pl_text_append_n(&name, at, length);
            pl_json_write_text(writer, NULL, pl_text_string(&name));
            at += length + (at[length] == ',');
        }
        pl_json_write_close(writer);
    }
    pl_json_write_close(writer);
    pl_json_write_close(writer);
    pl_json_write_text(writer, "InputMode", modes[channel->mode]);
    if (channel->recordio) {
        pl_json_write_text(writer, "RecordWrapperType", "RecordIO");
    }
    if (channel->is_shuffled) {
        pl_json_write_object(writer, "ShuffleConfig");
        pl_json_write_int64(writer, "Seed", (int64_t)channel->shuffle_seed);
        pl_json_write_close(writer);
    }
    pl_json_write_close(writer);
}

static void write_channels(struct pl_json_writer *writer, const struct pl_local_job *job, struct pl_json_value old)
{
    struct pl_json_value item = pl_json_first(old);

    if (job->view.channel_count == 0) {
        return;
    }
    pl_json_write_list(writer, "InputDataConfig");
    for (size_t i = 0; i < job->view.channel_count; i++) {
        if (job->channel_data[i].by_option) {
            write_channel(writer, &job->channels[i]);
        } else {
            pl_json_write_value(writer, NULL, item);
        }
        item = pl_json_exists(item) ? pl_json_next(item) : item;
    }
    pl_json_write_close(writer);
}

static void write_resources(struct pl_json_writer *writer, const struct pl_local_job *job, struct pl_json_value old)
{
    static const char *const ours[] = {"InstanceCount", NULL};

    pl_json_write_object(writer, "ResourceConfig");
    if (!pl_json_exists(old)) {
        pl_json_write_text(writer, "InstanceType", "ml.m5.xlarge");
        pl_json_write_int64(writer, "VolumeSizeInGB", 30);
    }
    if (!job->groups[0].name) {
        pl_json_write_int64(writer, "InstanceCount", (int64_t)job->groups[0].hosts);
    }
    write_others(writer, old, ours);
    pl_json_write_close(writer);
}

static void write_stop(struct pl_json_writer *writer, const struct pl_local_job *job, struct pl_json_value old)
{
    static const char *const ours[] = {"MaxRuntimeInSeconds", NULL};

    pl_json_write_object(writer, "StoppingCondition");
    if (job->view.max_run_s > 0) {
        pl_json_write_int64(writer, "MaxRuntimeInSeconds", (int64_t)job->view.max_run_s);
    }
    write_others(writer, old, ours);
    pl_json_write_close(writer);
}

enum pl_status pl_local_job_save(struct pl_local_job *job, const char *path, struct pl_error *reterr)
{
    static const char *const ours[] = {
        "TrainingJobName", "HyperParameters",   "Environment", "AlgorithmSpecification", "InputDataConfig",
        "ResourceConfig",  "StoppingCondition", "RoleArn",     "OutputDataConfig",       NULL};
    struct pl_json_value role, output;
    PL_AUTO_TEXT struct pl_text json = PL_TEXT_NONE;
    struct pl_json_writer writer = PL_JSON_WRITER(&json);

    for (size_t i = 0; i < job->view.argument_words; i++) { /* a longer command runs here all the same */
        PL_TRY(pl_local_limits_check_text("AlgorithmSpecification.ContainerArguments[]", "the command",
                                          job->arguments[i], reterr));
    }
    writer.lines = true; /* people fill in the role and the bucket */
    role = old_value(job, "RoleArn");
    output = old_value(job, "OutputDataConfig");
    pl_json_write_object(&writer, NULL);
    pl_json_write_text(&writer, "TrainingJobName", job->view.name);
    if (pl_json_exists(role)) {
        pl_json_write_value(&writer, "RoleArn", role);
    } else {
        pl_json_write_text(&writer, "RoleArn", "arn:aws:iam::000000000000:role/REPLACE-ROLE");
    }
    write_algorithm(&writer, job, old_value(job, "AlgorithmSpecification"));
    write_pairs(&writer, "HyperParameters", old_value(job, "HyperParameters"), job->hyperparameters,
                job->view.hyperparameter_count);
    write_pairs(&writer, "Environment", old_value(job, "Environment"), job->environment, job->view.environment_count);
    write_channels(&writer, job, old_value(job, "InputDataConfig"));
    if (pl_json_exists(output)) {
        pl_json_write_value(&writer, "OutputDataConfig", output);
    } else {
        pl_json_write_object(&writer, "OutputDataConfig");
        pl_json_write_text(&writer, "S3OutputPath", bucket);
        pl_json_write_close(&writer);
    }
    write_resources(&writer, job, old_value(job, "ResourceConfig"));
    write_stop(&writer, job, old_value(job, "StoppingCondition"));
    write_others(&writer, job->document ? pl_json_root(job->document) : (struct pl_json_value){NULL}, ours);
    pl_json_write_close(&writer);
    return pl_json_write_file(&writer, path, FILE_MODE, reterr);
}
