/* SPDX-License-Identifier: Apache-2.0 */
/** What process 1 does for `paceline stacks` (stacks/hosts.h): passes requests to other hosts and answers back. */
#ifndef PL_ENTRYPOINT_SUPERVISE_LOOKING_H
#define PL_ENTRYPOINT_SUPERVISE_LOOKING_H

#include "entrypoint/supervise/supervise.h"

struct pl_sessions;

/** A frame of a tool on the master: a request goes to every host of `sessions` that is ready. */
void pl_looking_ask(struct pl_supervisor *supervisor, struct pl_connection *tool, const struct pl_frame *frame,
                    const struct pl_sessions *sessions);

/** A frame of a tool on a worker: what it found goes to `master`, where that is not NULL. */
void pl_looking_answer(struct pl_supervisor *supervisor, struct pl_connection *tool, const struct pl_frame *frame,
                       struct pl_connection *master);

/** The master asks this host. */
void pl_looking_start(struct pl_supervisor *supervisor, struct pl_connection *master);

/** What a worker has found goes to all tools that have asked. */
void pl_looking_pass(struct pl_supervisor *supervisor, const struct pl_frame *frame);

#endif
