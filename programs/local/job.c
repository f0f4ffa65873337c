/* SPDX-License-Identifier: Apache-2.0 */
/* The description of a job: read from the body of CreateTrainingJob, edited by options, checked. */
#include "programs/local/job.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json/json.h"
#include "base/memory.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_BYTES = 16 << 20, MOST_NAME_BYTES = 63, MOST_CHANNEL_BYTES = 64 };

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

static const char one_group[] = "homogeneousCluster"; /* SageMaker's name for the only group of a job without groups */
static const char checkpoints[] = "/opt/ml/checkpoints";
static const char name_words[] = "1 to 63 letters, digits and hyphens, the first one no hyphen";
static const char channel_words[] = "1 to 64 letters, digits, dots, hyphens and underscores";

/* Keeps a copy of `length` bytes until the job is freed. */
static enum pl_status keep_n(struct pl_local_job *job, const char *text, size_t length, const char **ret_kept,
                             struct pl_error *reterr)
{
    pl_strv_printf(&job->texts, "%.*s", (int)length, text);
    PL_TRY(pl_strv_check(&job->texts, reterr));
    *ret_kept = job->texts.items[job->texts.count - 1];
    return PL_OK;
}

static enum pl_status keep(struct pl_local_job *job, const char *text, const char **ret_kept, struct pl_error *reterr)
{
    return keep_n(job, text, strlen(text), ret_kept, reterr);
}

/* Names of jobs and of channels are names of folders, too. */
static bool is_name(const char *text)
{
    return strlen(text) - 1 < MOST_NAME_BYTES && *text != '-' && text[strspn(text, LETTERS "-")] == '\0';
}

static bool is_channel(const char *text)
{
    return strlen(text) - 1 < MOST_CHANNEL_BYTES && text[strspn(text, LETTERS ".-_")] == '\0' &&
           strcmp(text, ".") != 0 && strcmp(text, "..") != 0;
}

enum pl_status pl_local_job_init(struct pl_local_job *job, struct pl_error *reterr)
{
    struct timespec now = {0};
    struct tm utc;
    char name[64];
    size_t length;

    memset(job, 0, sizeof(*job));
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    length = strftime(name, sizeof(name), "local-%Y-%m-%d-%H-%M-%S", &utc);
    snprintf(name + length, sizeof(name) - length, "-%03d", (int)(now.tv_nsec / PL_NS_PER_MS)); /* as the SDK does */
    job->checkpoint_path = checkpoints;
    job->instance_type = "local";
    job->groups[0].hosts = 1;
    job->group_count = 1;
    return keep(job, name, &job->name, reterr);
}

void pl_local_job_done(struct pl_local_job *job)
{
    for (size_t i = 0; i < job->channel_count; i++) {
        pl_strv_done(&job->channels[i].groups);
    }
    pl_strv_done(&job->entrypoint);
    pl_strv_done(&job->arguments);
    pl_strv_done(&job->texts);
    pl_strv_done(&job->ignored);
    pl_json_free(job->document);
}

/* ---- the file ---- */

/* Finds a member, which may be missing; a member that exists must have the kind. */
static enum pl_status find(struct pl_json_value object, const char *name, enum pl_json_kind kind,
                           struct pl_json_value *ret_value, struct pl_error *reterr)
{
    *ret_value = pl_json_member(object, name);
    PL_TRY(pl_json_exists(*ret_value) ? pl_json_expect(*ret_value, kind, reterr) : PL_OK);
    return pl_json_count(*ret_value) <= PL_LOCAL_MOST_ITEMS ? PL_OK
                                                            : pl_json_wrong(*ret_value, "at most 256 entries", reterr);
}

/* Reads a text. `text` borrows it from the document, which outlives the view. */
static enum pl_status read_text(struct pl_json_value object, const char *name, const char **text,
                                struct pl_error *reterr)
{
    struct pl_json_value value = pl_json_member(object, name);

    return pl_json_exists(value) ? pl_json_text(value, text, reterr) : PL_OK;
}

