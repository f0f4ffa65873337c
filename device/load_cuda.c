/* SPDX-License-Identifier: Apache-2.0 */
/* Loads the CUDA driver's functions, its error texts, the errors that end a context, and releases that wait for late
 * work. */
#include "device/load_cuda.h"

#include "base/environment.h"
#include "base/log.h"
#include "base/memory.h"
#include "device/device_private.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char driver_library[] = "libcuda.so.1";
/* PL_KERNELS_TOOLKIT is the toolkit that compiled the kernels, 13000 for CUDA 13.0; 0: the build has none. Kernels run
 * with every driver of its major version and of later ones. */
enum { NEEDED_VERSION = PL_KERNELS_TOOLKIT / 1000 * 1000 };

static const char not_built[] = "this program was built without CUDA";

/* Without kernels a GPU could only copy data, so a program without kernels works on host memory. */
bool pl_device_is_built(void)
{
    return PL_KERNELS_TOOLKIT > 0;
}

static enum pl_status find_functions(struct pl_cuda *cuda, struct pl_error *reterr)
{
    static const struct {
        const char *name;
        size_t offset;
    } functions[] = {
#define PL_CUDA_ENTRY(name, ...) {#name, offsetof(struct pl_cuda, name)},
        PL_CUDA_LIST(PL_CUDA_ENTRY)
#undef PL_CUDA_ENTRY
    };

    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        void *function = dlsym(cuda->library, functions[i].name);

        if (!function) {
            return pl_error_set(reterr, PL_UNSUPPORTED,
                                "no GPU is used: the driver's %s has no %s; a driver for CUDA %d or later is needed",
                                driver_library, functions[i].name, NEEDED_VERSION / 1000);
        }
        memcpy((char *)cuda + functions[i].offset, &function, sizeof(function));
    }
    return PL_OK;
}

static enum pl_status raise_no_device(int version, struct pl_error *reterr)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    const char *visible;

    PL_TRY(pl_environment_new(&environment, reterr));
    visible = pl_environment_get(environment, "CUDA_VISIBLE_DEVICES");
    return pl_error_raise(reterr, PL_UNSUPPORTED, PL_DOMAIN_CUDA, CUDA_ERROR_NO_DEVICE,
                          "no GPU is used: the driver is there (CUDA %d.%d) and finds no device for this process%s%s%s",
                          version / 1000, version % 1000 / 10, visible ? "; CUDA_VISIBLE_DEVICES is '" : "",
                          visible ? visible : "", visible ? "'" : "");
}

/* Check the version first: "too old" is clearer than the error of the driver's initialisation. */
static enum pl_status start(const struct pl_cuda *cuda, struct pl_error *reterr)
{
    int version = 0;
    int count = 0;
    CUresult result = cuda->cuDriverGetVersion(&version);

    if (result == CUDA_SUCCESS && version < NEEDED_VERSION) {
        return pl_error_raise(reterr, PL_UNSUPPORTED, PL_DOMAIN_CUDA, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
                              "no GPU is used: the driver supports CUDA %d.%d, and this program's kernels, built with "
                              "CUDA %d.%d, need %d.0 or later",
                              version / 1000, version % 1000 / 10, PL_KERNELS_TOOLKIT / 1000,
                              PL_KERNELS_TOOLKIT % 1000 / 10, NEEDED_VERSION / 1000);
    }
    if (result == CUDA_SUCCESS) {
        result = cuda->cuInit(0);
    }
    if (result == CUDA_SUCCESS) {
        result = cuda->cuDeviceGetCount(&count);
    }
    if (result == CUDA_ERROR_NO_DEVICE || (result == CUDA_SUCCESS && count == 0)) {
        return raise_no_device(version, reterr);
    }
    if (result == CUDA_ERROR_STUB_LIBRARY) {
        return pl_error_raise(reterr, PL_UNSUPPORTED, PL_DOMAIN_CUDA, result,
                              "no GPU is used: %s is the toolkit's stub for linking, not a driver", driver_library);
    }
    return result == CUDA_SUCCESS ? PL_OK
                                  : pl_device_cuda_raise(cuda, NULL, result, reterr, "the CUDA driver does not start");
}

