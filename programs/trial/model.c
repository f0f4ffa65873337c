/* SPDX-License-Identifier: Apache-2.0 */
/* Walks through a trial's model. */
#include "programs/trial/trial.h"

#include <errno.h>
#include <fts.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether `target` stays below the folder from a directory that lies `depth` levels below it. Links in `target` are not
 * followed. */
static bool stays_inside(int depth, const char *target)
{
    for (const char *part = target + strspn(target, "/"); *part != '\0' && depth >= 0; part += strspn(part, "/")) {
        const size_t bytes = strcspn(part, "/");

        if (bytes == 2 && strncmp(part, "..", 2) == 0) {
            depth--;
        } else if (bytes != 1 || *part != '.') {
            depth++;
        }
        part += bytes;
    }
    return depth >= 0;
}

static enum pl_status check_link(const FTSENT *entry, const char *name, const char *seen_as, struct pl_error *reterr)
{
    const size_t bytes = strlen(seen_as);
    char target[PATH_MAX];
    const ssize_t length = readlink(entry->fts_accpath, target, sizeof(target) - 1);
    bool inside;

    if (length < 0) {
        return pl_error_errno(reterr, "readlink '%s'", entry->fts_path);
    }
    target[length] = '\0';
    if (*target == '/') {
        inside = strncmp(target, seen_as, bytes) == 0 && strchr("/", target[bytes]) && stays_inside(0, target + bytes);
    } else {
        inside = stays_inside(entry->fts_level - 1, target);
    }
    return inside ? PL_OK
                  : pl_error_set(reterr, PL_INVALID, "the link '%.200s' leads out of the model, to '%.200s'", name,
                                 target);
}

static enum pl_status check_entry(const FTSENT *entry, const char *name, const char *seen_as, struct pl_error *reterr)
{
    const mode_t mode = entry->fts_statp->st_mode;

    switch (entry->fts_info) {
    case FTS_SL:
    case FTS_SLNONE:
        return check_link(entry, name, seen_as, reterr);
    case FTS_DNR:
    case FTS_ERR:
    case FTS_NS:
        errno = entry->fts_errno;
        return pl_error_errno(reterr, "read '%s'", entry->fts_path);
    case FTS_DEFAULT:
        return pl_error_set(reterr, PL_INVALID, "'%.200s' is a %s", name,
                            S_ISSOCK(mode)   ? "socket"
                            : S_ISFIFO(mode) ? "FIFO"
                                             : "device");
    default:
        return PL_OK;
    }
}

enum pl_status pl_trial_model_check(const char *path, const char *seen_as, bool *ret_empty, struct pl_error *reterr)
{
    char *const roots[] = {(char *)path, NULL};
    FTS *walk = access(path, F_OK) == 0 ? fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL) : NULL;
    enum pl_status status = PL_OK;

    *ret_empty = true;
    if (!walk) {
        return errno == ENOENT ? PL_OK : pl_error_errno(reterr, "read '%s'", path);
    }
    for (const FTSENT *entry = fts_read(walk); entry && status == PL_OK; entry = fts_read(walk)) {
        if (entry->fts_level > 0) {
            *ret_empty = false;
            status = check_entry(entry, entry->fts_path + strlen(path) + 1, seen_as, reterr);
        }
    }
    fts_close(walk);
    return status;
}
