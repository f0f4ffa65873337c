/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Sets of CPUs, for sched_getaffinity() and the CPU_*_S() macros: where the kernel knows more than 1,024 CPUs it
 * refuses to fill a cpu_set_t.
 */
#ifndef PL_BASE_CPUS_H
#define PL_BASE_CPUS_H

#include <sched.h>

enum { PL_CPUS_MOST = 8192 }; /* of Linux */

struct pl_cpus {
    cpu_set_t sets[PL_CPUS_MOST / CPU_SETSIZE];
};

#endif