enum pl_status pl_device_cuda_load(struct pl_cuda *ret_cuda, struct pl_error *reterr)
{
    struct pl_cuda cuda = {0};
    enum pl_status status;

    if (!pl_device_is_built()) {
        return pl_error_set(reterr, PL_UNSUPPORTED, "no GPU is used: %s", not_built);
    }
    /* Never unmapped: the driver has its own threads and exit handlers. */
    cuda.library = dlopen(driver_library, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!cuda.library) {
        const char *why = dlerror();

        return pl_error_set(reterr, PL_UNSUPPORTED, "no GPU is used: no NVIDIA driver (%s)",
                            why ? why : driver_library);
    }
    status = find_functions(&cuda, reterr);
    if (status == PL_OK) {
        status = start(&cuda, reterr);
    }
    if (status != PL_OK) {
        pl_device_cuda_unload(&cuda);
        return status;
    }
    *ret_cuda = cuda;
    return PL_OK;
}

bool pl_device_is_loadable(char reason[PL_DEVICE_REASON_BYTES])
{
    void *library;

    if (!pl_device_is_built()) {
        snprintf(reason, PL_DEVICE_REASON_BYTES, "%s", not_built);
        return false;
    }
    library = dlopen(driver_library, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) {
        const char *why = dlerror();

        snprintf(reason, PL_DEVICE_REASON_BYTES, "no NVIDIA driver (%s)", why ? why : driver_library);
        return false;
    }
    dlclose(library);
    return true;
}

void pl_device_cuda_unload(struct pl_cuda *cuda)
{
    if (cuda->library) {
        dlclose(cuda->library);
        cuda->library = NULL;
    }
}

/* Whether the error is "sticky": the context does no more work, and every later call returns the error again. */
static bool ends_context(CUresult result)
{
    switch (result) {
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_UNKNOWN:
        return true;
    default:
        return false;
    }
}

enum pl_status pl_device_cuda_raise(const struct pl_cuda *cuda, struct pl_device *device, CUresult result,
                                    struct pl_error *reterr, const char *format, ...)
{
    char what[PL_ERROR_CAUSE_BYTES / 2];
    char where[160] = "";
    char text[PL_ERROR_CAUSE_BYTES];
    const char *name = NULL;
    const char *words = NULL;
    va_list args;

    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    if (cuda->cuGetErrorName(result, &name) != CUDA_SUCCESS || !name) {
        name = "unknown CUDA error";
    }
    if (cuda->cuGetErrorString(result, &words) != CUDA_SUCCESS || !words) {
        words = "the driver has no words for it";
    }
    if (device) {
        snprintf(where, sizeof(where), " (device %d, %s, %s)", device->info.ordinal, device->info.name,
                 device->info.pci);
    }
    snprintf(text, sizeof(text), "%s: %s (%d): %s%s", what, name, (int)result, words, where);
    if (device && ends_context(result)) {
        pthread_mutex_lock(&device->lock);
        if (device->synced.failure == CUDA_SUCCESS) {
            device->synced.failure = result;
            memcpy(device->synced.text, text, sizeof(text));
        }
        pthread_mutex_unlock(&device->lock);
    }
    return pl_error_raise(reterr, PL_LIBRARY, PL_DOMAIN_CUDA, result, "%s", text);
}

enum pl_status pl_device_failure(const struct pl_device *device, struct pl_error *reterr)
{
    struct pl_device *locked = (struct pl_device *)(uintptr_t)device; /* only the lock changes */
    enum pl_status status = PL_OK;

