/* SPDX-License-Identifier: Apache-2.0 */
/* The fake driver's streams, events and kernels. */
#include "tests/fakes/fake_cuda_private.h"

#include "device/kernel_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- streams: work is done at once, or by one thread per stream ---- */

static void release_record(struct record *record)
{
    if (record && --record->users == 0) {
        free(record);
    }
}

/* Runs the work. The lock is held, except while it runs. */
static void run(const struct work *work, bool runs)
{
    if (runs) {
        fake_memory_open();
    }
    pthread_mutex_unlock(&fake.lock);
    if (work->guest) {
        work->guest(work->argument, runs);
    } else {
        work->run(work->argument);
    }
    pthread_mutex_lock(&fake.lock);
    if (runs) {
        fake_memory_close();
    }
}

/* Releases what work holds that has happened or will never happen. */
static void discard(const struct work *work)
{
    if (work->owned) {
        free(work->argument);
    }
    release_record(work->waits_for);
    if (work->records) {
        work->records->never = !work->records->done;
        release_record(work->records);
    }
    pthread_cond_broadcast(&fake.changed);
}

/* Whether the work is a kernel that hangs. */
static bool is_endless(const struct work *work)
{
    return !work->run && !work->guest && !work->records && !work->waits_for;
}

/* Does one piece of work, which has left the queue. The lock is held, except while it runs. False if it never ends. */
static bool perform(struct CUstream_st *stream, const struct work *work)
{
    bool ends = true;

    if (work->waits_for) {
        while (!work->waits_for->done && !work->waits_for->never && !stream->closed) {
            pthread_cond_wait(&fake.changed, &fake.lock);
        }
        ends = work->waits_for->done;
    } else if (work->records) {
        work->records->done = true;
        work->records->done_ns = fake_now_ns();
    } else if (is_endless(work)) {
        ends = false;
    } else {
        while (work->down && fake.holds_copies && !stream->closed) {
            pthread_cond_wait(&fake.changed, &fake.lock);
        }
        if (work->guest || stream->context->failure == CUDA_SUCCESS) {
            run(work, stream->context->failure == CUDA_SUCCESS);
        }
    }
    discard(work);
    return ends;
}

static void drop(struct CUstream_st *stream)
{
    while (stream->first) {
        struct work *work = stream->first;

        stream->first = work->next;
        if (work->guest) {
            run(work, false);
        }
        discard(work);
        free(work);
    }
    stream->last = &stream->first;
}

static void *serve(void *argument)
{
    struct CUstream_st *stream = argument;
    unsigned seed = (unsigned)(uintptr_t)stream ^ (unsigned)fake_now_ns();

    pthread_mutex_lock(&fake.lock);
    while (stream->first || !stream->closed) {
        struct work *work = stream->first;

        if (!work) {
            pthread_cond_wait(&fake.changed, &fake.lock);
            continue;
        }
        stream->busy = true;
        pthread_mutex_unlock(&fake.lock);
        usleep((unsigned)(rand_r(&seed) % (int)(fake.delay_us + 1)));
        pthread_mutex_lock(&fake.lock);
        stream->first = work->next;
        if (!stream->first) {
            stream->last = &stream->first;
        }
        if (!perform(stream, work)) {
            stream->stuck = true;
        }
        free(work);
        stream->busy = false;
        pthread_cond_broadcast(&fake.changed);
        while (stream->stuck && !stream->closed) {
            pthread_cond_wait(&fake.changed, &fake.lock);
        }
        if (stream->stuck) {
            drop(stream);
        }
    }
    pthread_mutex_unlock(&fake.lock);
    return NULL;
}

CUstream fake_stream(struct CUctx_st *context, CUstream stream)
{
    CUstream known = context->streams;

    if (!stream) {
        return &context->standard;
    }
    while (known && known != stream) {
        known = known->next;
    }
    if (!known) {
        fprintf(stderr, "fake_cuda: the program uses a stream that is gone or belongs to a different context\n");
        abort();
    }
    return stream;
}

CUresult fake_add(struct CUctx_st *context, CUstream stream, const struct work *work)
{
    struct work *added;

    stream = fake_stream(context, stream);
    stream->hangs = stream->hangs || is_endless(work);
    if (work->records || work->waits_for) {
        (work->records ? work->records : work->waits_for)->users++;
    }
    if (!stream->last) {
        stream->last = &stream->first;
    }
    if (fake.delay_us == 0) {
        /* Work is done in order, even if several threads use the stream. */
        while (stream->busy) {
            pthread_cond_wait(&fake.changed, &fake.lock);
        }
        stream->busy = true;
        if (!stream->stuck) {
            stream->stuck = !perform(stream, work);
        } else {
            if (work->guest) {
                run(work, false);
            }
            discard(work);
        }
        stream->busy = false;
        pthread_cond_broadcast(&fake.changed);
        return context->failure;
    }
    if (!stream->threaded) {
        stream->threaded = true;
        if (pthread_create(&stream->thread, NULL, serve, stream) != 0) {
            abort();
        }
    }
    added = malloc(sizeof(*added));
    *added = *work;
    added->next = NULL;
    *stream->last = added;
    stream->last = &added->next;
    pthread_cond_broadcast(&fake.changed);
    return CUDA_SUCCESS;
}

