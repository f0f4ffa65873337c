/* SPDX-License-Identifier: Apache-2.0 */
/** Opens a device of the fake driver, and copies test data to it and back. */
#ifndef PL_TESTS_UNIT_DEVICE_GPU_H
#define PL_TESTS_UNIT_DEVICE_GPU_H

#include "base/clock.h"
#include "device/device_private.h"
#include "device/kernel.h"
#include "tests/support/unit.h"

#include <stdlib.h>
#include <string.h>

static inline void close_gpu(struct pl_device **device)
{
    pl_device_close(*device);
}

/** A device that is closed with its variable. */
#define AUTO_DEVICE __attribute__((cleanup(close_gpu)))

/* Gives orders to the fake driver and opens its first device. Each test is a separate process, so that orders do not
 * mix. */
static inline struct pl_device *open_gpu(const char *orders)
{
    struct pl_device *device = NULL;

    ck_assert_int_eq(setenv("FAKE_CUDA", orders, 1), 0);
    ck_ok(pl_device_open, 0, &device);
    return device;
}

static inline void finish(struct pl_device *device, void *stream)
{
    ck_ok(pl_device_stream_finish, device, stream, pl_deadline_after_ns(20 * PL_NS_PER_S));
}

/** Returns `bytes` of device memory, `shift` bytes after an aligned address. Release *ret_base. */
static inline void *on_gpu(struct pl_device *device, const void *data, size_t bytes, size_t shift, void **ret_base)
{
    ck_ok(pl_device_alloc, device, bytes + shift, ret_base);
    if (data) {
        ck_ok(pl_device_copy_now, device, (char *)*ret_base + shift, data, bytes, NULL,
              pl_deadline_after_ns(20 * PL_NS_PER_S));
    }
    return (char *)*ret_base + shift;
}

static inline void from_gpu(struct pl_device *device, void *data, const void *memory, size_t bytes)
{
    ck_ok(pl_device_copy_now, device, data, memory, bytes, NULL, pl_deadline_after_ns(20 * PL_NS_PER_S));
}

#endif
