/* SPDX-License-Identifier: Apache-2.0 */
/** The rest of a GPU: opening it, events, memory that processes share. Internal to the library. */
#ifndef PL_DEVICE_DEVICE_PRIVATE_H
#define PL_DEVICE_DEVICE_PRIVATE_H

#include "device/device.h"

/** Use device `ordinal`. Opening one twice gives two handles on the same context. PL_INVALID: there are fewer. */
enum pl_status pl_device_open(int ordinal, struct pl_device **ret_device, struct pl_error *reterr) PL_MUST_CHECK;

/** Everything allocated through the handle must have been released. NULL is fine. */
void pl_device_close(struct pl_device *device);

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

/** Pin memory that exists (an arena's, say) until pl_device_unpin(). */
enum pl_status pl_device_pin(struct pl_device *device, void *memory, uint64_t bytes,
                             struct pl_error *reterr) PL_MUST_CHECK;
void pl_device_unpin(struct pl_device *device, void *memory);

/** Whether `memory` is device memory, of whatever device. */
bool pl_device_owns(struct pl_device *device, const void *memory);

/**
 * The same to or from ordinary memory, with a deadline for what `stream` was given before; returns when the copy has
 * ended.
 */
enum pl_status pl_device_copy_now(struct pl_device *device, void *to, const void *from, uint64_t bytes, void *stream,
                                  int64_t deadline_ns, struct pl_error *reterr) PL_MUST_CHECK;

/** Set `bytes` bytes on `stream`. */
enum pl_status pl_device_fill(struct pl_device *device, void *memory, int byte, uint64_t bytes, void *stream,
                              struct pl_error *reterr) PL_MUST_CHECK;

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

/** The same until what `event` recorded has ended; at once where it recorded nothing yet. */
enum pl_status pl_device_event_finish(struct pl_device *device, void *event, int64_t deadline_ns,
                                      struct pl_error *reterr) PL_MUST_CHECK;

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
