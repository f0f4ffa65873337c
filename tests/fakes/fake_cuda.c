/* SPDX-License-Identifier: Apache-2.0 */
/* The fake driver's orders, devices and contexts. fake_cuda.h explains its use. */
#include "tests/fakes/fake_cuda_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct fake_cuda fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
static _Thread_local struct CUctx_st *current;
/* How often this thread has called each function. */
static _Thread_local struct {
    const char *name;
    long calls;
} counts[MAX_FUNCTIONS];

int64_t fake_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- orders ---- */

static void die(const char *what)
{
    fprintf(stderr, "fake_cuda: cannot understand '%s' in FAKE_CUDA\n", what);
    abort();
}

static uint64_t parse_size(const char *text)
{
    char *end;
    uint64_t value = strtoull(text, &end, 10);

    return strcmp(end, "GiB") == 0   ? value << 30
           : strcmp(end, "MiB") == 0 ? value << 20
           : strcmp(end, "KiB") == 0 ? value << 10
                                     : value;
}

static void parse_fail(const char *text)
{
    struct fake_fail *fail = &fake.fails[fake.fail_count];
    int code = CUDA_ERROR_OUT_OF_MEMORY;

    if (fake.fail_count == MAX_FAILS || sscanf(text, "%47[^:]:%ld:%d", fail->name, &fail->at, &code) < 2) {
        die(text);
    }
    fail->code = (CUresult)code;
    fake.fail_count++;
}

static void parse_order(char *order)
{
    static const struct {
        const char *name;
        size_t offset;
        enum { INT, LONG, SIZE, YES } type;
    } orders[] = {
        {"devices", offsetof(struct fake_cuda, devices), INT},
        {"driver", offsetof(struct fake_cuda, driver), INT},
        {"arch", offsetof(struct fake_cuda, arch), INT},
        {"mps", offsetof(struct fake_cuda, multiprocessors), INT},
        {"memory", offsetof(struct fake_cuda, memory_bytes), SIZE},
        {"delay_us", offsetof(struct fake_cuda, delay_us), LONG},
        {"launch_error", offsetof(struct fake_cuda, launch_error), LONG},
        {"hang", offsetof(struct fake_cuda, hang), LONG},
        {"lost_after", offsetof(struct fake_cuda, lost_after), LONG},
        {"stub", offsetof(struct fake_cuda, stub), YES},
        {"mig", offsetof(struct fake_cuda, mig), YES},
        {"unguarded", offsetof(struct fake_cuda, unguarded), YES},
        {"leaks", offsetof(struct fake_cuda, leaks), YES},
    };
    char *value = strchr(order, '=');

    if (value) {
        *value++ = '\0';
    }
    if (strcmp(order, "no_device") == 0) {
        fake.devices = 0;
        return;
    }
    if (strcmp(order, "fail") == 0 && value) {
        parse_fail(value);
        return;
    }
    for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
        char *at = (char *)&fake + orders[i].offset;

        if (strcmp(order, orders[i].name) != 0 || (orders[i].type == YES) != !value) {
            continue;
        }
        switch (orders[i].type) {
        case INT:
            *(int *)(void *)at = atoi(value);
            return;
        case LONG:
            *(long *)(void *)at = atol(value);
            return;
        case SIZE:
            *(uint64_t *)(void *)at = parse_size(value);
            return;
        case YES:
            *(bool *)at = true;
            return;
        }
    }
    die(order);
}

static void choose_visible(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int physical = fake.devices;

    fake.devices = 0;
    for (int i = 0; !visible && i < physical && i < MAX_DEVICES; i++) {
        fake.contexts[fake.devices++].physical = i;
    }
    while (visible && *visible >= '0' && *visible <= '9' && fake.devices < MAX_DEVICES) {
        char *end;
        int number = (int)strtol(visible, &end, 10);

        if (number >= physical) {
            break; /* as in the driver: the first unknown device ends the list */
        }
        fake.contexts[fake.devices++].physical = number;
        visible = *end == ',' ? end + 1 : end;
    }
    for (int i = 0; i < fake.devices; i++) {
        fake.contexts[i].ordinal = i;
        fake.contexts[i].standard.context = &fake.contexts[i];
    }
}

