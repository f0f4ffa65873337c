/* SPDX-License-Identifier: Apache-2.0 */
/* A small sweep for the tests of its journal. */
#ifndef PL_TESTS_UNIT_PROGRAMS_SWEEP_JOURNAL_SWEEP_H
#define PL_TESTS_UNIT_PROGRAMS_SWEEP_JOURNAL_SWEEP_H

#include "programs/sweep/journal.h"

#include <stdlib.h>

enum { TRIALS = 5 };

/* A scheduler, its records, and its journal if one is open. */
struct sweep {
    struct pl_sweep_space *space;
    struct pl_scheduler *scheduler;
    struct pl_sweep_record records[TRIALS];
    struct pl_sweep_journal *journal;
    struct pl_error error;
};

static inline void sweep_done(struct sweep *sweep)
{
    pl_sweep_journal_close(sweep->journal);
    for (size_t i = 0; i < TRIALS; i++) {
        free(sweep->records[i].host);
        free(sweep->records[i].reason);
    }
    pl_scheduler_free(sweep->scheduler);
    pl_sweep_space_free(sweep->space);
}

#endif
