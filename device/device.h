/* SPDX-License-Identifier: Apache-2.0 */
/**
 * One GPU of this process: its memory, streams and events, and waiting for them.
 *
 * Only the driver (libcuda.so.1) is loaded, at run time. Without a driver a program also starts, and works on host
 * memory. The library uses the device's primary context, as the CUDA runtime, cuBLAS and cuDNN do. So pointers, streams
 * and events can be exchanged with them: a stream here is a CUstream (cudaStream_t), and NULL is the default stream.
 *
 * Errors   PL_LIBRARY with PL_DOMAIN_CUDA, the driver's own name and text of the error, and the device. An error of an
 *          earlier kernel is reported by the next call and stays with the device (the driver permits no more work), see
 *          pl_device_failure(). PL_MEMORY: there is not enough device or pinned memory; the text has what is free.
 *          PL_TIMEOUT: work has not ended. What is released before it ends is kept until a later release, or the end of
 *          the process, because the driver would wait for that work without end.
 * Threads  any; each call makes the device's context current in its thread.
 * Test     tests/unit/device
 */
#ifndef PL_DEVICE_DEVICE_H
#define PL_DEVICE_DEVICE_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct pl_device;

struct pl_device_info {
    int ordinal; /* number among the devices that this process sees */
    char name[96];
    char uuid[48]; /* "GPU-xxxxxxxx-...": two ranks compare it to see whether they share a device */
    char pci[16];  /* "0000:3b:00.0" */
    int compute_major;
    int compute_minor;
    int multiprocessors;
    uint64_t memory_bytes;
    int driver_version; /* 12040 for CUDA 12.4 */
};

/**
 * Returns how many devices this process sees.
 *
 * Errors   PL_UNSUPPORTED, with one sentence that tells why there are none: built without CUDA, no libcuda.so.1 (no
 *          driver), no device, or a driver that is too old for the kernels' toolkit (with both versions).
 */
enum pl_status pl_device_count(int *ret_count, struct pl_error *reterr) PL_MUST_CHECK;

const struct pl_device_info *pl_device_info(const struct pl_device *device);

/** Allocates `bytes` of device memory, aligned to 256 bytes and zeroed. */
enum pl_status pl_device_alloc(struct pl_device *device, uint64_t bytes, void **ret_memory,
                               struct pl_error *reterr) PL_MUST_CHECK;
void pl_device_release(struct pl_device *device, void *memory);

/**
 * Allocates zeroed host memory that the device copies from and to directly. Kernels can read it at the same address.
 */
enum pl_status pl_device_alloc_pinned(struct pl_device *device, uint64_t bytes, void **ret_memory,
                                      struct pl_error *reterr) PL_MUST_CHECK;
void pl_device_release_pinned(struct pl_device *device, void *memory);

/**
 * Copies on `stream`, between any two of device, pinned and pageable memory. Returns at once, except with ordinary
 * memory: there the driver may wait, without a deadline, for earlier work on `stream`.
 */
enum pl_status pl_device_copy(struct pl_device *device, void *to, const void *from, uint64_t bytes, void *stream,
                              struct pl_error *reterr) PL_MUST_CHECK;

/** Makes a stream that does not wait for the default stream. */
enum pl_status pl_device_stream_new(struct pl_device *device, void **ret_stream, struct pl_error *reterr) PL_MUST_CHECK;
void pl_device_stream_free(struct pl_device *device, void *stream);

/** Waits until all work on `stream` has ended, by polling. PL_TIMEOUT at `deadline_ns` (CLOCK_MONOTONIC). */
enum pl_status pl_device_stream_finish(struct pl_device *device, void *stream, int64_t deadline_ns,
                                       struct pl_error *reterr) PL_MUST_CHECK;

/** A handle by which another process of this host can open a piece of device memory. */
struct pl_device_handle {
    unsigned char bytes[64];
};

#endif
