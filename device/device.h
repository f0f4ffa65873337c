/* SPDX-License-Identifier: Apache-2.0 */
/**
 * One GPU of this process: its memory, streams, events and how they are waited for.
 *
 * The driver (libcuda.so.1) is loaded at run time and nothing else: a program starts, and works on host memory, where
 * there is none. The device's primary context is used, the one that the CUDA runtime, cuBLAS and cuDNN use too, so that
 * pointers, streams and events can be exchanged with them: a stream here is a CUstream (cudaStream_t), NULL the default
 * stream.
 *
 * Errors   PL_LIBRARY with PL_DOMAIN_CUDA, the driver's own name and words, and the device; an error of a kernel that
 *          ran earlier is reported by the next call and stays with the device (the driver allows no more work):
 *          see pl_device_failure(). PL_MEMORY when the device's or the pinned memory does not suffice, with what is
 *          free. PL_TIMEOUT when work has not ended: until it has, memory is not released but left to the end of the
 *          process, since the driver would wait for that work without end.
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
    int ordinal; /* among the devices that this process sees */
    char name[96];
    char uuid[48]; /* "GPU-xxxxxxxx-...": what two ranks compare to find out that they share a device */
    char pci[16];  /* "0000:3b:00.0" */
    int compute_major;
    int compute_minor;
    int multiprocessors;
    uint64_t memory_bytes;
    int driver_version; /* 12040 for CUDA 12.4 */
};

/**
 * How many devices this process sees.
 *
 * Errors   PL_UNSUPPORTED in one sentence that says why there are none: built without CUDA, no libcuda.so.1 (no
 *          driver), no device, driver too old for the kernels' toolkit (both versions).
 */
enum pl_status pl_device_count(int *ret_count, struct pl_error *reterr) PL_MUST_CHECK;

const struct pl_device_info *pl_device_info(const struct pl_device *device);

/** `bytes` of device memory, aligned to 256 bytes and zeroed. */
enum pl_status pl_device_alloc(struct pl_device *device, uint64_t bytes, void **ret_memory,
                               struct pl_error *reterr) PL_MUST_CHECK;
void pl_device_release(struct pl_device *device, void *memory);

/**
 * Host memory that the device copies from and to directly, readable by kernels under the same address; zeroed.
 */
enum pl_status pl_device_alloc_pinned(struct pl_device *device, uint64_t bytes, void **ret_memory,
                                      struct pl_error *reterr) PL_MUST_CHECK;
void pl_device_release_pinned(struct pl_device *device, void *memory);

/**
 * Copy on `stream`, between any two of device, pinned and ordinary memory; returns at once. Only with ordinary memory
 * the driver may wait, without a deadline, for what `stream` was given before, or copy when the stream comes to it, as
 * with all other memory.
 */
enum pl_status pl_device_copy(struct pl_device *device, void *to, const void *from, uint64_t bytes, void *stream,
                              struct pl_error *reterr) PL_MUST_CHECK;

/** A stream that does not wait for the default stream. */
enum pl_status pl_device_stream_new(struct pl_device *device, void **ret_stream, struct pl_error *reterr) PL_MUST_CHECK;
void pl_device_stream_free(struct pl_device *device, void *stream);

/** Wait until all work on `stream` has ended, by polling; PL_TIMEOUT at `deadline_ns` (CLOCK_MONOTONIC). */
enum pl_status pl_device_stream_finish(struct pl_device *device, void *stream, int64_t deadline_ns,
                                       struct pl_error *reterr) PL_MUST_CHECK;

/** A piece of device memory as another process of this host can open it. */
struct pl_device_handle {
    unsigned char bytes[64];
};

#endif
