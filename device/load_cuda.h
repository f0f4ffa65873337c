/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The driver's functions, loaded from libcuda.so.1, and what a device handle holds. Private to device/ *_cuda.c.
 *
 * Names carry the version whose arguments we pass, as the driver exports them ("cuMemAlloc_v2"), so that the same
 * binary works with every driver since CUDA 11.4, whatever toolkit's cuda.h it was compiled with.
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
    X(cuStreamCreate)                                                                                                  \
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

/* The table lives in each device handle: 40 lookups an opened device, and no global state. */
struct pl_cuda {
    void *library;
#define PL_CUDA_MEMBER(name) __typeof__(name) *name;
    PL_CUDA_LIST(PL_CUDA_MEMBER)
#undef PL_CUDA_MEMBER
};

/* kernels of a toolkit run with every driver of its major version and later */
enum { PL_CUDA_NEEDED_VERSION = CUDA_VERSION / 1000 * 1000 };

/** Work that had not ended by its deadline: that of a stream, or before an event. */
struct pl_late {
    bool is; /* there is such work */
    CUstream stream;
    CUevent event; /* NULL: all of the stream */
    bool unknown;  /* the stream or event is gone, so that the work's end cannot be queried */
};

struct pl_device {
    struct pl_cuda cuda;
    struct pl_device_info info;
    CUdevice number;
    CUcontext context;
    CUstream service;           /* for work that is waited for at once */
    int64_t service_timeout_ns; /* for that work: longer than a working device needs to fill its own memory */
    pthread_mutex_t lock;
    struct {
        CUresult failure; /* the error that ended the context's work */
        char text[PL_ERROR_CAUSE_BYTES];
        struct pl_kernels *kernels; /* loaded at their first use; NULL before */
        struct pl_late late;
    } synced;
};

/** Load the driver and ask it to start. Errors as pl_device_count()'s. */
enum pl_status pl_device_cuda_load(struct pl_cuda *ret_cuda, struct pl_error *reterr) PL_MUST_CHECK;
void pl_device_cuda_unload(struct pl_cuda *cuda);

/**
 * Raise `result` as "<what>: CUDA_ERROR_X: words (device ...)", and keep it where it ends the context's work. `device`
 * may be NULL.
 */
enum pl_status pl_device_cuda_raise(const struct pl_cuda *cuda, struct pl_device *device, CUresult result,
                                    struct pl_error *reterr, const char *format, ...) PL_PRINTF(5, 6);

/**
 * The driver waits for the device's work, without end, where memory is released: whether work that had not ended in
 * time still has not.
 */
bool pl_device_cuda_is_late(struct pl_device *device);

/** Call a driver function of `device` and return from the caller when it fails. */
#define PL_CUDA_TRY(device, call, reterr, ...)                                                                         \
    do {                                                                                                               \
        CUresult pl_cuda_result_ = (device)->cuda.call;                                                                \
        if (pl_cuda_result_ != CUDA_SUCCESS) {                                                                         \
            return pl_device_cuda_raise(&(device)->cuda, (device), pl_cuda_result_, (reterr), __VA_ARGS__);            \
        }                                                                                                              \
    } while (0)

/** A function for cleanup paths, whose failure nobody can act on: logged at debug level. */
#define PL_CUDA_LET(device, call, what)                                                                                \
    do {                                                                                                               \
        CUresult pl_cuda_result_ = (device)->cuda.call;                                                                \
        if (pl_cuda_result_ != CUDA_SUCCESS) {                                                                         \
            struct pl_error pl_cuda_error_;                                                                            \
            pl_device_cuda_raise(&(device)->cuda, (device), pl_cuda_result_, &pl_cuda_error_, "%s", (what));           \
            pl_log(PL_LOG_DEBUG, "%s", pl_cuda_error_.cause);                                                          \
        }                                                                                                              \
    } while (0)

/** Unload the kernels, if they were loaded. The context is current. */
void pl_device_kernels_free(struct pl_device *device);

#endif
