/* SPDX-License-Identifier: Apache-2.0 */
/* Starting and stopping a training program: bootstrap, world, trace, warnings, and leaving with the other ranks. */
#include "runtime/start.h"

#include "base/clock.h"
#include "base/environment.h"
#include "base/file.h"
#include "base/knob.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "collectives/bootstrap.h"
#include "collectives/collective.h"
#include "collectives/world_private.h"
#include "device/device_private.h"
#include "runtime/start_private.h"
#include "runtime/trace_ring.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct pl_runtime {
    struct pl_environment *environment;
    struct pl_bootstrap *bootstrap; /* NULL if it belongs to the caller */
    struct pl_device *device;
    struct pl_world *world;
    struct pl_trace *trace;
};

static void free_runtime(struct pl_runtime *runtime)
{
    pl_world_free(runtime->world);
    pl_device_close(runtime->device);
    pl_trace_free(runtime->trace);
    if (runtime->bootstrap) {
        pl_bootstrap_free(runtime->bootstrap);
    }
    pl_environment_free(runtime->environment);
    free(runtime);
}

int pl_runtime_restarts(const struct pl_runtime *runtime)
{
    const char *text = pl_runtime_variable(runtime, "PACELINE_RESTART", "0");
    char *end;
    const long number = strtol(text, &end, 10);

    return *end == '\0' && number > 0 && number <= INT_MAX ? (int)number : 0;
}

/* Names the trace file: trace.json, or trace-restart1.json if the job was started again, so that the files of earlier
 * attempts stay. */
static enum pl_status trace_path(const struct pl_runtime *runtime, const char *path, char **ret_path,
                                 struct pl_error *reterr)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
    const int bytes = (int)(dot && dot > name ? dot - path : (ptrdiff_t)strlen(path));
    const int restarts = pl_runtime_restarts(runtime);
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    pl_text_printf(&text, "%.*s", bytes, path);
    if (restarts > 0) {
        pl_text_printf(&text, "-restart%d", restarts);
    }
    pl_text_append(&text, path + bytes);
    return pl_text_take(&text, ret_path, reterr);
}

/* Makes the name of the ring file of `rank`, in the directory of the trace file `path`. */
static enum pl_status ring_path(const char *path, int rank, char **ret_path, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    pl_text_printf(&text, "%s.rank%d.ring", path, rank);
    return pl_text_take(&text, ret_path, reterr);
}

/* Warns here because no call can return the warning: nothing has failed yet. */
static void warn_stalled(void *context, const struct pl_event *event)
{
    char whom[32] = "other ranks";

    (void)context;
    if (event->waited_for >= 0) {
        snprintf(whom, sizeof(whom), "rank %d", event->waited_for);
    }
    if (*event->about) {
        pl_log(PL_LOG_WARNING, "rank %d has waited %.0f s for %s, %s (collective number %llu)", event->rank,
               (double)event->waited_ns / (double)PL_NS_PER_S, whom, event->about, (unsigned long long)event->sequence);
        return;
    }
    pl_log(PL_LOG_WARNING, "rank %d has waited %.0f s for %s in %s%s%s%s (collective number %llu)", event->rank,
           (double)event->waited_ns / (double)PL_NS_PER_S, whom, pl_kind_text(event->kind), *event->name ? " '" : "",
           event->name, *event->name ? "'" : "", (unsigned long long)event->sequence);
}

static enum pl_status observe(struct pl_runtime *runtime, struct pl_error *reterr)
{
    const struct pl_knobs *knobs = pl_world_knobs(runtime->world);
    PL_AUTO_FREE char *path = NULL;
    PL_AUTO_FREE char *ring = NULL;
    char host[HOST_NAME_MAX + 1] = "";
    struct pl_trace_options options = {
        .records = (uint64_t)pl_knob_int(knobs, PL_KNOB_TRACE_RECORDS),
        .rank = pl_world_rank(runtime->world),
        .size = pl_world_size(runtime->world),
        .host = pl_world_cross_rank(runtime->world),
        .host_name = gethostname(host, sizeof(host) - 1) == 0 ? host : NULL,
    };
    struct pl_observer observer = {.ended = pl_trace_add_event,
                                   .posted = pl_trace_note_posted,
                                   .stall_ns = pl_knob_ns(knobs, PL_KNOB_STALL_S, PL_NS_PER_S)};

    PL_TRY(trace_path(runtime, pl_knob_text(knobs, PL_KNOB_TRACE), &path, reterr));
    if (*pl_knob_text(knobs, PL_KNOB_TRACE)) {
        PL_TRY(ring_path(path, options.rank, &ring, reterr));
        options.path = ring;
    }
    PL_TRY(pl_trace_new(&options, &runtime->trace, reterr));
    observer.context = runtime->trace;
    observer.stalled = observer.stall_ns > 0 ? warn_stalled : NULL;
    pl_world_observe(runtime->world, &observer);
    return PL_OK;
}

