/* SPDX-License-Identifier: Apache-2.0 */
/** Counters of the kernel for this container's control groups, of version 2 and 1. */
#ifndef PL_ENTRYPOINT_SUPERVISE_CGROUP_H
#define PL_ENTRYPOINT_SUPERVISE_CGROUP_H

#include <stdint.h>

/** Returns how many processes were killed because the memory limit was reached, or 0 if it cannot be known. */
int64_t pl_cgroup_memory_kills(void);

/** Returns how often the limit of processes and threads refused one, or 0 if it cannot be known. */
int64_t pl_cgroup_refused_forks(void);

#endif