static void configure(void)
{
    const char *text = getenv("FAKE_CUDA");
    char *copy = strdup(text ? text : "");
    char *rest = copy;
    char *order;

    fake.devices = 1;
    fake.driver = CUDA_VERSION;
    fake.arch = 90;
    fake.multiprocessors = 4;
    fake.memory_bytes = UINT64_C(1) << 30;
    while ((order = strtok_r(rest, ",", &rest))) {
        parse_order(order);
    }
    free(copy);
    choose_visible();
    fake.configured = true;
}

void fake_cuda_order(const char *order)
{
    int device = -1;

    pthread_mutex_lock(&fake.lock);
    if (!fake.configured) {
        configure();
    }
    if (sscanf(order, "lost=%d", &device) == 1 && device >= 0 && device < fake.devices) {
        fake.contexts[device].failure = CUDA_ERROR_UNKNOWN;
    } else if (sscanf(order, "kernel_error=%d", &device) == 1 && device >= 0 && device < fake.devices) {
        fake.contexts[device].kernel_fails = true;
    } else if (sscanf(order, "kernel_hangs=%d", &device) == 1 && device >= 0 && device < fake.devices) {
        fake.contexts[device].kernel_hangs = true;
    } else if (sscanf(order, "fill_hangs=%d", &device) == 1 && device >= 0 && device < fake.devices) {
        fake.contexts[device].fill_hangs = true;
    } else if (strcmp(order, "hold_copies") == 0 && fake.delay_us > 0) {
        fake.holds_copies = true;
    } else if (strcmp(order, "let_copies_go") == 0) {
        fake.holds_copies = false;
    } else if (strncmp(order, "skip=", 5) == 0 &&
               sscanf(order + 5, "%47[^:]:%ld", fake.skip.name, &fake.skip.at) == 2) {
        fake.skip.calls = 0;
    } else if (strncmp(order, "fail=", 5) == 0 &&
               sscanf(order + 5, "%47[^:]:%ld", fake.late_fail.name, &fake.late_fail.at) == 2) {
        fake.late_fail.calls = 0;
    } else {
        die(order);
    }
    pthread_cond_broadcast(&fake.changed);
    pthread_mutex_unlock(&fake.lock);
}

bool fake_cuda_has_come(void)
{
    bool come;

    pthread_mutex_lock(&fake.lock);
    come = (fake.skip.at && fake.skip.calls >= fake.skip.at) ||
           (fake.late_fail.at && fake.late_fail.calls >= fake.late_fail.at);
    pthread_mutex_unlock(&fake.lock);
    return come;
}

bool fake_skips(const char *name)
{
    return strcmp(fake.skip.name, name) == 0 && ++fake.skip.calls == fake.skip.at;
}

/*
 * Whether this call is the one that the last order `fail` names. Those that ask whether work has ended, and what comes
 * with them, are not counted as any call: their number depends on time.
 */
static bool fails_late(const char *name)
{
    static const char *const asks[] = {"cuEventQuery", "cuStreamQuery", "ncclCommGetAsyncError", "cuCtxSetCurrent",
                                       "cuThreadExchangeStreamCaptureMode"};
    bool is_counted = strcmp(fake.late_fail.name, "any") == 0;

    for (size_t i = 0; i < sizeof(asks) / sizeof(asks[0]) && is_counted; i++) {
        is_counted = strcmp(asks[i], name) != 0;
    }
    return (is_counted || strcmp(fake.late_fail.name, name) == 0) && ++fake.late_fail.calls == fake.late_fail.at;
}

bool fake_cuda_fails(const char *name)
{
    bool fails;

    pthread_mutex_lock(&fake.lock);
    if (fake.is_gone) { /* NCCL itself crashes or hangs then */
        fprintf(stderr, "fake_cuda: %s after the driver is gone\n", name);
        abort();
    }
    fails = fails_late(name);
    pthread_mutex_unlock(&fake.lock);
    return fails;
}

