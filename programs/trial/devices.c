/* SPDX-License-Identifier: Apache-2.0 */
/* Finds GPUs for a trial. */
#include "programs/trial/trial.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* Lists the GPUs that this container sees, by the names that CUDA_VISIBLE_DEVICES has for them. */
static enum pl_status list_gpus(const struct pl_job *job, struct pl_strv *gpus, struct pl_error *reterr)
{
    const char *visible = pl_environment_get(job->process, "CUDA_VISIBLE_DEVICES");

    if (job->gpus == 0 || !visible) {
        for (int i = 0; i < job->gpus; i++) {
            pl_strv_printf(gpus, "%d", i);
        }
        return pl_strv_check(gpus, reterr);
    }
    for (size_t bytes; *visible != '\0'; visible += bytes + (visible[bytes] == ',')) {
        bytes = strcspn(visible, ",");
        if (bytes > 0) {
            pl_strv_printf(gpus, "%.*s", (int)bytes, visible);
        }
    }
    return pl_strv_check(gpus, reterr);
}

/* Takes the GPU unless another trial has it. The lock's descriptor stays open: the lock ends with this process. */
static enum pl_status take(int folder_fd, int index, bool *ret_taken, struct pl_error *reterr)
{
    char name[32];
    int fd;

    snprintf(name, sizeof(name), "gpu-%d", index);
    fd = openat(folder_fd, name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        return pl_error_errno(reterr, "open '%s' in the folder of trials", name);
    }
    *ret_taken = flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (!*ret_taken) {
        close(fd);
    }
    return PL_OK;
}

enum pl_status pl_trial_devices_take(const struct pl_job *job, int gpus, int slot, struct pl_text *visible,
                                     struct pl_error *reterr)
{
    PL_AUTO_STRV struct pl_strv all = PL_STRV_NONE;
    PL_AUTO_TEXT struct pl_text folder = PL_TEXT_NONE;
    PL_AUTO_CLOSE int folder_fd = -1;
    int count, found = 0;

    PL_TRY(list_gpus(job, &all, reterr));
    count = (int)all.count;
    if (gpus > count) {
        return pl_error_set(reterr, PL_INVALID, "the trial asks for %d GPUs, and host %.200s has %d", gpus,
                            job->current_host, count);
    }
    PL_TRY(pl_text_set(&folder, reterr, "%s/sweep", job->paths.base));
    if (slot < 0) {
        folder_fd = open(pl_text_string(&folder), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (folder_fd < 0 || flock(folder_fd, LOCK_EX) != 0) { /* one trial chooses at a time */
            return pl_error_errno(reterr, "lock '%s'", pl_text_string(&folder));
        }
    }
    for (int i = 0; i < count && found < gpus; i++) {
        bool taken = true;

        PL_TRY(slot < 0 ? take(folder_fd, i, &taken, reterr) : PL_OK);
        if (taken) {
            pl_text_printf(visible, "%s%s", found > 0 ? "," : "", all.items[slot < 0 ? i : (slot * gpus + i) % count]);
            found++;
        }
    }
    return found == gpus
               ? pl_text_check(visible, reterr)
               : pl_error_set(reterr, PL_LIMIT,
                              "the trial asks for %d GPUs, and of the %d of host %.200s %d are free: expected "
                              "fewer trials at once",
                              gpus, count, job->current_host, found);
}
