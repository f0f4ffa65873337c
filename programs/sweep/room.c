/* SPDX-License-Identifier: Apache-2.0 */
/* Reserves disk space for the journal and the result, as process 1 does for the failure file. */
#include "programs/sweep/state.h"

#include "base/file.h"
#include "base/log.h"
#include "programs/sweep/tree.h"
#include "programs/sweep/trial_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum {
    JOURNAL_BYTES = 64 * 1024, /* enough for the end lines of all running trials */
    RESULT_BYTES = 64 * 1024,
    ROW_BYTES = 1024,        /* bytes of a row of trials.jsonl without the hyperparameters */
    FULL_BYTES = 256 * 1024, /* a disk with less free space counts as full: the rest is space that is reserved here */
};

static int keep(const char *folder, int64_t bytes)
{
    int fd = open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);

    if (fd < 0 || fallocate(fd, 0, 0, bytes) == 0) {
        return fd;
    }
    if (errno == ENOSPC || errno == EDQUOT) {
        pl_log(PL_LOG_WARNING,
               "the disk of '%s' has less than %lld free bytes: the sweep cannot reserve space for its results", folder,
               (long long)bytes);
    }
    pl_file_close_at(&fd);
    return fd;
}

void pl_sweep_room_open(struct pl_sweep *sweep)
{
    PL_AUTO_TEXT struct pl_text root = PL_TEXT_NONE;
    int64_t result_bytes = RESULT_BYTES;

    for (size_t i = 0; i < sweep->space->trials_count; i++) {
        result_bytes += ROW_BYTES + (int64_t)strlen(sweep->space->trials[i].hyperparameters);
    }
    pl_trial_folder_root(sweep->job, &root);
    if (pl_text_check(&root, NULL) == PL_OK) {
        sweep->room.journal_fd = keep(pl_text_string(&root), JOURNAL_BYTES);
    }
    if (pl_file_make_dirs(sweep->job->paths.output_data, 0755, NULL) == PL_OK) {
        sweep->room.result_fd = keep(sweep->job->paths.output_data, result_bytes);
    }
}

void pl_sweep_room_close(struct pl_sweep *sweep)
{
    pl_file_close_at(&sweep->room.journal_fd);
    pl_file_close_at(&sweep->room.result_fd);
}

bool pl_sweep_room_give_back(struct pl_sweep *sweep, const struct pl_error *error)
{
    if (error->code != ENOSPC && error->code != EDQUOT) {
        return false;
    }
    sweep->full = true;
    pl_file_close_at(&sweep->room.journal_fd);
    return true;
}

void pl_sweep_room_describe(const struct pl_sweep *sweep, struct pl_text *text)
{
    PL_AUTO_TEXT struct pl_text root = PL_TEXT_NONE;

    pl_trial_folder_root(sweep->job, &root);
    if (pl_text_check(&root, NULL) == PL_OK) {
        pl_sweep_tree_describe_full(pl_text_string(&root), FULL_BYTES, text);
    }
}
