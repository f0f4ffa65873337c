/* SPDX-License-Identifier: Apache-2.0 */
/** What the kernel counts for this container's control groups, in version 2 and 1. */
#ifndef PL_ENTRYPOINT_SUPERVISE_CGROUP_H
#define PL_ENTRYPOINT_SUPERVISE_CGROUP_H

#include <stdint.h>

/** How many processes were killed because the memory limit was reached; 0 where it cannot be known. */
int64_t pl_cgroup_memory_kills(void);

/** How often the limit of processes and threads refused one; 0 where it cannot be known. */
int64_t pl_cgroup_refused_forks(void);

#endif
