/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a channel's settings from the SM_* variables of the environment, and opening its files or FIFOs. */
#include "s3io/channel.h"

#include "base/environment.h"
#include "base/file.h"
#include "base/json/json.h"
#include "base/memory.h"
#include "base/text.h"
#include "s3io/source.h"
#include "s3io/store_private.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/*
 * Reads the member `name` of the channel as text. `*ret_text` does not change if the member is absent, null or empty.
 */
static enum pl_status text_member(struct pl_json_value channel, const char *name, const char **ret_text,
                                  struct pl_error *reterr)
{
    const char *text;

    PL_TRY(pl_json_text_or(pl_json_member(channel, name), "", &text, reterr));
    if (*text) {
        *ret_text = text;
    }
    return PL_OK;
}

static enum pl_status unknown(const char *name, const char *key, const char *value, const char *expected,
                              struct pl_error *reterr)
{
    return pl_error_set(reterr, PL_INVALID, "channel '%s': %s is '%s', expected %s", name, key, value, expected);
}

static enum pl_status read_info(struct pl_json_value channel, const char *name, struct pl_channel *info,
                                struct pl_error *reterr)
{
    const char *mode = "File";
    const char *distribution = "FullyReplicated";
    const char *wrapper = "None";

    if (pl_json_exists(channel)) {
        PL_TRY(pl_json_expect(channel, PL_JSON_OBJECT, reterr));
    }
    info->is_shuffled = pl_json_exists(pl_json_member(channel, "ShuffleConfig"));
    PL_TRY(text_member(channel, "TrainingInputMode", &mode, reterr));
    PL_TRY(text_member(channel, "InputMode", &mode, reterr));
    PL_TRY(text_member(channel, "S3DistributionType", &distribution, reterr));
    PL_TRY(text_member(channel, "RecordWrapperType", &wrapper, reterr));
    if (strcmp(mode, "File") == 0) {
        info->mode = PL_CHANNEL_FILE;
    } else if (strcmp(mode, "Pipe") == 0) {
        info->mode = PL_CHANNEL_PIPE;
    } else if (strcmp(mode, "FastFile") == 0) {
        info->mode = PL_CHANNEL_FASTFILE;
    } else {
        return unknown(name, "the input mode", mode, "File, Pipe or FastFile", reterr);
    }
    if (strcmp(distribution, "ShardedByS3Key") == 0) {
        info->distribution = PL_CHANNEL_SHARDED_BY_KEY;
    } else if (strcmp(distribution, "FullyReplicated") != 0) {
        return unknown(name, "S3DistributionType", distribution, "FullyReplicated or ShardedByS3Key", reterr);
    }
    if (strcmp(wrapper, "RecordIO") == 0) {
        info->wrapper = PL_CHANNEL_WRAPPER_RECORDIO;
    } else if (strcmp(wrapper, "None") != 0) {
        return unknown(name, "RecordWrapperType", wrapper, "None or RecordIO", reterr);
    }
    return PL_OK;
}

/* Whether `name` is one of the names in `list`, which commas separate. */
static bool is_in(const char *list, const char *name)
{
    const size_t length = strlen(name);

    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',') {
        if (strcspn(at, ",") == length && strncmp(at, name, length) == 0) {
            return true;
        }
    }
    return false;
}

enum pl_status pl_channel_setup_directory(const char *name, const char *path, struct pl_channel_setup *ret_setup,
                                          struct pl_error *reterr)
{
    PL_AUTO_FREE char *own_name = pl_memory_string(name, reterr);
    PL_AUTO_FREE char *own_path = pl_memory_string(path, reterr);

    if (!own_name || !own_path) {
        return PL_MEMORY;
    }
    *ret_setup =
        (struct pl_channel_setup){.info = {.name = own_name, .path = own_path}, .name = own_name, .path = own_path};
    own_name = NULL;
    own_path = NULL;
    return PL_OK;
}

/* Finds the file that says which FIFO is next. Process 1 of the host keeps the file `opened-NAME` of its run directory
 * from one attempt of the job to the next (entrypoint/supervise/restart.h). */
static enum pl_status find_begun(const struct pl_environment *environment, struct pl_channel_setup *setup,
                                 struct pl_error *reterr)
{
    const char *directory = pl_environment_get_or(environment, "PACELINE_RUN_DIR", NULL);
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    if (setup->info.mode != PL_CHANNEL_PIPE || !directory) {
        return PL_OK;
    }
    pl_text_printf(&path, "%s/opened-%s", directory, setup->name);
    PL_TRY(pl_text_take(&path, &setup->begun_path, reterr));
    setup->info.begun_path = setup->begun_path;
    return PL_OK;
}

enum pl_status pl_channel_setup_find_in(const struct pl_environment *environment, const char *name,
                                        struct pl_channel_setup *ret_setup, struct pl_error *reterr)
{
    const char *text = pl_environment_get_or(environment, "SM_INPUT_DATA_CONFIG", "{}");
    PL_AUTO_TEXT struct pl_text variable = PL_TEXT_NONE;
    PL_AUTO_JSON struct pl_json *config = NULL;
    struct pl_channel_setup setup = {0};
    const char *path;
    enum pl_status status;

