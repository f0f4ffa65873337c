/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Sets of CPUs, for sched_getaffinity() and the CPU_*_S() macros: where the kernel knows more than 1,024 CPUs it
 * refuses to fill a cpu_set_t.
 *
 * Test  tests/unit/base/test_cpus.c
 */
#ifndef PL_BASE_CPUS_H
#define PL_BASE_CPUS_H

#include <sched.h>
#include <stddef.h>

struct pl_text;

enum { PL_CPUS_MOST = 8192 }; /* of Linux */

struct pl_cpus {
    cpu_set_t sets[PL_CPUS_MOST / CPU_SETSIZE];
};

/** Append the set as the kernel writes it, "0-3,8"; "none" for an empty one. */
void pl_cpus_print(const struct pl_cpus *cpus, struct pl_text *text);

/** Append those that the calling thread may run on, and that processes inherit; "unknown" where the kernel refuses. */
void pl_cpus_print_own(struct pl_text *text);

/** The process with this number and its CPUs, as pl_cpus_print() has them. */
struct pl_cpus_of {
    int rank;
    char *cpus;
};

/**
 * Append which of the processes of a host, in ascending order, run on which CPUs: "rank 0 bound to CPU 0; ranks 1-3
 * wander over CPUs 1-7". Those of equal sets are named together, and those beyond eight sets are counted.
 */
void pl_cpus_describe(const struct pl_cpus_of *ranks, size_t count, struct pl_text *text);

#endif
