/* SPDX-License-Identifier: Apache-2.0 */
/* The description of a job: read from the body of CreateTrainingJob, edited by options, checked. */
#include "programs/local/job/job.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "programs/local/job/job_private.h"
#include "programs/local/job/limits.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_BYTES = 16 << 20 };

static const char checkpoints[] = "/opt/ml/checkpoints";

/* ---- texts ---- */

/* Keeps a copy of `length` bytes until the job is freed. */
static enum pl_status keep_n(struct pl_local_job *job, const char *text, size_t length, const char **ret_kept,
                             struct pl_error *reterr)
{
    struct pl_local_text *kept = pl_memory_new(1, sizeof(*kept) + length + 1, reterr);

    if (!kept) {
        return PL_MEMORY;
    }
    memcpy(kept->bytes, text, length);
    kept->next = job->texts;
    job->texts = kept;
    *ret_kept = kept->bytes;
    return PL_OK;
}

static enum pl_status keep(struct pl_local_job *job, const char *text, const char **ret_kept, struct pl_error *reterr)
{
    return keep_n(job, text, strlen(text), ret_kept, reterr);
}

enum pl_status pl_local_job_new(struct pl_local_job **ret_job, struct pl_error *reterr)
{
    struct pl_local_job *job = pl_memory_new(1, sizeof(*job), reterr);
    struct timespec now = {0};
    struct tm utc;
    char name[64];
    size_t length;

    if (!job) {
        return PL_MEMORY;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    length = strftime(name, sizeof(name), "local-%Y-%m-%d-%H-%M-%S", &utc);
    snprintf(name + length, sizeof(name) - length, "-%03d", (int)(now.tv_nsec / PL_NS_PER_MS)); /* as the SDK does */
    job->view.checkpoint_path = checkpoints;
    job->view.instance_type = "local";
    job->groups[0].hosts = 1;
    job->view.group_count = 1;
    if (keep(job, name, &job->view.name, reterr) != PL_OK) {
        pl_local_job_free(job);
        return PL_MEMORY;
    }
    *ret_job = job;
    return PL_OK;
}

void pl_local_job_free(struct pl_local_job *job)
{
    if (!job) {
        return;
    }
    while (job->texts) {
        struct pl_local_text *text = job->texts;

        job->texts = text->next;
        free(text);
    }
    pl_json_free(job->document);
    free(job->text);
    free(job);
}

/* ---- the file ---- */

static enum pl_status note_ignored(void *context, const char *path, struct pl_error *reterr)
{
    struct pl_local_job *job = context;

    if (job->view.ignored_count == PL_ARRAY_ITEMS(job->ignored)) {
        return PL_OK; /* the table has no more rows of this kind than there is room for; a list may repeat one */
    }
    for (size_t i = 0; i < job->view.ignored_count; i++) {
        if (strcmp(job->ignored[i], path) == 0) {
            return PL_OK;
        }
    }
    return keep(job, path, &job->ignored[job->view.ignored_count++], reterr);
}

static struct pl_json_value member(struct pl_json_value object, const char *path)
{
    char name[64];

    for (size_t length; *path; path += length + (path[length] == '.')) {
        length = strcspn(path, ".");
        snprintf(name, sizeof(name), "%.*s", (int)length, path);
        object = pl_json_member(object, name);
    }
    return object;
}

/* The document outlives the view, which borrows its texts. */
static enum pl_status read_text(struct pl_json_value object, const char *path, const char **text,
                                struct pl_error *reterr)
{
    struct pl_json_value value = member(object, path);

    return pl_json_exists(value) ? pl_json_text(value, text, reterr) : PL_OK;
}

static enum pl_status read_whole(struct pl_json_value object, const char *path, uint64_t *number,
                                 struct pl_error *reterr)
{
    struct pl_json_value value = member(object, path);
    int64_t read = 0;

