/* SPDX-License-Identifier: Apache-2.0 */
/* The state of Horovod's C interface: joined at init, left at shutdown, held by every call in between. */
#include "runtime/horovod/state.h"

#include "base/environment.h"
#include "base/log.h"
#include "collectives/bootstrap.h"

#include <limits.h>
#include <pthread.h>

static struct {
    pthread_mutex_t changing; /* init and shutdown, one at a time */
    pthread_rwlock_t lock;    /* read: held by a call; write: changed */
    struct {
        struct pl_service *service;
        struct pl_runtime *runtime;
        struct pl_bootstrap *bootstrap; /* of the caller's communicator, else NULL */
    } synced;
} state = {.changing = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_RWLOCK_INITIALIZER};

struct pl_service *pl_state_hold(void)
{
    pthread_rwlock_rdlock(&state.lock);
    if (!state.synced.service) {
        pthread_rwlock_unlock(&state.lock);
        return NULL;
    }
    return state.synced.service;
}

void pl_state_release(void)
{
    pthread_rwlock_unlock(&state.lock);
}

const struct pl_runtime *pl_state_runtime(void)
{
    return state.synced.runtime;
}

/* Horovod's launchers by Gloo, on Ray and in Spark start processes that MPI does not know: each would train alone. */
static enum pl_status check_launcher(const struct pl_runtime *runtime, struct pl_error *reterr)
{
    const unsigned size = (unsigned)pl_world_size(pl_runtime_world(runtime));
    unsigned wanted;

    PL_TRY(
        pl_environment_get_number_or(pl_runtime_environment(runtime), "HOROVOD_SIZE", size, INT_MAX, &wanted, reterr));
    if (wanted != size) {
        return pl_error_set(reterr, PL_UNSUPPORTED,
                            "HOROVOD_SIZE is %u, as Horovod's launchers by Gloo, on Ray and in Spark set it, but MPI "
                            "knows of %u rank(s): start the program with mpirun, paceline train or horovodrun --mpi",
                            wanted, size);
    }
    return PL_OK;
}

static enum pl_status start(const void *communicator_at, struct pl_error *reterr)
{
    const struct pl_named_options options = {.join_divisor = PL_NAMED_DIVIDE_BY_SIZE, .strict_join = true};
    struct pl_bootstrap *bootstrap = NULL;
    struct pl_runtime *runtime = NULL;
    struct pl_service *service = NULL;
    enum pl_status status = PL_OK;

    if (communicator_at) {
        PL_TRY(pl_bootstrap_new_mpi(communicator_at, &bootstrap, reterr));
    }
    status = pl_runtime_start_unlimited(bootstrap, &runtime, reterr);
    if (status == PL_OK && !communicator_at) {
        status = check_launcher(runtime, reterr);
    }
    if (status == PL_OK) {
        status = pl_service_new(pl_runtime_world(runtime), &options, &service, reterr);
    }
    if (status != PL_OK) {
        pl_runtime_stop(runtime);
        if (bootstrap) {
            pl_bootstrap_free(bootstrap);
        }
        return status;
    }
    pthread_rwlock_wrlock(&state.lock);
    state.synced.service = service;
    state.synced.runtime = runtime;
    state.synced.bootstrap = bootstrap;
    pthread_rwlock_unlock(&state.lock);
    return PL_OK;
}

enum pl_status pl_state_start(const void *communicator_at, struct pl_error *reterr)
{
    enum pl_status status = PL_OK;

    pthread_mutex_lock(&state.changing);
    if (!state.synced.service) {
        status = start(communicator_at, reterr);
    }
    pthread_mutex_unlock(&state.changing);
    return status;
}

void pl_state_stop(void)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_service *service;
    struct pl_runtime *runtime;
    struct pl_bootstrap *bootstrap;

    pthread_mutex_lock(&state.changing);
    service = state.synced.service;
    if (service) {
        /* It ends what others wait for, so that they leave their calls. */
        if (pl_service_shutdown(service, &error) != PL_OK) {
            pl_log_error(&error, "leaving");
        }
        pthread_rwlock_wrlock(&state.lock);
        runtime = state.synced.runtime;
        bootstrap = state.synced.bootstrap;
        state.synced.service = NULL;
        state.synced.runtime = NULL;
        state.synced.bootstrap = NULL;
        pthread_rwlock_unlock(&state.lock);
        pl_service_free(service);
        pl_runtime_stop(runtime);
        if (bootstrap) {
            pl_bootstrap_free(bootstrap);
        }
    }
    pthread_mutex_unlock(&state.changing);
}
