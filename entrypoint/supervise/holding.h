/* SPDX-License-Identifier: Apache-2.0 */
/**
 * During a stop, the end of one rank must not end ranks that save: mpirun and torchrun end all ranks when one has left,
 * and under Open MPI 5 a rank ends when the connection of another one closes. So a rank without a handler for the
 * signal gets it last, and the shims of ended ranks wait, until all ranks with a handler have ended; then the shims are
 * released. One host decides: the master for itself and the hosts that are linked to it; any other host for itself.
 */
#ifndef PL_ENTRYPOINT_SUPERVISE_HOLDING_H
#define PL_ENTRYPOINT_SUPERVISE_HOLDING_H

#include "base/clock.h"
#include "entrypoint/ssh/link.h"
#include "entrypoint/supervise/shim.h"

#include <stdbool.h>
#include <stddef.h>

struct pl_supervisor;

enum { PL_HOLDING_HERE = -1 };

/** The answer of a rank's shim to the stop. */
struct pl_holding_rank {
    int rank;
    int host;     /* number of the session that reported it, or PL_HOLDING_HERE */
    bool catches; /* its program has a handler for the signal */
    bool ended;
};

struct pl_holding {
    struct pl_holding_rank *ranks; /* freed with the supervisor */
    size_t count, capacity;
    int64_t asked_ns;  /* time at which the last host was asked, if that was after the stop */
    int unasked_ended; /* number of ranks that ended before they were sent the stop */
    enum pl_stop_state state;
    int64_t released_ns;
};

/** Takes a CATCHES frame of a rank on `host`. */
void pl_holding_note_answer(struct pl_supervisor *supervisor, const struct pl_frame *frame, int host);

/** Call when a host is linked during the stop, so that the answers of its ranks count too. */
void pl_holding_ask_again(struct pl_supervisor *supervisor);

/** Call when a host is lost: its ranks are not waited for. */
void pl_holding_lose_host(struct pl_supervisor *supervisor, int host);

/** Call when a rank has ended. */
void pl_holding_note_end(struct pl_supervisor *supervisor, int rank);

/** Returns true while shims of ended ranks wait. */
bool pl_holding_is_on(const struct pl_supervisor *supervisor);

/**
 * Call after each event on a host that decides, and at `*next_ns`, which is lowered while answers are awaited. If a
 * program has failed during the stop, or has no handler, while others may still save, the failure file is written and
 * the other hosts are notified (HOLD), because the platform may kill all processes before the others have ended. When
 * no rank saves any more, the shims are released, here and on the other hosts (RELEASE).
 */
void pl_holding_update(struct pl_supervisor *supervisor, int64_t *next_ns);

#endif
