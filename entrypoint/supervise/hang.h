/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What a hang leads to. Where nothing has happened on any of the job's hosts for PACELINE_HANG_S, the master has
 * `paceline stacks` print to the log where each rank stands, and then waits on, or with PACELINE_HANG_ACTION=end ends
 * the job. A worker tells the master whether it is quiet; hosts without a link each decide for themselves.
 */
#ifndef PL_ENTRYPOINT_SUPERVISE_HANG_H
#define PL_ENTRYPOINT_SUPERVISE_HANG_H

#include <stdbool.h>
#include <stdint.h>

struct pl_exit_report;
struct pl_supervisor;

struct pl_hang {
    bool ends;     /* the job, when it hangs */
    bool told;     /* the master was told that this host is quiet */
    bool reported; /* this hang */
};

/** Look whether this host is quiet. */
void pl_hang_look(struct pl_supervisor *supervisor, int64_t *next_ns);

/** Decide whether the job hangs, where `others_quiet` says that nothing happens on any other host. Reports it once. */
void pl_hang_decide(struct pl_supervisor *supervisor, bool others_quiet);

/** The report, which runs as a program of its own, has ended; its last line says where the first program stands. */
void pl_hang_note_end(struct pl_supervisor *supervisor, const struct pl_exit_report *exit_report);

#endif
