/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the tree of a host as SageMaker lays out /opt/ml. */
#include "programs/local/tree.h"

#include "base/file.h"
#include "base/json/json_write.h"
#include "base/log.h"
#include "base/memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FOLDER_MODE = 0755, FILE_MODE = 0644, SECRET_MODE = 0600, MOST_DEPTH = 64 };

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
    return pl_local_channel_is_of(channel, local->hosts[index].group);
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

/* Appends the way to an entry that is still there below the folder `path`, if there is one. */
static void find_left(struct pl_text *path)
{
    const struct dirent *entry;
    DIR *directory;

    while (!path->failed && (directory = pl_file_open_directory(AT_FDCWD, path->data, O_NOFOLLOW))) {
        do {
            entry = readdir(directory);
        } while (entry && (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0));
        if (entry) {
            pl_text_printf(path, "/%s", entry->d_name);
        }
        closedir(directory);
        if (!entry) {
            break;
        }
    }
}

static enum pl_status clear(const char *path, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text left = PL_TEXT_NONE;
    struct stat info;
    char why[64];

    pl_file_remove_tree(path);
    if (lstat(path, &info) != 0 && errno == ENOENT) {
        return PL_OK;
    }
    pl_text_append(&left, path);
    find_left(&left);
    PL_TRY(pl_text_check(&left, reterr));
    if (remove(left.data) == 0) { /* it has come since: somebody writes there */
        errno = EBUSY;
    }
    return pl_error_raise(reterr, PL_SYSTEM, PL_DOMAIN_NONE, errno,
                          "'%s' of an earlier job of this name cannot be removed (%s): remove '%s', or give this job "
                          "another --name",
                          left.data, strerror_r(errno, why, sizeof(why)), path);
}

enum pl_status pl_local_tree_clear(const struct pl_local *local, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    for (size_t i = 0; i < local->job->hosts; i++) {
        PL_TRY(clear(local->hosts[i].tree, reterr));
    }
    PL_TRY(pl_local_path(local, &path, reterr, "input"));
    return clear(path.data, reterr);
}

static enum pl_status write_host(const struct pl_local *local, size_t index, struct pl_error *reterr)
{
    static const char *const folders[] = {"input/config", "input/data", "model", "output/data"};
    const struct pl_local_host *host = &local->hosts[index];
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    PL_TRY(clear(host->tree, reterr));
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

void pl_local_tree_remove_folder(const struct pl_local *local)
{
    PL_AUTO_DIRECTORY DIR *directory = opendir(local->folder);
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    const struct dirent *entry;

    while (directory && (entry = readdir(directory))) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            strcmp(entry->d_name, PL_LOCAL_LOCK) != 0 &&
            pl_local_path(local, &path, NULL, "%s", entry->d_name) == PL_OK) {
            pl_file_remove_tree(path.data);
        }
    }
    if (pl_local_path(local, &path, NULL, PL_LOCAL_LOCK) == PL_OK) {
        unlink(path.data);
    }
    rmdir(local->folder);
}

bool pl_local_tree_is_locked(const struct pl_local *local, int parent_fd, const char *name)
{
    struct stat own, found;

    return fstat(local->lock_fd, &own) == 0 && fstatat(parent_fd, name, &found, AT_SYMLINK_NOFOLLOW) == 0 &&
           own.st_dev == found.st_dev && own.st_ino == found.st_ino;
}

/* Fills the owner of the folder from which root was called; false if nothing is to be given. */
static bool find_owner(const struct pl_local *local, struct stat *ret_owner)
{
    return geteuid() == 0 && stat(local->cwd, ret_owner) == 0 && ret_owner->st_uid != 0;
}

/* Looks at the descriptor and not at the name again, which the owner of a folder above may give to another file. */
static void give_one(int fd, const struct stat *info, const struct stat *owner)
{
    if (info->st_uid == 0 && !S_ISCHR(info->st_mode) && !S_ISBLK(info->st_mode) &&
        (S_ISDIR(info->st_mode) || info->st_nlink == 1)) {
        fchownat(fd, "", owner->st_uid, owner->st_gid, AT_EMPTY_PATH);
    }
}

/* A folder comes after what is in it: until then it is root's, and nobody else changes names in it. */
static void give(int parent_fd, const char *name, const struct stat *owner, int depth)
{
    PL_AUTO_CLOSE int fd = openat(parent_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    PL_AUTO_DIRECTORY DIR *directory = NULL;
    const struct dirent *entry;
    struct stat info;

    if (fd < 0 || fstat(fd, &info) != 0) {
        return;
    }
    directory = S_ISDIR(info.st_mode) && depth < MOST_DEPTH ? pl_file_open_directory(fd, ".", 0) : NULL;
    while (directory && (entry = readdir(directory))) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            give(dirfd(directory), entry->d_name, owner, depth + 1);
        }
    }
    give_one(fd, &info, owner);
}

void pl_local_tree_give(const struct pl_local *local)
{
    PL_AUTO_CLOSE int fd = open(local->folder, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat owner;

    if (fd >= 0 && find_owner(local, &owner) && pl_local_tree_is_locked(local, fd, PL_LOCAL_LOCK)) {
        give(fd, ".", &owner, 0);
    }
}

void pl_local_tree_give_folder(const struct pl_local *local, const char *path)
{
    PL_AUTO_CLOSE int fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat owner, info;

    if (fd >= 0 && find_owner(local, &owner) && fstat(fd, &info) == 0) {
        give_one(fd, &info, &owner);
    }
}

/* ---- the secret of the hosts' ssh keys ---- */

enum pl_status pl_local_tree_make_secret(struct pl_local *local, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    if (local->job->hosts == 1) {
        return PL_OK;
    }
    if (getrandom(local->secret, sizeof(local->secret), 0) != (ssize_t)sizeof(local->secret)) {
        return pl_error_errno(reterr, "make a secret");
    }
    if (local->kind != PL_LOCAL_CONTAINERS) {
        return PL_OK;
    }
    PL_TRY(pl_local_path(local, &path, reterr, "secret"));
    return pl_file_write_atomic(path.data, local->secret, sizeof(local->secret), SECRET_MODE, reterr);
}

/* The lock of a call that runs cannot be had. */
static void remove_secret(const char *folder, const char *name)
{
    PL_AUTO_TEXT struct pl_text lock = PL_TEXT_NONE, secret = PL_TEXT_NONE;
    PL_AUTO_CLOSE int fd = -1;

    pl_text_printf(&lock, "%s/%s/lock", folder, name);
    pl_text_printf(&secret, "%s/%s/secret", folder, name);
    if (pl_text_check(&lock, NULL) != PL_OK || pl_text_check(&secret, NULL) != PL_OK ||
        access(secret.data, F_OK) != 0) {
        return;
    }
    fd = open(lock.data, O_RDWR | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && unlink(secret.data) == 0) {
        pl_log(PL_LOG_INFO, "removed '%s', which an earlier call left", secret.data);
    }
}

void pl_local_tree_remove_secrets(const char *folder)
{
    PL_AUTO_DIRECTORY DIR *directory = opendir(folder);
    const struct dirent *entry;

    while (directory && (entry = readdir(directory))) {
        if (entry->d_name[0] != '.') {
            remove_secret(folder, entry->d_name);
        }
    }
}