/* Sets the index of the member's text in `words`, which end with NULL. */
static enum pl_status read_choice(struct pl_json_value object, const char *name, const char *const *words,
                                  const char *expected, int *index, struct pl_error *reterr)
{
    const char *text = NULL;

    PL_TRY(read_text(object, name, &text, reterr));
    for (int i = 0; text && words[i]; i++) {
        if (strcmp(words[i], text) == 0) {
            *index = i;
            return PL_OK;
        }
    }
    return text ? pl_json_wrong(pl_json_member(object, name), expected, reterr) : PL_OK;
}

static enum pl_status read_whole(struct pl_json_value object, const char *name, int64_t least, int64_t most,
                                 int64_t *number, struct pl_error *reterr)
{
    struct pl_json_value value = pl_json_member(object, name);

    return pl_json_exists(value) ? pl_json_int64(value, least, most, number, reterr) : PL_OK;
}

static enum pl_status read_pairs(struct pl_json_value object, const char *name, struct pl_local_pairs *pairs,
                                 struct pl_error *reterr)
{
    struct pl_json_value map;

    PL_TRY(find(object, name, PL_JSON_OBJECT, &map, reterr));
    for (struct pl_json_value item = pl_json_first(map); pl_json_exists(item); item = pl_json_next(item)) {
        struct pl_local_pair *pair = &pairs->items[pairs->count++];

        pair->name = pl_json_name(item);
        PL_TRY(pl_json_text(item, &pair->value, reterr));
    }
    return PL_OK;
}

static enum pl_status read_words(struct pl_json_value object, const char *name, struct pl_strv *words,
                                 struct pl_error *reterr)
{
    struct pl_json_value list;
    const char *word;

    PL_TRY(find(object, name, PL_JSON_LIST, &list, reterr));
    for (struct pl_json_value item = pl_json_first(list); pl_json_exists(item); item = pl_json_next(item)) {
        PL_TRY(pl_json_text(item, &word, reterr));
        pl_strv_add(words, word);
    }
    return pl_strv_check(words, reterr);
}

/* Notes the members that are not read here, by their path. `known` begins and ends with a blank. */
static enum pl_status note_others(struct pl_local_job *job, struct pl_json_value object, const char *path,
                                  const char *known, struct pl_error *reterr)
{
    for (struct pl_json_value item = pl_json_first(object); pl_json_exists(item); item = pl_json_next(item)) {
        PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

        PL_TRY(pl_text_set(&text, reterr, " %s ", pl_json_name(item)));
        if (strstr(known, text.data)) {
            continue;
        }
        PL_TRY(pl_text_set(&text, reterr, "%s%s", path, pl_json_name(item)));
        if (pl_strv_find(&job->ignored, text.data) < 0) { /* a list's items have the same members */
            pl_strv_add(&job->ignored, text.data);
        }
    }
    return pl_strv_check(&job->ignored, reterr);
}

static enum pl_status read_mode(struct pl_json_value object, const char *name, int *mode, struct pl_error *reterr)
{
    static const char *const modes[] = {
        [PL_LOCAL_FILE] = "File", [PL_LOCAL_FAST_FILE] = "FastFile", [PL_LOCAL_PIPE] = "Pipe", NULL};

    return read_choice(object, name, modes, "Pipe, File or FastFile", mode, reterr);
}

/* Reads S3DataSource and its members. */
static enum pl_status read_source(struct pl_local_job *job, struct pl_json_value object,
                                  struct pl_local_channel *channel, struct pl_error *reterr)
{
    static const char *const types[] = {"S3Prefix", "ManifestFile", "AugmentedManifestFile", "Converse", NULL};
    static const char *const distributions[] = {"FullyReplicated", "ShardedByS3Key", NULL};
    PL_AUTO_TEXT struct pl_text attributes = PL_TEXT_NONE;
    PL_AUTO_STRV struct pl_strv names = PL_STRV_NONE;
    struct pl_json_value data, source;
    int type = 0, distribution = 0;

