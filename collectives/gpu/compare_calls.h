/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Comparing the calls of device collectives: an allgather, over the host world, of what every rank calls. Internal to
 * collectives/.
 *
 * Cost     one allgather of 96 bytes a rank between hosts' processes.
 * Threads  one at a time per world.
 */
#ifndef PL_COLLECTIVES_GPU_COMPARE_CALLS_H
#define PL_COLLECTIVES_GPU_COMPARE_CALLS_H

#include "collectives/core/backend.h"

enum { PL_ROLL_WORDS = 4 };

struct pl_roll_card {
    struct pl_signature signature;
    uint64_t words[PL_ROLL_WORDS]; /* payload of the backend: what need not be equal */
};

struct pl_roll {
    struct pl_roll *next;      /* in the list of unused ones */
    struct pl_request *gather; /* of the host world; NULL: all have answered */
    struct pl_roll_card own;
    struct pl_roll_card cards[]; /* [size], once all have answered */
};

/** What a backend keeps between calls; zero-initialise. */
struct pl_rolls {
    struct pl_world *world; /* with a host world */
    struct pl_roll *unused;
};

/** `words` may be NULL. */
enum pl_status pl_roll_call(struct pl_rolls *rolls, const struct pl_signature *signature,
                            const uint64_t words[PL_ROLL_WORDS], struct pl_roll **ret_roll,
                            struct pl_error *reterr) PL_MUST_CHECK;

/** Advance. PL_MISMATCH once all have answered and some rank calls something else; the same text on every rank. */
enum pl_status pl_roll_progress(const struct pl_rolls *rolls, struct pl_roll *roll, bool *ret_done,
                                struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Not needed any more. One that is still under way is cancelled: the host world is unusable afterwards, and other ranks
 * receive that. NULL is fine.
 */
void pl_roll_release(struct pl_rolls *rolls, struct pl_roll *roll);

void pl_rolls_done(struct pl_rolls *rolls);

#endif
