/* SPDX-License-Identifier: Apache-2.0 */
/* Tells what a job saved at a spot stop, and from where it went on. */
#include "programs/local/spot.h"

#include "base/log.h"
#include "programs/local/files.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void pl_local_spot_begin(struct pl_local *local)
{
    /* the clock from which the kernel takes the times of files */
    clock_gettime(CLOCK_REALTIME_COARSE, &local->spot.begin);
}

void pl_local_spot_read(struct pl_local *local, const char *line, size_t bytes)
{
    struct pl_local_spot *spot = &local->spot;
    uint64_t step;

    if (!spot->is_second && pl_local_metrics_number_after(line, bytes, "stopped after step ", &step)) {
        spot->knows_last = true;
        spot->last_step = step;
    }
    if (spot->is_second && !spot->has_resumed &&
        pl_local_metrics_number_after(line, bytes, "resuming after step ", &step)) {
        spot->has_resumed = true;
        spot->resumed_step = step;
    }
}

/* The runtime's own checkpoint is whole when it has written this file. */
static bool is_whole_checkpoint(const char *path, uint64_t *ret_step)
{
    static const char prefix[] = "checkpoint-";
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char *end;

    if (strncmp(name, prefix, sizeof(prefix) - 1) != 0 || !isdigit((unsigned char)name[sizeof(prefix) - 1])) {
        return false;
    }
    *ret_step = strtoull(name + sizeof(prefix) - 1, &end, 10);
    return strcmp(end, ".json") == 0;
}

static double seconds_between(const struct timespec *from, const struct timespec *to)
{
    return (double)(to->tv_sec - from->tv_sec) + (double)(to->tv_nsec - from->tv_nsec) / 1e9;
}

static void look_at(struct pl_local_spot *spot, const char *path, const char *name)
{
    struct stat info;
    uint64_t step;
    double taken_s;

    if (stat(path, &info) != 0) {
        return;
    }
    taken_s = seconds_between(&spot->begin, &info.st_mtim);
    if (taken_s < 0.0) {
        return;
    }
    spot->files++;
    spot->taken_s = taken_s > spot->taken_s ? taken_s : spot->taken_s;
    if (is_whole_checkpoint(name, &step)) {
        spot->has_saved = true;
        spot->saved_step = step > spot->saved_step ? step : spot->saved_step;
    }
}

void pl_local_spot_look(struct pl_local *local)
{
    PL_AUTO_LOCAL_FILES struct pl_local_files files = PL_LOCAL_FILES_NONE;
    PL_AUTO_TEXT struct pl_text folder = PL_TEXT_NONE, path = PL_TEXT_NONE;
    struct pl_error error = PL_ERROR_NONE;

    local->spot.is_second = true;
    for (size_t i = 0; i < local->job->hosts; i++) {
        local->spot.was_killed = local->spot.was_killed || local->hosts[i].killed;
    }
    if (!local->job->checkpoint_path) {
        return;
    }
    if (pl_local_path(local, &folder, &error, "checkpoints") != PL_OK ||
        pl_local_files_list(folder.data, false, &files, &error) != PL_OK) {
        pl_log_error(&error, "looking for checkpoints");
        return;
    }
    for (size_t i = 0; i < files.count; i++) {
        if (pl_local_path(local, &path, NULL, "checkpoints/%s", files.paths[i]) == PL_OK) {
            look_at(&local->spot, path.data, files.paths[i]);
        }
    }
}

static void append_saved(const struct pl_local *local, struct pl_text *text)
{
    const struct pl_local_spot *spot = &local->spot;
    const char *path = local->job->checkpoint_path;

    if (!path) {
        pl_text_append(text, "the job has no CheckpointConfig and saved nothing");
    } else if (spot->has_saved) {
        pl_text_printf(text, "rank 0 saved step %llu in %.1f s", (unsigned long long)spot->saved_step, spot->taken_s);
    } else if (spot->files > 0) {
        pl_text_printf(text, "the job wrote %zu file%s to %s, the last one %.1f s after SIGTERM", spot->files,
                       spot->files == 1 ? "" : "s", path, spot->taken_s);
    } else if (spot->was_killed) {
        pl_text_append(text, "the job saved nothing until it was killed");
    } else {
        pl_text_printf(text, "the job wrote nothing to %s after SIGTERM", path);
    }
}

void pl_local_spot_say(const struct pl_local *local)
{
    const struct pl_local_spot *spot = &local->spot;
    const uint64_t last_step = spot->knows_last ? spot->last_step : spot->saved_step;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    append_saved(local, &text);
    if (!spot->has_resumed) {
        pl_text_append(&text, "; the second run did not print 'resuming after step N'");
    } else {
        pl_text_printf(&text, "; the second run went on after step %llu", (unsigned long long)spot->resumed_step);
        if ((spot->knows_last || spot->has_saved) && last_step >= spot->resumed_step) {
            const uint64_t repeated = last_step - spot->resumed_step;

            pl_text_printf(&text, ", %llu step%s repeated", (unsigned long long)repeated, repeated == 1 ? "" : "s");
        }
    }
    pl_log(PL_LOG_INFO, "spot stop: %s", pl_text_string(&text));
}