    PL_TRY(find(object, "DataSource", PL_JSON_OBJECT, &data, reterr));
    source = pl_json_member(data, "S3DataSource");
    if (pl_json_kind(source) != PL_JSON_OBJECT) {
        return pl_json_wrong(pl_json_exists(data) ? data : object,
                             "an S3DataSource (only those are imitated; --channel NAME=DIR takes a folder)", reterr);
    }
    PL_TRY(pl_json_text(pl_json_member(source, "S3Uri"), &channel->from, reterr));
    PL_TRY(read_choice(source, "S3DataType", types, "S3Prefix, ManifestFile or AugmentedManifestFile", &type, reterr));
    PL_TRY(read_choice(source, "S3DataDistributionType", distributions, "FullyReplicated or ShardedByS3Key",
                       &distribution, reterr));
    PL_TRY(read_words(source, "InstanceGroupNames", &channel->groups, reterr));
    PL_TRY(read_words(source, "AttributeNames", &names, reterr));
    for (size_t i = 0; i < names.count; i++) {
        pl_text_printf(&attributes, "%s%s", i > 0 ? "," : "", names.items[i]);
    }
    PL_TRY(pl_text_check(&attributes, reterr));
    if (names.count > 0) {
        PL_TRY(keep(job, attributes.data, &channel->attributes, reterr));
    }
    channel->kind = type > PL_LOCAL_FROM_AUGMENTED ? PL_LOCAL_FROM_FOLDER : (enum pl_local_from)type;
    channel->sharded = distribution == 1;
    return note_others(job, source, "InputDataConfig[].DataSource.S3DataSource.",
                       " S3Uri S3DataType S3DataDistributionType InstanceGroupNames AttributeNames ", reterr);
}

static enum pl_status read_channel(struct pl_local_job *job, struct pl_json_value object, int mode,
                                   struct pl_error *reterr)
{
    static const char *const wrappers[] = {"None", "RecordIO", NULL}, *const compressions[] = {"None", "Gzip", NULL};
    struct pl_local_channel *channel = &job->channels[job->channel_count];
    struct pl_json_value name = pl_json_member(object, "ChannelName"), shuffle;
    int wrapper = 0, compression = 0;
    int64_t seed = 0;

    PL_TRY(pl_json_text(name, &channel->name, reterr));
    if (!is_channel(channel->name)) {
        return pl_json_wrong(name, channel_words, reterr);
    }
    PL_TRY(read_source(job, object, channel, reterr));
    PL_TRY(read_mode(object, "InputMode", &mode, reterr));
    PL_TRY(read_text(object, "ContentType", &channel->content_type, reterr));
    PL_TRY(read_choice(object, "RecordWrapperType", wrappers, "None or RecordIO", &wrapper, reterr));
    PL_TRY(read_choice(object, "CompressionType", compressions, "None or Gzip", &compression, reterr));
    PL_TRY(find(object, "ShuffleConfig", PL_JSON_OBJECT, &shuffle, reterr));
    PL_TRY(read_whole(shuffle, "Seed", -PL_JSON_MAX_INTEGER, PL_JSON_MAX_INTEGER, &seed, reterr));
    channel->mode = (enum pl_local_mode)mode;
    channel->recordio = wrapper == 1;
    channel->is_gzip = compression == 1;
    channel->is_shuffled = pl_json_exists(shuffle);
    channel->shuffle_seed = (uint64_t)seed;
    job->channel_count++;
    return note_others(job, object, "InputDataConfig[].",
                       " ChannelName DataSource InputMode ContentType RecordWrapperType CompressionType ShuffleConfig ",
                       reterr);
}

static enum pl_status read_channels(struct pl_local_job *job, struct pl_json_value root, int mode,
                                    struct pl_error *reterr)
{
    struct pl_json_value list;

    PL_TRY(find(root, "InputDataConfig", PL_JSON_LIST, &list, reterr));
    for (struct pl_json_value item = pl_json_first(list); pl_json_exists(item); item = pl_json_next(item)) {
        PL_TRY(read_channel(job, item, mode, reterr));
    }
    return PL_OK;
}

