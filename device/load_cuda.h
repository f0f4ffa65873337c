/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What we use of the driver's interface, and the contents of a device handle. Private to device/ *_cuda.c.
 *
 * The types and constants are declared here, so that only the kernels need the toolkit. If the toolkit is installed,
 * tests/unit/device/test_device.c compares them with its cuda.h. The functions are loaded from libcuda.so.1. A name has
 * the version of the arguments that we pass, as the driver exports it ("cuMemAlloc_v2"). So the same binary works with
 * every driver since CUDA 11.4.
 */
#ifndef PL_DEVICE_LOAD_CUDA_H
#define PL_DEVICE_LOAD_CUDA_H

#include "device/device.h"

#include <pthread.h>

#define PL_CUDA_CONSTANTS(X)                                                                                           \
    X(CUDA_SUCCESS, 0)                                                                                                 \
    X(CUDA_ERROR_OUT_OF_MEMORY, 2)                                                                                     \
    X(CUDA_ERROR_STUB_LIBRARY, 34)                                                                                     \
    X(CUDA_ERROR_DEVICE_UNAVAILABLE, 46)                                                                               \
    X(CUDA_ERROR_NO_DEVICE, 100)                                                                                       \
    X(CUDA_ERROR_ECC_UNCORRECTABLE, 214)                                                                               \
    X(CUDA_ERROR_NVLINK_UNCORRECTABLE, 220)                                                                            \
    X(CUDA_ERROR_CONTAINED, 226)                                                                                       \
    X(CUDA_ERROR_NOT_READY, 600)                                                                                       \
    X(CUDA_ERROR_ILLEGAL_ADDRESS, 700)                                                                                 \
    X(CUDA_ERROR_LAUNCH_TIMEOUT, 702)                                                                                  \
    X(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709)                                                                            \
    X(CUDA_ERROR_ASSERT, 710)                                                                                          \
    X(CUDA_ERROR_HARDWARE_STACK_ERROR, 714)                                                                            \
    X(CUDA_ERROR_ILLEGAL_INSTRUCTION, 715)                                                                             \
    X(CUDA_ERROR_MISALIGNED_ADDRESS, 716)                                                                              \
    X(CUDA_ERROR_INVALID_ADDRESS_SPACE, 717)                                                                           \
    X(CUDA_ERROR_INVALID_PC, 718)                                                                                      \
    X(CUDA_ERROR_LAUNCH_FAILED, 719)                                                                                   \
    X(CUDA_ERROR_TENSOR_MEMORY_LEAK, 721)                                                                              \
    X(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 803)                                                                          \
    X(CUDA_ERROR_MPS_CLIENT_TERMINATED, 810)                                                                           \
    X(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, 906)                                                                         \
    X(CUDA_ERROR_EXTERNAL_DEVICE, 911)                                                                                 \
    X(CUDA_ERROR_UNKNOWN, 999)                                                                                         \
    X(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)                                                                    \
    X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)                                                                \
    X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)                                                                \
    X(CU_EVENT_DEFAULT, 0)                                                                                             \
    X(CU_EVENT_DISABLE_TIMING, 2)                                                                                      \
    X(CU_STREAM_NON_BLOCKING, 1)                                                                                       \
    X(CU_STREAM_CAPTURE_STATUS_NONE, 0)                                                                                \
    X(CU_STREAM_CAPTURE_MODE_RELAXED, 2)                                                                               \
    X(CU_MEMHOSTALLOC_PORTABLE, 1)                                                                                     \
    X(CU_MEMHOSTALLOC_DEVICEMAP, 2)                                                                                    \
    X(CU_MEMHOSTREGISTER_PORTABLE, 1)                                                                                  \
    X(CU_MEMHOSTREGISTER_DEVICEMAP, 2)                                                                                 \
    X(CU_MEMORYTYPE_DEVICE, 2)                                                                                         \
    X(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 2)                                                                             \
    X(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, 1)

