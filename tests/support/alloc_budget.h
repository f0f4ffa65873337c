/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Ranks that are threads; one of them gets no memory from its n-th request on: link with -Wl,--wrap=pl_memory_new.
 * Messages between threads, which a network would carry, and the bootstrap of a sub-world are not counted.
 */
#ifndef PL_TESTS_SUPPORT_ALLOC_BUDGET_H
#define PL_TESTS_SUPPORT_ALLOC_BUDGET_H

#include "collectives/bootstrap.h"
#include "collectives/bootstrap/bootstrap_private.h"
#include "collectives/core/backend.h"

#include <stdbool.h>
#include <stddef.h>

/** Requests that this thread may still make; negative: any number. */
static _Thread_local int alloc_budget = -1;
static _Thread_local bool budget_was_empty;

void *__real_pl_memory_new(size_t count, size_t item_bytes, struct pl_error *reterr);
void *__wrap_pl_memory_new(size_t count, size_t item_bytes, struct pl_error *reterr);

void *__wrap_pl_memory_new(size_t count, size_t item_bytes, struct pl_error *reterr)
{
    if (alloc_budget == 0) {
        budget_was_empty = true;
        pl_error_set(reterr, PL_MEMORY, "the memory budget is used up");
        return NULL;
    }
    alloc_budget -= alloc_budget > 0;
    return __real_pl_memory_new(count, item_bytes, reterr);
}

/* The functions of the first bootstrap that was hooked: all bootstraps have the same ones. */
static enum pl_status (*_Atomic alloc_budget_real_send)(void *context, const void *data, size_t bytes, int peer,
                                                        uint32_t tag, struct pl_transfer *transfer,
                                                        struct pl_error *reterr);
static enum pl_status (*_Atomic budget_real_split)(void *context, const int *ranks, int count,
                                                   enum pl_split_purpose purpose, int64_t deadline_ns,
                                                   struct pl_bootstrap **ret_bootstrap, struct pl_error *reterr);

static enum pl_status budget_send(void *context, const void *data, size_t bytes, int peer, uint32_t tag,
                                  struct pl_transfer *transfer, struct pl_error *reterr)
{
    int kept = alloc_budget;
    enum pl_status status;

    alloc_budget = -1;
    status = alloc_budget_real_send(context, data, bytes, peer, tag, transfer, reterr);
    alloc_budget = kept;
    return status;
}

static enum pl_status budget_split(void *context, const int *ranks, int count, enum pl_split_purpose purpose,
                                   int64_t deadline_ns, struct pl_bootstrap **ret_bootstrap, struct pl_error *reterr)
{
    int kept = alloc_budget;
    enum pl_status status;

    alloc_budget = -1;
    status = budget_real_split(context, ranks, count, purpose, deadline_ns, ret_bootstrap, reterr);
    alloc_budget = kept;
    if (status == PL_OK) {
        (*ret_bootstrap)->split = budget_split;
        (*ret_bootstrap)->transport->send = budget_send;
    }
    return status;
}

/** Count the requests of `bootstrap`; the thread that uses it calls this. */
static inline void alloc_budget_hook(struct pl_bootstrap *bootstrap)
{
    alloc_budget_real_send =
        bootstrap->transport->send == budget_send ? alloc_budget_real_send : bootstrap->transport->send;
    budget_real_split = bootstrap->split == budget_split ? budget_real_split : bootstrap->split;
    bootstrap->transport->send = budget_send;
    bootstrap->split = budget_split;
}

#endif