    if (!pl_json_exists(value)) {
        return PL_OK;
    }
    PL_TRY(pl_json_int64(value, -PL_JSON_MAX_INTEGER, PL_JSON_MAX_INTEGER, &read, reterr));
    *number = (uint64_t)read;
    return PL_OK;
}

static enum pl_status read_pairs(struct pl_json_value map, struct pl_local_pair *pairs, size_t *count,
                                 struct pl_error *reterr)
{
    for (struct pl_json_value item = pl_json_first(map); pl_json_exists(item); item = pl_json_next(item)) {
        pairs[*count].name = pl_json_name(item);
        PL_TRY(pl_json_text(item, &pairs[*count].value, reterr));
        ++*count;
    }
    return PL_OK;
}

static enum pl_status read_words(struct pl_json_value list, const char **words, size_t *count, struct pl_error *reterr)
{
    for (struct pl_json_value item = pl_json_first(list); pl_json_exists(item); item = pl_json_next(item)) {
        PL_TRY(pl_json_text(item, &words[(*count)++], reterr));
    }
    return PL_OK;
}

static enum pl_local_mode mode_of(const char *word)
{
    return strcmp(word, "Pipe") == 0       ? PL_LOCAL_PIPE
           : strcmp(word, "FastFile") == 0 ? PL_LOCAL_FAST_FILE
                                           : PL_LOCAL_FILE;
}

static enum pl_status read_channel(struct pl_local_job *job, struct pl_json_value object, const char *mode,
                                   struct pl_error *reterr)
{
    struct pl_local_channel_data *data = &job->channel_data[job->view.channel_count];
    struct pl_local_channel *channel = &job->channels[job->view.channel_count];
    struct pl_json_value source = member(object, "DataSource.S3DataSource");
    const char *type = "S3Prefix", *distribution = "", *wrapper = "", *compression = "",
               *names[PL_LOCAL_MOST_ATTRIBUTES];
    size_t name_count = 0;
    PL_AUTO_TEXT struct pl_text attributes = PL_TEXT_NONE;

    PL_TRY(read_text(object, "ChannelName", &channel->name, reterr));
    PL_TRY(read_text(object, "InputMode", &mode, reterr));
    PL_TRY(read_text(object, "ContentType", &channel->content_type, reterr));
    PL_TRY(read_text(object, "RecordWrapperType", &wrapper, reterr));
    PL_TRY(read_text(object, "CompressionType", &compression, reterr));
    PL_TRY(read_text(source, "S3Uri", &channel->from, reterr));
    PL_TRY(read_text(source, "S3DataType", &type, reterr));
    PL_TRY(read_text(source, "S3DataDistributionType", &distribution, reterr));
    PL_TRY(read_whole(object, "ShuffleConfig.Seed", &channel->shuffle_seed, reterr));
    PL_TRY(read_words(member(source, "InstanceGroupNames"), data->groups, &channel->group_count, reterr));
    PL_TRY(read_words(member(source, "AttributeNames"), names, &name_count, reterr));
    for (size_t i = 0; i < name_count; i++) {
        pl_text_printf(&attributes, "%s%s", i > 0 ? "," : "", names[i]);
    }
    if (name_count > 0) {
        PL_TRY(pl_text_check(&attributes, reterr));
        PL_TRY(keep(job, pl_text_string(&attributes), &channel->attributes, reterr));
    }
    channel->groups = channel->group_count > 0 ? data->groups : NULL;
    channel->kind = strcmp(type, "ManifestFile") == 0            ? PL_LOCAL_FROM_MANIFEST
                    : strcmp(type, "AugmentedManifestFile") == 0 ? PL_LOCAL_FROM_AUGMENTED
                                                                 : PL_LOCAL_FROM_FOLDER;
    channel->mode = mode_of(mode);
    channel->sharded = strcmp(distribution, "ShardedByS3Key") == 0;
    channel->recordio = strcmp(wrapper, "RecordIO") == 0;
    channel->is_gzip = strcmp(compression, "Gzip") == 0;
    channel->is_shuffled = pl_json_exists(member(object, "ShuffleConfig"));
    job->view.channel_count++;
    return PL_OK;
}

static enum pl_status read_groups(struct pl_local_job *job, struct pl_json_value root, struct pl_error *reterr)
{
    struct pl_json_value groups = member(root, "ResourceConfig.InstanceGroups");
    size_t count = 0;
    uint64_t hosts = 1;