static bool is_working(const struct CUstream_st *stream)
{
    return (stream->first || stream->busy) && !stream->stuck;
}

void fake_wait_all(struct CUctx_st *context)
{
    for (;;) {
        /* from the start each time: streams are added and removed during a wait */
        const struct CUstream_st *stream = context->streams;

        while (stream && !is_working(stream)) {
            stream = stream->next;
        }
        if (!stream && !is_working(&context->standard)) {
            return;
        }
        pthread_cond_wait(&fake.changed, &fake.lock);
    }
}

void fake_wait_for_device(struct CUctx_st *context, const char *name)
{
    if (context->hangs) {
        fprintf(stderr, "fake_cuda: %s waits without end for a kernel that hangs\n", name);
        abort();
    }
    fake_wait_all(context);
}

static void close_stream(struct CUstream_st *stream)
{
    stream->closed = true;
    pthread_cond_broadcast(&fake.changed);
    if (stream->threaded) {
        pthread_mutex_unlock(&fake.lock);
        pthread_join(stream->thread, NULL);
        pthread_mutex_lock(&fake.lock);
    }
}

void fake_end_context(struct CUctx_st *context)
{
    close_stream(&context->standard);
    context->standard = (struct CUstream_st){.context = context};
    while (context->streams) {
        struct CUstream_st *stream = context->streams;

        context->streams = stream->next;
        close_stream(stream);
        free(stream);
    }
    while (context->events) {
        struct CUevent_st *event = context->events;

        context->events = event->next;
        release_record(event->latest);
        free(event);
    }
    while (context->modules) {
        struct CUmod_st *module = context->modules;

        context->modules = module->next;
        free(module);
    }
}

enum { HIGHEST_PRIORITY = -5 };

CUresult CUDAAPI cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    ENTER(__func__)
    *least = 0;
    *greatest = HIGHEST_PRIORITY;
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuStreamCreate(CUstream *stream, unsigned flags)
{
    return cuStreamCreateWithPriority(stream, flags, 0);
}

CUresult CUDAAPI cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
    ENTER(__func__)
    if (flags & ~(unsigned)CU_STREAM_NON_BLOCKING || priority > 0 || priority < HIGHEST_PRIORITY) {
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    }
    *stream = calloc(1, sizeof(**stream));
    (*stream)->priority = priority;
    (*stream)->context = context;
    (*stream)->next = context->streams;
    context->streams = *stream;
    LEAVE(CUDA_SUCCESS);
}

/* Queued work goes on, and the driver's call does not wait for it; this one does. */
CUresult CUDAAPI cuStreamDestroy(CUstream stream)
{
    struct CUstream_st **at;

    ENTER_RELEASE(__func__)
    for (at = &context->streams; *at && *at != stream; at = &(*at)->next) {
    }
    if (!*at) {
        LEAVE(CUDA_ERROR_INVALID_HANDLE);
    }
    *at = stream->next;
    close_stream(stream);
    free(stream);
    LEAVE_RELEASED();
}