static enum pl_status read_resources(struct pl_local_job *job, struct pl_json_value root, struct pl_error *reterr)
{
    struct pl_json_value resources, groups;
    size_t count = 0;
    int64_t hosts = 1;

    PL_TRY(find(root, "ResourceConfig", PL_JSON_OBJECT, &resources, reterr));
    PL_TRY(find(resources, "InstanceGroups", PL_JSON_LIST, &groups, reterr));
    PL_TRY(read_text(resources, "InstanceType", &job->instance_type, reterr));
    PL_TRY(read_whole(resources, "InstanceCount", pl_json_count(groups) == 0, PL_LOCAL_MOST_HOSTS, &hosts, reterr));
    job->groups[0].hosts = (size_t)hosts;
    for (struct pl_json_value item = pl_json_first(groups); pl_json_exists(item); item = pl_json_next(item)) {
        struct pl_local_group *group = &job->groups[count++];

        PL_TRY(pl_json_text(pl_json_member(item, "InstanceGroupName"), &group->name, reterr));
        PL_TRY(read_text(item, "InstanceType", &group->instance_type, reterr));
        PL_TRY(pl_json_int64(pl_json_member(item, "InstanceCount"), 0, PL_LOCAL_MOST_HOSTS, &hosts, reterr));
        group->hosts = (size_t)hosts;
    }
    job->group_count = count > 0 ? count : 1;
    return note_others(job, resources, "ResourceConfig.", " InstanceType InstanceCount InstanceGroups ", reterr);
}

static enum pl_status read_algorithm(struct pl_local_job *job, struct pl_json_value root, int *mode,
                                     struct pl_error *reterr)
{
    struct pl_json_value algorithm, metrics;

    PL_TRY(find(root, "AlgorithmSpecification", PL_JSON_OBJECT, &algorithm, reterr));
    PL_TRY(read_text(algorithm, "TrainingImage", &job->image, reterr));
    PL_TRY(read_mode(algorithm, "TrainingInputMode", mode, reterr));
    PL_TRY(read_words(algorithm, "ContainerEntrypoint", &job->entrypoint, reterr));
    PL_TRY(read_words(algorithm, "ContainerArguments", &job->arguments, reterr));
    PL_TRY(find(algorithm, "MetricDefinitions", PL_JSON_LIST, &metrics, reterr));
    for (struct pl_json_value item = pl_json_first(metrics); pl_json_exists(item); item = pl_json_next(item)) {
        struct pl_local_pair *metric = &job->metrics.items[job->metrics.count++];

        PL_TRY(pl_json_text(pl_json_member(item, "Name"), &metric->name, reterr));
        PL_TRY(pl_json_text(pl_json_member(item, "Regex"), &metric->value, reterr));
    }
    return note_others(job, algorithm, "AlgorithmSpecification.",
                       " TrainingImage TrainingInputMode ContainerEntrypoint ContainerArguments MetricDefinitions ",
                       reterr);
}

static enum pl_status read_document(struct pl_local_job *job, struct pl_json_value root, struct pl_error *reterr)
{
    struct pl_json_value name = pl_json_member(root, "TrainingJobName"), checkpoint, stopping;
    int mode = PL_LOCAL_FILE;
    int64_t seconds = 0;