/* Counts a call. `name` is __func__, and so the same address in each call. */
static void count(const char *name)
{
    size_t i = 0;

    while (counts[i].name && counts[i].name != name) {
        if (++i == MAX_FUNCTIONS) {
            abort();
        }
    }
    counts[i].name = name;
    counts[i].calls++;
}

long fake_cuda_calls(const char *name)
{
    long calls = 0;

    for (size_t i = 0; i < MAX_FUNCTIONS && counts[i].name; i++) {
        calls += !name || strcmp(counts[i].name, name) == 0 ? counts[i].calls : 0;
    }
    return calls;
}

CUresult fake_enter(const char *name)
{
    pthread_mutex_lock(&fake.lock);
    if (!fake.configured) {
        configure();
    }
    if (fake.is_gone) {
        return CUDA_ERROR_DEINITIALIZED;
    }
    fake.calls++;
    count(name);
    for (int i = 0; i < fake.fail_count; i++) {
        if (strcmp(fake.fails[i].name, name) == 0 && ++fake.fails[i].calls == fake.fails[i].at) {
            return fake.fails[i].code;
        }
    }
    fake.fails_late = fails_late(name);
    if (fake.fails_late) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (fake.lost_after && fake.calls > fake.lost_after) {
        return CUDA_ERROR_UNKNOWN;
    }
    return fake.stub ? CUDA_ERROR_STUB_LIBRARY : CUDA_SUCCESS;
}

struct CUctx_st *fake_context(void)
{
    return current;
}

bool fake_cuda_has_context(void)
{
    return current;
}

int fake_cuda_device(void)
{
    return current ? current->ordinal : -1;
}

/* ---- driver and devices ---- */

#define PLAIN_ENTER(name)                                                                                              \
    CUresult plain_result_ = fake_enter(name);                                                                         \
    if (plain_result_ != CUDA_SUCCESS) {                                                                               \
        pthread_mutex_unlock(&fake.lock);                                                                              \
        return plain_result_;                                                                                          \
    }

/* Registered when the driver starts, as the driver does: what the process has registered earlier runs after it. */
static void go(void)
{
    pthread_mutex_lock(&fake.lock);
    fake.is_gone = true;
    pthread_mutex_unlock(&fake.lock);
}

CUresult CUDAAPI cuInit(unsigned flags)
{
    PLAIN_ENTER(__func__)
    if (!fake.has_started) {
        fake.has_started = true;
        atexit(go);
    }
    LEAVE(flags != 0 ? CUDA_ERROR_INVALID_VALUE : fake.devices == 0 ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS);
}

CUresult CUDAAPI cuDriverGetVersion(int *version)
{
    PLAIN_ENTER(__func__)
    *version = fake.driver;
    LEAVE(CUDA_SUCCESS);
}

/* code, the driver's message */
#define ERROR_LIST(X)                                                                                                  \
    X(CUDA_SUCCESS, "no error")                                                                                        \
    X(CUDA_ERROR_INVALID_VALUE, "invalid argument")                                                                    \
    X(CUDA_ERROR_OUT_OF_MEMORY, "out of memory")                                                                       \
    X(CUDA_ERROR_DEINITIALIZED, "driver shutting down")                                                                \
    X(CUDA_ERROR_STUB_LIBRARY, "CUDA driver is a stub library")                                                        \
    X(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected")                                                      \
    X(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal")                                                             \
    X(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid")                                                      \
    X(CUDA_ERROR_INVALID_CONTEXT, "invalid device context")                                                            \
    X(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device")                        \
    X(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle")                                                            \
    X(CUDA_ERROR_NOT_FOUND, "named symbol not found")                                                                  \
    X(CUDA_ERROR_NOT_READY, "device not ready")                                                                        \
    X(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered")                                          \
    X(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure")                                                          \
    X(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed")                                                         \
    X(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "part or all of the requested memory range is already mapped")        \
    X(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "pointer does not correspond to a registered memory region")              \
    X(CUDA_ERROR_SYSTEM_NOT_READY, "system not yet initialized")                                                       \
    X(CUDA_ERROR_UNKNOWN, "unknown error")

