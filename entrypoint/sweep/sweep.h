/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The trials of a sweep in place of the job's program. Every host runs trials in its slots; the master decides which,
 * keeps the journal, and makes the result. Its parts: sweep_master.c decides, sweep_move.c moves folders between hosts,
 * sweep_result.c writes what is left at the end; trials_host.c is what every host does.
 *
 * Source  docs/sweep.md
 * Test    tests/integration/sweep.py
 */
#ifndef PL_ENTRYPOINT_SWEEP_SWEEP_H
#define PL_ENTRYPOINT_SWEEP_SWEEP_H

#include "entrypoint/supervise/supervise.h"

struct pl_sweep;

/**
 * Read what the job asks for, cut this host into slots, and become the supervisor's extension, which it is until
 * pl_sweep_close(). Starts nothing.
 *
 * Errors  of pl_sweep_space_of_job(); PL_INVALID: a trial has more processes than this host has devices.
 */
enum pl_status pl_sweep_open(struct pl_supervisor *supervisor, const struct pl_launch_plan *plan,
                             struct pl_sweep **ret_sweep, struct pl_error *reterr) PL_MUST_CHECK;
void pl_sweep_close(struct pl_sweep *sweep);

/** For `paceline plan`: trials, processes, and this host's slots, as an object. */
enum pl_status pl_sweep_describe(const struct pl_job *job, struct pl_python_json **ret_object,
                                 struct pl_error *reterr) PL_MUST_CHECK;

#endif
