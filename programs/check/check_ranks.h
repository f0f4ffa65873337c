/* SPDX-License-Identifier: Apache-2.0 */
/** State of the ranks of paceline-check, and functions for its files with MPI. */
#ifndef PL_PROGRAMS_CHECK_CHECK_RANKS_H
#define PL_PROGRAMS_CHECK_CHECK_RANKS_H

#include "programs/check/check.h"

struct pl_check_ranks {
    struct pl_check_needs needs;
    int rank, size;
    struct pl_check_host *by_rank; /* [size] */
    int *leaders;                  /* [hosts]: first rank of each host */
    int *host_of;                  /* [size]: index in leaders */
    int hosts, local_rank;
    bool uniform; /* all hosts have equally many ranks */
    struct pl_check_values values;
    struct pl_check_link *links; /* on rank 0 only */
    size_t links_count;
    struct pl_text silent;
};

/** End this rank with the reason; that ends the job. */
_Noreturn void pl_check_fail(const char *what);

/** Allocate zeroed memory; ends the rank if there is none. */
void *pl_check_allocate(size_t count, size_t bytes);

/** Wait until the request, an MPI_Request, has ended or the deadline has passed; true if it has ended. */
bool pl_check_wait_until(void *request, int64_t deadline_ns);

/** Measure all links between hosts, for rank 0. Collective. */
void pl_check_links_measure(struct pl_check_ranks *check);

#endif
