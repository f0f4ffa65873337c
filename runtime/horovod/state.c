/* SPDX-License-Identifier: Apache-2.0 */
/* The state of Horovod's C interface: created at init, released at shutdown, held during every call. */
#include "runtime/horovod/state.h"

#include "base/clock.h"
#include "base/environment.h"
#include "base/knob.h"
#include "base/log.h"
#include "base/memory.h"
#include "collectives/bootstrap.h"
#include "collectives/core/backend.h"
#include "collectives/world_private.h"
#include "device/device_private.h"
#include "runtime/compare_lines.h"
#include "runtime/start_private.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const int64_t AFTER_ANOTHER_NS = 2 * PL_NS_PER_S;
/* How long the end of a program waits for GPU operations for which the program has not waited. */
static const int64_t LAST_OPERATIONS_NS = 10 * PL_NS_PER_S;

static struct {
    pthread_mutex_t changing; /* serialises init and shutdown; guards the four members below */
    struct pl_bootstrap *job; /* from the first init to the end of the process; NULL: init got a communicator */
    pid_t pid;                /* the process whose end is handled; 0: none yet */
    bool failed;              /* a world has failed: others may not reach the job's end */
    int64_t leave_ns;         /* how long to wait at the end for other ranks; negative: without end */
    pthread_rwlock_t lock;    /* read: held during a call; write: while `synced` changes */
    struct {
        struct pl_service *service;
        struct pl_runtime *runtime;
        struct pl_bootstrap *members; /* the ranks of this init, if they are not all ranks of the job; else NULL */
    } synced;
    bool follows;                                 /* set before `service` */
    char why_copied[PL_DEVICE_REASON_BYTES + 32]; /* set before `service`, equal on all ranks; "": they stay there */
} state = {.changing = PTHREAD_MUTEX_INITIALIZER, .leave_ns = -1, .lock = PTHREAD_RWLOCK_INITIALIZER};

struct pl_service *pl_state_hold(void)
{
    pthread_rwlock_rdlock(&state.lock);
    if (!state.synced.service) {
        pthread_rwlock_unlock(&state.lock);
        return NULL;
    }
    return state.synced.service;
}

const char *pl_state_why_copied(void)
{
    return state.why_copied[0] ? state.why_copied : NULL;
}

bool pl_state_follows(void)
{
    return state.follows;
}

void pl_state_release(void)
{
    pthread_rwlock_unlock(&state.lock);
}

const struct pl_runtime *pl_state_runtime(void)
{
    return state.synced.runtime;
}

static void free_bootstrap(struct pl_bootstrap **bootstrap_at)
{
    if (*bootstrap_at) {
        pl_bootstrap_free(*bootstrap_at);
        *bootstrap_at = NULL;
    }
}

static bool is_whole_job(const struct pl_state_members *members)
{
    bool whole = members->count == 0 || members->count == state.job->size;

    for (int i = 0; i < members->count && whole; i++) {
        whole = members->ranks[i] == i;
    }
    return whole;
}

static enum pl_status split_job(const struct pl_state_members *members, struct pl_bootstrap **ret_bootstrap,
                                struct pl_error *reterr)
{
    bool found = false;

    PL_TRY(pl_ranks_check("init(comm=...)", members->ranks, members->count, state.job->size, reterr));
    for (int i = 0; i < members->count; i++) {
        found = found || members->ranks[i] == state.job->rank;
    }
    if (!found) {
        return pl_error_set(reterr, PL_INVALID,
                            "init(comm=...) without this process, which is rank %d of MPI_COMM_WORLD: expected a list "
                            "of which the caller is a member",
                            state.job->rank);
    }
    return state.job->split(state.job->context, members->ranks, members->count, PL_SPLIT_FOR_SUB_WORLD,
                            PL_DEADLINE_NEVER, ret_bootstrap, reterr);
}

/* Makes a bootstrap for the members; `*ret_bootstrap` NULL: all ranks of the job. */
static enum pl_status find_members(const struct pl_state_members *members, struct pl_bootstrap **ret_bootstrap,
                                   struct pl_error *reterr)
{
    if (members->communicator_at) {
        return pl_bootstrap_new_mpi(members->communicator_at, ret_bootstrap, reterr);
    }
    if (!state.job) {
        PL_TRY(pl_bootstrap_under_mpi() ? pl_bootstrap_new_mpi(NULL, &state.job, reterr)
                                        : pl_bootstrap_new_self(&state.job, reterr));
    }
    return is_whole_job(members) ? PL_OK : split_job(members, ret_bootstrap, reterr);
}

/* Makes the others' operations fail, because this process does not wait for them; `ends` says how it ends. */
static void abort_members(const char *ends)
{
    struct pl_error why = PL_ERROR_NONE;

    pl_error_set(&why, PL_FAILED, "its process %s", ends);
    pl_service_abort(state.synced.service, &why);
    state.failed = true;
}

