/* SPDX-License-Identifier: Apache-2.0 */
/* Loading NCCL at run time; joining, polling, leaving and aborting one communicator. */
#include "collectives/gpu/library_nccl.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"
#include "collectives/bootstrap.h"
#include "collectives/bootstrap/bootstrap_private.h"
#include "collectives/core/types.h"
#include "device/device_private.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OLDEST_VERSION = 21403 }; /* first version with non-blocking communicators */

static const int64_t NAP_NS = 200 * PL_NS_PER_US;
static const int64_t FINALIZE_NS = 2 * PL_NS_PER_S;
static const int64_t ABORT_NS = 2 * PL_NS_PER_S;

bool pl_gpu_nccl_load(struct pl_nccl *nccl, char reason[PL_BACKEND_REASON_BYTES])
{
    static const char *const names[] = {
#define PL_NCCL_NAME(type, name, ...) "nccl" #name,
        PL_NCCL_FUNCTIONS(PL_NCCL_NAME)
#undef PL_NCCL_NAME
    };
    /* NODELETE: NCCL may have threads, whose code must stay. */
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    size_t at = 0;

    if (!library) {
        snprintf(reason, PL_BACKEND_REASON_BYTES,
                 "NCCL cannot be loaded: %s; install libnccl2, or name its folder in LD_LIBRARY_PATH", dlerror());
        return false;
    }
    *nccl = (struct pl_nccl){.version = 0};
#define PL_NCCL_FIND(type, name, ...)                                                                                  \
    {                                                                                                                  \
        void *address = dlsym(library, names[at++]);                                                                   \
                                                                                                                       \
        if (!address) {                                                                                                \
            snprintf(reason, PL_BACKEND_REASON_BYTES, "libnccl.so.2 is too old: it has no %s", names[at - 1]);         \
            dlclose(library);                                                                                          \
            return false;                                                                                              \
        }                                                                                                              \
        memcpy(&nccl->name, &address, sizeof(address));                                                                \
    }
    PL_NCCL_FUNCTIONS(PL_NCCL_FIND)
#undef PL_NCCL_FIND
    dlclose(library);
    if (nccl->GetVersion(&nccl->version) != ncclSuccess || nccl->version < OLDEST_VERSION) {
        snprintf(reason, PL_BACKEND_REASON_BYTES, "libnccl.so.2 has version %d; expected %d or later", nccl->version,
                 (int)OLDEST_VERSION);
        return false;
    }
    return true;
}

enum pl_status pl_gpu_nccl_check(const struct pl_nccl *nccl, ncclResult_t result, const char *what,
                                 struct pl_error *reterr)
{
    const char *last;

    if (result == ncclSuccess || result == ncclInProgress) {
        return PL_OK;
    }
    last = nccl->GetLastError(nccl->comm);
    return pl_error_raise(reterr, PL_LIBRARY, PL_DOMAIN_NCCL, result, "NCCL, %s: %s%s%s", what,
                          nccl->GetErrorString(result), last && *last ? ": " : "", last ? last : "");
}

enum pl_status pl_gpu_nccl_poll(struct pl_nccl *nccl, bool *ret_idle, struct pl_error *reterr)
{
    ncclResult_t state = ncclSuccess;

    PL_TRY(pl_gpu_nccl_check(nccl, nccl->CommGetAsyncError(nccl->comm, &state), "reading its state", reterr));
    *ret_idle = state == ncclSuccess;
    return pl_gpu_nccl_check(nccl, state, "between ranks", reterr);
}

/* Message of the communicator's rank 0 to the others. */
struct id_message {
    ncclUniqueId id;
    struct pl_packed_error failure; /* why rank 0 could not make the id */
};

/* All ranks get the id from rank 0 of the communicator. If that rank or any other has failed, all fail. */
static enum pl_status share_id(struct pl_nccl *nccl, struct pl_world *world, int comm_rank, int64_t deadline_ns,
                               ncclUniqueId *ret_id, struct pl_error *reterr)
{
    const struct pl_bootstrap *bootstrap = pl_world_bootstrap(world);
    PL_AUTO_FREE struct id_message *all = pl_memory_new((size_t)bootstrap->size, sizeof(*all), reterr);
    struct pl_error own = PL_ERROR_NONE;
    struct id_message mine;

    if (!all) {
        return pl_bootstrap_abort_collective(bootstrap, PL_MEMORY, reterr, deadline_ns);
    }
    memset(&mine, 0, sizeof(mine));
    if (comm_rank == 0) {
        (void)!pl_gpu_nccl_check(nccl, nccl->GetUniqueId(&mine.id), "making an id", &own);
        mine.failure = pl_bootstrap_pack_error(&own);
    }
    PL_TRY(pl_bootstrap_allgather(bootstrap, &mine, all, sizeof(mine), deadline_ns, reterr));
    mine = all[world->topology.order[0]];
    if (mine.failure.status != PL_OK) {
        return pl_error_set(reterr, (enum pl_status)mine.failure.status, "%s", mine.failure.text);
    }
    *ret_id = mine.id;
    return PL_OK;
}

