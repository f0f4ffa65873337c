/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the tree of a host as SageMaker lays out /opt/ml. */
#include "programs/local/tree.h"

#include "base/file.h"
#include "base/json/json_write.h"
#include "base/memory.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FOLDER_MODE = 0755, FILE_MODE = 0644 };

static const char one_group[] = "homogeneousCluster"; /* SageMaker's name of the group of a job without groups */

enum pl_status pl_local_path(const struct pl_local *local, struct pl_text *path, struct pl_error *reterr,
                             const char *format, ...)
{
    va_list args;

    pl_text_clear(path);
    pl_text_printf(path, "%s/", local->folder);
    va_start(args, format);
    pl_text_vprintf(path, format, args);
    va_end(args);
    return pl_text_check(path, reterr);
}

static const char *group_name(const struct pl_local_group *group)
{
    return group->name ? group->name : one_group;
}

static const char *instance_type(const struct pl_local *local, const struct pl_local_group *group)
{
    const char *type = group->instance_type ? group->instance_type : local->job->instance_type;

    return type ? type : "local";
}

enum pl_status pl_local_tree_name_hosts(struct pl_local *local, struct pl_error *reterr)
{
    size_t index = 0;

    for (size_t i = 0; i < local->job->group_count; i++) {
        const struct pl_local_group *group = &local->job->groups[i];

        for (size_t j = 0; j < group->hosts; j++, index++) {
            struct pl_local_host *host = &local->hosts[index];

            snprintf(host->name, sizeof(host->name), "algo-%zu", index + 1);
            snprintf(host->group, sizeof(host->group), "%s", group_name(group));
            host->instance = instance_type(local, group);
            if ((size_t)snprintf(host->tree, sizeof(host->tree), "%s/%s", local->folder, host->name) >=
                sizeof(host->tree)) {
                return pl_error_set(reterr, PL_INVALID, "the path '%s' is too long", local->folder);
            }
            host->output_fd = -1;
        }
    }
    return PL_OK;
}

bool pl_local_tree_has_channel(const struct pl_local *local, size_t index, const struct pl_local_channel *channel)
{
    for (size_t i = 0; i < channel->group_count; i++) {
        if (strcmp(channel->groups[i], local->hosts[index].group) == 0) {
            return true;
        }
    }
    return channel->group_count == 0;
}

static enum pl_status write_json(const struct pl_local_host *host, const char *name,
                                 const struct pl_json_writer *writer, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    pl_text_printf(&path, "%s/input/config/%s", host->tree, name);
    PL_TRY(pl_text_check(&path, reterr));
    return pl_json_write_file(writer, path.data, FILE_MODE, reterr);
}

static enum pl_status write_hyperparameters(const struct pl_local *local, const struct pl_local_host *host,
                                            struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text json = PL_TEXT_NONE;
    struct pl_json_writer writer = PL_JSON_WRITER(&json);

    pl_json_write_object(&writer, NULL);
    for (size_t i = 0; i < local->job->hyperparameter_count; i++) {
        pl_json_write_text(&writer, local->job->hyperparameters[i].name, local->job->hyperparameters[i].value);
    }
    pl_json_write_close(&writer);
    return write_json(host, "hyperparameters.json", &writer, reterr);
}

static int by_name(const void *a, const void *b)
{
    const struct pl_local_host *const *first = a, *const *second = b;

    return strcmp((*first)->name, (*second)->name);
}

/* SageMaker sorts the names of hosts as texts: algo-10 precedes algo-2. */
static enum pl_status write_hosts(const struct pl_local *local, const struct pl_local_host *host,
                                  struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text json = PL_TEXT_NONE;
    struct pl_json_writer writer = PL_JSON_WRITER(&json);
    PL_AUTO_FREE const struct pl_local_host **sorted = pl_memory_new(local->job->hosts, sizeof(*sorted), reterr);

    PL_TRY(sorted ? PL_OK : PL_MEMORY);
    for (size_t i = 0; i < local->job->hosts; i++) {
        sorted[i] = &local->hosts[i];
    }
    qsort(sorted, local->job->hosts, sizeof(*sorted), by_name);
    pl_json_write_object(&writer, NULL);
    pl_json_write_text(&writer, "current_host", host->name);
    pl_json_write_text(&writer, "current_instance_type", host->instance);
    pl_json_write_text(&writer, "current_group_name", host->group);
    pl_json_write_list(&writer, "hosts");
    for (size_t i = 0; i < local->job->hosts; i++) {
        pl_json_write_text(&writer, NULL, sorted[i]->name);
    }
    pl_json_write_close(&writer);
    pl_json_write_list(&writer, "instance_groups");
    for (size_t i = 0; i < local->job->group_count; i++) {
        const struct pl_local_group *group = &local->job->groups[i];

        pl_json_write_object(&writer, NULL);
        pl_json_write_text(&writer, "instance_group_name", group_name(group));
        pl_json_write_text(&writer, "instance_type", instance_type(local, group));
        pl_json_write_list(&writer, "hosts");
        for (size_t j = 0; j < local->job->hosts; j++) {
            if (strcmp(sorted[j]->group, group_name(group)) == 0) {
                pl_json_write_text(&writer, NULL, sorted[j]->name);
            }
        }
        pl_json_write_close(&writer);
        pl_json_write_close(&writer);
    }
    pl_json_write_close(&writer);
    pl_json_write_text(&writer, "network_interface_name", "eth0");
    pl_json_write_close(&writer);
    return write_json(host, "resourceconfig.json", &writer, reterr);
}

