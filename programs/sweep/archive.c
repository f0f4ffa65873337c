/* SPDX-License-Identifier: Apache-2.0 */
/* Archives what an earlier sweep left. */
#include "programs/sweep/archive.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char gathered[] = "sweep.moving";

void pl_sweep_archive_folder_of(const char *path, struct pl_text *text)
{
    const char *slash = strrchr(path, '/');

    pl_text_append_n(text, slash ? path : ".", slash > path ? (size_t)(slash - path) : 1);
}

static bool exists(const char *path)
{
    struct stat info;

    return lstat(path, &info) == 0;
}

void pl_sweep_archive_next(const char *root, struct pl_text *text)
{
    const size_t before = text->length;
    size_t at = 0;

    pl_text_append(text, root);
    at = text->length;
    for (int number = 1; !text->failed; number++) {
        text->length = at;
        pl_text_printf(text, "/sweep-%d", number);
        if (!exists(pl_text_string(text) + before)) {
            return;
        }
    }
}

static enum pl_status move(const char *from, const char *to, struct pl_error *reterr)
{
    return rename(from, to) == 0 ? PL_OK : pl_error_errno(reterr, "rename '%s' to '%s'", from, to);
}

/* Makes the folder ROOT/sweep.moving, and appends its name to `folder`. */
static enum pl_status make_gathered(const char *root, struct pl_text *folder, struct pl_error *reterr)
{
    pl_text_printf(folder, "%s/%s", root, gathered);
    PL_TRY(pl_text_check(folder, reterr));
    return pl_file_make_dirs(pl_text_string(folder), 0755, reterr);
}

static enum pl_status gather(const char *root, const char *name, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text from = PL_TEXT_NONE, to = PL_TEXT_NONE;

    PL_TRY(make_gathered(root, &to, reterr));
    pl_text_printf(&to, "/%s", name);
    pl_text_printf(&from, "%s/%s", root, name);
    PL_TRY(pl_text_check(&to, reterr));
    PL_TRY(pl_text_check(&from, reterr));
    return move(pl_text_string(&from), pl_text_string(&to), reterr);
}

enum pl_status pl_sweep_archive_journal(const char *path, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text root = PL_TEXT_NONE;
    const char *slash = strrchr(path, '/');

    pl_sweep_archive_folder_of(path, &root);
    PL_TRY(pl_text_check(&root, reterr));
    return gather(pl_text_string(&root), slash ? slash + 1 : path, reterr);
}

/* Whether it is the name trial-NNNN or trial-NNNN.model. */
static bool is_of_trial(const char *name)
{
    const char *digits = name + sizeof("trial-") - 1;
    size_t count;

    if (strncmp(name, "trial-", sizeof("trial-") - 1) != 0) {
        return false;
    }
    count = strspn(digits, "0123456789");
    return count >= 4 && (digits[count] == '\0' || strcmp(digits + count, ".model") == 0);
}

static enum pl_status gather_trials(const char *root, struct pl_error *reterr)
{
    PL_AUTO_DIRECTORY DIR *directory = opendir(root);

    if (!directory) {
        return pl_error_errno(reterr, "read '%s'", root);
    }
    for (const struct dirent *entry = readdir(directory); entry; entry = readdir(directory)) {
        if (is_of_trial(entry->d_name)) {
            PL_TRY(gather(root, entry->d_name, reterr));
        }
    }
    return PL_OK;
}

enum pl_status pl_sweep_archive_trials(const char *root, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text from = PL_TEXT_NONE, to = PL_TEXT_NONE;

    PL_TRY(gather_trials(root, reterr));
    pl_text_printf(&from, "%s/%s", root, gathered);
    pl_sweep_archive_next(root, &to);
    PL_TRY(pl_text_check(&from, reterr));
    PL_TRY(pl_text_check(&to, reterr));
    if (rmdir(pl_text_string(&from)) == 0 || errno == ENOENT) {
        return PL_OK; /* it was empty or missing */
    }
    PL_TRY(move(pl_text_string(&from), pl_text_string(&to), reterr));
    pl_log(PL_LOG_INFO, "sweep: the files of an earlier sweep are kept in '%s'", pl_text_string(&to));
    return PL_OK;
}

static bool is_empty(const char *path)
{
    PL_AUTO_DIRECTORY DIR *directory = opendir(path);
    const struct dirent *entry = directory ? readdir(directory) : NULL;

    while (entry && (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)) {
        entry = readdir(directory);
    }
    return !entry;
}

enum pl_status pl_sweep_archive_one(const char *path, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text root = PL_TEXT_NONE;
    const char *name = strrchr(path, '/') + 1;

    if (is_empty(path)) {
        return PL_OK;
    }
    pl_sweep_archive_folder_of(path, &root);
    for (int number = 1;; number++) {
        PL_AUTO_TEXT struct pl_text to = PL_TEXT_NONE;

        pl_text_printf(&to, "%s/sweep-%d/%s", pl_text_string(&root), number, name);
        PL_TRY(pl_text_check(&to, reterr));
        if (exists(pl_text_string(&to))) {
            continue;
        }
        PL_TRY(pl_file_make_parents(pl_text_string(&to), 0755, reterr));
        PL_TRY(move(path, pl_text_string(&to), reterr));
        pl_log(PL_LOG_INFO, "sweep: '%s' was not empty when its trial began; its contents are kept in '%s'", path,
               pl_text_string(&to));
        return PL_OK;
    }
}
