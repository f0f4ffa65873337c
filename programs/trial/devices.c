/* SPDX-License-Identifier: Apache-2.0 */
/* Finds GPUs for a trial. */
#include "programs/trial/devices.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static int count_words(const char *list)
{
    int count = 0;

    for (const char *at = list; *at != '\0'; at += strcspn(at, ","), at += *at == ',') {
        count += strcspn(at, ",") > 0;
    }
    return count;
}

/* Appends item number `index` of the list, or the index itself if there is no list. */
static void append_device(const char *list, int index, struct pl_text *text)
{
    pl_text_append(text, text->length > 0 ? "," : "");
    if (!list) {
        pl_text_printf(text, "%d", index);
        return;
    }
    for (; index > 0; list += strcspn(list, ","), list += *list == ',') {
        index -= strcspn(list, ",") > 0;
    }
    list += strspn(list, ",");
    pl_text_append_n(text, list, strcspn(list, ","));
}

/* Returns whether no other trial has the GPU. Its descriptor stays open: the lock ends with this process. */
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
    const char *list = pl_environment_get(job->process, "CUDA_VISIBLE_DEVICES");
    const int count = job->gpus > 0 && list ? count_words(list) : job->gpus;
    PL_AUTO_TEXT struct pl_text folder = PL_TEXT_NONE;
    PL_AUTO_CLOSE int folder_fd = -1;
    int found = 0;

    if (gpus > count) {
        return pl_error_set(reterr, PL_INVALID, "the trial asks for %d GPUs, and host %.200s has %d", gpus,
                            job->current_host, count);
    }
    if (slot >= 0) {
        for (int i = 0; i < gpus; i++) {
            append_device(list, (slot * gpus + i) % count, visible);
        }
        return pl_text_check(visible, reterr);
    }
    pl_text_printf(&folder, "%s/sweep", job->paths.base);
    PL_TRY(pl_text_check(&folder, reterr));
    folder_fd = open(pl_text_string(&folder), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder_fd < 0 || flock(folder_fd, LOCK_EX) != 0) { /* one trial chooses at a time */
        return pl_error_errno(reterr, "lock '%s'", pl_text_string(&folder));
    }
    for (int i = 0; i < count && found < gpus; i++) {
        bool taken = false;

        PL_TRY(take(folder_fd, i, &taken, reterr));
        if (taken) {
            append_device(list, i, visible);
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
