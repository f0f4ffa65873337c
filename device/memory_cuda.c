/* SPDX-License-Identifier: Apache-2.0 */
/* Device and pinned memory, copies, and memory that processes share. */
#include "base/clock.h"
#include "device/device_private.h"
#include "device/load_cuda.h"

#include <string.h>

_Static_assert(sizeof(struct pl_device_handle) == sizeof(CUipcMemHandle), "a handle is CUDA's");

static CUdeviceptr address(const void *memory)
{
    return (CUdeviceptr)(uintptr_t)memory;
}

static enum pl_status raise_memory(struct pl_device *device, CUresult result, uint64_t bytes, const char *kind,
                                   struct pl_error *reterr)
{
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    enum pl_status status;

    status = pl_device_cuda_raise(&device->cuda, device, result, reterr, "cannot allocate %llu bytes of %s memory",
                                  (unsigned long long)bytes, kind);
    if (result != CUDA_ERROR_OUT_OF_MEMORY) {
        return status;
    }
    if (device->cuda.cuMemGetInfo_v2(&free_bytes, &total_bytes) == CUDA_SUCCESS) {
        pl_error_context(reterr, "%zu of the device's %zu bytes are free", free_bytes, total_bytes);
    }
    if (reterr) {
        reterr->status = PL_MEMORY;
    }
    return PL_MEMORY;
}

/* Zeroes new memory: another process's data must not be readable, and sums that are never written must be numbers. */
static enum pl_status zero(struct pl_device *device, CUdeviceptr memory, uint64_t bytes, struct pl_error *reterr)
{
    PL_CUDA_TRY(device, cuMemsetD8Async(memory, 0, bytes, device->service), reterr, "cannot zero %llu bytes",
                (unsigned long long)bytes);
    return pl_device_stream_finish(device, device->service, pl_deadline_after_ns(device->service_timeout_ns), reterr);
}

enum pl_status pl_device_alloc(struct pl_device *device, uint64_t bytes, void **ret_memory, struct pl_error *reterr)
{
    CUdeviceptr memory = 0;
    CUresult result;
    enum pl_status status;

    PL_TRY(pl_device_enter(device, reterr));
    bytes = bytes ? bytes : 1;
    result = device->cuda.cuMemAlloc_v2(&memory, bytes);
    if (result != CUDA_SUCCESS) {
        return raise_memory(device, result, bytes, "device", reterr);
    }
    status = zero(device, memory, bytes, reterr);
    if (status != PL_OK) {
        pl_device_release(device, (void *)(uintptr_t)memory);
        return status;
    }
    *ret_memory = (void *)(uintptr_t)memory;
    return PL_OK;
}

void pl_device_release(struct pl_device *device, void *memory)
{
    pl_device_release_object(device, memory, PL_DEVICE_MEMORY);
}

enum pl_status pl_device_alloc_pinned(struct pl_device *device, uint64_t bytes, void **ret_memory,
                                      struct pl_error *reterr)
{
    void *memory = NULL;
    CUresult result;

    PL_TRY(pl_device_enter(device, reterr));
    bytes = bytes ? bytes : 1;
    result = device->cuda.cuMemHostAlloc(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    if (result != CUDA_SUCCESS) {
        return raise_memory(device, result, bytes, "pinned host", reterr);
    }
    memset(memory, 0, bytes);
    *ret_memory = memory;
    return PL_OK;
}

void pl_device_release_pinned(struct pl_device *device, void *memory)
{
    pl_device_release_object(device, memory, PL_DEVICE_PINNED);
}

enum pl_status pl_device_pin(struct pl_device *device, void *memory, uint64_t bytes, struct pl_error *reterr)
{
    CUresult result;

    PL_TRY(pl_device_enter(device, reterr));
    result =
        device->cuda.cuMemHostRegister_v2(memory, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    return result == CUDA_SUCCESS ? PL_OK : raise_memory(device, result, bytes, "pinned host", reterr);
}

void pl_device_unpin(struct pl_device *device, void *memory)
{
    pl_device_release_object(device, memory, PL_DEVICE_PIN);
}

bool pl_device_owns(struct pl_device *device, const void *memory)
{
    unsigned type = 0;

    /* The driver refuses an address that it does not know: that is pageable memory. */
    return memory && pl_device_enter(device, NULL) == PL_OK &&
           device->cuda.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address(memory)) ==
               CUDA_SUCCESS &&
           type == CU_MEMORYTYPE_DEVICE;
}

enum pl_status pl_device_copy(struct pl_device *device, void *to, const void *from, uint64_t bytes, void *stream,
                              struct pl_error *reterr)
{
    PL_TRY(pl_device_enter(device, reterr));
    if (bytes > 0) {
        PL_CUDA_TRY(device, cuMemcpyAsync(address(to), address(from), bytes, stream), reterr, "cannot copy %llu bytes",
                    (unsigned long long)bytes);
    }
    return PL_OK;
}

enum pl_status pl_device_copy_now(struct pl_device *device, void *to, const void *from, uint64_t bytes, void *stream,
                                  int64_t deadline_ns, struct pl_error *reterr)
{
    PL_TRY(pl_device_stream_finish(device, stream, deadline_ns, reterr));
    PL_TRY(pl_device_copy(device, to, from, bytes, stream, reterr));
    return pl_device_stream_finish(device, stream, deadline_ns, reterr);
}

enum pl_status pl_device_fill(struct pl_device *device, void *memory, int byte, uint64_t bytes, void *stream,
                              struct pl_error *reterr)
{
    PL_TRY(pl_device_enter(device, reterr));
    if (bytes > 0) {
        PL_CUDA_TRY(device, cuMemsetD8Async(address(memory), (unsigned char)byte, bytes, stream), reterr,
                    "cannot set %llu bytes", (unsigned long long)bytes);
    }
    return PL_OK;
}

enum pl_status pl_device_export(struct pl_device *device, void *memory, struct pl_device_handle *ret_handle,
                                struct pl_error *reterr)
{
    CUipcMemHandle handle;

    PL_TRY(pl_device_enter(device, reterr));
    PL_CUDA_TRY(device, cuIpcGetMemHandle(&handle, address(memory)), reterr,
                "cannot share device memory with other processes");
    memcpy(ret_handle->bytes, &handle, sizeof(handle));
    return PL_OK;
}

enum pl_status pl_device_import(struct pl_device *device, const struct pl_device_handle *handle, void **ret_memory,
                                struct pl_error *reterr)
{
    CUdeviceptr memory = 0;
    CUipcMemHandle native;

    PL_TRY(pl_device_enter(device, reterr));
    memcpy(&native, handle->bytes, sizeof(native));
    PL_CUDA_TRY(device, cuIpcOpenMemHandle_v2(&memory, native, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), reterr,
                "cannot open another process's device memory");
    *ret_memory = (void *)(uintptr_t)memory;
    return PL_OK;
}

void pl_device_unimport(struct pl_device *device, void *memory)
{
    pl_device_release_object(device, memory, PL_DEVICE_IMPORT);
}
