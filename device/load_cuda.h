/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The driver's functions, loaded from libcuda.so.1, and the contents of a device handle. Private to device/ *_cuda.c.
 *
 * A name has the version of the arguments that we pass, as the driver exports it ("cuMemAlloc_v2"). So the same binary
 * works with every driver since CUDA 11.4, compiled with any toolkit's cuda.h.
 */
#ifndef PL_DEVICE_LOAD_CUDA_H
#define PL_DEVICE_LOAD_CUDA_H

#include "device/device.h"

#include <cuda.h>
#include <pthread.h>

#define PL_CUDA_LIST(X)                                                                                                \
    X(cuInit)                                                                                                          \
    X(cuDriverGetVersion)                                                                                              \
    X(cuGetErrorName)                                                                                                  \
    X(cuGetErrorString)                                                                                                \
    X(cuDeviceGetCount)                                                                                                \
    X(cuDeviceGet)                                                                                                     \
    X(cuDeviceGetName)                                                                                                 \
    X(cuDeviceGetUuid_v2)                                                                                              \
    X(cuDeviceGetPCIBusId)                                                                                             \
    X(cuDeviceGetAttribute)                                                                                            \
    X(cuDeviceTotalMem_v2)                                                                                             \
    X(cuDevicePrimaryCtxRetain)                                                                                        \
    X(cuDevicePrimaryCtxRelease_v2)                                                                                    \
    X(cuCtxSetCurrent)                                                                                                 \
    X(cuMemGetInfo_v2)                                                                                                 \
    X(cuMemAlloc_v2)                                                                                                   \
    X(cuMemFree_v2)                                                                                                    \
    X(cuMemHostAlloc)                                                                                                  \
    X(cuMemFreeHost)                                                                                                   \
    X(cuMemHostRegister_v2)                                                                                            \
    X(cuMemHostUnregister)                                                                                             \
    X(cuPointerGetAttribute)                                                                                           \
    X(cuMemcpyAsync)                                                                                                   \
    X(cuMemsetD8Async)                                                                                                 \
    X(cuCtxGetStreamPriorityRange)                                                                                     \
    X(cuStreamCreateWithPriority)                                                                                      \
    X(cuStreamIsCapturing)                                                                                             \
    X(cuThreadExchangeStreamCaptureMode)                                                                               \
    X(cuStreamDestroy_v2)                                                                                              \
    X(cuStreamQuery)                                                                                                   \
    X(cuStreamWaitEvent)                                                                                               \
    X(cuEventCreate)                                                                                                   \
    X(cuEventDestroy_v2)                                                                                               \
    X(cuEventRecord)                                                                                                   \
    X(cuEventQuery)                                                                                                    \
    X(cuEventElapsedTime)                                                                                              \
    X(cuIpcGetMemHandle)                                                                                               \
    X(cuIpcOpenMemHandle_v2)                                                                                           \
    X(cuIpcCloseMemHandle)                                                                                             \
    X(cuModuleLoadData)                                                                                                \
    X(cuModuleUnload)                                                                                                  \
    X(cuModuleGetFunction)                                                                                             \
    X(cuLaunchKernel)

/* Each device handle has the table. That costs 40 lookups per opened device, and avoids global state. */
struct pl_cuda {
    void *library;
#define PL_CUDA_MEMBER(name) __typeof__(name) *name;
    PL_CUDA_LIST(PL_CUDA_MEMBER)
#undef PL_CUDA_MEMBER
};

/* kernels of a toolkit run with every driver of its major version and of later ones */
enum { PL_CUDA_NEEDED_VERSION = CUDA_VERSION / 1000 * 1000 };

/** Work that had not ended by its deadline: the work of a stream, or the work before an event. */
struct pl_device_late {
    bool is; /* whether there is such work */
    CUstream stream;
    CUevent event; /* NULL for all work of the stream */
    bool unknown;  /* the stream or event was released, so the end of the work cannot be queried */
};

struct pl_device {
    struct pl_cuda cuda;
    struct pl_device_info info;
    CUdevice number;
    CUcontext context;
    int urgent;                 /* the highest priority of a stream */
    CUstream service;           /* stream for work that is waited for at once */
    int64_t service_timeout_ns; /* timeout of that work: longer than a working device needs to fill its own memory */
    pthread_mutex_t loading;    /* held while a thread loads the kernels */
    pthread_mutex_t lock;
    struct {
        CUresult failure; /* the error that ended the context's work */
        char text[PL_ERROR_CAUSE_BYTES];
        struct pl_kernels *kernels; /* NULL before their first use, which loads them */
        struct pl_device_late late;
        int subset_worlds; /* see pl_device_subset_worlds() */
    } synced;
};

/** Loads the driver and initialises it. Errors as for pl_device_count(). */
enum pl_status pl_device_cuda_load(struct pl_cuda *ret_cuda, struct pl_error *reterr) PL_MUST_CHECK;
void pl_device_cuda_unload(struct pl_cuda *cuda);

/**
 * Sets the error "<what>: CUDA_ERROR_X: text (device ...)". If the error ends the context's work, keeps it in the
 * device. `device` may be NULL.
 */
enum pl_status pl_device_cuda_raise(const struct pl_cuda *cuda, struct pl_device *device, CUresult result,
                                    struct pl_error *reterr, const char *format, ...) PL_PRINTF(5, 6);

/**
 * Returns whether work that missed its deadline still has not ended. Then memory must not be released: the driver would
 * wait for that work without end.
 */
bool pl_device_cuda_is_late(struct pl_device *device);

/** Calls a driver function of `device`. If it fails, the calling function returns the error. */
#define PL_CUDA_TRY(device, call, reterr, ...)                                                                         \
    do {                                                                                                               \
        CUresult pl_cuda_result_ = (device)->cuda.call;                                                                \
        if (pl_cuda_result_ != CUDA_SUCCESS) {                                                                         \
            return pl_device_cuda_raise(&(device)->cuda, (device), pl_cuda_result_, (reterr), __VA_ARGS__);            \
        }                                                                                                              \
    } while (0)

/**
 * Calls a driver function in a cleanup path. A failure is only logged, at debug level, because nobody can act on it.
 */
#define PL_CUDA_LET(device, call, what)                                                                                \
    do {                                                                                                               \
        CUresult pl_cuda_result_ = (device)->cuda.call;                                                                \
        if (pl_cuda_result_ != CUDA_SUCCESS) {                                                                         \
            struct pl_error pl_cuda_error_;                                                                            \
            pl_device_cuda_raise(&(device)->cuda, (device), pl_cuda_result_, &pl_cuda_error_, "%s", (what));           \
            pl_log(PL_LOG_DEBUG, "%s", pl_cuda_error_.cause);                                                          \
        }                                                                                                              \
    } while (0)

/** Unloads the kernels if they were loaded. The context must be current. */
void pl_device_kernels_free(struct pl_device *device);

#endif
