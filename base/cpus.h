/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Sets of CPUs, for sched_getaffinity() and the CPU_*_S() macros. A cpu_set_t is too small for kernels with more than
 * 1,024 CPUs: sched_getaffinity() fails.
 *
 * Test  tests/unit/base/test_cpus.c
 */
#ifndef PL_BASE_CPUS_H
#define PL_BASE_CPUS_H

#include <sched.h>
#include <stddef.h>

struct pl_text;

enum { PL_CPUS_MOST = 8192 }; /* limit of Linux */

struct pl_cpus {
    cpu_set_t sets[PL_CPUS_MOST / CPU_SETSIZE];
};

/** Appends the set in the kernel's form, for example "0-3,8", or "none" if it is empty. */
void pl_cpus_print(const struct pl_cpus *cpus, struct pl_text *text);

/**
 * Appends the CPUs on which the calling thread may run, and which its child processes inherit; "unknown" if the kernel
 * refuses.
 */
void pl_cpus_print_own(struct pl_text *text);

/** A rank and its CPUs, in the form of pl_cpus_print(). */
struct pl_cpus_of {
    int rank;
    char *cpus;
};

/**
 * Appends which ranks of a host run on which CPUs: "rank 0 bound to CPU 0; ranks 1-3 wander over CPUs 1-7". `ranks` are
 * in ascending order. Ranks with equal sets are named together. After eight sets the others are only counted.
 */
void pl_cpus_describe(const struct pl_cpus_of *ranks, size_t count, struct pl_text *text);

#endif
