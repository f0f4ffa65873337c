/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Reports a hang. If nothing has happened on any of the job's hosts for PACELINE_HANG_S, the master has `paceline
 * stacks` print to the log what each rank is doing. Then the job is left running, or, with PACELINE_HANG_ACTION=end, it
 * is ended. A worker tells the master whether it is quiet; hosts without a link decide for themselves.
 */
#ifndef PL_ENTRYPOINT_SUPERVISE_HANG_H
#define PL_ENTRYPOINT_SUPERVISE_HANG_H

#include <stdbool.h>
#include <stdint.h>

struct pl_exit_report;
struct pl_supervisor;

struct pl_hang {
    bool ends;     /* a hang ends the job */
    bool told;     /* the master was sent that this host is quiet */
    bool reported; /* this hang was reported */
};

/** Looks whether this host is quiet. */
void pl_hang_look(struct pl_supervisor *supervisor, int64_t *next_ns);

/** Decides whether the job hangs, and reports it once. `others_quiet`: nothing happens on any other host. */
void pl_hang_decide(struct pl_supervisor *supervisor, bool others_quiet);

/** Call when the reporter, which is a program, has ended. Its last line says what the first program does. */
void pl_hang_note_end(struct pl_supervisor *supervisor, const struct pl_exit_report *exit_report);

#endif