static void stop(void)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_service *service = state.synced.service;
    struct pl_runtime *runtime = state.synced.runtime;
    struct pl_bootstrap *members = state.synced.members;

    /* the shutdown ends operations that other threads wait for, so that their calls return */
    if (pl_service_shutdown(service, &error) != PL_OK) {
        pl_log_error(&error, "cannot leave the world");
    }
    pthread_rwlock_wrlock(&state.lock);
    state.synced.service = NULL;
    state.synced.runtime = NULL;
    state.synced.members = NULL;
    pthread_rwlock_unlock(&state.lock);
    pl_service_free(service);
    pl_timeline_stop();
    pl_communicators_forget();
    state.failed = state.failed || pl_world_failure(pl_runtime_world(runtime), NULL) != PL_OK;
    state.leave_ns = pl_knob_real(pl_world_knobs(pl_runtime_world(runtime)), PL_KNOB_TIMEOUT_S) > 0
                         ? pl_knob_ns(pl_world_knobs(pl_runtime_world(runtime)), PL_KNOB_TIMEOUT_S, PL_NS_PER_S)
                         : -1;
    pl_runtime_stop(runtime);
    free_bootstrap(&members);
}

/* Returns whether the world has failed because of another rank. */
static bool is_of_another(void)
{
    struct pl_world *world = pl_runtime_world(state.synced.runtime);
    struct pl_error error = PL_ERROR_NONE;

    return pl_world_failure(world, &error) == PL_PEER && error.domain == PL_DOMAIN_RANK &&
           error.code != pl_world_rank(world);
}

void pl_state_lost(struct pl_completion *completion)
{
    const struct pl_error *error = &completion->error;

    pl_log_error(error, "an operation on a GPU failed after hvd.synchronize() had returned "
                        "(HOROVOD_ENABLE_ASYNC_COMPLETION), so this process ends: its tensors are not what the program "
                        "counts on");
    if (error->domain == PL_DOMAIN_RANK && error->code != pl_world_rank(pl_runtime_world(state.synced.runtime))) {
        pl_clock_nap(AFTER_ANOTHER_NS, PL_DEADLINE_NEVER); /* see end(); meanwhile the program's stream waits */
    }
    _exit(1); /* not exit(): its functions may wait for the device, or save wrong data */
}

/* Runs at the end of the process, by exit(3). If `status` is not 0, it waits for no other rank. */
static void end(int status, void *unused)
{
    struct pl_error error = PL_ERROR_NONE;
    char ends[40];

    (void)unused;
    if (getpid() != state.pid || pthread_mutex_trylock(&state.changing) != 0) {
        return;
    }
    if (status != 0 && state.synced.service && is_of_another()) {
        /* The launcher blames the rank that ends first, and then ends the others. */
        pl_clock_nap(AFTER_ANOTHER_NS, PL_DEADLINE_NEVER);
    } else if (status != 0 && state.synced.service) {
        snprintf(ends, sizeof(ends), "ends with exit status %d", status);
        abort_members(ends);
    } else if (status == 0) {
        if (state.synced.service) {
            stop();
        }
        if (state.job && !state.failed &&
            pl_bootstrap_leave(state.job, pl_deadline_after_ns(state.leave_ns), &error) != PL_OK) {
            pl_log_error(&error, "leaving without the other ranks");
        }
        free_bootstrap(&state.job);
    }
    pthread_mutex_unlock(&state.changing);
}

/* Horovod's launchers by Gloo, on Ray and in Spark start processes that MPI does not know: each would train alone. */
static enum pl_status check_launcher(const struct pl_runtime *runtime, struct pl_error *reterr)
{
    const unsigned size = (unsigned)state.job->size;
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

/* Starts the timeline of HOROVOD_TIMELINE, on rank 0 only. The value DYNAMIC means that no file is written at first. */
static enum pl_status start_timeline(const struct pl_runtime *runtime, struct pl_error *reterr)
{
    static const char marks[] = "HOROVOD_TIMELINE_MARK_CYCLES";
    const struct pl_environment *environment = pl_runtime_environment(runtime);
    const char *path = pl_environment_get(environment, "HOROVOD_TIMELINE");
    const char *cycles = pl_environment_get(environment, marks);
    bool mark_cycles = false;

    if (!path || !*path || strcmp(path, "DYNAMIC") == 0 || pl_world_rank(pl_runtime_world(runtime)) != 0) {
        return PL_OK;
    }
    if (cycles && *cycles) {
        PL_TRY(pl_knob_read_bool(cycles, marks, &mark_cycles, reterr));
    }
    return pl_timeline_start(path, mark_cycles, reterr);
}

static enum pl_status read_follows(const struct pl_runtime *runtime, struct pl_error *reterr)
{
    static const char name[] = "HOROVOD_ENABLE_ASYNC_COMPLETION";
    const char *text = pl_environment_get(pl_runtime_environment(runtime), name);

