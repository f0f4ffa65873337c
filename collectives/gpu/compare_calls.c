/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the calls of all ranks in device collectives, by an allgather of signatures between the hosts. */
#include "collectives/gpu/compare_calls.h"

#include "base/memory.h"
#include "collectives/core/types.h"
#include "collectives/world_private.h"

#include <stdlib.h>
#include <string.h>

static struct pl_call_comparison *take(struct pl_compare_calls *comparisons, struct pl_error *reterr)
{
    struct pl_call_comparison *comparison = comparisons->unused;

    if (comparison) {
        comparisons->unused = comparison->next;
        return comparison;
    }
    return pl_memory_new(
        1, sizeof(*comparison) + (size_t)pl_world_size(comparisons->world) * sizeof(comparison->records[0]), reterr);
}

enum pl_status pl_compare_calls_start(struct pl_compare_calls *comparisons, const struct pl_signature *signature,
                                      const uint64_t payload[PL_CALL_PAYLOAD_WORDS],
                                      struct pl_call_comparison **ret_comparison, struct pl_error *reterr)
{
    struct pl_call_comparison *comparison = take(comparisons, reterr);
    struct pl_collective gather = {
        .kind = PL_ALLGATHER, .dtype = PL_UINT8, .count = sizeof(comparison->own), .deadline_ns = INT64_MAX};
    enum pl_status status;

    if (!comparison) {
        return PL_MEMORY;
    }
    memset(&comparison->own, 0, sizeof(comparison->own));
    comparison->own.signature = *signature;
    if (payload) {
        memcpy(comparison->own.payload, payload, sizeof(comparison->own.payload));
    }
    gather.send = &comparison->own;
    gather.recv = comparison->records;
    status = pl_request_post(comparisons->world->host_world, &gather, &comparison->gather, reterr);
    if (status != PL_OK) {
        comparison->gather = NULL;
        pl_compare_calls_release(comparisons, comparison);
        return status;
    }
    *ret_comparison = comparison;
    return PL_OK;
}

enum pl_status pl_compare_calls_progress(const struct pl_compare_calls *comparisons,
                                         struct pl_call_comparison *comparison, bool *ret_done, struct pl_error *reterr)
{
    struct pl_request *gather;

    *ret_done = true;
    if (!comparison->gather) {
        return PL_OK;
    }
    PL_TRY(pl_request_test(comparison->gather, ret_done, reterr));
    if (!*ret_done) {
        return PL_OK;
    }
    gather = comparison->gather;
    comparison->gather = NULL;
    PL_TRY(pl_request_wait(gather, reterr));
    for (int r = 1; r < pl_world_size(comparisons->world); r++) {
        if (!pl_signature_equal(&comparison->records[0].signature, &comparison->records[r].signature)) {
            return pl_signature_mismatch(&comparison->records[0].signature, pl_world_global_rank(comparisons->world, 0),
                                         &comparison->records[r].signature, pl_world_global_rank(comparisons->world, r),
                                         reterr);
        }
    }
    return PL_OK;
}

void pl_compare_calls_release(struct pl_compare_calls *comparisons, struct pl_call_comparison *comparison)
{
    if (!comparison) {
        return;
    }
    if (comparison->gather) {
        pl_request_cancel(comparison->gather);
        comparison->gather = NULL;
    }
    comparison->next = comparisons->unused;
    comparisons->unused = comparison;
}

void pl_compare_calls_done(struct pl_compare_calls *comparisons)
{
    while (comparisons->unused) {
        struct pl_call_comparison *comparison = comparisons->unused;

        comparisons->unused = comparison->next;
        /* after a leak MPI may still write the records */
        free(pl_world_has_leaked(comparisons->world->host_world) ? NULL : comparison);
    }
}
