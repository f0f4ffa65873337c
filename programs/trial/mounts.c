/* SPDX-License-Identifier: Apache-2.0 */
/* Gives a trial an /opt/ml of its own, by mounts that no other process sees. */
#include "programs/trial/trial.h"

#include "base/memory.h"
#include "entrypoint/proc/mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

enum pl_status pl_trial_mounts_enter(const struct pl_job *job, struct pl_error *reterr)
{
    if (unshare(CLONE_NEWNS) != 0) { /* some systems do not let every user make a user namespace either */
        PL_TRY(pl_mounts_enter_users(reterr));
        if (unshare(CLONE_NEWNS) != 0) {
            return pl_error_errno(reterr, "unshare");
        }
    }
    if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) != 0) {
        return pl_error_errno(reterr, "mount '/' as slave");
    }
    return pl_mounts_bind(job->paths.base, job->paths.base, reterr);
}

enum pl_status pl_trial_mounts_make(const struct pl_job *job, const struct pl_trial_folder *folder,
                                    struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text output = PL_TEXT_NONE, config = PL_TEXT_NONE;
    PL_AUTO_TEXT struct pl_text root = PL_TEXT_NONE, below = PL_TEXT_NONE;

    pl_text_printf(&output, "%s/output", folder->base);
    pl_text_printf(&config, "%s/input/config", folder->base);
    pl_job_checkpoints(job, &root);
    pl_text_printf(&below, "%s/checkpoints", job->paths.base);
    PL_TRY(pl_text_check(&output, reterr));
    PL_TRY(pl_text_check(&config, reterr));
    PL_TRY(pl_text_check(&root, reterr));
    PL_TRY(pl_text_check(&below, reterr));
    {
        const bool root_is_below = strncmp(root.data, below.data, below.length) == 0 &&
                                   strchr("/", root.data[below.length]); /* so one mount would hide the other */
        const struct {
            const char *source, *target;
        } list[] = {{output.data, job->paths.output},       {folder->output_data, job->paths.output_data},
                    {config.data, job->paths.input_config}, {folder->model, job->paths.model},
                    {folder->checkpoints, root.data},       {folder->checkpoints, below.data}};
        const size_t count = PL_ARRAY_ITEMS(list) - root_is_below;
        int fds[PL_ARRAY_ITEMS(list)];

        /* open all sources first: a mount can hide the source of another one */
        for (size_t i = 0; i < count; i++) {
            fds[i] = open(list[i].source, O_PATH | O_DIRECTORY | O_CLOEXEC);
            if (fds[i] < 0) {
                return pl_error_errno(reterr, "open '%s'", list[i].source);
            }
        }
        for (size_t i = 0; i < count; i++) {
            char source[32];

            snprintf(source, sizeof(source), "/proc/self/fd/%d", fds[i]);
            PL_TRY(pl_mounts_bind(source, list[i].target, reterr));
        }
    }
    if (access(job->paths.input_data, F_OK) != 0) {
        return PL_OK;
    }
    PL_TRY(pl_mounts_bind(job->paths.input_data, job->paths.input_data, reterr));
    return pl_mounts_make_read_only(job->paths.input_data, reterr);
}

void pl_trial_mounts_undo(const struct pl_job *job)
{
    PL_AUTO_TEXT struct pl_text root = PL_TEXT_NONE;

    pl_job_checkpoints(job, &root);
    umount2(pl_text_string(&root), MNT_DETACH); /* it may lie outside */
    umount2(job->paths.base, MNT_DETACH);
}

static const struct {
    const char *name, *variable;
} shared_folders[] = {{"model", "SM_MODEL_DIR"}, {"checkpoints", "PACELINE_CHECKPOINT_DIR"}};

void pl_trial_shared_note(const struct pl_job *job, struct pl_trial_shared *ret_shared)
{
    for (size_t i = 0; i < PL_ARRAY_ITEMS(shared_folders); i++) {
        PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
        struct stat info;

        pl_text_printf(&path, "%s/%s", job->paths.base, shared_folders[i].name);
        ret_shared->times[i] = pl_text_check(&path, NULL) == PL_OK && stat(path.data, &info) == 0
                                   ? info.st_mtim
                                   : (struct timespec){.tv_sec = 0};
    }
}

enum pl_status pl_trial_shared_check(const struct pl_job *job, const struct pl_trial_shared *shared,
                                     struct pl_error *reterr)
{
    struct pl_trial_shared now;

    pl_trial_shared_note(job, &now);
    for (size_t i = 0; i < PL_ARRAY_ITEMS(shared_folders); i++) {
        if (now.times[i].tv_sec != shared->times[i].tv_sec || now.times[i].tv_nsec != shared->times[i].tv_nsec) {
            return pl_error_set(reterr, PL_INVALID,
                                "a program has changed '%.300s/%s', which all trials of this host share because the "
                                "system allows no mounts: expected it to use the folder in the variable %s",
                                job->paths.base, shared_folders[i].name, shared_folders[i].variable);
        }
    }
    return PL_OK;
}
