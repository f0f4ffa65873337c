/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of a job, and the trees in it, each as SageMaker lays out /opt/ml. */
#include "programs/local/local.h"

#include "base/file.h"
#include "base/json/json_write.h"
#include "base/log.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define LEAST_FREE_BYTES (UINT64_C(64) << 20)

enum { MOST_TRIES = 100, MOST_DEPTH = 64 };

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

/* ---- the folder ---- */

/* Whether the file `name` of the folder `parent_fd` is the one that this call has locked. */
static bool is_locked(const struct pl_local *local, int parent_fd, const char *name)
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

/* Gives one file by its descriptor, because the owner of a folder above may give the name to another file. */
static void give_one(int fd, const struct stat *info, const struct stat *owner)
{
    if (info->st_uid == 0 && !S_ISCHR(info->st_mode) && !S_ISBLK(info->st_mode) &&
        (S_ISDIR(info->st_mode) || info->st_nlink == 1)) {
        fchownat(fd, "", owner->st_uid, owner->st_gid, AT_EMPTY_PATH);
    }
}

/* Gives a folder after its contents: until then it is root's, and no other user can change names in it. */
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

    if (fd >= 0 && find_owner(local, &owner) && is_locked(local, fd, PL_LOCAL_LOCK)) {
        give(fd, ".", &owner, 0);
    }
}

/* give() for the folder `path` alone, without its contents. */
static void give_folder(const struct pl_local *local, const char *path)
{
    PL_AUTO_CLOSE int fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat owner, info;

    if (fd >= 0 && find_owner(local, &owner) && fstat(fd, &info) == 0) {
        give_one(fd, &info, &owner);
    }
}

/* Makes a folder, and tells whether this call made it, and not another one at the same time. */
static enum pl_status make_folder(const char *path, bool *ret_made, struct pl_error *reterr)
{
    PL_TRY(pl_file_make_parents(path, PL_LOCAL_FOLDER_MODE, reterr));
    *ret_made = mkdir(path, PL_LOCAL_FOLDER_MODE) == 0;
    return *ret_made ? PL_OK : pl_file_make_dirs(path, PL_LOCAL_FOLDER_MODE, reterr);
}

/* The lock lies beside the trees, and ends with this process. PL_NOT_FOUND: a call that was refused has removed the
 * folder meanwhile. */
