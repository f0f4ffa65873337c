/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of CreateTrainingJob: what is accepted can run, and what is refused has a reason. */
#include "base/file.h"
#include "programs/local/job.h"
#include "tests/support/fuzz.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static void check_channel(const struct pl_local_job *job, const struct pl_local_channel *channel)
{
    bool has_host = false;

    PL_BUG_IF(strchr(channel->name, '/') || strcmp(channel->name, "..") == 0 || *channel->name == '\0');
    PL_BUG_IF(!channel->from || channel->mode > PL_LOCAL_PIPE || channel->kind > PL_LOCAL_FROM_AUGMENTED);
    for (size_t i = 0; i < job->group_count; i++) {
        has_host = has_host || pl_local_channel_is_of(channel, job->groups[i].name ? job->groups[i].name : "");
    }
    PL_BUG_IF(!has_host);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct pl_local_job job;
    PL_AUTO_CLOSE int fd = memfd_create("job", MFD_CLOEXEC);
    struct pl_error error = PL_ERROR_NONE;
    char path[64];

    PL_BUG_IF(fd < 0 || pl_file_write_fd(fd, data, bytes, "the input", NULL) != PL_OK);
    PL_BUG_IF(pl_local_job_init(&job, &error) != PL_OK);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (pl_local_job_read(&job, path, &error) != PL_OK || pl_local_job_check(&job, &error) != PL_OK) {
        PL_BUG_IF(error.cause[0] == '\0');
    } else {
        PL_BUG_IF(strchr(job.name, '/') || job.hosts < 1 || job.hosts > PL_LOCAL_MOST_HOSTS);
        for (size_t i = 0; i < job.channel_count; i++) {
            check_channel(&job, &job.channels[i]);
        }
    }
    pl_local_job_done(&job);
    return 0;
}