    PL_TRY(pl_json_expect(root, PL_JSON_OBJECT, reterr));
    PL_TRY(read_text(root, "TrainingJobName", &job->name, reterr));
    if (!is_name(job->name)) {
        return pl_json_wrong(name, name_words, reterr);
    }
    PL_TRY(read_algorithm(job, root, &mode, reterr));
    PL_TRY(read_pairs(root, "HyperParameters", &job->hyperparameters, reterr));
    PL_TRY(read_pairs(root, "Environment", &job->environment, reterr));
    PL_TRY(read_channels(job, root, mode, reterr));
    PL_TRY(read_resources(job, root, reterr));
    PL_TRY(find(root, "StoppingCondition", PL_JSON_OBJECT, &stopping, reterr));
    PL_TRY(read_whole(stopping, "MaxRuntimeInSeconds", 1, INT32_MAX, &seconds, reterr));
    job->max_run_s = (uint64_t)seconds;
    PL_TRY(note_others(job, stopping, "StoppingCondition.", " MaxRuntimeInSeconds ", reterr));
    PL_TRY(find(root, "CheckpointConfig", PL_JSON_OBJECT, &checkpoint, reterr));
    job->checkpoint_path = pl_json_exists(checkpoint) ? checkpoints : NULL;
    PL_TRY(read_text(checkpoint, "LocalPath", &job->checkpoint_path, reterr));
    return note_others(job, root, "",
                       " TrainingJobName AlgorithmSpecification HyperParameters Environment InputDataConfig "
                       "ResourceConfig StoppingCondition CheckpointConfig ",
                       reterr);
}

enum pl_status pl_local_job_read(struct pl_local_job *job, const char *path, struct pl_error *reterr)
{
    const char *source = strcmp(path, "-") == 0 ? "standard input" : path;
    PL_AUTO_FREE char *text = NULL;
    size_t bytes;

    if (job->document) {
        return pl_error_set(reterr, PL_INVALID, "--job may be given once; '%s' is the second file", path);
    }
    PL_TRY(pl_file_read(strcmp(path, "-") == 0 ? "/dev/stdin" : path, MOST_BYTES, &text, &bytes, reterr));
    PL_TRY(pl_json_parse(text, bytes, source, &job->document, reterr));
    return read_document(job, pl_json_root(job->document), reterr);
}

/* ---- options ---- */

enum pl_status pl_local_job_set_name(const char *name, const char *text, void *field, struct pl_error *reterr)
{
    struct pl_local_job *job = field;

    return is_name(text) ? keep(job, text, &job->name, reterr)
                         : pl_error_set(reterr, PL_INVALID, "--%s is '%s', expected %s", name, text, name_words);
}

enum pl_status pl_local_job_set_hosts(const char *name, const char *text, void *field, struct pl_error *reterr)
{
    struct pl_local_job *job = field;
    uint64_t hosts;

    PL_TRY(pl_options_whole(name, text, 1, PL_LOCAL_MOST_HOSTS, &hosts, reterr));
    if (job->groups[0].name) {
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
        return pl_error_set(reterr, PL_INVALID, "--%s is '%s', expected NAME=VALUE", option, text);
    }
    PL_TRY(keep_n(job, text, (size_t)(equals - text), &pair->name, reterr));
    return keep(job, equals + 1, &pair->value, reterr);
}

static enum pl_status check_room(size_t count, const char *option, struct pl_error *reterr)
{
    return count < PL_LOCAL_MOST_ITEMS
               ? PL_OK
               : pl_error_set(reterr, PL_INVALID, "--%s: found more than %d", option, (int)PL_LOCAL_MOST_ITEMS);
}

enum pl_status pl_local_job_add(const char *option, const char *text, void *field, struct pl_error *reterr)
{
    struct pl_local_job *job = field;
    struct pl_local_pairs *pairs = strcmp(option, "metric") == 0        ? &job->metrics
                                   : strcmp(option, "environment") == 0 ? &job->environment
                                                                        : &job->hyperparameters;
    struct pl_local_pair pair = {NULL};

    PL_TRY(split(job, option, text, &pair, reterr));
    for (size_t i = 0; i < pairs->count; i++) {
        if (strcmp(pairs->items[i].name, pair.name) == 0) {
            pairs->items[i].value = pair.value;
            return PL_OK;
        }
    }
    PL_TRY(check_room(pairs->count, option, reterr));
    pairs->items[pairs->count++] = pair;
    return PL_OK;
}

/* Takes one word after the folder of --channel. PL_END if it is no such word, and so belongs to the folder's name. */
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

