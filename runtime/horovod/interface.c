/* SPDX-License-Identifier: Apache-2.0 */
/* Horovod's C interface: numbers of ranks, process sets, and the features that are built in. */
#include "base/environment.h"
#include "base/knob.h"
#include "base/log.h"
#include "base/memory.h"
#include "device/device_private.h"
#include "runtime/horovod/horovod.h"
#include "runtime/horovod/state.h"
#include "runtime/start_private.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static atomic_bool raises; /* Horovod's Python code calls horovod_paceline_error() */

/* Numbers of items for which this thread's caller has made room. They are stored because another thread may change the
 * sets before the caller asks for the items. */
static _Thread_local struct {
    int sets, ranks;
} room;

/* The error of this thread's last call, for horovod_paceline_error(). */
static _Thread_local char last_error[PL_ERROR_CAUSE_BYTES + PL_ERROR_CONTEXT_BYTES + 64];

/* Stores an error for which Horovod has no number. Horovod's Python code raises it, or else it is logged here. */
static int raise_error(const char *call, const struct pl_error *error)
{
    char text[PL_ERROR_CAUSE_BYTES + PL_ERROR_CONTEXT_BYTES];

    snprintf(last_error, sizeof(last_error), "%s: %s", call, pl_error_text(error, text, sizeof(text)));
    if (!raises) {
        pl_log_error(error, "%s", call);
    }
    return HOROVOD_ERROR_OTHER;
}

const char *horovod_paceline_error(void)
{
    static _Thread_local char text[sizeof(last_error)];

    memcpy(text, last_error, sizeof(text));
    last_error[0] = '\0';
    return *text ? text : NULL;
}

static enum pl_status add_sets(struct pl_service *service, const int *set_ranks, const int *set_sizes, int set_count,
                               struct pl_error *reterr)
{
    int number;

    for (int i = 0; i < set_count; i++) {
        if (pl_service_find_set(service, set_ranks, set_sizes[i]) < 0) {
            PL_TRY(pl_service_add_set(service, set_ranks, set_sizes[i], &number, reterr));
        }
        set_ranks += set_sizes[i];
    }
    return PL_OK;
}

static bool init(const struct pl_state_members *members, int communicators, const int *set_ranks, const int *set_sizes,
                 int set_count)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_service *service = pl_state_hold();
    enum pl_status status;

    if (service) {
        pl_state_release();
        return true;
    }
    status = pl_state_start(members, &error);
    service = status == PL_OK ? pl_state_hold() : NULL;
    if (service) {
        raises = pl_interpreter_install_check();
        if (communicators > 0) {
            status = pl_communicators_add(service, members->communicator_at, communicators, &error);
        }
        if (status == PL_OK) {
            status = add_sets(service, set_ranks, set_sizes, set_count, &error);
        }
        pl_state_release();
    }
    if (status != PL_OK) {
        pl_log_error(&error, "hvd.init()");
        if (service) {
            pl_state_stop();
        }
    }
    return status == PL_OK;
}

bool horovod_init(const int *ranks, int rank_count, const int *set_ranks, const int *set_sizes, int set_count)
{
    return init(&(struct pl_state_members){.ranks = ranks, .count = rank_count}, 0, set_ranks, set_sizes, set_count);
}

bool horovod_init_multi_comm(const void *communicators, int count, const int *set_ranks, const int *set_sizes,
                             int set_count)
{
    if (count < 1) {
        pl_log(PL_LOG_ERROR, "hvd.init(): expected at least one communicator, the first with all ranks, found %d",
               count);
        return false;
    }
    return init(&(struct pl_state_members){.communicator_at = communicators}, count, set_ranks, set_sizes, set_count);
}

void horovod_shutdown(void)
{
    pl_state_stop();
}

/* Calls `ask` with the world and returns the result; -1 if there is no world. */
static int of_world(int (*ask)(const struct pl_world *world))
{
    int answer = HOROVOD_ERROR_INIT;

    if (pl_state_hold()) {
        answer = ask(pl_runtime_world(pl_state_runtime()));
        pl_state_release();
    }
    return answer;
}

static int is_homogeneous(const struct pl_world *world)
{
    return pl_world_is_homogeneous(world);
}

static int threads_supported(const struct pl_world *world)
{
    return pl_world_any_thread(world);
}

#define OF_WORLD(name, ask)                                                                                            \
    int horovod_##name(void)                                                                                           \
    {                                                                                                                  \
        return of_world(ask);                                                                                          \
    }
OF_WORLD(rank, pl_world_rank)
OF_WORLD(size, pl_world_size)
OF_WORLD(local_rank, pl_world_local_rank)
OF_WORLD(local_size, pl_world_local_size)
OF_WORLD(cross_rank, pl_world_cross_rank)
OF_WORLD(cross_size, pl_world_cross_size)
OF_WORLD(mpi_threads_supported, threads_supported)

int horovod_is_homogeneous(void)
{
    return of_world(is_homogeneous) == 1;
}

int horovod_is_initialized(void)
{
    return horovod_rank() >= 0;
}