enum pl_status pl_gpu_nccl_join(struct pl_nccl *nccl, struct pl_world *world, int comm_rank, int64_t deadline_ns,
                                struct pl_error *reterr)
{
    struct pl_nccl_config config = PL_NCCL_CONFIG_NONE;
    ncclUniqueId id;
    bool idle = false;
    enum pl_status status;

    PL_TRY(share_id(nccl, world, comm_rank, deadline_ns, &id, reterr));
    config.blocking = 0;
    config.max_ctas = world->is_subset ? PL_NCCL_SUBSET_CTAS : config.max_ctas;
    status = pl_gpu_nccl_check(
        nccl, nccl->CommInitRankConfig(&nccl->comm, pl_world_size(world), id, comm_rank, &config), "joining", reterr);
    while (status == PL_OK) {
        status = pl_gpu_nccl_poll(nccl, &idle, reterr);
        if (status != PL_OK || idle) {
            break;
        }
        if (pl_deadline_passed(deadline_ns)) {
            status = pl_error_set(
                reterr, PL_TIMEOUT,
                "NCCL, joining: not all ranks have come before the deadline: see the other ranks' logs, and "
                "NCCL_DEBUG=INFO");
        }
        pl_clock_nap(NAP_NS, deadline_ns);
    }
    if (status != PL_OK) {
        pl_gpu_nccl_abort(nccl);
    }
    return status;
}

void pl_gpu_nccl_leave(struct pl_nccl *nccl)
{
    int64_t deadline_ns = pl_deadline_after_ns(FINALIZE_NS);
    bool idle = false;
    enum pl_status status;

    if (!nccl->comm) {
        return;
    }
    /* NCCL leaves a thread's current device as it found it; a thread without a current device would get the first
     * device */
    (void)!pl_device_enter(nccl->device, NULL);
    status = pl_gpu_nccl_check(nccl, nccl->CommFinalize(nccl->comm), "leaving", NULL);
    while (status == PL_OK && !idle && !pl_deadline_passed(deadline_ns)) {
        status = pl_gpu_nccl_poll(nccl, &idle, NULL);
        if (!idle) {
            pl_clock_nap(NAP_NS, deadline_ns);
        }
    }
    if (status != PL_OK || !idle) {
        pl_gpu_nccl_abort(nccl);
        return;
    }
    nccl->CommDestroy(nccl->comm); /* the communicator is local by now; no caller could use the result */
    nccl->comm = NULL;
}

/* An abort in a separate thread. The thread frees this struct if the caller no longer waits. */
struct async_abort {
    ncclResult_t (*abort)(ncclComm_t comm);
    ncclComm_t comm;
    struct pl_device *device; /* valid while ENTERING */
    enum { ENTERING, LEAVING, LEFT, FORGOTTEN } _Atomic state;
};

static void *run_abort(void *argument)
{
    struct async_abort *async_abort = argument;

    /* otherwise NCCL would make a context on the first device for this thread */
    (void)!pl_device_enter(async_abort->device, NULL);
    pl_device_pass_captures(async_abort->device);
    atomic_store(&async_abort->state, LEAVING);
    async_abort->abort(async_abort->comm); /* result ignored: the reason for the abort is reported already */
    if (atomic_exchange(&async_abort->state, LEFT) == FORGOTTEN) {
        free(async_abort);
    }
    return NULL;
}

void pl_gpu_nccl_abort(struct pl_nccl *nccl)
{
    int64_t deadline_ns = pl_deadline_after_ns(ABORT_NS);
    ncclComm_t comm = PL_TAKE(nccl->comm);
    struct async_abort *async_abort = comm ? pl_memory_new(1, sizeof(*async_abort), NULL) : NULL;
    pthread_t thread;

    if (!async_abort) {
        return; /* nothing to abort, or no memory for it: the process ends soon */
    }
    async_abort->abort = nccl->CommAbort;
    async_abort->comm = comm;
    async_abort->device = nccl->device;
    if (pl_thread_start(&thread, run_abort, async_abort, "a thread that leaves NCCL", NULL) != PL_OK) {
        run_abort(async_abort);
        free(async_abort);
        return;
    }
    /* The caller may close the device afterwards, so wait until the thread has entered it, which does not block. */
    while (atomic_load(&async_abort->state) == ENTERING ||
           (atomic_load(&async_abort->state) == LEAVING && !pl_deadline_passed(deadline_ns))) {
        pl_clock_nap(NAP_NS, PL_DEADLINE_NEVER);
    }
    if (atomic_exchange(&async_abort->state, FORGOTTEN) == LEFT) {
        pthread_join(thread, NULL);
        free(async_abort);
    } else {
        pthread_detach(thread);
    }
}
