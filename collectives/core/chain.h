/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A collective that consists of several others: a chain of requests. All of them enter the world's queue at the post,
 * so that every rank has them in the same order. The last one is the program's; the queue owns the others. All carry
 * the signature of the program's call. Internal to collectives/: calls/adasum.c makes one.
 */
#ifndef PL_COLLECTIVES_CORE_CHAIN_H
#define PL_COLLECTIVES_CORE_CHAIN_H

#include "collectives/core/backend.h"

/** Its maker embeds it in a struct of its own and fills all fields but `requests`. */
struct pl_chain {
    int steps;            /* at least 1 */
    size_t scratch_bytes; /* memory of the world for the steps; other chains use it before and after */
    /* returns step `step` without its buffers; its counts are valid until the next call */
    struct pl_collective (*describe)(struct pl_chain *chain, int step);
    /* called before the step starts: computes what it sends, and sets the buffers of `collective` */
    void (*start)(struct pl_chain *chain, int step, void *scratch, struct pl_collective *collective);
    void (*finish)(struct pl_chain *chain); /* called when the last step has succeeded: writes the result */
    void (*free)(struct pl_chain *chain);
    int requests; /* set by the queue: how many requests refer to the chain */
};

/** As pl_request_enqueue(), for the chain of `collective`, which has been checked. Frees the chain, also on failure. */
enum pl_status pl_request_enqueue_chain(struct pl_world *world, const struct pl_collective *collective,
                                        struct pl_chain *chain, struct pl_request **ret_request,
                                        struct pl_error *reterr) PL_MUST_CHECK;

#endif