int horovod_start_timeline(const char *path, bool mark_cycles)
{
    struct pl_error error = PL_ERROR_NONE;
    int rank = horovod_rank();

    if (rank < 0) {
        return HOROVOD_ERROR_INIT;
    }
    if (rank == 0 && pl_timeline_start(path, mark_cycles, &error) != PL_OK) {
        return raise_error("hvd.start_timeline()", &error);
    }
    return 0;
}

int horovod_stop_timeline(void)
{
    if (!horovod_is_initialized()) {
        return HOROVOD_ERROR_INIT;
    }
    pl_timeline_stop();
    return 0;
}

#define ANSWER(type, name, value)                                                                                      \
    type horovod_##name(void)                                                                                          \
    {                                                                                                                  \
        return value;                                                                                                  \
    }
PL_HOROVOD_ANSWERS(ANSWER)

/* Whether sets may change after init. Horovod's init(process_sets="dynamic") sets a variable for this. */
static bool is_dynamic(void)
{
    const char *text = pl_environment_get(pl_runtime_environment(pl_state_runtime()), "HOROVOD_DYNAMIC_PROCESS_SETS");
    bool value = false;

    return text && pl_knob_read_bool(text, "HOROVOD_DYNAMIC_PROCESS_SETS", &value, NULL) == PL_OK && value;
}

int horovod_add_process_set(const int *ranks, int count)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_service *service = pl_state_hold();
    enum pl_status status = PL_OK;
    int set = HOROVOD_ERROR_INIT;

    if (!service) {
        return HOROVOD_ERROR_INIT;
    }
    if (!is_dynamic()) {
        set = HOROVOD_ERROR_DYNAMIC;
    } else if (pl_service_find_set(service, ranks, count) >= 0) {
        set = HOROVOD_ERROR_EXISTING_SET;
    } else {
        status = pl_service_add_set(service, ranks, count, &set, &error);
    }
    pl_state_release();
    if (status == PL_CANCELLED) {
        return HOROVOD_ERROR_SHUTDOWN;
    }
    return status == PL_OK ? set : raise_error("hvd.add_process_set()", &error);
}

int horovod_remove_process_set(int set)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_service *service = pl_state_hold();
    enum pl_status status = PL_OK;
    struct pl_service_set found;
    bool dynamic;

    if (!service) {
        return HOROVOD_ERROR_INIT;
    }
    dynamic = is_dynamic();
    if (dynamic && pl_service_get_set(service, set, &found, NULL, 0, NULL) != PL_OK) {
        set = HOROVOD_ERROR_UNKNOWN_SET;
    } else if (dynamic) {
        status = pl_service_remove_set(service, set, &error);
    }
    pl_state_release();
    if (!dynamic) {
        return HOROVOD_ERROR_DYNAMIC;
    }
    if (status == PL_CANCELLED) {
        return HOROVOD_ERROR_SHUTDOWN;
    }
    if (status != PL_OK) {
        pl_log_error(&error, "hvd.remove_process_set()");
        return HOROVOD_ERROR_UNKNOWN_SET;
    }
    return set;
}

/* Describes `set` by pl_service_get_set(). Returns 0, or Horovod's error. */
static int get_set(int set, struct pl_service_set *ret_set, int *ret_ranks, int count)
{
    struct pl_service *service = pl_state_hold();
    enum pl_status status;

    if (!service) {
        return HOROVOD_ERROR_INIT;
    }
    status = pl_service_get_set(service, set, ret_set, ret_ranks, count, NULL);
    pl_state_release();
    return status == PL_OK ? 0 : HOROVOD_ERROR_UNKNOWN_SET;
}

int horovod_process_set_size(int set)
{
    struct pl_service_set found;
    int error = get_set(set, &found, NULL, 0);

    room.ranks = error ? error : found.size;
    return room.ranks;
}

int horovod_process_set_rank(int set)
{
    struct pl_service_set found;
    int error = get_set(set, &found, NULL, 0);

    if (error) {
        return error;
    }
    return found.rank < 0 ? HOROVOD_ERROR_FOREIGN_SET : found.rank;
}

int horovod_process_set_included(int set)
{
    int rank = horovod_process_set_rank(set);

    return rank == HOROVOD_ERROR_FOREIGN_SET ? 0 : rank < 0 ? rank : 1;
}

int horovod_number_of_process_sets(void)
{
    struct pl_service *service = pl_state_hold();
    int count = 0;

    if (service) {
        count = pl_service_list_sets(service, NULL, 0);
        pl_state_release();
    }
    room.sets = count;
    return count;
}

void horovod_process_set_ids(int *ret_sets)
{
    struct pl_service *service = pl_state_hold();

    if (service) {
        pl_service_list_sets(service, ret_sets, room.sets);
        pl_state_release();
    }
}

int horovod_process_set_ranks(int set, int *ret_ranks)
{
    struct pl_service_set found;

    return get_set(set, &found, ret_ranks, room.ranks);
}

int horovod_comm_process_set(const void *communicator)
{
    int set;

    if (!horovod_is_initialized()) {
        return HOROVOD_ERROR_INIT;
    }
    set = pl_communicators_find(communicator);
    return set < 0 ? HOROVOD_ERROR_UNKNOWN_SET : set;
}
