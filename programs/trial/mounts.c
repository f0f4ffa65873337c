/* SPDX-License-Identifier: Apache-2.0 */
/* Gives a trial an /opt/ml of its own, by mounts that no other process sees. */
#include "programs/trial/mounts.h"

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

/* Some systems do not let every user make a user namespace. */
static enum pl_status enter_namespace(struct pl_error *reterr)
{
    if (unshare(CLONE_NEWNS) != 0) {
        PL_TRY(pl_mounts_enter_users(reterr));
        if (unshare(CLONE_NEWNS) != 0) {
            return pl_error_errno(reterr, "unshare");
        }
    }
    return mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) == 0 ? PL_OK : pl_error_errno(reterr, "mount '/' as slave");
}

enum pl_status pl_trial_mounts_enter(const struct pl_job *job, struct pl_error *reterr)
{
    PL_TRY(enter_namespace(reterr));
    return pl_mounts_bind(job->paths.base, job->paths.base, reterr);
}

enum pl_status pl_trial_mounts_make(const struct pl_job *job, const struct pl_trial_folder *folder,
                                    struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE, root = PL_TEXT_NONE, below = PL_TEXT_NONE;
    int fds[6];

    pl_job_checkpoints(job, &root);
    pl_text_printf(&below, "%s/checkpoints", job->paths.base);
    PL_TRY(pl_text_check(&root, reterr));
    PL_TRY(pl_text_check(&below, reterr));
    {
        const bool root_is_below = strncmp(root.data, below.data, below.length) == 0 &&
                                   strchr("/", root.data[below.length]); /* so one mount would hide the other */
        const struct {
            const char *source, *source_tail, *target, *target_tail;
        } list[] = {{folder->base, "/output", job->paths.base, "/output"},
                    {folder->output_data, "", job->paths.base, "/output/data"},
                    {folder->base, "/input/config", job->paths.base, "/input/config"},
                    {folder->model, "", job->paths.base, "/model"},
                    {folder->checkpoints, "", root.data, ""},
                    {folder->checkpoints, "", below.data, ""}};
        const size_t count = PL_ARRAY_ITEMS(list) - root_is_below;

        /* open all sources first: a mount can hide the source of another one */
        for (size_t i = 0; i < count; i++) {
            pl_text_clear(&path);
            pl_text_printf(&path, "%s%s", list[i].source, list[i].source_tail);
            PL_TRY(pl_text_check(&path, reterr));
            fds[i] = open(pl_text_string(&path), O_PATH | O_DIRECTORY | O_CLOEXEC);
            if (fds[i] < 0) {
                return pl_error_errno(reterr, "open '%s'", pl_text_string(&path));
            }
        }
        for (size_t i = 0; i < count; i++) {
            char source[32];

            pl_text_clear(&path);
            pl_text_printf(&path, "%s%s", list[i].target, list[i].target_tail);
            PL_TRY(pl_text_check(&path, reterr));
            snprintf(source, sizeof(source), "/proc/self/fd/%d", fds[i]);
            PL_TRY(pl_mounts_bind(source, pl_text_string(&path), reterr));
        }
    }
    if (access(job->paths.input_data, F_OK) != 0) {
        return PL_OK;
    }
    PL_TRY(pl_mounts_bind(job->paths.input_data, job->paths.input_data, reterr));
    return pl_mounts_make_read_only(job->paths.input_data, reterr);
}

static struct timespec changed_at(const struct pl_job *job, const char *name)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    struct stat info = {.st_mtim = {.tv_sec = 0}};

    pl_text_printf(&path, "%s/%s", job->paths.base, name);
    if (pl_text_check(&path, NULL) == PL_OK && stat(pl_text_string(&path), &info) != 0) {
        info.st_mtim = (struct timespec){.tv_sec = 0};
    }
    return info.st_mtim;
}

static const char *const shared_names[] = {"model", "checkpoints"};

void pl_trial_shared_note(const struct pl_job *job, struct pl_trial_shared *ret_shared)
{
    for (size_t i = 0; i < PL_ARRAY_ITEMS(shared_names); i++) {
        ret_shared->times[i] = changed_at(job, shared_names[i]);
    }
}

enum pl_status pl_trial_shared_check(const struct pl_job *job, const struct pl_trial_shared *shared,
                                     struct pl_error *reterr)
{
    for (size_t i = 0; i < PL_ARRAY_ITEMS(shared_names); i++) {
        const struct timespec now = changed_at(job, shared_names[i]);

        if (now.tv_sec != shared->times[i].tv_sec || now.tv_nsec != shared->times[i].tv_nsec) {
            return pl_error_set(reterr, PL_INVALID,
                                "a program has changed '%.300s/%s', which all trials of this host share because the "
                                "system allows no mounts: expected it to use the folder in the variable %s",
                                job->paths.base, shared_names[i], i == 0 ? "SM_MODEL_DIR" : "PACELINE_CHECKPOINT_DIR");
        }
    }
    return PL_OK;
}