CUresult CUDAAPI cuStreamQuery(CUstream stream)
{
    ENTER(__func__)
    stream = fake_stream(context, stream);
    if (fake_beside_captures(context) != CUDA_SUCCESS) {
        LEAVE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    LEAVE(stream->first || stream->busy || stream->stuck ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
}

/* The event's position in its context's list; an event that does not exist ends the test. */
static struct CUevent_st **find_event(CUevent event)
{
    for (int i = 0; i < fake.devices; i++) {
        for (struct CUevent_st **at = &fake.contexts[i].events; *at; at = &(*at)->next) {
            if (*at == event) {
                return at;
            }
        }
    }
    fprintf(stderr, "fake_cuda: the program uses an event that is gone\n");
    abort();
}

CUresult CUDAAPI cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    ENTER(__func__)
    if (flags != 0) {
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    }
    find_event(event);
    if (fake_skips(__func__)) {
        LEAVE(CUDA_SUCCESS);
    }
    LEAVE(event->latest ? fake_add(context, stream, &(struct work){.waits_for = event->latest}) : CUDA_SUCCESS);
}

static CUresult add_guest(CUstream stream, void (*work)(void *argument, bool runs), void *argument)
{
    ENTER(__func__)
    fake_add(context, stream, &(struct work){.guest = work, .argument = argument});
    LEAVE(CUDA_SUCCESS);
}

int fake_cuda_run(void *stream, void (*work)(void *argument, bool runs), void *argument)
{
    return (int)add_guest(stream, work, argument);
}

int fake_cuda_urgent_streams(void)
{
    int count = 0;

    pthread_mutex_lock(&fake.lock);
    for (struct CUstream_st *stream = fake_context() ? fake_context()->streams : NULL; stream; stream = stream->next) {
        count += stream->priority == HIGHEST_PRIORITY;
    }
    pthread_mutex_unlock(&fake.lock);
    return count;
}

/* ---- captures, always in the mode GLOBAL ---- */

static _Thread_local CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

CUresult fake_beside_captures(struct CUctx_st *context)
{
    bool captures = false;

    for (struct CUstream_st *stream = context->streams; stream; stream = stream->next) {
        captures = captures || stream->captures;
    }
    if (!captures || capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) {
        return CUDA_SUCCESS;
    }
    context->is_capture_broken = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    CUstreamCaptureMode before = capture_mode;
    CUresult result = fake_enter(__func__);

    if (result == CUDA_SUCCESS) {
        capture_mode = *mode;
        *mode = before;
    }
    LEAVE(result);
}

CUresult CUDAAPI cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode)
{
    ENTER(__func__)
    if (mode != CU_STREAM_CAPTURE_MODE_GLOBAL || !stream) {
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    }
    fake_stream(context, stream)->captures = true;
    context->is_capture_broken = false;
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    ENTER(__func__)
    *status = !fake_stream(context, stream)->captures ? CU_STREAM_CAPTURE_STATUS_NONE
              : context->is_capture_broken            ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                                      : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    LEAVE(CUDA_SUCCESS);
}

/* Makes no graph. */
CUresult CUDAAPI cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    ENTER(__func__)
    fake_stream(context, stream)->captures = false;
    *graph = NULL;
    LEAVE(context->is_capture_broken ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS);
}

/* ---- events ---- */