    PL_TRY(read_text(root, "ResourceConfig.InstanceType", &job->view.instance_type, reterr));
    PL_TRY(read_whole(root, "ResourceConfig.InstanceCount", &hosts, reterr));
    job->groups[0].hosts = (size_t)hosts;
    for (struct pl_json_value item = pl_json_first(groups); pl_json_exists(item); item = pl_json_next(item)) {
        struct pl_local_group *group = &job->groups[count++];

        PL_TRY(read_text(item, "InstanceGroupName", &group->name, reterr));
        PL_TRY(read_text(item, "InstanceType", &group->instance_type, reterr));
        PL_TRY(read_whole(item, "InstanceCount", &hosts, reterr));
        group->hosts = (size_t)hosts;
    }
    job->view.group_count = count > 0 ? count : 1;
    return PL_OK;
}

static enum pl_status read_document(struct pl_local_job *job, struct pl_json_value root, struct pl_error *reterr)
{
    struct pl_json_value algorithm = member(root, "AlgorithmSpecification");
    struct pl_json_value metrics = member(algorithm, "MetricDefinitions");
    struct pl_json_value inputs = member(root, "InputDataConfig"), checkpoint = member(root, "CheckpointConfig");
    struct pl_local_view *view = &job->view;
    const char *mode = "File";

    PL_TRY(read_text(root, "TrainingJobName", &view->name, reterr));
    PL_TRY(read_text(algorithm, "TrainingImage", &view->image, reterr));
    PL_TRY(read_text(algorithm, "TrainingInputMode", &mode, reterr));
    PL_TRY(read_words(member(algorithm, "ContainerEntrypoint"), job->entrypoint, &view->entrypoint_words, reterr));
    PL_TRY(read_words(member(algorithm, "ContainerArguments"), job->arguments, &view->argument_words, reterr));
    PL_TRY(read_pairs(member(root, "HyperParameters"), job->hyperparameters, &view->hyperparameter_count, reterr));
    PL_TRY(read_pairs(member(root, "Environment"), job->environment, &view->environment_count, reterr));
    for (struct pl_json_value item = pl_json_first(metrics); pl_json_exists(item); item = pl_json_next(item)) {
        struct pl_local_pair *metric = &job->metrics[view->metric_count++];

        PL_TRY(read_text(item, "Name", &metric->name, reterr));
        PL_TRY(read_text(item, "Regex", &metric->value, reterr));
    }
    for (struct pl_json_value item = pl_json_first(inputs); pl_json_exists(item); item = pl_json_next(item)) {
        PL_TRY(read_channel(job, item, mode, reterr));
    }
    PL_TRY(read_groups(job, root, reterr));
    PL_TRY(read_whole(root, "StoppingCondition.MaxRuntimeInSeconds", &view->max_run_s, reterr));
    view->checkpoint_path = NULL;
    if (pl_json_exists(checkpoint)) {
        view->checkpoint_path = checkpoints;
        PL_TRY(read_text(checkpoint, "LocalPath", &view->checkpoint_path, reterr));
    }
    return pl_json_exists(member(root, "EnableManagedSpotTraining"))
               ? pl_json_bool(member(root, "EnableManagedSpotTraining"), &view->is_spot, reterr)
               : PL_OK;
}

enum pl_status pl_local_job_read(struct pl_local_job *job, const char *path, struct pl_error *reterr)
{
    const char *source = strcmp(path, "-") == 0 ? "standard input" : path;
    size_t bytes;

    if (job->document) {
        return pl_error_set(reterr, PL_INVALID, "--job may be given once; '%s' is the second file", path);
    }
    PL_TRY(pl_file_read(strcmp(path, "-") == 0 ? "/dev/stdin" : path, MOST_BYTES, &job->text, &bytes, reterr));
    PL_TRY(keep(job, source, &job->source, reterr));
    PL_TRY(pl_json_parse(job->text, bytes, source, &job->document, reterr));
    PL_TRY(pl_local_limits_check(job->document, job->text, source, note_ignored, job, reterr));
    return read_document(job, pl_json_root(job->document), reterr);
}

/* ---- options ---- */

enum pl_status pl_local_job_set_name(struct pl_local_job *job, const char *name, struct pl_error *reterr)
{
    PL_TRY(pl_local_limits_check_text("TrainingJobName", "--name", name, reterr));
    return keep(job, name, &job->view.name, reterr);
}

enum pl_status pl_local_job_set_image(struct pl_local_job *job, const char *image, struct pl_error *reterr)
{
    PL_TRY(pl_local_limits_check_text("AlgorithmSpecification.TrainingImage", "--image", image, reterr));
    return keep(job, image, &job->view.image, reterr);
}

enum pl_status pl_local_job_set_hosts(struct pl_local_job *job, uint64_t hosts, struct pl_error *reterr)
{
    if (hosts == 0) {
        return pl_error_set(reterr, PL_INVALID, "--hosts is 0, expected at least 1");
    }
    if (job->view.group_count > 1 || job->groups[0].name) {
        return pl_error_set(reterr, PL_INVALID,
                            "--hosts cannot change a job with instance groups: change InstanceCount of its groups");
    }
    job->groups[0].hosts = (size_t)hosts;
    return PL_OK;
}

/* Splits NAME=VALUE; both are kept. */
static enum pl_status split(struct pl_local_job *job, const char *option, const char *text, struct pl_local_pair *pair,
                            struct pl_error *reterr)
{
    const char *equals = strchr(text, '=');