/* On one rank of each host: waits until all rings of the host are complete, and merges them into a trace. */
static enum pl_status merge_rings(struct pl_runtime *runtime, struct pl_error *reterr)
{
    int size = pl_world_size(runtime->world), host = pl_world_cross_rank(runtime->world);
    PL_AUTO_FREE char **rings = pl_memory_new((size_t)size, sizeof(char *), reterr);
    PL_AUTO_TEXT struct pl_text name = PL_TEXT_NONE, text = PL_TEXT_NONE;
    PL_AUTO_FREE char *path = NULL;
    enum pl_status status = rings ? PL_OK : PL_MEMORY;
    size_t count = 0;

    PL_TRY(trace_path(runtime, pl_knob_text(pl_world_knobs(runtime->world), PL_KNOB_TRACE), &path, reterr));
    for (int rank = 0; rank < size && status == PL_OK; rank++) {
        if (pl_world_host_of(runtime->world, rank) == host) {
            status = ring_path(path, rank, &rings[count], reterr);
            count += status == PL_OK;
        }
    }
    pl_text_append(&name, path);
    if (pl_world_cross_size(runtime->world) > 1) {
        pl_text_printf(&name, ".host%d", host);
    }
    if (status == PL_OK) {
        status = pl_trace_merge((const char *const *)rings, count, &text, reterr);
    }
    if (status == PL_OK) {
        status = pl_file_write_atomic(pl_text_string(&name), text.data, text.length, 0644, reterr);
    }
    for (size_t i = 0; i < count; i++) {
        free(rings[i]);
    }
    return status;
}

/*
 * Whether the first `length` bytes of `name` are a variable of Horovod that Paceline uses, or would use if its own
 * variable were not set.
 */
static bool counts(const struct pl_knobs *knobs, const char *name, size_t length)
{
    for (unsigned i = 0; i < PL_KNOB_COUNT; i++) {
        const char *horovod = pl_knob_info((enum pl_knob)i)->horovod;

        if (horovod && strlen(horovod) == length && strncmp(horovod, name, length) == 0) {
            return knobs->values[i].source != PL_KNOB_FROM_DEFAULT;
        }
    }
    return false;
}

/* Warns of variables that have no effect: Horovod's, because the program may rely on them, and old ones of Paceline. */
static void warn_without_effect(const struct pl_runtime *runtime, bool has_timeline)
{
    static const char timeline[] = "HOROVOD_TIMELINE";                /* and HOROVOD_TIMELINE_MARK_CYCLES */
    static const char dynamic[] = "HOROVOD_DYNAMIC_PROCESS_SETS=";    /* process sets are always dynamic */
    static const char follows[] = "HOROVOD_ENABLE_ASYNC_COMPLETION="; /* for torch tensors on a GPU */
    PL_AUTO_TEXT struct pl_text names = PL_TEXT_NONE;

    for (char *const *at = pl_environment_strings(runtime->environment); *at; at++) {
        size_t length = strcspn(*at, "=");

        if (strlen(*at) > length + 1 &&
            (pl_knob_is_gone(*at, length) ||
             (strncmp(*at, "HOROVOD_", 8) == 0 && strncmp(*at, dynamic, sizeof(dynamic) - 1) != 0 &&
              strncmp(*at, follows, sizeof(follows) - 1) != 0 &&
              !(has_timeline && strncmp(*at, timeline, sizeof(timeline) - 1) == 0) &&
              !counts(pl_world_knobs(runtime->world), *at, length)))) {
            pl_text_append(&names, names.length > 0 ? ", " : "");
            pl_text_append_n(&names, *at, length);
        }
    }
    if (names.length > 0 && pl_text_check(&names, NULL) == PL_OK) {
        pl_log(PL_LOG_WARNING, "set in the environment, but without effect here: %s", names.data);
    }
}

/* Options of a start. */
struct manner {
    bool on_device;
    const char *device; /* NULL: the setting decides */
    /* no deadline unless a setting sets one, and no trace, because the caller has its own timeline */
    bool as_horovod;
};

/* Sets the level of a setting; without one, the program's own level stays. */
static void set_log_level(const struct pl_knobs *knobs)
{
    enum pl_log_level level;

    if (knobs->values[PL_KNOB_LOG].source != PL_KNOB_FROM_DEFAULT &&
        pl_log_level_read(pl_knob_text(knobs, PL_KNOB_LOG), &level)) {
        pl_log_set_level(level);
    }
}

static enum pl_status start(struct pl_runtime *runtime, struct pl_bootstrap *bootstrap, const struct manner *manner,
                            struct pl_error *reterr)
{
    struct pl_world_options options = {0};
    struct pl_knobs knobs;