static enum pl_status lock(struct pl_local *local, bool *ret_made, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    PL_TRY(pl_local_path(local, &path, reterr, PL_LOCAL_LOCK));
    local->lock_fd = open(path.data, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, PL_LOCAL_FILE_MODE);
    *ret_made = local->lock_fd >= 0;
    if (local->lock_fd < 0 && errno == EEXIST) {
        local->lock_fd = open(path.data, O_RDWR | O_CREAT | O_CLOEXEC, PL_LOCAL_FILE_MODE);
    }
    if (local->lock_fd < 0) {
        return pl_error_raise(reterr, errno == ENOENT ? PL_NOT_FOUND : PL_SYSTEM, PL_DOMAIN_ERRNO, errno,
                              "cannot open '%s'", path.data);
    }
    if (flock(local->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        return errno == EWOULDBLOCK
                   ? pl_error_set(reterr, PL_INVALID,
                                  "a job with the name '%s' runs in '%s': give this one another --name",
                                  local->job->name, local->folder)
                   : pl_error_errno(reterr, "lock '%s'", path.data);
    }
    if (!is_locked(local, AT_FDCWD, path.data)) {
        return pl_error_set(reterr, PL_NOT_FOUND, "'%s' was removed while this call locked it", path.data);
    }
    return PL_OK;
}

/* The folder is this call's own if this call made it and no other one has been in it, which the lock's file tells. */
static enum pl_status enter_folder(struct pl_local *local, const char *path, struct pl_error *reterr)
{
    enum pl_status status;
    bool has_made, has_made_lock = false;

    PL_TRY(make_folder(path, &has_made, reterr));
    if (!realpath(path, local->folder)) {
        return pl_error_raise(reterr, errno == ENOENT ? PL_NOT_FOUND : PL_SYSTEM, PL_DOMAIN_ERRNO, errno,
                              "cannot find '%s'", path);
    }
    status = lock(local, &has_made_lock, reterr);
    local->has_made_folder = status == PL_OK && has_made && has_made_lock;
    if (status != PL_OK) {
        pl_file_close_at(&local->lock_fd);
        if (has_made) {
            rmdir(path); /* removed only if it is empty */
        }
    }
    return status;
}

enum pl_status pl_local_tree_open_folder(struct pl_local *local, const char *folder, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text above = PL_TEXT_NONE, path = PL_TEXT_NONE;
    size_t length = strlen(folder);
    enum pl_status status = PL_NOT_FOUND;
    struct statvfs room;
    bool has_made;

    if (!getcwd(local->cwd, sizeof(local->cwd))) {
        return pl_error_errno(reterr, "find the current folder");
    }
    while (length > 1 && folder[length - 1] == '/') {
        length--;
    }
    PL_TRY(pl_text_set(&above, reterr, "%.*s", (int)length, folder));
    PL_TRY(pl_text_set(&path, reterr, "%s/%s", above.data, local->job->name));
    PL_TRY(make_folder(above.data, &has_made, reterr));
    if (has_made) {
        give_folder(local, above.data);
    }
    for (int i = 0; i < MOST_TRIES && status == PL_NOT_FOUND; i++) {
        status = enter_folder(local, path.data, reterr);
    }
    PL_TRY(status);
    if (statvfs(local->folder, &room) != 0) {
        return pl_error_errno(reterr, "find '%s'", path.data);
    }
    return (uint64_t)room.f_bavail * room.f_frsize >= LEAST_FREE_BYTES
               ? PL_OK
               : pl_error_set(reterr, PL_LIMIT, "the disk of '%s' has less than %d MiB free", local->folder,
                              (int)(LEAST_FREE_BYTES >> 20));
}

enum pl_status pl_local_tree_open_logs(struct pl_local *local, struct pl_error *reterr)
{
    static const char *const names[] = {"job.json", "model.tar.gz", "output.tar.gz", "report.html"};
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    for (size_t i = 0; i < PL_ARRAY_ITEMS(names); i++) {
        PL_TRY(pl_local_path(local, &path, reterr, "%s", names[i]));
        if (unlink(path.data) != 0 && errno != ENOENT) {
            return pl_error_errno(reterr, "remove '%s' of an earlier job of this name", path.data);
        }
    }
    for (size_t i = 1; i <= PL_LOCAL_MOST_HOSTS; i++) {
        PL_TRY(pl_local_path(local, &path, reterr, "algo-%zu.log", i));
        if (i > local->job->hosts) { /* left by an earlier job with more hosts */
            unlink(path.data);
        } else if (!(local->hosts[i - 1].log = fopen(path.data, "we"))) {
            return pl_error_errno(reterr, "open '%s'", path.data);
        }
    }
    return PL_OK;
}

enum pl_status pl_local_tree_name_hosts(struct pl_local *local, struct pl_error *reterr)
{
    size_t index = 0;

    for (size_t i = 0; i < local->job->group_count; i++) {
        const struct pl_local_group *group = &local->job->groups[i];

        for (size_t j = 0; j < group->hosts; j++, index++) {
            struct pl_local_host *host = &local->hosts[index];

            snprintf(host->name, sizeof(host->name), "algo-%zu", index + 1);
            host->group = group->name;
            host->instance = group->instance_type;
            host->output_fd = -1;
            if ((size_t)snprintf(host->tree, sizeof(host->tree), "%s/%s", local->folder, host->name) >=
                sizeof(host->tree)) {
                return pl_error_set(reterr, PL_INVALID, "the path '%s' is too long", local->folder);
            }
        }
    }
    return PL_OK;
}

/* ---- the trees ---- */

static enum pl_status write_json(const struct pl_local_host *host, const char *name,
                                 const struct pl_json_writer *writer, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    PL_TRY(pl_text_set(&path, reterr, "%s/input/config/%s", host->tree, name));
    return pl_json_write_file(writer, path.data, PL_LOCAL_FILE_MODE, reterr);
}

static enum pl_status write_hyperparameters(const struct pl_local *local, const struct pl_local_host *host,
                                            struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text json = PL_TEXT_NONE;
    struct pl_json_writer writer = PL_JSON_WRITER(&json);

    pl_json_write_object(&writer, NULL);
    for (size_t i = 0; i < local->job->hyperparameters.count; i++) {
        pl_json_write_text(&writer, local->job->hyperparameters.items[i].name,
                           local->job->hyperparameters.items[i].value);
    }
    pl_json_write_close(&writer);
    return write_json(host, "hyperparameters.json", &writer, reterr);
}

static int by_name(const void *a, const void *b)
{
    const struct pl_local_host *const *first = a, *const *second = b;

    return strcmp((*first)->name, (*second)->name);
}

/* Writes the hosts' names. SageMaker sorts them as texts: algo-10 precedes algo-2. */
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
        pl_json_write_text(&writer, "instance_group_name", group->name);
        pl_json_write_text(&writer, "instance_type", group->instance_type);
        pl_json_write_list(&writer, "hosts");
        for (size_t j = 0; j < local->job->hosts; j++) {
            if (strcmp(sorted[j]->group, group->name) == 0) {
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

        if (!pl_local_channel_is_of(channel, local->hosts[index].group)) {
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

/* Appends the path of an entry that is left below the folder `path`, or of the folder if it is empty. */
static void find_left(const char *path, struct pl_text *left)
{
    FTS *walk = fts_open((char *const[]){(char *)(uintptr_t)path, NULL}, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    const FTSENT *entry = NULL;

    while (walk && (entry = fts_read(walk)) && entry->fts_info == FTS_D) {
    }
    pl_text_append(left, entry ? entry->fts_path : path);
    if (walk) {
        fts_close(walk);
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
    find_left(path, &left);
    PL_TRY(pl_text_check(&left, reterr));
    if (remove(left.data) == 0) { /* it is new: some process writes there */
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
        PL_TRY(pl_file_make_dirs(path.data, PL_LOCAL_FOLDER_MODE, reterr));
    }
    PL_TRY(write_hyperparameters(local, host, reterr));
    PL_TRY(write_hosts(local, host, reterr));
    return write_channels(local, index, reterr);
}

enum pl_status pl_local_tree_write(struct pl_local *local, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    for (size_t i = 0; i < local->job->hosts; i++) {
        PL_TRY(write_host(local, i, reterr));
    }
    PL_TRY(pl_local_path(local, &path, reterr, "checkpoints"));
    return local->job->checkpoint_path ? pl_file_make_dirs(path.data, PL_LOCAL_FOLDER_MODE, reterr) : PL_OK;
}

static void remove_entry(const struct pl_local *local, const char *name)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    if (pl_local_path(local, &path, NULL, "%s", name) == PL_OK) {
        pl_file_remove_tree(path.data);
    }
}

void pl_local_tree_remove(const struct pl_local *local)
{
    const bool removes = local->has_cleared && !local->keep; /* a refused call keeps what an earlier one has kept */

    for (size_t i = 0; removes && i < local->job->hosts; i++) {
        pl_file_remove_tree(local->hosts[i].tree);
    }
    remove_entry(local, "secret");
    if (removes) {
        remove_entry(local, "input"); /* data that was fetched from S3 */
    }
}

void pl_local_tree_remove_folder(const struct pl_local *local)
{
    PL_AUTO_DIRECTORY DIR *directory = opendir(local->folder);
    const struct dirent *entry;

    while (directory && (entry = readdir(directory))) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            strcmp(entry->d_name, PL_LOCAL_LOCK) != 0) {
            remove_entry(local, entry->d_name);
        }
    }
    remove_entry(local, PL_LOCAL_LOCK);
    rmdir(local->folder);
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
    return pl_file_write_atomic(path.data, local->secret, sizeof(local->secret), PL_LOCAL_SECRET_MODE, reterr);
}

/* Removes the secret unless its call still runs: a running call holds its lock. */
static void remove_secret(const char *folder, const char *name)
{
    PL_AUTO_TEXT struct pl_text lock = PL_TEXT_NONE, secret = PL_TEXT_NONE;
    PL_AUTO_CLOSE int fd = -1;

    if (pl_text_set(&lock, NULL, "%s/%s/" PL_LOCAL_LOCK, folder, name) != PL_OK ||
        pl_text_set(&secret, NULL, "%s/%s/secret", folder, name) != PL_OK || access(secret.data, F_OK) != 0) {
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