    if (!equals || equals == text) {
        return pl_error_set(reterr, PL_INVALID, "%s is '%s', expected NAME=VALUE", option, text);
    }
    PL_TRY(keep_n(job, text, (size_t)(equals - text), &pair->name, reterr));
    return keep(job, equals + 1, &pair->value, reterr);
}

/* Adds a pair, or replaces the one of its name. */
static enum pl_status put(struct pl_local_pair *pairs, size_t *count, const char *limit, const char *option,
                          const struct pl_local_pair *pair, struct pl_error *reterr)
{
    for (size_t i = 0; i < *count; i++) {
        if (strcmp(pairs[i].name, pair->name) == 0) {
            pairs[i].value = pair->value;
            return PL_OK;
        }
    }
    PL_TRY(pl_local_limits_check_number(limit, option, (int64_t)*count + 1, reterr));
    pairs[(*count)++] = *pair;
    return PL_OK;
}

static enum pl_status where_of(const char *option, const char *name, struct pl_text *where, struct pl_error *reterr)
{
    pl_text_printf(where, "%s %s", option, name);
    return pl_text_check(where, reterr);
}

static enum pl_status add_pair(struct pl_local_job *job, const char *option, const char *text, const char *map,
                               struct pl_local_pair *pairs, size_t *count, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text where = PL_TEXT_NONE, path = PL_TEXT_NONE;
    struct pl_local_pair pair = {NULL};

    PL_TRY(split(job, option, text, &pair, reterr));
    PL_TRY(where_of(option, pair.name, &where, reterr));
    pl_text_printf(&path, "%s{name}", map);
    PL_TRY(pl_text_check(&path, reterr));
    PL_TRY(pl_local_limits_check_text(path.data, where.data, pair.name, reterr));
    pl_text_clear(&path);
    pl_text_printf(&path, "%s{}", map);
    PL_TRY(pl_text_check(&path, reterr));
    PL_TRY(pl_local_limits_check_text(path.data, where.data, pair.value, reterr));
    return put(pairs, count, map, option, &pair, reterr);
}

enum pl_status pl_local_job_add_hyperparameter(struct pl_local_job *job, const char *pair, struct pl_error *reterr)
{
    return add_pair(job, "--hyperparameter", pair, "HyperParameters", job->hyperparameters,
                    &job->view.hyperparameter_count, reterr);
}

enum pl_status pl_local_job_add_environment(struct pl_local_job *job, const char *pair, struct pl_error *reterr)
{
    return add_pair(job, "--environment", pair, "Environment", job->environment, &job->view.environment_count, reterr);
}

enum pl_status pl_local_job_add_metric(struct pl_local_job *job, const char *pair, struct pl_error *reterr)
{
    static const char list[] = "AlgorithmSpecification.MetricDefinitions";
    PL_AUTO_TEXT struct pl_text where = PL_TEXT_NONE;
    struct pl_local_pair metric = {NULL};

    PL_TRY(split(job, "--metric", pair, &metric, reterr));
    PL_TRY(where_of("--metric", metric.name, &where, reterr));
    PL_TRY(
        pl_local_limits_check_text("AlgorithmSpecification.MetricDefinitions[].Name", where.data, metric.name, reterr));
    PL_TRY(pl_local_limits_check_text("AlgorithmSpecification.MetricDefinitions[].Regex", where.data, metric.value,
                                      reterr));
    return put(job->metrics, &job->view.metric_count, list, "--metric", &metric, reterr);
}

/* Takes one word after the folder of --channel. PL_END if it is none of them, and so belongs to the folder's name. */
static enum pl_status take_word(struct pl_local_job *job, struct pl_local_channel *channel, const char *word,
                                struct pl_error *reterr)
{
    static const char seed[] = "shuffle=", manifest[] = "manifest=", augmented[] = "augmented=";
    char *end = NULL;