CUresult CUDAAPI cuEventCreate(CUevent *event, unsigned flags)
{
    ENTER(__func__)
    *event = calloc(1, sizeof(**event));
    (*event)->context = context;
    (*event)->timed = !(flags & CU_EVENT_DISABLE_TIMING);
    (*event)->next = context->events;
    context->events = *event;
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuEventDestroy(CUevent event)
{
    struct CUevent_st **at;

    ENTER_RELEASE(__func__)
    at = find_event(event);
    *at = event->next;
    release_record(event->latest);
    free(event);
    LEAVE_RELEASED();
}

CUresult CUDAAPI cuEventRecord(CUevent event, CUstream stream)
{
    ENTER(__func__)
    if ((*find_event(event))->context != context) {
        LEAVE(CUDA_ERROR_INVALID_HANDLE); /* the event and the stream belong to different devices */
    }
    if (fake_skips(__func__)) {
        LEAVE(CUDA_SUCCESS);
    }
    release_record(event->latest);
    event->latest = calloc(1, sizeof(*event->latest));
    event->latest->users = 1;
    LEAVE(fake_add(context, stream, &(struct work){.records = event->latest}));
}

CUresult CUDAAPI cuEventQuery(CUevent event)
{
    ENTER(__func__)
    find_event(event);
    if (fake_beside_captures(context) != CUDA_SUCCESS) {
        LEAVE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    LEAVE(event->latest && !event->latest->done ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
}

/* Drivers have it under this name and, since CUDA 12.8, as _v2. */
#undef cuEventElapsedTime
CUresult CUDAAPI cuEventElapsedTime(float *ms, CUevent from, CUevent to);
CUresult CUDAAPI cuEventElapsedTime(float *ms, CUevent from, CUevent to)
{
    ENTER(__func__)
    find_event(from);
    find_event(to);
    if (!from->timed || !to->timed || !from->latest || !to->latest) {
        LEAVE(CUDA_ERROR_INVALID_HANDLE);
    }
    if (!from->latest->done || !to->latest->done) {
        LEAVE(CUDA_ERROR_NOT_READY);
    }
    *ms = (float)(to->latest->done_ns - from->latest->done_ns) / 1e6F;
    LEAVE(CUDA_SUCCESS);
}

/* ---- kernels ---- */

struct kernel {
    const char *name;
    size_t args_bytes;
    void (*block)(const void *arguments, uint32_t block, uint32_t blocks);
};

struct launch {
    const struct kernel *kernel;
    uint32_t blocks;
    _Alignas(16) char args[];
};

#define DEFINE_BLOCK(name, args, call)                                                                                 \
    static void block_##name(const void *arguments, uint32_t block, uint32_t blocks)                                   \
    {                                                                                                                  \
        const struct args *a = arguments;                                                                              \
                                                                                                                       \
        call;                                                                                                          \
    }
PL_DEVICE_KERNEL_LIST(DEFINE_BLOCK)

static const struct kernel kernels[] = {
#define DEFINE_KERNEL(name, args, call) {"pl_" #name, sizeof(struct args), block_##name},
    PL_DEVICE_KERNEL_LIST(DEFINE_KERNEL)
#undef DEFINE_KERNEL
};
_Static_assert(sizeof(kernels) / sizeof(kernels[0]) <= MAX_FUNCTIONS, "a module has room for all kernels");

static void run_launch(void *argument)
{
    const struct launch *launch = argument;

    for (uint32_t block = 0; block < launch->blocks; block++) {
        launch->kernel->block(launch->args, block, launch->blocks);
    }
}

/* The image comes from nvcc, so it begins with the magic number of a fat binary. */
CUresult CUDAAPI cuModuleLoadData(CUmodule *module, const void *image)
{
    uint32_t magic;

    ENTER(__func__)
    memcpy(&magic, image, sizeof(magic));
    if (magic != 0xba55ed50) {
        LEAVE(CUDA_ERROR_INVALID_IMAGE);
    }
    *module = calloc(1, sizeof(**module));
    (*module)->next = context->modules;
    context->modules = *module;
    LEAVE(CUDA_SUCCESS);
}

/* The module's position in its context's list; NULL if it is gone or belongs to a different context. */
static struct CUmod_st **find_module(struct CUctx_st *context, const struct CUmod_st *module)
{
    struct CUmod_st **at = &context->modules;

    while (*at && *at != module) {
        at = &(*at)->next;
    }
    return *at ? at : NULL;
}

CUresult CUDAAPI cuModuleUnload(CUmodule module)
{
    struct CUmod_st **at;

    ENTER_RELEASE(__func__)
    fake_wait_for_device(context, __func__);
    at = find_module(context, module);
    if (!at) {
        LEAVE(CUDA_ERROR_INVALID_HANDLE);
    }
    *at = module->next;
    free(module);
    LEAVE_RELEASED();
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    ENTER(__func__)
    if (!find_module(context, module)) {
        LEAVE(CUDA_ERROR_INVALID_HANDLE);
    }
    for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++) {
        if (strcmp(kernels[i].name, name) == 0) {
            module->functions[i] = (struct CUfunc_st){.kernel = &kernels[i]};
            *function = &module->functions[i];
            LEAVE(CUDA_SUCCESS);
        }
    }
    LEAVE(CUDA_ERROR_NOT_FOUND);
}

static void fail_context(void *argument)
{
    struct CUctx_st *context = argument;

    pthread_mutex_lock(&fake.lock);
    context->failure = CUDA_ERROR_ILLEGAL_ADDRESS;
    pthread_cond_broadcast(&fake.changed);
    pthread_mutex_unlock(&fake.lock);
}

/* Whether the kernel belongs to a module that is loaded in this context. */
static bool has_function(const struct CUctx_st *context, const struct CUfunc_st *function)
{
    const struct CUmod_st *module = context->modules;

    while (module && (function < module->functions || function >= module->functions + MAX_FUNCTIONS)) {
        module = module->next;
    }
    return module && function->kernel;
}

CUresult CUDAAPI cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                CUstream stream, void **params, void **extra)
{
    struct launch *launch;

    ENTER(__func__)
    if (grid_x == 0 || grid_y != 1 || grid_z != 1 || block_x != PL_THREADS || block_y != 1 || block_z != 1 ||
        shared_bytes || extra) {
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    }
    if (!has_function(context, function)) {
        LEAVE(CUDA_ERROR_INVALID_HANDLE);
    }
    fake.launches++;
    if (fake.launches == fake.launch_error || context->kernel_fails) {
        context->kernel_fails = false;
        fake_add(context, stream, &(struct work){.run = fail_context, .argument = context});
        LEAVE(CUDA_SUCCESS); /* the next call reports it */
    }
    if (fake.launches == fake.hang || context->kernel_hangs) {
        context->kernel_hangs = false;
        context->hangs = true;
        LEAVE(fake_add(context, stream, &(struct work){.run = NULL}));
    }
    launch = aligned_alloc(16, (sizeof(*launch) + function->kernel->args_bytes + 15) / 16 * 16);
    launch->kernel = function->kernel;
    launch->blocks = grid_x;
    memcpy(launch->args, params[0], function->kernel->args_bytes);
    LEAVE(fake_add(context, stream, &(struct work){.run = run_launch, .argument = launch, .owned = true}));
}
