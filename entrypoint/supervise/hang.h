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
    bool ends;     /* a hang ends the job */
    bool told;     /* the master was told that this host is quiet */
    bool reported; /* this hang was reported */
};

/** Looks whether this host is quiet. */
void pl_hang_look(struct pl_supervisor *supervisor, int64_t *next_ns);

/** Decides whether the job hangs, and reports it once. `others_quiet`: nothing happens on any other host. */
void pl_hang_decide(struct pl_supervisor *supervisor, bool others_quiet);

/** Takes the end of the reporter, a program of its own. Its last line says what the first program does. */
void pl_hang_note_end(struct pl_supervisor *supervisor, const struct pl_exit_report *exit_report);

#endif