enum pl_status pl_local_job_add_channel(const char *name, const char *text, void *field, struct pl_error *reterr)
{
    struct pl_local_job *job = field;
    struct pl_local_channel channel = {.by_option = true};
    struct pl_local_pair pair = {NULL};
    PL_AUTO_FREE char *from = NULL;
    char *colon;

    PL_TRY(split(job, name, text, &pair, reterr));
    if (!is_channel(pair.name)) {
        return pl_error_set(reterr, PL_INVALID, "--channel %s: expected a name of %s", pair.name, channel_words);
    }
    channel.name = pair.name;
    from = pl_memory_string(pair.value, reterr);
    PL_TRY(from ? PL_OK : PL_MEMORY);
    /* The words are at the end; the text before them may have colons of its own, as s3:// has. */
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
    for (size_t i = 0; i < job->channel_count; i++) {
        if (strcmp(job->channels[i].name, channel.name) == 0) {
            if (job->channels[i].by_option) {
                return pl_error_set(reterr, PL_INVALID, "--channel %s is given twice", channel.name);
            }
            pl_strv_done(&job->channels[i].groups);
            job->channels[i] = channel;
            return PL_OK;
        }
    }
    PL_TRY(check_room(job->channel_count, "channel", reterr));
    job->channels[job->channel_count++] = channel;
    return PL_OK;
}

enum pl_status pl_local_job_set_words(struct pl_local_job *job, char *const *words, size_t count,
                                      struct pl_error *reterr)
{
    if (count > PL_LOCAL_MOST_ITEMS) {
        return pl_error_set(reterr, PL_INVALID, "the command has %zu words, expected at most %d", count,
                            (int)PL_LOCAL_MOST_ITEMS);
    }
    pl_strv_done(&job->arguments);
    for (size_t i = 0; i < count; i++) {
        pl_strv_add(&job->arguments, words[i]);
    }
    return pl_strv_check(&job->arguments, reterr);
}

/* ---- the whole ---- */

bool pl_local_channel_is_of(const struct pl_local_channel *channel, const char *group)
{
    return channel->groups.count == 0 || pl_strv_find(&channel->groups, group) >= 0;
}

static enum pl_status check_channel(const struct pl_local_job *job, const struct pl_local_channel *channel,
                                    struct pl_error *reterr)
{
    bool is_seen = false;

    for (size_t i = 0; i < job->group_count; i++) {
        is_seen = is_seen || pl_local_channel_is_of(channel, job->groups[i].name);
    }
    if (!is_seen) {
        return pl_error_set(reterr, PL_INVALID, "channel '%s': the job has none of its instance groups", channel->name);
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

enum pl_status pl_local_job_check(struct pl_local_job *job, struct pl_error *reterr)
{
    job->hosts = 0;
    for (size_t i = 0; i < job->group_count; i++) {
        struct pl_local_group *group = &job->groups[i];

        group->name = group->name ? group->name : one_group;
        group->instance_type = group->instance_type ? group->instance_type : job->instance_type;
        job->hosts += group->hosts;
        for (size_t j = 0; j < i; j++) {
            if (strcmp(group->name, job->groups[j].name) == 0) {
                return pl_error_set(reterr, PL_INVALID, "the instance group '%s' is there twice", group->name);
            }
        }
    }
    if (job->hosts == 0 || job->hosts > PL_LOCAL_MOST_HOSTS) {
        return pl_error_set(reterr, PL_INVALID, "the job has %zu hosts, expected 1 to %d", job->hosts,
                            (int)PL_LOCAL_MOST_HOSTS);
    }
    for (size_t i = 0; i < job->channel_count; i++) {
        PL_TRY(check_channel(job, &job->channels[i], reterr));
        for (size_t j = 0; j < i; j++) {
            if (strcmp(job->channels[i].name, job->channels[j].name) == 0) {
                return pl_error_set(reterr, PL_INVALID, "the channel '%s' is there twice", job->channels[i].name);
            }
        }
    }
    return PL_OK;
}
