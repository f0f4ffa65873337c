/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the kernel's counters of this container's control groups. */
#include "entrypoint/supervise/cgroup.h"

#include "base/file.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

enum { COUNTERS_MAX_BYTES = 4096 };

/* Returns the number after `name`, which includes the blank after it, from the first of the two files that can be
 * read. */
static int64_t count_of(const char *file_v2, const char *file_v1, const char *name)
{
    PL_AUTO_FREE char *text = NULL;
    const char *found;

    if (pl_file_read(file_v2, COUNTERS_MAX_BYTES, &text, NULL, NULL) != PL_OK &&
        pl_file_read(file_v1, COUNTERS_MAX_BYTES, &text, NULL, NULL) != PL_OK) {
        return 0;
    }
    found = strstr(text, name);
    return found ? strtoll(found + strlen(name), NULL, 10) : 0;
}

int64_t pl_cgroup_memory_kills(void)
{
    return count_of("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control", "oom_kill ");
}

int64_t pl_cgroup_refused_forks(void)
{
    return count_of("/sys/fs/cgroup/pids.events", "/sys/fs/cgroup/pids/pids.events", "max ");
}
