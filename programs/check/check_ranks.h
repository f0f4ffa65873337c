/* SPDX-License-Identifier: Apache-2.0 */
/** What the ranks of paceline-check know, and what its files with MPI share. */
#ifndef PL_PROGRAMS_CHECK_CHECK_RANKS_H
#define PL_PROGRAMS_CHECK_CHECK_RANKS_H

#include "programs/check/check.h"

struct pl_check_ranks {
    struct pl_check_needs needs;
    int rank, size;
    struct pl_check_host *by_rank; /* [size] */
    int *leaders;                  /* the first rank of each host, [hosts] */
    int *host_of;                  /* [size], a number in leaders */
    int hosts, local_rank;
    bool uniform; /* all hosts have equally many ranks */
    struct pl_check_values values;
    struct pl_check_link *links; /* of rank 0 */
    size_t links_count;
    struct pl_text silent;
};

/** End this rank with the reason, and so the job. */
_Noreturn void pl_check_fail(const char *what);

/** Zeroed memory; without any the rank ends. */
void *pl_check_allocate(size_t count, size_t bytes);

/** Whether the request, an MPI_Request, has ended before the deadline. */
bool pl_check_wait_until(void *request, int64_t deadline_ns);

/** Measure all links between hosts, for rank 0. Collective. */
void pl_check_links_measure(struct pl_check_ranks *check);

#endif
