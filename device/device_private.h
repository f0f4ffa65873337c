/* SPDX-License-Identifier: Apache-2.0 */
/** The other functions of a GPU: opening it, events, memory that processes share. Internal to the library. */
#ifndef PL_DEVICE_DEVICE_PRIVATE_H
#define PL_DEVICE_DEVICE_PRIVATE_H

#include "device/device.h"

enum { PL_DEVICE_REASON_BYTES = 200 };

/**
 * Whether this program was built with CUDA and finds a driver, which is loaded but not started: devices that become
 * visible later are seen. If not, `reason` is a sentence.
 */
bool pl_device_is_loadable(char reason[PL_DEVICE_REASON_BYTES]);

/** Whether this program was built with kernels for GPUs. Without kernels it uses no GPU. */
bool pl_device_is_built(void);

/** Opens device `ordinal`. Two handles of one device use the same context. PL_INVALID: there are fewer devices. */
enum pl_status pl_device_open(int ordinal, struct pl_device **ret_device, struct pl_error *reterr) PL_MUST_CHECK;

/** Closes a handle. All memory that was allocated through it must have been released. Does nothing for NULL. */
void pl_device_close(struct pl_device *device);

/** Returns the error that ended the device's work, or PL_OK. */
enum pl_status pl_device_failure(const struct pl_device *device, struct pl_error *reterr);

/**
 * Makes the device's context current in this thread, for libraries that use the current one. After an earlier failure
 * of the device it returns that failure; the context is current nevertheless.
 */
enum pl_status pl_device_enter(struct pl_device *device, struct pl_error *reterr) PL_MUST_CHECK;

/** Pins existing memory, for example an arena's, until pl_device_unpin(). */
enum pl_status pl_device_pin(struct pl_device *device, void *memory, uint64_t bytes,
                             struct pl_error *reterr) PL_MUST_CHECK;
void pl_device_unpin(struct pl_device *device, void *memory);

/** Returns whether `memory` is device memory of any device. */
bool pl_device_owns(struct pl_device *device, const void *memory);

/**
 * Copies to or from pageable memory, with a deadline for the earlier work on `stream`. Returns when the copy has ended.
 */
enum pl_status pl_device_copy_now(struct pl_device *device, void *to, const void *from, uint64_t bytes, void *stream,
                                  int64_t deadline_ns, struct pl_error *reterr) PL_MUST_CHECK;

/** Sets `bytes` bytes to `byte`, on `stream`. */
enum pl_status pl_device_fill(struct pl_device *device, void *memory, int byte, uint64_t bytes, void *stream,
                              struct pl_error *reterr) PL_MUST_CHECK;

/** Makes an event, with timing if `timed`. */
enum pl_status pl_device_event_new(struct pl_device *device, bool timed, void **ret_event,
                                   struct pl_error *reterr) PL_MUST_CHECK;
void pl_device_event_free(struct pl_device *device, void *event);
enum pl_status pl_device_event_record(struct pl_device *device, void *event, void *stream,
                                      struct pl_error *reterr) PL_MUST_CHECK;

/** An event that is used again and again. The device keeps events that have no user. */
struct pl_device_event {
    struct pl_device *device;
    void *event;
    void *stream;    /* stream in which the event was marked */
    uint64_t number; /* number of the mark: a later mark in the same stream has a higher one */
    size_t users;
    struct pl_device_event *next; /* next event without a user */
};

/** Takes an event; the caller is its only user, and records it. */
enum pl_status pl_device_event_take(struct pl_device *device, struct pl_device_event **ret_event,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Takes an event and records it in a stream of the program.
 *
 * Errors   PL_INVALID: the stream is captured into a CUDA graph. The event would draw our streams into the capture.
 */
enum pl_status pl_device_event_mark(struct pl_device *device, void *stream, struct pl_device_event **ret_event,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/** Adds a user to the event. */
void pl_device_event_share(struct pl_device_event *event);

/** Release: one user ends its use of the event. Drop: all users do. Neither waits for the event. NULL is fine. */
void pl_device_event_release(struct pl_device_event *event);
void pl_device_event_drop(struct pl_device_event *event);

/** Makes a stream with the highest priority, for work that other ranks wait for. */
enum pl_status pl_device_stream_new_urgent(struct pl_device *device, void **ret_stream,
                                           struct pl_error *reterr) PL_MUST_CHECK;

/** Returns PL_INVALID if a stream of the program is captured into a CUDA graph, otherwise PL_OK. */
enum pl_status pl_device_refuse_captured(struct pl_device *device, void *stream, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * After this call, calls of this thread do not end captures of CUDA graphs that any thread has begun; otherwise a query
 * of an event or an allocation would. Returns the mode for pl_device_heed_captures(), which undoes this. Our own
 * threads never undo it.
 */
int pl_device_pass_captures(struct pl_device *device);
void pl_device_heed_captures(struct pl_device *device, int heeded);

/** Lets later work on `stream` wait for the work that `event` has recorded. */
enum pl_status pl_device_stream_wait(struct pl_device *device, void *stream, void *event,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/**
 * As pl_device_stream_wait(), for a stream of the program.
 *
 * Errors   PL_INVALID: the stream is captured into a CUDA graph. The event would be drawn into the capture.
 */
enum pl_status pl_device_stream_wait_outside(struct pl_device *device, void *stream, void *event,
                                             struct pl_error *reterr) PL_MUST_CHECK;

/** Records `event` in `other`, and lets later work on `stream` wait for all earlier work on `other`. */
enum pl_status pl_device_stream_follow(struct pl_device *device, void *stream, void *other, void *event,
                                       struct pl_error *reterr) PL_MUST_CHECK;

/** Stores whether all work before the event's record has ended. */
enum pl_status pl_device_event_done(struct pl_device *device, void *event, bool *ret_done,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/** Stores the milliseconds on the device between two timed events that are done. */
enum pl_status pl_device_event_ms(struct pl_device *device, void *from, void *to, double *ret_ms,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Adds `change` to the number of worlds on this device that have kernels of their own and not all ranks of the job.
 * Returns the new number.
 */
int pl_device_subset_worlds(struct pl_device *device, int change);

/** Waits until the work that `event` has recorded has ended. Returns at once if it has recorded nothing yet. */
enum pl_status pl_device_event_finish(struct pl_device *device, void *event, int64_t deadline_ns,
                                      struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Exports `memory`, which must come from pl_device_alloc(). The driver shares it in blocks of 2 MiB: a smaller piece is
 * shared together with its neighbours.
 */
enum pl_status pl_device_export(struct pl_device *device, void *memory, struct pl_device_handle *ret_handle,
                                struct pl_error *reterr) PL_MUST_CHECK;

/** Opens another process's memory. Both processes may use the same device. A process cannot import its own export. */
enum pl_status pl_device_import(struct pl_device *device, const struct pl_device_handle *handle, void **ret_memory,
                                struct pl_error *reterr) PL_MUST_CHECK;
void pl_device_unimport(struct pl_device *device, void *memory);

#endif
