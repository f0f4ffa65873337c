/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Finds which rank held up the others, and why, in the trace rings of a job's ranks.
 *
 * The collectives in the world of all ranks are compared by their sequence numbers, as far as all rings have them. In a
 * collective that needs all ranks (allreduce, reduce_scatter, allgather, alltoall, barrier), the others wait for the
 * rank that starts last; it costs the time from the median of the other ranks' starts to that start. Hosts are put on
 * one clock by the ends of these collectives, which all ranks reach at nearly the same time.
 *
 * Test  tests/unit/programs/report/test_summary.c, tests/integration/lifecycle.py
 */
#ifndef PL_PROGRAMS_REPORT_SUMMARY_H
#define PL_PROGRAMS_REPORT_SUMMARY_H

#include "base/text.h"

#include <stdint.h>

enum { PL_TRACE_HOST_BYTES = 31 };

enum pl_trace_share {
    PL_TRACE_COMPUTES,
    PL_TRACE_DATA, /* waits for data */
    PL_TRACE_SAVES,
    PL_TRACE_WAITS, /* waits for other ranks */
    PL_TRACE_MOVES, /* moves data in collectives */
    PL_TRACE_SHARES
};

/** How one rank spends the time from the first to the last common collective. */
struct pl_trace_rank {
    int rank;
    char host[PL_TRACE_HOST_BYTES +
              1];                   /* the host's name, or "host 1" if the rings have no names that tell hosts apart */
    double shares[PL_TRACE_SHARES]; /* shares in percent */
    uint64_t late;                  /* how often the others waited for this rank */
};

/**
 * Appends only the sentences. The caller frees `*ret_ranks`, in the order of the ranks; NULL with `*ret_count` 0 if
 * there are too few collectives to compare. Errors: those of pl_trace_summarise().
 */
enum pl_status pl_trace_compare(const char *const *paths, size_t count, struct pl_text *text,
                                struct pl_trace_rank **ret_ranks, size_t *ret_count,
                                struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Appends sentences and a table for people. If a rank takes longer than the others, the text says that it waits for
 * data or saves if its spans named "data" or "save" hold half of the additional time.
 * Errors  those of pl_ring_read(); PL_INVALID: two rings of one rank, or rings of different jobs.
 */
enum pl_status pl_trace_summarise(const char *const *paths, size_t count, struct pl_text *text,
                                  struct pl_error *reterr) PL_MUST_CHECK;

#endif