    pl_text_append(&variable, "SM_CHANNEL_");
    for (const char *at = name; *at; at++) {
        pl_text_append_char(&variable, (char)toupper((unsigned char)*at));
    }
    PL_TRY(pl_text_check(&variable, reterr));
    path = pl_environment_get_or(environment, pl_text_string(&variable), NULL);
    if (!path) {
        return pl_error_set(reterr, PL_NOT_FOUND, "there is no channel '%s' (%s is not set); channels are %s", name,
                            pl_text_string(&variable), pl_environment_get_or(environment, "SM_CHANNELS", "[]"));
    }
    PL_TRY(pl_json_parse(text, strlen(text), "SM_INPUT_DATA_CONFIG", &config, reterr));
    PL_TRY(pl_json_expect(pl_json_root(config), PL_JSON_OBJECT, reterr));
    PL_TRY(pl_channel_setup_directory(name, path, &setup, reterr));
    status = read_info(pl_json_member(pl_json_root(config), name), name, &setup.info, reterr);
    setup.info.is_dealt =
        setup.info.mode == PL_CHANNEL_PIPE && is_in(pl_environment_get_or(environment, "PACELINE_FIFOS", ""), name);
    status = status == PL_OK ? find_begun(environment, &setup, reterr) : status;
    if (status != PL_OK) {
        pl_channel_setup_done(&setup);
        return status;
    }
    *ret_setup = setup;
    return PL_OK;
}

void pl_channel_setup_done(struct pl_channel_setup *setup)
{
    free(setup->name);
    free(setup->path);
    free(setup->begun_path);
    *setup = (struct pl_channel_setup){0};
}

struct pl_shard pl_channel_shard(const struct pl_channel *channel, struct pl_shard world, struct pl_shard local)
{
    if (channel->is_dealt) {
        return (struct pl_shard){.rank = 0, .size = 1};
    }
    switch (channel->distribution) {
    case PL_CHANNEL_FULLY_REPLICATED:
        return world;
    case PL_CHANNEL_SHARDED_BY_KEY:
        return local;
    }
    return world;
}

enum pl_status pl_channel_open_store(const struct pl_channel *channel, struct pl_store **ret_store,
                                     struct pl_error *reterr)
{
    if (channel->mode == PL_CHANNEL_PIPE) {
        return pl_error_set(reterr, PL_INVALID, "channel '%s' is in Pipe Mode and has no files", channel->name);
    }
    return pl_store_open_directory(channel->path, false, ret_store, reterr);
}

/* Reads how many FIFOs were begun; 0 if there is no file. */
static enum pl_status read_begun(const char *path, uint64_t *ret_number, struct pl_error *reterr)
{
    PL_AUTO_FREE char *text = NULL;
    const enum pl_status status = pl_file_read(path, 32, &text, NULL, reterr);

    *ret_number = text ? strtoull(text, NULL, 10) : 0;
    return status == PL_NOT_FOUND ? PL_OK : status;
}

enum pl_status pl_channel_open_epoch(const struct pl_channel *channel, uint64_t epoch, struct pl_source **ret_source,
                                     struct pl_error *reterr)
{
    PL_AUTO_SOURCE struct pl_source *source = NULL;
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE, begun = PL_TEXT_NONE;
    const char *slash = strrchr(channel->path, '/');
    uint64_t number = epoch;

    if (channel->mode != PL_CHANNEL_PIPE) {
        return pl_error_set(reterr, PL_INVALID, "channel '%s' is not in Pipe Mode", channel->name);
    }
    if (channel->begun_path) { /* a rank's own FIFOs begin with number 0 in each attempt */
        PL_TRY(channel->is_dealt ? pl_text_set(&begun, reterr, "%s.opened", channel->path)
                                 : pl_text_set(&begun, reterr, "%s", channel->begun_path));
        PL_TRY(read_begun(begun.data, &number, reterr));
    }
    PL_TRY(pl_text_set(&path, reterr, "%s_%" PRIu64, channel->path, number));
    PL_TRY(pl_source_open_fifo(pl_text_string(&path), &source, reterr));
    if (channel->begun_path) {
        PL_TRY(pl_source_count_fifo(source, begun.data, number + 1, reterr));
    }
    if (channel->stop_fd > 0) {
        pl_source_stop_fifo(source, channel->stop_fd);
    }
    if (channel->is_dealt && slash) { /* the report is beside the ranks' folders */
        PL_TRY(pl_text_set(&path, reterr, "%.*s/../%s.report", (int)(slash - channel->path), channel->path, slash + 1));
        PL_TRY(pl_source_follow_report(source, path.data, reterr));
    }
    *ret_source = PL_TAKE(source);
    return PL_OK;
}
