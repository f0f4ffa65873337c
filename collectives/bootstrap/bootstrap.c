/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that bootstraps share: gather, vote, abort and leave. Also the bootstrap of one rank alone. */
#include "collectives/bootstrap/bootstrap_private.h"

#include "base/memory.h"
#include "collectives/bootstrap.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum pl_status pl_bootstrap_abort_collective(const struct pl_bootstrap *bootstrap, enum pl_status status,
                                             const struct pl_error *why, int64_t deadline_ns)
{
    const struct pl_error unknown = {.status = status};

    bootstrap->report_failure(bootstrap->context, why ? why : &unknown, deadline_ns);
    return status;
}

enum pl_status pl_bootstrap_vote(const struct pl_bootstrap *bootstrap, enum pl_status status, int64_t deadline_ns,
                                 struct pl_error *reterr)
{
    if (status != PL_OK) {
        return pl_bootstrap_abort_collective(bootstrap, status, reterr, deadline_ns);
    }
    return bootstrap->barrier(bootstrap->context, deadline_ns, reterr);
}

enum pl_status pl_bootstrap_gather(const struct pl_bootstrap *bootstrap, const void *own, size_t bytes,
                                   int64_t deadline_ns, void *ret_all, struct pl_error *reterr)
{
    PL_AUTO_FREE void *all = pl_memory_new((size_t)bootstrap->size, bytes, reterr);

    if (!all) {
        return pl_bootstrap_abort_collective(bootstrap, PL_MEMORY, reterr, deadline_ns);
    }
    PL_TRY(bootstrap->allgather(bootstrap->context, own, all, bytes, deadline_ns, reterr));
    memcpy(ret_all, &all, sizeof(all)); /* memcpy, because the caller's pointer may have any type (strict aliasing) */
    all = NULL;
    return PL_OK;
}

static enum pl_status self_allgather(void *context, const void *send, void *recv, size_t bytes, int64_t deadline_ns,
                                     struct pl_error *reterr)
{
    (void)context;
    (void)deadline_ns;
    (void)reterr;
    memcpy(recv, send, bytes);
    return PL_OK;
}

static void self_report_failure(void *context, const struct pl_error *why, int64_t deadline_ns)
{
    (void)context;
    (void)why;
    (void)deadline_ns;
}

static enum pl_status self_barrier(void *context, int64_t deadline_ns, struct pl_error *reterr)
{
    (void)context;
    (void)deadline_ns;
    (void)reterr;
    return PL_OK;
}

static enum pl_status self_split(void *context, const int *ranks, int count, enum pl_split_purpose purpose,
                                 int64_t deadline_ns, struct pl_bootstrap **ret_bootstrap, struct pl_error *reterr)
{
    (void)context;
    (void)ranks;
    (void)count;
    (void)purpose;
    (void)deadline_ns;
    return pl_bootstrap_new_self(ret_bootstrap, reterr);
}

void pl_bootstrap_abort_process(void *context, int code)
{
    (void)context;
    _exit(code);
}

static void self_free(struct pl_bootstrap *bootstrap)
{
    free(bootstrap);
}

enum pl_status pl_bootstrap_new_self(struct pl_bootstrap **ret_bootstrap, struct pl_error *reterr)
{
    struct pl_bootstrap *bootstrap = pl_memory_new(1, sizeof(*bootstrap), reterr);

    if (!bootstrap) {
        return PL_MEMORY;
    }
    *bootstrap = (struct pl_bootstrap){.name = "self",
                                       .size = 1,
                                       .allgather = self_allgather,
                                       .report_failure = self_report_failure,
                                       .barrier = self_barrier,
                                       .abort = pl_bootstrap_abort_process,
                                       .split = self_split,
                                       .any_thread = true,
                                       .free = self_free};
    *ret_bootstrap = bootstrap;
    return PL_OK;
}

enum pl_status pl_bootstrap_leave(struct pl_bootstrap *bootstrap, int64_t deadline_ns, struct pl_error *reterr)
{
    PL_TRY(bootstrap->barrier(bootstrap->context, deadline_ns, reterr));
    bootstrap->finalized = true;
    return PL_OK;
}

void pl_bootstrap_free(struct pl_bootstrap *bootstrap)
{
    if (bootstrap) {
        bootstrap->free(bootstrap);
    }
}
