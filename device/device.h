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

/** Use device `ordinal`. Opening one twice gives two handles on the same context. PL_INVALID: there are fewer. */
enum pl_status pl_device_open(int ordinal, struct pl_device **ret_device, struct pl_error *reterr) PL_MUST_CHECK;

/** Everything allocated through the handle must have been released. NULL is fine. */
void pl_device_close(struct pl_device *device);

const struct pl_device_info *pl_device_info(const struct pl_device *device);

/** The error that ended the device's work, or PL_OK. */
enum pl_status pl_device_failure(const struct pl_device *device, struct pl_error *reterr);

/**
 * Make the device's context current in this thread, for libraries that take the current one. After an earlier failure
 * of the device it returns that failure, and the context is current all the same.
 */
enum pl_status pl_device_enter(struct pl_device *device, struct pl_error *reterr) PL_MUST_CHECK;

/** Bytes of device memory that are free now. */
enum pl_status pl_device_free_bytes(struct pl_device *device, uint64_t *ret_bytes,
                                    struct pl_error *reterr) PL_MUST_CHECK;

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

/** Pin memory that exists (an arena's, say) until pl_device_unpin(). */
enum pl_status pl_device_pin(struct pl_device *device, void *memory, uint64_t bytes,
                             struct pl_error *reterr) PL_MUST_CHECK;
void pl_device_unpin(struct pl_device *device, void *memory);

/** Whether `memory` is device memory, of whatever device. */
bool pl_device_owns(struct pl_device *device, const void *memory);

/**
 * Copy on `stream`, between any two of device, pinned and ordinary memory; returns at once. Only with ordinary memory
 * the driver may wait, without a deadline, for what `stream` was given before, or copy when the stream comes to it, as
 * with all other memory.
 */
enum pl_status pl_device_copy(struct pl_device *device, void *to, const void *from, uint64_t bytes, void *stream,
                              struct pl_error *reterr) PL_MUST_CHECK;

/**
 * The same to or from ordinary memory, with a deadline for what `stream` was given before; returns when the copy has
 * ended.
 */
enum pl_status pl_device_copy_now(struct pl_device *device, void *to, const void *from, uint64_t bytes, void *stream,
                                  int64_t deadline_ns, struct pl_error *reterr) PL_MUST_CHECK;

/** Set `bytes` bytes on `stream`. */
enum pl_status pl_device_fill(struct pl_device *device, void *memory, int byte, uint64_t bytes, void *stream,
                              struct pl_error *reterr) PL_MUST_CHECK;

/** A stream that does not wait for the default stream. */
enum pl_status pl_device_stream_new(struct pl_device *device, void **ret_stream, struct pl_error *reterr) PL_MUST_CHECK;
void pl_device_stream_free(struct pl_device *device, void *stream);

/** An event without timing; with it where `timed`. */
enum pl_status pl_device_event_new(struct pl_device *device, bool timed, void **ret_event,
                                   struct pl_error *reterr) PL_MUST_CHECK;
void pl_device_event_free(struct pl_device *device, void *event);
enum pl_status pl_device_event_record(struct pl_device *device, void *event, void *stream,
                                      struct pl_error *reterr) PL_MUST_CHECK;

/** Work given to `stream` from now on waits for what `event` recorded. */
enum pl_status pl_device_stream_wait(struct pl_device *device, void *stream, void *event,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Both: `event` is recorded in `other`, and work given to `stream` from now on waits for what `other` was given so far.
 */
enum pl_status pl_device_stream_follow(struct pl_device *device, void *stream, void *other, void *event,
                                       struct pl_error *reterr) PL_MUST_CHECK;

/** Whether everything before the event's record has ended. */
enum pl_status pl_device_event_done(struct pl_device *device, void *event, bool *ret_done,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/** Milliseconds on the device between two timed events that are done. */
enum pl_status pl_device_event_ms(struct pl_device *device, void *from, void *to, double *ret_ms,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/** Wait until all work on `stream` has ended, by polling; PL_TIMEOUT at `deadline_ns` (CLOCK_MONOTONIC). */
enum pl_status pl_device_stream_finish(struct pl_device *device, void *stream, int64_t deadline_ns,
                                       struct pl_error *reterr) PL_MUST_CHECK;

/** The same until what `event` recorded has ended; at once where it recorded nothing yet. */
enum pl_status pl_device_event_finish(struct pl_device *device, void *event, int64_t deadline_ns,
                                      struct pl_error *reterr) PL_MUST_CHECK;

/** A piece of device memory as another process of this host can open it. */
struct pl_device_handle {
    unsigned char bytes[64];
};

/**
 * `memory` must come from pl_device_alloc(). The driver shares it in blocks of 2 MiB: what is smaller takes its
 * neighbours along.
 */
enum pl_status pl_device_export(struct pl_device *device, void *memory, struct pl_device_handle *ret_handle,
                                struct pl_error *reterr) PL_MUST_CHECK;

/** Open another process's memory; the two devices may be one. A process cannot import what it exported itself. */
enum pl_status pl_device_import(struct pl_device *device, const struct pl_device_handle *handle, void **ret_memory,
                                struct pl_error *reterr) PL_MUST_CHECK;
void pl_device_unimport(struct pl_device *device, void *memory);

#endif
