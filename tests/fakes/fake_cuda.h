/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A driver for tests: libcuda.so.1 over host memory, found through LD_LIBRARY_PATH=<build>/tests/fakes (in meson: env
 * fake_cuda_env, depends fake_cuda, where cuda_dep.found()). Kernels are device/'s own code compiled for the host,
 * streams and events keep CUDA's order, memory can be opened by other processes, and faults are injected by FAKE_CUDA.
 * The product does not know it.
 *
 * FAKE_CUDA is a list such as "devices=2,memory=64MiB,fail=cuMemAlloc_v2:3":
 *
 *   devices=N            number of devices (1); CUDA_VISIBLE_DEVICES selects by number
 *   no_device            cuInit finds no device
 *   driver=12040         version that the driver reports (the toolkit's)
 *   stub                 acts as the toolkit's libcuda for linking
 *   arch=90              compute capability (90)
 *   mps=N                multiprocessors (4)
 *   mig                  devices have names and UUIDs of MIG instances
 *   memory=64MiB         memory of each device for this process (1GiB)
 *   delay_us=N           each stream is a thread, and each piece of work begins up to N us late: a missing wait
 *                        is found. Without it, work is done before the call returns
 *   unguarded            the host can touch device memory. Without it that is a SIGSEGV, except while the device works
 *   launch_error=N       the Nth kernel launch of this process ends the context with CUDA_ERROR_ILLEGAL_ADDRESS
 *   hang=N               the Nth launch never ends. A call that waits for the device's work would not end either (calls
 *                        that release memory do, and later copies of pageable memory): it prints that and aborts
 *   fail=NAME:N[:CODE]   the Nth call of the function NAME fails, with CUDA_ERROR_OUT_OF_MEMORY (2) or CODE; may be
 *                        given several times
 *   lost_after=N         after N calls, all of them fail with CUDA_ERROR_UNKNOWN: the device has fallen off the bus
 *   leaks                if a context ends with memory, streams, events or modules left, prints that and aborts
 *
 * It detects what the driver leaves undefined or forbids: work that touches memory after an allocation (SIGBUS,
 * within its last page an abort when it is released) or released memory (SIGBUS); streams and events that are gone
 * (abort); an event recorded in another device's stream; kernels of a module that was unloaded or belongs to another
 * context; calls in a context that has ended; copies from or to memory that is partly a piece's; memory whose pages are
 * pinned already.
 *
 * Captures are those of the mode GLOBAL, and make no graph: a query of an event or a stream, or an allocation, in a
 * thread that has not chosen another mode ends them.
 *
 * When the process exits, the driver goes as the real one does: by a function that cuInit() has registered. From then
 * on every call is CUDA_ERROR_DEINITIALIZED, and a call of the fake NCCL aborts.
 *
 * A process that opens its own memory's handle gets CUDA_ERROR_INVALID_CONTEXT, as from the driver. Objects of an
 * unusable context (lost, or after a kernel's error) can still be released, though the calls return errors.
 */
#ifndef PL_TESTS_FAKES_FAKE_CUDA_H
#define PL_TESTS_FAKES_FAKE_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * For other libraries' fakes: call work(argument, true) once, in the order of `stream` (a CUstream of the current
 * context, NULL: the default one), with device memory open to it. If the stream will never get there, call
 * work(argument, false) instead. Returns a CUresult; after an error `work` is not called. Exported by the fake driver.
 */
int fake_cuda_run(void *stream, void (*work)(void *argument, bool runs), void *argument);

/** Whether the calling thread has a context. Exported by the fake driver. */
bool fake_cuda_has_context(void);

/** The number of the calling thread's device; -1: it has no context. Exported by the fake driver. */
int fake_cuda_device(void);

/**
 * Give orders to a running driver; tests/support/device.h finds the function. Exported by the fake driver.
 *
 *   lost=N               device N falls off the bus: all calls and all work of its context end in CUDA_ERROR_UNKNOWN
 *   kernel_error=N       the next kernel launched on device N ends its context with CUDA_ERROR_ILLEGAL_ADDRESS
 *   kernel_hangs=N       the next kernel launched on device N never ends
 *   fill_hangs=N         the next cuMemsetD8Async on device N never ends
 *   hold_copies          copies from a device to memory of cuMemHostAlloc do not begin until
 *   let_copies_go        (with delay_us, without which the call would not return)
 *   skip=NAME:N          from now on the Nth call of cuEventRecord or cuStreamWaitEvent does nothing: what a program
 *                        without that call would do
 *   fail=NAME:N          from now on the Nth call of the function fails, with CUDA_ERROR_OUT_OF_MEMORY; a function that
 *                        releases something does so all the same. The name may be that of a function of the fake
 *                        NCCL. `any` counts all functions but those that ask whether work has ended and what
 *                        comes with them: cuCtxSetCurrent and cuThreadExchangeStreamCaptureMode
 */
void fake_cuda_order(const char *order);

/** How many streams of the calling thread's context have the highest priority. Exported by the fake driver. */
int fake_cuda_urgent_streams(void);

/** Whether the call that the last order skip or fail names has come. Exported by the fake driver. */
bool fake_cuda_has_come(void);

/** For other libraries' fakes: whether their call of `name` fails by an order. Exported by the fake driver. */
bool fake_cuda_fails(const char *name);

/** How many bytes copies have moved between host and device memory, in all threads. Exported by the fake driver. */
uint64_t fake_cuda_host_bytes(void);

/** How often the calling thread has called the function `name`; NULL: any function. Exported by the fake driver. */
long fake_cuda_calls(const char *name);

#endif
