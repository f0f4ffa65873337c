/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Compares the calls of device collectives: gathers the calls of all ranks on every rank, over the host world. Internal
 * to collectives/.
 *
 * Cost     one allgather of 96 bytes per rank between the hosts' processes.
 * Threads  one at a time per world.
 */
#ifndef PL_COLLECTIVES_GPU_COMPARE_CALLS_H
#define PL_COLLECTIVES_GPU_COMPARE_CALLS_H

#include "collectives/core/backend.h"

enum { PL_CALL_PAYLOAD_WORDS = 4 };

struct pl_call_record {
    struct pl_signature signature;
    uint64_t payload[PL_CALL_PAYLOAD_WORDS]; /* data of the backend, which may differ between ranks */
};

struct pl_call_comparison {
    struct pl_call_comparison *next; /* next comparison in the list of unused ones */
    struct pl_request *gather;       /* request of the host world; NULL: all ranks have answered */
    struct pl_call_record own;
    struct pl_call_record records[]; /* [size]: calls of all ranks; valid when all have answered */
};

/** State that a backend keeps between calls; zero-initialise. */
struct pl_compare_calls {
    struct pl_world *world; /* must have a host world */
    struct pl_call_comparison *unused;
};

/** Start a comparison. `payload` may be NULL. */
enum pl_status pl_compare_calls_start(struct pl_compare_calls *comparisons, const struct pl_signature *signature,
                                      const uint64_t payload[PL_CALL_PAYLOAD_WORDS],
                                      struct pl_call_comparison **ret_comparison,
                                      struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Advance. PL_MISMATCH if all ranks have answered and one calls a different collective; all ranks get the same text.
 */
enum pl_status pl_compare_calls_progress(const struct pl_compare_calls *comparisons,
                                         struct pl_call_comparison *comparison, bool *ret_done,
                                         struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Release a comparison. If it is still under way, it is cancelled: then the host world is unusable, and other ranks get
 * that error. NULL is fine.
 */
void pl_compare_calls_release(struct pl_compare_calls *comparisons, struct pl_call_comparison *comparison);

void pl_compare_calls_done(struct pl_compare_calls *comparisons);

#endif