static enum pl_status write_channels(const struct pl_local *local, size_t index, struct pl_error *reterr)
{
    static const char *const modes[] = {"File", "FastFile", "Pipe"};
    PL_AUTO_TEXT struct pl_text json = PL_TEXT_NONE;
    struct pl_json_writer writer = PL_JSON_WRITER(&json);

    pl_json_write_object(&writer, NULL);
    for (size_t i = 0; i < local->job->channel_count; i++) {
        const struct pl_local_channel *channel = &local->job->channels[i];

        if (!pl_local_tree_has_channel(local, index, channel)) {
            continue;
        }
        pl_json_write_object(&writer, channel->name);
        pl_json_write_text(&writer, "TrainingInputMode", modes[channel->mode]);
        pl_json_write_text(&writer, "S3DistributionType", channel->sharded ? "ShardedByS3Key" : "FullyReplicated");
        pl_json_write_text(&writer, "RecordWrapperType", channel->recordio ? "RecordIO" : "None");
        if (channel->content_type) {
            pl_json_write_text(&writer, "ContentType", channel->content_type);
        }
        pl_json_write_close(&writer);
    }
    pl_json_write_close(&writer);
    return write_json(&local->hosts[index], "inputdataconfig.json", &writer, reterr);
}

/* What a host in namespaces has as mounts. */
static enum pl_status link_plain(const struct pl_local *local, const struct pl_local_host *host,
                                 struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE, checkpoints = PL_TEXT_NONE;

    PL_TRY(pl_local_path(local, &path, reterr, "%s/code", host->name));
    if (local->has_code && symlink(local->cwd, path.data) != 0) {
        return pl_error_errno(reterr, "make the link '%s'", path.data);
    }
    PL_TRY(pl_local_path(local, &checkpoints, reterr, "checkpoints"));
    PL_TRY(pl_local_path(local, &path, reterr, "%s/checkpoints", host->name));
    return !local->job->checkpoint_path || symlink(checkpoints.data, path.data) == 0
               ? PL_OK
               : pl_error_errno(reterr, "make the link '%s'", path.data);
}

static enum pl_status write_host(const struct pl_local *local, size_t index, struct pl_error *reterr)
{
    static const char *const folders[] = {"input/config", "input/data", "model", "output/data"};
    const struct pl_local_host *host = &local->hosts[index];
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    pl_file_remove_tree(host->tree);
    for (size_t i = 0; i < PL_ARRAY_ITEMS(folders); i++) {
        PL_TRY(pl_local_path(local, &path, reterr, "%s/%s", host->name, folders[i]));
        PL_TRY(pl_file_make_dirs(path.data, FOLDER_MODE, reterr));
    }
    PL_TRY(write_hyperparameters(local, host, reterr));
    PL_TRY(write_hosts(local, host, reterr));
    PL_TRY(write_channels(local, index, reterr));
    return local->kind == PL_LOCAL_PLAIN ? link_plain(local, host, reterr) : PL_OK;
}

enum pl_status pl_local_tree_write(struct pl_local *local, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    for (size_t i = 0; i < local->job->hosts; i++) {
        PL_TRY(write_host(local, i, reterr));
    }
    PL_TRY(pl_local_path(local, &path, reterr, "checkpoints"));
    return local->job->checkpoint_path ? pl_file_make_dirs(path.data, FOLDER_MODE, reterr) : PL_OK;
}

void pl_local_tree_remove(const struct pl_local *local)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    for (size_t i = 0; !local->keep && i < local->job->hosts; i++) {
        pl_file_remove_tree(local->hosts[i].tree);
    }
    if (pl_local_path(local, &path, NULL, "secret") == PL_OK) {
        unlink(path.data);
    }
    if (!local->keep && pl_local_path(local, &path, NULL, "input") == PL_OK) {
        pl_file_remove_tree(path.data); /* what was fetched from S3 */
    }
}