    PL_TRY(pl_environment_new(&runtime->environment, reterr));
    PL_TRY(pl_knobs_resolve(runtime->environment, &knobs, reterr));
    set_log_level(&knobs);
    if (manner->as_horovod && knobs.values[PL_KNOB_TIMEOUT_S].source == PL_KNOB_FROM_DEFAULT) {
        PL_TRY(pl_knob_set(&knobs, PL_KNOB_TIMEOUT_S, "0", "timeout_s", reterr));
    }
    if (manner->as_horovod && knobs.values[PL_KNOB_TRACE].source == PL_KNOB_FROM_HOROVOD) {
        PL_TRY(pl_knob_set(&knobs, PL_KNOB_TRACE, "", "trace", reterr));
    }
    options.knobs = &knobs;
    if (!bootstrap) {
        PL_TRY(pl_bootstrap_under_mpi() ? pl_bootstrap_new_mpi(NULL, &runtime->bootstrap, reterr)
                                        : pl_bootstrap_new_self(&runtime->bootstrap, reterr));
        bootstrap = runtime->bootstrap;
    }
    PL_TRY(manner->on_device
               ? pl_world_new_on_device(bootstrap, &options, manner->device, &runtime->device, &runtime->world, reterr)
               : pl_world_new(bootstrap, &options, &runtime->world, reterr));
    if (pl_world_rank(runtime->world) == 0) {
        warn_without_effect(runtime, manner->as_horovod);
    }
    return observe(runtime, reterr);
}

static enum pl_status start_new(struct pl_bootstrap *bootstrap, const struct manner *manner,
                                struct pl_runtime **ret_runtime, struct pl_error *reterr)
{
    struct pl_runtime *runtime;
    enum pl_status status;

    PL_TRY(pl_memory_alloc(&runtime, 1, sizeof(*runtime), reterr));
    status = start(runtime, bootstrap, manner, reterr);
    if (status != PL_OK) {
        free_runtime(runtime);
        return status;
    }
    *ret_runtime = runtime;
    return PL_OK;
}

enum pl_status pl_runtime_start(struct pl_runtime **ret_runtime, struct pl_error *reterr)
{
    return start_new(NULL, &(struct manner){0}, ret_runtime, reterr);
}

enum pl_status pl_runtime_start_on_device(struct pl_bootstrap *bootstrap, const char *device,
                                          struct pl_runtime **ret_runtime, struct pl_error *reterr)
{
    return start_new(bootstrap, &(struct manner){.on_device = true, .device = device}, ret_runtime, reterr);
}

enum pl_status pl_runtime_start_unlimited(struct pl_bootstrap *bootstrap, struct pl_runtime **ret_runtime,
                                          struct pl_error *reterr)
{
    return start_new(bootstrap, &(struct manner){.as_horovod = true}, ret_runtime, reterr);
}

struct pl_device *pl_runtime_device(const struct pl_runtime *runtime)
{
    return runtime->device;
}

struct pl_world *pl_runtime_world(const struct pl_runtime *runtime)
{
    return runtime->world;
}

const struct pl_environment *pl_runtime_environment(const struct pl_runtime *runtime)
{
    return runtime->environment;
}

const char *pl_runtime_variable(const struct pl_runtime *runtime, const char *name, const char *otherwise)
{
    return pl_environment_get_or(runtime->environment, name, otherwise);
}

struct pl_trace *pl_runtime_trace(const struct pl_runtime *runtime)
{
    return runtime->trace;
}

/*
 * Runs a barrier of the world, which reports missing ranks and notices dead ones. The bootstrap's own barrier is then
 * short.
 */
static enum pl_status leave(struct pl_runtime *runtime, struct pl_error *reterr)
{
    const char *path = pl_knob_text(pl_world_knobs(runtime->world), PL_KNOB_TRACE);
    /* shown on a rank that still waits in another collective */
    struct pl_collective barrier = {.kind = PL_BARRIER, .name = "pl_runtime_stop"};
    struct pl_error error = PL_ERROR_NONE;

    PL_TRY(pl_collective_run(runtime->world, &barrier, reterr));
    if (*path && pl_world_local_rank(runtime->world) == 0 && merge_rings(runtime, &error) != PL_OK) {
        pl_log_error(&error, "cannot merge the trace; its rings stay");
    }
    return runtime->bootstrap ? pl_bootstrap_leave(runtime->bootstrap, pl_world_deadline_ns(runtime->world), reterr)
                              : PL_OK;
}

void pl_runtime_stop(struct pl_runtime *runtime)
{
    struct pl_error error = PL_ERROR_NONE;
    int64_t begin_ns = pl_clock_now_ns();

    if (!runtime) {
        return;
    }
    /* after a failure this rank does not wait for the others */
    if (pl_world_failure(runtime->world, NULL) == PL_OK && leave(runtime, &error) != PL_OK) {
        pl_error_context(&error, "waited %.1f s", (double)(pl_clock_now_ns() - begin_ns) / (double)PL_NS_PER_S);
        pl_log_error(&error, "leaving without the other ranks");
    }
    free_runtime(runtime);
}
