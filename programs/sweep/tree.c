/* SPDX-License-Identifier: Apache-2.0 */
/* Walks through the folders of trials. */
#include "programs/sweep/tree.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { BLOCK_BYTES = 512 }; /* unit of st_blocks */

struct walk {
    pl_sweep_tree_visit visit;
    void *context;
    struct pl_text path;
    struct pl_error *reterr;
};

static enum pl_status walk_directory(struct walk *walk, int parent_fd, const char *name);

static enum pl_status walk_entry(struct walk *walk, int dir_fd, const char *name)
{
    const size_t length = walk->path.length;
    struct pl_sweep_tree_entry entry = {.name = name, .dir_fd = dir_fd};
    enum pl_status status;

    if (fstatat(dir_fd, name, &entry.info, AT_SYMLINK_NOFOLLOW) != 0) {
        return errno == ENOENT ? PL_OK : pl_error_errno(walk->reterr, "fstatat '%s'", name);
    }
    pl_text_append(&walk->path, length > 0 ? "/" : "");
    pl_text_append(&walk->path, name);
    PL_TRY(pl_text_check(&walk->path, walk->reterr));
    entry.path = pl_text_string(&walk->path);
    status = walk->visit(walk->context, &entry, walk->reterr);
    if (status == PL_OK && S_ISDIR(entry.info.st_mode)) {
        status = walk_directory(walk, dir_fd, name);
    }
    status = status == PL_END ? PL_OK : status;
    walk->path.length = length;
    walk->path.data[length] = '\0';
    return status;
}

static enum pl_status walk_directory(struct walk *walk, int parent_fd, const char *name)
{
    PL_AUTO_DIRECTORY DIR *directory = pl_file_open_directory(parent_fd, name, O_NOFOLLOW);
    const struct dirent *entry;
    enum pl_status status = PL_OK;

    if (!directory) {
        return errno == ENOENT ? PL_OK : pl_error_errno(walk->reterr, "opening the directory '%s'", name);
    }
    while (status == PL_OK && (entry = readdir(directory))) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            status = walk_entry(walk, dirfd(directory), entry->d_name);
        }
    }
    return status;
}

enum pl_status pl_sweep_tree_walk(const char *root, pl_sweep_tree_visit visit, void *context, struct pl_error *reterr)
{
    struct walk walk = {.visit = visit, .context = context, .path = PL_TEXT_NONE, .reterr = reterr};
    const enum pl_status status = walk_directory(&walk, AT_FDCWD, root);

    pl_text_done(&walk.path);
    return status;
}

struct model {
    const char *seen_as;
    bool empty;
};

/* Whether `target`, relative to the directory of `path`, stays below the folder in which `path` begins. Links in
 * `target` are not followed. */
static bool stays_inside(const char *path, const char *target)
{
    int depth = 0;

    for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        depth++;
    }
    for (const char *part = target; *part != '\0' && depth >= 0; part += strspn(part, "/")) {
        const size_t bytes = strcspn(part, "/");

        if (bytes == 2 && strncmp(part, "..", 2) == 0) {
            depth--;
        } else if (bytes > 0 && !(bytes == 1 && *part == '.')) {
            depth++;
        }
        part += bytes;
    }
    return depth >= 0;
}

static enum pl_status check_link(const struct model *model, const struct pl_sweep_tree_entry *entry,
                                 struct pl_error *reterr)
{
    const size_t bytes = strlen(model->seen_as);
    char target[PATH_MAX];
    const ssize_t length = readlinkat(entry->dir_fd, entry->name, target, sizeof(target) - 1);
    bool inside;

    if (length < 0) {
        return pl_error_errno(reterr, "readlink '%s'", entry->path);
    }
    target[length] = '\0';
    if (*target == '/') {
        inside = strncmp(target, model->seen_as, bytes) == 0 && (target[bytes] == '/' || target[bytes] == '\0') &&
                 stays_inside("", target + bytes);
    } else {
        inside = stays_inside(entry->path, target);
    }
    return inside ? PL_OK
                  : pl_error_set(reterr, PL_INVALID, "the link '%.200s' leads out of the model, to '%.200s'",
                                 entry->path, target);
}

static enum pl_status check_entry(void *context, const struct pl_sweep_tree_entry *entry, struct pl_error *reterr)
{
    struct model *model = context;
    const mode_t mode = entry->info.st_mode;

    model->empty = false;
    if (S_ISLNK(mode)) {
        return check_link(model, entry, reterr);
    }
    return S_ISREG(mode) || S_ISDIR(mode) ? PL_OK
                                          : pl_error_set(reterr, PL_INVALID, "'%.200s' is a %s", entry->path,
                                                         S_ISSOCK(mode)   ? "socket"
                                                         : S_ISFIFO(mode) ? "FIFO"
                                                                          : "device");
}

enum pl_status pl_sweep_tree_check_model(const char *path, const char *seen_as, bool *ret_empty,
                                         struct pl_error *reterr)
{
    struct model model = {.seen_as = seen_as, .empty = true};

    *ret_empty = true;
    PL_TRY(pl_sweep_tree_walk(path, check_entry, &model, reterr));
    *ret_empty = model.empty;
    return PL_OK;
}

/* Sums up the bytes of the entry `now` of a folder, and keeps the largest of the entries before it as `most`. */
struct owners {
    char now[NAME_MAX + 1], most[NAME_MAX + 1];
    int64_t now_bytes, most_bytes;
};

static void close_owner(struct owners *owners)
{
    if (owners->now_bytes > owners->most_bytes) {
        owners->most_bytes = owners->now_bytes;
        memcpy(owners->most, owners->now, sizeof(owners->most));
    }
    owners->now_bytes = 0;
}

static enum pl_status add_entry(void *context, const struct pl_sweep_tree_entry *entry, struct pl_error *reterr)
{
    struct owners *owners = context;

    (void)reterr;
    if (!strchr(entry->path, '/')) {
        close_owner(owners);
        snprintf(owners->now, sizeof(owners->now), "%s", entry->path);
    }
    owners->now_bytes += (int64_t)entry->info.st_blocks * BLOCK_BYTES;
    return PL_OK;
}

void pl_sweep_tree_describe_full(const char *folder, int64_t least_bytes, struct pl_text *text)
{
    struct owners owners = {.now_bytes = 0};
    struct statvfs info;

    if (statvfs(folder, &info) != 0 || info.f_blocks == 0 || (int64_t)(info.f_bavail * info.f_frsize) >= least_bytes) {
        return;
    }
    pl_text_printf(text, "the disk of '%s' is full: it has %lld bytes, of which %lld are free", folder,
                   (long long)(info.f_blocks * info.f_frsize), (long long)(info.f_bavail * info.f_frsize));
    if (pl_sweep_tree_walk(folder, add_entry, &owners, NULL) == PL_OK) {
        close_owner(&owners);
    }
    if (owners.most_bytes > 0) {
        pl_text_printf(text, "; its largest entry is '%s' with %lld bytes", owners.most, (long long)owners.most_bytes);
    }
}
