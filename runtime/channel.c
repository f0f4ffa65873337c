/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a channel's settings from the SM_* variables of the environment. */
#include "runtime/channel.h"

#include "base/memory.h"
#include "base/python_json.h"
#include "base/text.h"
#include "runtime/stop.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* The member `name` of `object` as text; `fallback` where it is absent, null or empty. */
static const char *text_member(const struct pl_python_json *object, const char *name, const char *fallback)
{
    const struct pl_python_json *member = object ? pl_python_json_member(object, name) : NULL;

    return member && pl_python_json_kind(member) == PL_PYTHON_JSON_STRING && *pl_python_json_text(member)
               ? pl_python_json_text(member)
               : fallback;
}

static enum pl_status unknown(const char *name, const char *key, const char *value, const char *expected,
                              struct pl_error *reterr)
{
    return pl_error_set(reterr, PL_INVALID, "channel '%s': %s is '%s', expected %s", name, key, value, expected);
}

static enum pl_status read_facts(const struct pl_python_json *config, const char *name, struct pl_channel *facts,
                                 struct pl_error *reterr)
{
    const char *mode = text_member(config, "TrainingInputMode", "File");
    const char *distribution = text_member(config, "S3DistributionType", "FullyReplicated");
    const char *wrapper = text_member(config, "RecordWrapperType", "None");

    mode = text_member(config, "InputMode", mode);
    if (strcmp(mode, "File") == 0) {
        facts->mode = PL_CHANNEL_FILE;
    } else if (strcmp(mode, "Pipe") == 0) {
        facts->mode = PL_CHANNEL_PIPE;
    } else if (strcmp(mode, "FastFile") == 0) {
        facts->mode = PL_CHANNEL_FASTFILE;
    } else {
        return unknown(name, "the input mode", mode, "File, Pipe or FastFile", reterr);
    }
    if (strcmp(distribution, "ShardedByS3Key") == 0) {
        facts->distribution = PL_CHANNEL_SHARDED_BY_KEY;
    } else if (strcmp(distribution, "FullyReplicated") != 0) {
        return unknown(name, "S3DistributionType", distribution, "FullyReplicated or ShardedByS3Key", reterr);
    }
    if (strcmp(wrapper, "RecordIO") == 0) {
        facts->wrapper = PL_CHANNEL_WRAPPER_RECORDIO;
    } else if (strcmp(wrapper, "None") != 0) {
        return unknown(name, "RecordWrapperType", wrapper, "None or RecordIO", reterr);
    }
    return PL_OK;
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
        (struct pl_channel_setup){.facts = {.name = own_name, .path = own_path}, .name = own_name, .path = own_path};
    own_name = NULL;
    own_path = NULL;
    return PL_OK;
}

enum pl_status pl_channel_setup_find(const struct pl_environment *environment, const char *name,
                                     struct pl_channel_setup *ret_setup, struct pl_error *reterr)
{
    const char *text = pl_environment_get_or(environment, "SM_INPUT_DATA_CONFIG", "{}");
    PL_AUTO_TEXT struct pl_text variable = PL_TEXT_NONE;
    PL_AUTO_PYTHON_JSON struct pl_python_json *root = NULL;
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
    PL_TRY(pl_python_json_parse(text, strlen(text), "SM_INPUT_DATA_CONFIG", &root, reterr));
    PL_TRY(pl_channel_setup_directory(name, path, &setup, reterr));
    status = read_facts(pl_python_json_member(root, name), name, &setup.facts, reterr);
    if (status != PL_OK) {
        pl_channel_setup_done(&setup);
        return status;
    }
    setup.facts.stop_fd = pl_stop_fd();
    *ret_setup = setup;
    return PL_OK;
}

void pl_channel_setup_done(struct pl_channel_setup *setup)
{
    free(setup->name);
    free(setup->path);
    *setup = (struct pl_channel_setup){0};
}