    pthread_mutex_lock(&locked->lock);
    if (device->synced.failure != CUDA_SUCCESS) {
        status = pl_error_raise(reterr, PL_LIBRARY, PL_DOMAIN_CUDA, device->synced.failure, "%s", device->synced.text);
    }
    pthread_mutex_unlock(&locked->lock);
    return status;
}

int pl_device_subset_worlds(struct pl_device *device, int change)
{
    int worlds;

    pthread_mutex_lock(&device->lock);
    worlds = device->synced.subset_worlds += change;
    pthread_mutex_unlock(&device->lock);
    return worlds;
}

bool pl_device_cuda_is_late(struct pl_device *device)
{
    struct pl_device_late *late = &device->synced.late;
    bool is;

    pthread_mutex_lock(&device->lock);
    if (late->is && device->cuda.cuCtxSetCurrent(device->context) == CUDA_SUCCESS) {
        CUresult result =
            late->event ? device->cuda.cuEventQuery(late->event) : device->cuda.cuStreamQuery(late->stream);

        late->is = result == CUDA_ERROR_NOT_READY;
    }
    is = late->is;
    pthread_mutex_unlock(&device->lock);
    return is;
}

struct pl_device_deferred {
    struct pl_device_deferred *next;
    void *object;
    enum pl_device_object kind;
};

static void release(struct pl_device *device, void *object, enum pl_device_object kind)
{
    const CUdeviceptr address = (CUdeviceptr)(uintptr_t)object;

    PL_CUDA_LET(device, cuCtxSetCurrent(device->context), "releasing an object of the device");
    switch (kind) {
    case PL_DEVICE_MEMORY:
        PL_CUDA_LET(device, cuMemFree_v2(address), "releasing device memory");
        return;
    case PL_DEVICE_PINNED:
        PL_CUDA_LET(device, cuMemFreeHost(object), "releasing pinned memory");
        return;
    case PL_DEVICE_PIN:
        PL_CUDA_LET(device, cuMemHostUnregister(object), "unpinning memory");
        return;
    case PL_DEVICE_IMPORT:
        PL_CUDA_LET(device, cuIpcCloseMemHandle(address), "closing another process's device memory");
        return;
    case PL_DEVICE_STREAM:
        PL_CUDA_LET(device, cuStreamDestroy_v2(object), "releasing a stream");
        return;
    case PL_DEVICE_EVENT:
        PL_CUDA_LET(device, cuEventDestroy_v2(object), "releasing an event");
        return;
    }
}

void pl_device_release_deferred(struct pl_device *device, bool is_late)
{
    struct pl_device_deferred *deferred, *next;

    pthread_mutex_lock(&device->lock);
    deferred = PL_TAKE(device->synced.deferred);
    pthread_mutex_unlock(&device->lock);
    for (; deferred; deferred = next) {
        next = deferred->next;
        if (!is_late) {
            release(device, deferred->object, deferred->kind);
        }
        free(deferred);
    }
}

void pl_device_release_object(struct pl_device *device, void *object, enum pl_device_object kind)
{
    struct pl_device_deferred *deferred;

    if (!object) {
        return;
    }
    if (!pl_device_cuda_is_late(device)) {
        pl_device_release_deferred(device, false);
        release(device, object, kind);
        return;
    }
    deferred = pl_memory_new(1, sizeof(*deferred), NULL);
    if (deferred) { /* if there is no memory, the object stays until the process ends */
        *deferred = (struct pl_device_deferred){.object = object, .kind = kind};
        pthread_mutex_lock(&device->lock);
        deferred->next = device->synced.deferred;
        device->synced.deferred = deferred;
        pthread_mutex_unlock(&device->lock);
    }
}

enum pl_status pl_device_enter(struct pl_device *device, struct pl_error *reterr)
{
    CUresult result = device->cuda.cuCtxSetCurrent(device->context);

    PL_TRY(pl_device_failure(device, reterr));
    return result == CUDA_SUCCESS
               ? PL_OK
               : pl_device_cuda_raise(&device->cuda, device, result, reterr, "cannot use the device in this thread");
}