    state.follows = false;
    return text && *text ? pl_knob_read_bool(text, name, &state.follows, reterr) : PL_OK;
}

/*
 * Finds out whether tensors on a GPU can stay there: only if all ranks have a driver. Does not start CUDA, because
 * programs choose devices and fork after init.
 */
static enum pl_status find_drivers(struct pl_world *world, struct pl_error *reterr)
{
    char own[PL_DEVICE_REASON_BYTES] = "";
    PL_AUTO_FREE void *all = NULL;

    PL_TRY(pl_memory_alloc(&all, (size_t)pl_world_size(world), sizeof(own), reterr));
    state.why_copied[0] = '\0';
    if (strcmp(pl_world_setting(world, "device"), "off") == 0) {
        strcpy(state.why_copied, "the setting device is off");
        return PL_OK;
    }
    if (pl_device_is_loadable(own)) {
        own[0] = '\0';
    }
    PL_TRY(pl_compare_gather(world, own, &all, sizeof(own), reterr));
    for (int rank = pl_world_size(world) - 1; rank >= 0; rank--) {
        const char *why = (const char *)all + (size_t)rank * sizeof(own);
        char name[PL_RANK_NAME_BYTES];

        if (*why) {
            snprintf(state.why_copied, sizeof(state.why_copied), "%s: %s", pl_world_rank_name(world, rank, name), why);
        }
    }
    return PL_OK;
}

/* Starts the service, after the runtime. */
static enum pl_status start_service(const struct pl_runtime *runtime, struct pl_service **ret_service,
                                    struct pl_error *reterr)
{
    const struct pl_named_options options = {
        .join_divisor = PL_NAMED_DIVIDE_BY_SIZE, .strict_join = true, .observer = pl_timeline_observer()};

    PL_TRY(state.job ? check_launcher(runtime, reterr) : PL_OK);
    PL_TRY(start_timeline(runtime, reterr));
    PL_TRY(read_follows(runtime, reterr));
    PL_TRY(find_drivers(pl_runtime_world(runtime), reterr));
    return pl_service_new(pl_runtime_world(runtime), &options, ret_service, reterr);
}

static enum pl_status start(const struct pl_state_members *members, struct pl_error *reterr)
{
    struct pl_bootstrap *bootstrap = NULL;
    struct pl_runtime *runtime = NULL;
    struct pl_service *service = NULL;
    enum pl_status status;

    if (state.pid == 0 && on_exit(end, NULL) != 0) { /* on_exit(): functions of atexit() do not get the status */
        return pl_error_set(reterr, PL_SYSTEM, "cannot register a function for the end of the process");
    }
    state.pid = getpid();
    PL_TRY(find_members(members, &bootstrap, reterr));
    status = pl_runtime_start_unlimited(bootstrap ? bootstrap : state.job, &runtime, reterr);
    if (status == PL_OK) {
        status = start_service(runtime, &service, reterr);
    }
    if (status != PL_OK) {
        state.failed = true;
        pl_runtime_stop(runtime);
        free_bootstrap(&bootstrap);
        return status;
    }
    pthread_rwlock_wrlock(&state.lock);
    state.synced.service = service;
    state.synced.runtime = runtime;
    state.synced.members = bootstrap;
    pthread_rwlock_unlock(&state.lock);
    return PL_OK;
}

enum pl_status pl_state_start(const struct pl_state_members *members, struct pl_error *reterr)
{
    enum pl_status status = PL_OK;

    pthread_mutex_lock(&state.changing);
    if (!state.synced.service) {
        status = start(members, reterr);
    }
    pthread_mutex_unlock(&state.changing);
    return status;
}

/* Returns whether MPI still works when the process ends: another library may own MPI and finalise it before. */
static bool lasts_to_end(void)
{
    return pl_bootstrap_owns_mpi() || (state.job && !state.synced.members && !state.job->transport);
}

/* Releases the GPU. Unless the program has failed, waits for the operations there. */
static void release_device(bool failed)
{
    struct pl_error why = PL_ERROR_NONE;

    pl_error_set(&why, PL_FAILED,
                 failed ? "its process has raised an exception"
                        : "its process ends, and its operations on the GPU have not ended");
    pl_service_release_device(state.synced.service, pl_deadline_after_ns(failed ? 0 : LAST_OPERATIONS_NS), &why);
}

void pl_state_stop(void)
{
    enum pl_interpreter interpreter;

    pthread_mutex_lock(&state.changing);
    if (state.synced.service && getpid() == state.pid) {
        interpreter = pl_interpreter_state();
        if (interpreter == PL_INTERPRETER_FAILED && !lasts_to_end()) {
            abort_members("has raised an exception");
            state.pid = -1;
        } else if (interpreter == PL_INTERPRETER_RUNS || !lasts_to_end()) {
            stop();
        } else { /* the rest is done when the exit status is known; CUDA and NCCL may be gone then */
            release_device(interpreter == PL_INTERPRETER_FAILED);
        }
        if (interpreter != PL_INTERPRETER_RUNS && !lasts_to_end()) {
            free_bootstrap(&state.job);
        }
    }
    pthread_mutex_unlock(&state.changing);
}