CUresult CUDAAPI cuGetErrorName(CUresult error, const char **text)
{
#define NAME(code, words)                                                                                              \
    if (error == (code)) {                                                                                             \
        *text = #code;                                                                                                 \
        return CUDA_SUCCESS;                                                                                           \
    }
    ERROR_LIST(NAME)
    *text = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGetErrorString(CUresult error, const char **text)
{
#define WORDS(code, words)                                                                                             \
    if (error == (code)) {                                                                                             \
        *text = (words);                                                                                               \
        return CUDA_SUCCESS;                                                                                           \
    }
    ERROR_LIST(WORDS)
    *text = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuDeviceGetCount(int *count)
{
    PLAIN_ENTER(__func__)
    *count = fake.devices;
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceGet(CUdevice *device, int ordinal)
{
    PLAIN_ENTER(__func__)
    *device = ordinal;
    LEAVE(ordinal >= 0 && ordinal < fake.devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE);
}

CUresult CUDAAPI cuDeviceGetName(char *name, int length, CUdevice device)
{
    PLAIN_ENTER(__func__)
    snprintf(name, (size_t)length, "Fake GPU %d%s", fake.contexts[device].physical, fake.mig ? " MIG 1g.10gb" : "");
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    PLAIN_ENTER(__func__)
    memset(uuid, 0, sizeof(*uuid));
    uuid->bytes[0] = (char)0xfa;
    uuid->bytes[15] = (char)fake.contexts[device].physical;
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceGetPCIBusId(char *text, int length, CUdevice device)
{
    PLAIN_ENTER(__func__)
    snprintf(text, (size_t)length, "0000:%02X:00.0", 0x1a + fake.contexts[device].physical);
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    PLAIN_ENTER(__func__)
    (void)device;
    switch ((unsigned)attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *value = fake.arch / 10;
        break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *value = fake.arch % 10;
        break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *value = fake.multiprocessors;
        break;
    default:
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    }
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
    PLAIN_ENTER(__func__)
    (void)device;
    *bytes = fake.memory_bytes;
    LEAVE(CUDA_SUCCESS);
}

/* ---- contexts ---- */

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    PLAIN_ENTER(__func__)
    *context = &fake.contexts[device];
    fake.contexts[device].retained++;
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device)
{
    struct CUctx_st *context = &fake.contexts[device];
    int streams = 0, events = 0, modules = 0;

    CUresult result = fake_enter(__func__);

    if ((result != CUDA_SUCCESS && !fake.fails_late) || context->retained == 0) {
        LEAVE(result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_CONTEXT);
    }
    if (--context->retained == 0) {
        for (struct CUstream_st *stream = context->streams; stream; stream = stream->next) {
            streams++;
        }
        for (const struct CUevent_st *event = context->events; event; event = event->next) {
            events++;
        }
        for (const struct CUmod_st *module = context->modules; module; module = module->next) {
            modules++;
        }
        if (fake.leaks && (streams || context->allocations || events || modules)) {
            fprintf(stderr, "fake_cuda: left over: %d streams, %d pieces of memory, %d events, %d modules\n", streams,
                    context->allocations, events, modules);
            abort();
        }
        fake_end_context(context);
        context->failure = CUDA_SUCCESS;
        context->kernel_fails = false;
        context->kernel_hangs = false;
        context->fill_hangs = false;
        context->hangs = false;
    }
    LEAVE(result);
}

CUresult CUDAAPI cuCtxSetCurrent(CUcontext context)
{
    PLAIN_ENTER(__func__)
    if (context && context->retained == 0) {
        LEAVE(CUDA_ERROR_CONTEXT_IS_DESTROYED);
    }
    current = context;
    LEAVE(CUDA_SUCCESS);
}
