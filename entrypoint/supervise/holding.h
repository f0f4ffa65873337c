/* SPDX-License-Identifier: Apache-2.0 */
/**
 * During a stop a rank that ends must not cost those that save: mpirun and torchrun end all ranks when one has left,
 * and under Open MPI 5 a rank ends when another's connection closes. So a rank without a handler for the signal gets it
 * last, and the shims of ended ranks wait, until no rank with a handler is left; then they are released. One host
 * decides: the master for those that are linked to it, any other for itself.
 */
#ifndef PL_ENTRYPOINT_SUPERVISE_HOLDING_H
#define PL_ENTRYPOINT_SUPERVISE_HOLDING_H

#include "base/clock.h"
#include "entrypoint/ssh/link.h"
#include "entrypoint/supervise/stop_state.h"

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
 * Call after each event of a host that decides, and at `*next_ns`, which is made earlier where answers are waited for.
 * Once a program has ended badly during the stop, or has no handler, while others may still save, the failure file is
 * written and the other hosts are notified (HOLD), as the platform may kill all before they have ended; when nobody
 * saves, the shims are released, here and on the other hosts (RELEASE).
 */
void pl_holding_update(struct pl_supervisor *supervisor, int64_t *next_ns);

#endif