    if (strcmp(word, "pipe") == 0) {
        channel->mode = PL_LOCAL_PIPE;
    } else if (strcmp(word, "fastfile") == 0) {
        channel->mode = PL_LOCAL_FAST_FILE;
    } else if (strcmp(word, "sharded") == 0) {
        channel->sharded = true;
    } else if (strcmp(word, "recordio") == 0) {
        channel->recordio = true;
    } else if (strncmp(word, seed, sizeof(seed) - 1) == 0) {
        channel->shuffle_seed = strtoull(word + sizeof(seed) - 1, &end, 10);
        channel->is_shuffled = true;
        if (word[sizeof(seed) - 1] < '0' || word[sizeof(seed) - 1] > '9' || *end) {
            return pl_error_set(reterr, PL_INVALID, "--channel %s: '%s' is not shuffle=NUMBER", channel->name, word);
        }
    } else if (strncmp(word, manifest, sizeof(manifest) - 1) == 0) {
        channel->kind = PL_LOCAL_FROM_MANIFEST;
        word += sizeof(manifest) - 1;
        return keep(job, word, strncmp(word, "s3://", 5) == 0 ? &channel->from : &channel->manifest, reterr);
    } else if (strncmp(word, augmented, sizeof(augmented) - 1) == 0) {
        channel->kind = PL_LOCAL_FROM_AUGMENTED;
        return keep(job, word + sizeof(augmented) - 1, &channel->attributes, reterr);
    } else {
        return PL_END;
    }
    return PL_OK;
}

/* Finds the colon before the last word. The address of a manifest has a colon of its own. */
static char *find_last_word(char *text)
{
    static const char before[] = ":manifest=s3";
    const size_t length = sizeof(before) - 1;
    char *colon = strrchr(text, ':');

    return colon && strncmp(colon, "://", 3) == 0 && (size_t)(colon - text) >= length &&
                   memcmp(colon - length, before, length) == 0
               ? colon - length
               : colon;
}

enum pl_status pl_local_job_add_channel(struct pl_local_job *job, const char *text, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text where = PL_TEXT_NONE;
    struct pl_local_channel channel = {NULL};
    struct pl_local_pair pair = {NULL};
    PL_AUTO_FREE char *from = NULL;
    char *colon;

    PL_TRY(split(job, "--channel", text, &pair, reterr));
    PL_TRY(where_of("--channel", pair.name, &where, reterr));
    PL_TRY(pl_local_limits_check_text("InputDataConfig[].ChannelName", where.data, pair.name, reterr));
    channel.name = pair.name;
    from = pl_memory_string(pair.value, reterr);
    if (!from) {
        return PL_MEMORY;
    }
    /* The words stand at the end; the rest may have colons of its own, as s3:// has. */
    while ((colon = find_last_word(from))) {
        enum pl_status status = take_word(job, &channel, colon + 1, reterr);

        if (status == PL_END) {
            break;
        }
        PL_TRY(status);
        *colon = '\0';
    }
    if (!channel.from) {
        PL_TRY(keep(job, from, &channel.from, reterr));
    }
    if (!*channel.from) {
        return pl_error_set(reterr, PL_INVALID, "--channel is '%s', expected NAME=DIR[:WORD...]", text);
    }
    for (size_t i = 0; i < job->view.channel_count; i++) {
        if (strcmp(job->channels[i].name, channel.name) == 0) {
            if (job->channel_data[i].by_option) {
                return pl_error_set(reterr, PL_INVALID, "--channel %s is given twice", channel.name);
            }
            job->channels[i] = channel;
            job->channel_data[i].by_option = true;
            return PL_OK;
        }
    }
    PL_TRY(pl_local_limits_check_number("InputDataConfig", "--channel", (int64_t)job->view.channel_count + 1, reterr));
    job->channel_data[job->view.channel_count].by_option = true;
    job->channels[job->view.channel_count++] = channel;
    return PL_OK;
}

enum pl_status pl_local_job_set_max_run(struct pl_local_job *job, uint64_t seconds, struct pl_error *reterr)
{
    PL_TRY(
        pl_local_limits_check_number("StoppingCondition.MaxRuntimeInSeconds", "--max-run", (int64_t)seconds, reterr));
    job->view.max_run_s = seconds;
    return PL_OK;
}

enum pl_status pl_local_job_set_words(struct pl_local_job *job, char *const *words, size_t count,
                                      struct pl_error *reterr)
{
    PL_TRY(pl_local_limits_check_number("AlgorithmSpecification.ContainerArguments", "the command", (int64_t)count,
                                        reterr));
    for (size_t i = 0; i < count; i++) {
        PL_TRY(keep(job, words[i], &job->arguments[i], reterr));
    }
    job->view.argument_words = count;
    return PL_OK;
}

/* ---- the whole ---- */

static enum pl_status check_channel(const struct pl_local_view *view, const struct pl_local_channel *channel,
                                    struct pl_error *reterr)
{
    for (size_t i = 0; i < channel->group_count; i++) {
        bool found = false;

        for (size_t j = 0; j < view->group_count; j++) {
            found = found || (view->groups[j].name && strcmp(view->groups[j].name, channel->groups[i]) == 0);
        }
        if (!found) {
            return pl_error_set(reterr, PL_INVALID, "channel '%s': the job has no instance group '%s'", channel->name,
                                channel->groups[i]);
        }
    }
    if (channel->kind == PL_LOCAL_FROM_AUGMENTED && !channel->attributes) {
        return pl_error_set(reterr, PL_INVALID,
                            "channel '%s': an AugmentedManifestFile needs AttributeNames, from 1 to 16 names",
                            channel->name);
    }
    if (channel->kind == PL_LOCAL_FROM_AUGMENTED && channel->mode != PL_LOCAL_PIPE) {
        return pl_error_set(reterr, PL_INVALID, "channel '%s': an AugmentedManifestFile needs the mode Pipe",
                            channel->name);
    }
    return PL_OK;
}

static enum pl_status refuse(const struct pl_local_job *job, const char *path, const char *what,
                             struct pl_error *reterr)
{
    return pl_local_limits_refuse(job->document, job->text, job->source, path, what, reterr);
}

enum pl_status pl_local_job_check(struct pl_local_job *job, const struct pl_local_view **ret_view,
                                  struct pl_error *reterr)
{
    struct pl_local_view *view = &job->view;
    struct pl_json_value root = job->document ? pl_json_root(job->document) : (struct pl_json_value){NULL};
    uint64_t wait_s = 0;
    char text[160];