#define PL_CUDA_LIST(X)                                                                                                \
    X(cuInit, unsigned flags)                                                                                          \
    X(cuDriverGetVersion, int *version)                                                                                \
    X(cuGetErrorName, CUresult result, const char **name)                                                              \
    X(cuGetErrorString, CUresult result, const char **text)                                                            \
    X(cuDeviceGetCount, int *count)                                                                                    \
    X(cuDeviceGet, CUdevice *device, int ordinal)                                                                      \
    X(cuDeviceGetName, char *name, int bytes, CUdevice device)                                                         \
    X(cuDeviceGetUuid_v2, CUuuid *uuid, CUdevice device)                                                               \
    X(cuDeviceGetPCIBusId, char *id, int bytes, CUdevice device)                                                       \
    X(cuDeviceGetAttribute, int *value, CUdevice_attribute attribute, CUdevice device)                                 \
    X(cuDeviceTotalMem_v2, size_t *bytes, CUdevice device)                                                             \
    X(cuDevicePrimaryCtxRetain, CUcontext *context, CUdevice device)                                                   \
    X(cuDevicePrimaryCtxRelease_v2, CUdevice device)                                                                   \
    X(cuCtxSetCurrent, CUcontext context)                                                                              \
    X(cuMemGetInfo_v2, size_t *free_bytes, size_t *total_bytes)                                                        \
    X(cuMemAlloc_v2, CUdeviceptr *memory, size_t bytes)                                                                \
    X(cuMemFree_v2, CUdeviceptr memory)                                                                                \
    X(cuMemHostAlloc, void **memory, size_t bytes, unsigned flags)                                                     \
    X(cuMemFreeHost, void *memory)                                                                                     \
    X(cuMemHostRegister_v2, void *memory, size_t bytes, unsigned flags)                                                \
    X(cuMemHostUnregister, void *memory)                                                                               \
    X(cuPointerGetAttribute, void *value, CUpointer_attribute attribute, CUdeviceptr memory)                           \
    X(cuMemcpyAsync, CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)                                  \
    X(cuMemsetD8Async, CUdeviceptr memory, unsigned char byte, size_t bytes, CUstream stream)                          \
    X(cuCtxGetStreamPriorityRange, int *least, int *greatest)                                                          \
    X(cuStreamCreateWithPriority, CUstream *stream, unsigned flags, int priority)                                      \
    X(cuStreamIsCapturing, CUstream stream, CUstreamCaptureStatus *status)                                             \
    X(cuThreadExchangeStreamCaptureMode, CUstreamCaptureMode *mode)                                                    \
    X(cuStreamDestroy_v2, CUstream stream)                                                                             \
    X(cuStreamQuery, CUstream stream)                                                                                  \
    X(cuStreamWaitEvent, CUstream stream, CUevent event, unsigned flags)                                               \
    X(cuEventCreate, CUevent *event, unsigned flags)                                                                   \
    X(cuEventDestroy_v2, CUevent event)                                                                                \
    X(cuEventRecord, CUevent event, CUstream stream)                                                                   \
    X(cuEventQuery, CUevent event)                                                                                     \
    X(cuEventElapsedTime, float *ms, CUevent from, CUevent to)                                                         \
    X(cuIpcGetMemHandle, CUipcMemHandle *handle, CUdeviceptr memory)                                                   \
    X(cuIpcOpenMemHandle_v2, CUdeviceptr *memory, CUipcMemHandle handle, unsigned flags)                               \
    X(cuIpcCloseMemHandle, CUdeviceptr memory)                                                                         \
    X(cuModuleLoadData, CUmodule *module, const void *image)                                                           \
    X(cuModuleUnload, CUmodule module)                                                                                 \
    X(cuModuleGetFunction, CUfunction *function, CUmodule module, const char *name)                                    \
    X(cuLaunchKernel, CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,        \
      unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **params, void **extra)

#ifndef CUDA_VERSION /* otherwise the toolkit's cuda.h declares all of these */
enum {
#define PL_CUDA_CONSTANT(name, value) name = (value),
    PL_CUDA_CONSTANTS(PL_CUDA_CONSTANT)
#undef PL_CUDA_CONSTANT
};

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned CUresult, CUdevice_attribute, CUpointer_attribute, CUstreamCaptureStatus, CUstreamCaptureMode;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;

typedef struct {
    char bytes[16];
} CUuuid;

typedef struct {
    char reserved[64];
} CUipcMemHandle;
#endif

/* Each device handle has the table. That costs 40 lookups per opened device, and avoids global state. */
struct pl_cuda {
    void *library;
#define PL_CUDA_MEMBER(name, ...) CUresult (*name)(__VA_ARGS__);
    PL_CUDA_LIST(PL_CUDA_MEMBER)
#undef PL_CUDA_MEMBER
};

/** Work that had not ended by its deadline: the work of a stream, or the work before an event. */
struct pl_device_late {
    bool is; /* whether there is such work */
    CUstream stream;
    CUevent event; /* event that follows the work; NULL for all work of the stream */
};

enum pl_device_object {
    PL_DEVICE_MEMORY,
    PL_DEVICE_PINNED, /* pinned memory that we allocated */
    PL_DEVICE_PIN,    /* pinning of a caller's memory */
    PL_DEVICE_IMPORT,
    PL_DEVICE_STREAM,
    PL_DEVICE_EVENT,
};

struct pl_device {
    struct pl_cuda cuda;
    struct pl_device_info info;
    CUdevice number;
    CUcontext context;
    int urgent;                 /* highest priority that a stream can have */
    CUstream service;           /* stream for work that the caller waits for at once */
    int64_t service_timeout_ns; /* timeout of that work: longer than a working device needs to fill its own memory */
    pthread_mutex_t loading;    /* held while a thread loads the kernels */
    pthread_mutex_t order;      /* held while an event gets its number and is recorded */
    uint64_t numbers;           /* number of marked events so far; guarded by `order` */
    pthread_mutex_t lock;
    struct {
        CUresult failure; /* the error that ended the context's work */
        char text[PL_ERROR_CAUSE_BYTES];
        struct pl_kernels *kernels; /* NULL before their first use, which loads them */
        struct pl_device_late late;
        struct pl_device_deferred *deferred; /* objects released while work was late: see pl_device_release_object() */
        struct pl_device_event *spare_events;
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
 * Returns whether work that missed its deadline still has not ended. It may end at any time.
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

/** Releases the events that have no user. */
void pl_device_events_free(struct pl_device *device);

/**
 * Releases an object of the driver, unless it is NULL. While work is late, the release waits for a later call or the
 * close. For memory the driver would otherwise wait for that work without end; after the release of a stream or an
 * event nobody could query the end of the work.
 */
void pl_device_release_object(struct pl_device *device, void *object, enum pl_device_object kind);

/** Releases deferred objects or, if work `is_late`, leaves them until the process ends. */
void pl_device_release_deferred(struct pl_device *device, bool is_late);

/** Unloads the kernels if they were loaded and no work `is_late`. The context must be current. */
void pl_device_kernels_free(struct pl_device *device, bool is_late);

#endif
