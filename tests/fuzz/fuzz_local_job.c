/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of CreateTrainingJob: what is accepted is within the limits, and what is saved is accepted again with the same
 * values. What is refused has a reason. */
#include "base/file.h"
#include "programs/local/job/job.h"
#include "tests/support/fuzz.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Reads and checks the file at `path`; NULL if it is refused. */
static struct pl_local_job *read_job(const char *path, const struct pl_local_view **ret_view)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_local_job *job = NULL;

    PL_BUG_IF(pl_local_job_new(&job, &error) != PL_OK);
    if (pl_local_job_read(job, path, &error) == PL_OK && pl_local_job_check(job, ret_view, &error) == PL_OK) {
        return job;
    }
    PL_BUG_IF(error.cause[0] == '\0');
    pl_local_job_free(job);
    return NULL;
}

static void compare(const struct pl_local_view *view, const struct pl_local_view *again)
{
    PL_BUG_IF(strcmp(view->name, again->name) != 0 || view->hosts != again->hosts || view->hosts < 1);
    PL_BUG_IF(view->max_run_s != again->max_run_s || view->is_spot != again->is_spot);
    PL_BUG_IF(view->hyperparameter_count != again->hyperparameter_count || view->hyperparameter_count > 100);
    PL_BUG_IF(view->environment_count != again->environment_count || view->metric_count != again->metric_count);
    PL_BUG_IF(view->channel_count != again->channel_count || view->channel_count > 20);
    for (size_t i = 0; i < view->hyperparameter_count; i++) {
        PL_BUG_IF(strcmp(view->hyperparameters[i].value, again->hyperparameters[i].value) != 0);
    }
    for (size_t i = 0; i < view->channel_count; i++) {
        PL_BUG_IF(strcmp(view->channels[i].from, again->channels[i].from) != 0);
        PL_BUG_IF(view->channels[i].mode != again->channels[i].mode);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    PL_AUTO_CLOSE int fd = memfd_create("job", MFD_CLOEXEC);
    const struct pl_local_view *view = NULL, *view_again = NULL;
    struct pl_local_job *job, *again;
    char path[64], saved[PATH_MAX] = "/tmp/paceline-fuzz-job-XXXXXX";
    int saved_fd;

    PL_BUG_IF(fd < 0 || pl_file_write_fd(fd, data, bytes, "the input", NULL) != PL_OK);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    job = read_job(path, &view);
    if (!job) {
        return 0;
    }
    saved_fd = mkstemp(saved);
    PL_BUG_IF(saved_fd < 0);
    close(saved_fd);
    PL_BUG_IF(pl_local_job_save(job, saved, NULL) != PL_OK);
    again = read_job(saved, &view_again);
    unlink(saved);
    PL_BUG_IF(!again);
    compare(view, view_again);
    pl_local_job_free(again);
    pl_local_job_free(job);
    return 0;
}
