/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that ranks begin with the same weights: one small gather that no rank waits for, and a warning about ranks
 * that differ. */
#include "base/knob.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "collectives/world_private.h"
#include "runtime/horovod/horovod.h"
#include "runtime/horovod/state.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { RANKS_NAMED = 8 };

static atomic_bool warned; /* warn only once, because a program may make many optimizers */

struct comparison {
    struct pl_completion completion;
    struct pl_named_result result; /* checksums of all ranks */
    int set;
    struct pl_service_set found;
    uint64_t checksum;
    char *cure;
};

static void comparison_free(struct comparison *comparison)
{
    if (comparison->completion.has_leaked) {
        return;
    }
    pl_named_result_done(&comparison->result);
    free(comparison->cure);
    free(comparison);
}

/* Lists the ranks whose checksum differs from rank 0's. Returns their number. */
static uint64_t list_others(const struct comparison *comparison, struct pl_text *text)
{
    const uint64_t *checksums = (const uint64_t *)comparison->result.data;
    uint64_t others = 0;

    for (uint64_t rank = 1; rank < comparison->result.rows; rank++) {
        if (checksums[rank] != checksums[0] && others++ < RANKS_NAMED) {
            pl_text_printf(text, "%s%" PRIu64, others > 1 ? ", " : "", rank);
        }
    }
    if (others > RANKS_NAMED) {
        pl_text_printf(text, " and %" PRIu64 " more", others - RANKS_NAMED);
    }
    return others;
}

static void report(const struct comparison *comparison)
{
    PL_AUTO_TEXT struct pl_text ranks = PL_TEXT_NONE, set = PL_TEXT_NONE;
    uint64_t others = list_others(comparison, &ranks);

    if (comparison->set != 0) {
        pl_text_printf(&set, " of process set %d", comparison->set);
    }
    if (others > 0 && !atomic_exchange(&warned, true)) {
        pl_log(PL_LOG_WARNING,
               "DistributedOptimizer: the weights of %s %s%s differ from those of rank 0, and averaged gradients keep "
               "them different: %s. If they are meant to differ, set PACELINE_CHECK_WEIGHTS=0",
               others > 1 ? "ranks" : "rank", pl_text_string(&ranks), pl_text_string(&set), comparison->cure);
    }
}

/* Runs in the thread that drives the service. Ignores failures: they mean that a rank does not compare, for example
 * because it has joined. */
static void compared(struct pl_completion *completion)
{
    struct comparison *comparison = (struct comparison *)(void *)completion;

    if (completion->status == PL_OK && comparison->found.rank == 0) {
        report(comparison);
    }
    comparison_free(comparison);
}

static enum pl_status start(struct pl_service *service, const char *name, int set, uint64_t checksum, const char *cure,
                            struct pl_error *reterr)
{
    struct comparison *comparison;
    struct pl_named_op op = {.name = name, .kind = PL_ALLGATHER, .dtype = PL_INT64, .dims = 1, .shape = {1}};
    enum pl_status status;

    PL_TRY(pl_memory_alloc(&comparison, 1, sizeof(*comparison), reterr));
    comparison->completion.call = compared;
    comparison->completion.results = &comparison->result;
    comparison->set = set;
    comparison->checksum = checksum;
    op.send = &comparison->checksum;
    comparison->cure = pl_memory_string(cure, reterr);
    status = comparison->cure ? pl_service_get_set(service, set, &comparison->found, NULL, 0, reterr) : PL_MEMORY;
    if (status == PL_OK) {
        status = pl_service_submit(service, set, &op, &comparison->completion, reterr);
    }
    if (status != PL_OK) {
        comparison_free(comparison);
    }
    return status;
}

void horovod_paceline_compare_weights(const char *name, int set, uint64_t checksum, const char *cure)
{
    struct pl_service *service = pl_state_hold();
    struct pl_error error = PL_ERROR_NONE;

    if (!service) {
        return;
    }
    if (pl_knob_bool(pl_world_knobs(pl_runtime_world(pl_state_runtime())), PL_KNOB_CHECK_WEIGHTS) &&
        start(service, name, set, checksum, cure, &error) != PL_OK) {
        pl_log(PL_LOG_DEBUG, "the weights of the ranks are not compared: %s", error.cause);
    }
    pl_state_release();
}
