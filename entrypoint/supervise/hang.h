/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What a hang leads to. Where nothing has happened on any of the job's hosts for PACELINE_HANG_S, the master has
 * `paceline stacks` print to the log where each rank stands, and then waits on, or with PACELINE_HANG_ACTION=end ends
 * the job. A worker tells the master whether it is quiet; hosts without a link each decide for themselves.
 */
#ifndef PL_ENTRYPOINT_SUPERVISE_HANG_H
#define PL_ENTRYPOINT_SUPERVISE_HANG_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pl_supervisor;

enum { PL_HANG_PLACE_BYTES = 400 };

struct pl_hang {
    bool ends;                       /* the job, when it hangs */
    bool told;                       /* the master was told that this host is quiet */
    bool reported;                   /* this hang */
    bool ended;                      /* the report has, and nothing has followed from it yet */
    char place[PL_HANG_PLACE_BYTES]; /* where the first program stands, as the report says */
};

/** Look whether this host is quiet. */
void pl_hang_look(struct pl_supervisor *supervisor, int64_t *next_ns);

/** Decide whether the job hangs, where `others_quiet` says that nothing happens on any other host. Reports it once. */
void pl_hang_decide(struct pl_supervisor *supervisor, bool others_quiet);

/** The report, which runs as a program of its own, has ended. */
void pl_hang_note_end(struct pl_supervisor *supervisor);

/** What the report found. */
void pl_hang_note_place(struct pl_supervisor *supervisor, const char *text);

/** Start `paceline stacks` with `count` options. Errors: PL_NOT_FOUND: it is not installed. */
enum pl_status pl_hang_start_stacks(struct pl_supervisor *supervisor, const char *const *options, size_t count,
                                    struct pl_error *reterr) PL_MUST_CHECK;

#endif