    view->hyperparameters = job->hyperparameters;
    view->environment = job->environment;
    view->metrics = job->metrics;
    view->channels = job->channels;
    view->groups = job->groups;
    view->entrypoint = view->entrypoint_words > 0 ? job->entrypoint : NULL;
    view->arguments = job->arguments;
    view->ignored = job->ignored;
    view->hosts = 0;
    for (size_t i = 0; i < view->group_count; i++) {
        view->hosts += view->groups[i].hosts;
        for (size_t j = 0; j < i; j++) {
            if (strcmp(view->groups[i].name, view->groups[j].name) == 0) {
                return pl_error_set(reterr, PL_INVALID, "the instance group '%s' is there twice", view->groups[i].name);
            }
        }
    }
    if (view->hosts == 0) {
        return refuse(job, "ResourceConfig.InstanceCount", "expected at least 1, found 0", reterr);
    }
    for (size_t i = 0; i < view->channel_count; i++) {
        PL_TRY(check_channel(view, &view->channels[i], reterr));
        for (size_t j = 0; j < i; j++) {
            if (strcmp(view->channels[i].name, view->channels[j].name) == 0) {
                snprintf(text, sizeof(text), "InputDataConfig[%zu].ChannelName", i);
                return refuse(job, text, "another channel has this name", reterr);
            }
        }
    }
    if (job->document) {
        PL_TRY(read_whole(root, "StoppingCondition.MaxWaitTimeInSeconds", &wait_s, reterr));
    }
    if (wait_s > 0 && !view->is_spot) {
        return refuse(job, "StoppingCondition.MaxWaitTimeInSeconds", "needs EnableManagedSpotTraining true", reterr);
    }
    if (wait_s > 0 && wait_s < view->max_run_s) {
        snprintf(text, sizeof(text), "expected at least MaxRuntimeInSeconds, which is %" PRIu64 ", found %" PRIu64,
                 view->max_run_s, wait_s);
        return refuse(job, "StoppingCondition.MaxWaitTimeInSeconds", text, reterr);
    }
    *ret_view = view;
    return PL_OK;
}
