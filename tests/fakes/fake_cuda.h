/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A driver for tests: libcuda.so.1 over host memory, found through LD_LIBRARY_PATH=<build>/tests/support (in meson: env
 * fake_cuda_env, depends fake_cuda, where cuda_dep.found()). Kernels are device/'s own code compiled for the host,
 * streams and events keep CUDA's order, memory can be opened by other processes, and faults come when they are ordered.
 * Nothing in the product knows of it.
 *
 * FAKE_CUDA is a list such as "devices=2,memory=64MiB,fail=cuMemAlloc_v2:3":
 *
 *   devices=N            how many there are (1); CUDA_VISIBLE_DEVICES picks among them by number
 *   no_device            cuInit finds none
 *   driver=12040         the version that the driver says it is (the toolkit's)
 *   stub                 as the toolkit's libcuda for linking does
 *   arch=90              compute capability (90)
 *   mps=N                multiprocessors (4)
 *   mig                  devices are MIG instances by name and UUID
 *   memory=64MiB         of each device, for this process (1GiB)
 *   delay_us=N           each stream is a thread, and each piece of work begins up to N us late: a wait that is missing
 *                        shows. Without it, work is done before the call returns
 *   unguarded            the host can touch device memory. Without it that is a SIGSEGV, except while the device works
 *   launch_error=N       the Nth kernel launch of this process ends the context with CUDA_ERROR_ILLEGAL_ADDRESS
 *   hang=N               the Nth launch never ends, nor would a call that waits for the device's work, as those that
 *                        release memory do and copies of ordinary memory after it: it says so and aborts
 *   fail=NAME:N[:CODE]   the Nth call of the function NAME fails, with CUDA_ERROR_OUT_OF_MEMORY (2) or CODE; can be
 *                        given several times
 *   lost_after=N         after N calls, all of them fail with CUDA_ERROR_UNKNOWN: the device has fallen off the bus
 *   leaks                when a context ends with memory, streams, events or modules left, say so and abort
 *
 * What the driver leaves undefined, and what it takes amiss, is found: work that touches memory after a piece (SIGBUS,
 * within its last page an abort when it is released) or released memory (SIGBUS); streams and events that are gone
 * (abort); an event recorded in another device's stream; kernels of a module that was unloaded or belongs to another
 * context; calls in a context that has ended; copies from or to memory that is partly a piece's; memory whose pages are
 * pinned already.
 *
 * A process that opens its own memory's handle gets CUDA_ERROR_INVALID_CONTEXT, as from the driver. What a context
 * without future holds (lost, or after a kernel's error) can still be released, though the calls say that they failed.
 */
#ifndef PL_TESTS_FAKES_FAKE_CUDA_H
#define PL_TESTS_FAKES_FAKE_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * For other libraries' fakes: call work(argument, true) once, in the order of `stream` (a CUstream of the current
 * context, NULL the default one) and with device memory open to it, or work(argument, false) when the stream will not
 * come to it. Exported by the fake driver; returns a CUresult, and has called nothing when that is an error.
 */
int fake_cuda_run(void *stream, void (*work)(void *argument, bool runs), void *argument);

/** Whether the calling thread has a context. Exported by the fake driver. */
bool fake_cuda_has_context(void);

/**
 * Orders for a driver that is at work; tests/support/device.h finds it. Exported by the fake driver.
 *
 *   lost=N               device N falls off the bus: all calls and all work of its context end in CUDA_ERROR_UNKNOWN
 *   kernel_error=N       the next kernel launched on device N ends its context with CUDA_ERROR_ILLEGAL_ADDRESS
 *   kernel_hangs=N       the next kernel launched on device N never ends
 *   fill_hangs=N         the next cuMemsetD8Async on device N never ends
 *   hold_copies          copies from a device to memory of cuMemHostAlloc do not begin until
 *   let_copies_go        (with delay_us, without which the call would not return)
 */
void fake_cuda_order(const char *order);

/** How often the calling thread has called the function `name`, NULL: any function. Exported by the fake driver. */
long fake_cuda_calls(const char *name);

#endif
