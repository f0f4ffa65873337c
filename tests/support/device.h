/* SPDX-License-Identifier: Apache-2.0 */
/** The device that tests run on: a GPU, or the fake driver in tests/fakes. */
#ifndef PL_TESTS_SUPPORT_DEVICE_H
#define PL_TESTS_SUPPORT_DEVICE_H

#include "base/clock.h"
#include "device/device.h"
#include "device/device_private.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { DEVICE_SKIPPED = 77 };

/** Find a function of fake_cuda.h in the fake driver; NULL if the driver is a real one or there is none. */
static inline void *device_fake(const char *function)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    void *found = driver ? dlsym(driver, function) : NULL;

    if (driver) {
        dlclose(driver);
    }
    return found;
}

/** For UNIT_MAIN_AFTER(): 0 if there is a device, otherwise it prints why there is none. */
static inline int device_prepare(void)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_device *kept = NULL;
    int count;
    enum pl_status status = pl_device_count(&count, &error);

    /* A GPU's context takes long to make, and ends with its last handle: one handle stays open until the program
     * ends. */
    if (status == PL_OK && !device_fake("fake_cuda_order")) {
        status = pl_device_open(0, &kept, &error);
    }
    if (status == PL_OK) {
        return 0;
    }
    printf("skipped: %s\n", error.cause);
    return status == PL_UNSUPPORTED ? DEVICE_SKIPPED : 1;
}

/** Give the fake driver an order of fake_cuda.h. False if the driver is a real one. */
static inline bool device_order(const char *order)
{
    void *found = device_fake("fake_cuda_order");
    void (*give)(const char *order) = NULL;

    if (found) {
        memcpy(&give, &found, sizeof(found));
        give(order);
    }
    return found;
}

/**
 * How often this thread has called the driver's function `name`, or any function if NULL; -1 if the driver is a real
 * one, which does not count.
 */
static inline long device_calls(const char *name)
{
    void *found = device_fake("fake_cuda_calls");
    long (*count)(const char *name) = NULL;

    if (!found) {
        return -1;
    }
    memcpy(&count, &found, sizeof(found));
    return count(name);
}

/** Copy between host and device memory, and wait for the copy. */
static inline enum pl_status device_move(struct pl_device *device, void *to, const void *from, size_t bytes,
                                         struct pl_error *reterr)
{
    return pl_device_copy_now(device, to, from, bytes, NULL, pl_deadline_after_ns(60 * PL_NS_PER_S), reterr);
}

/**
 * The numbers of devices for `ranks` ranks, one after the other: 1, which they share, and `ranks` if there are so many;
 * 0 ends the list.
 */
static inline int device_next(int devices, int ranks)
{
    int count = 0;

    return devices < ranks && pl_device_count(&count, NULL) == PL_OK && count >= ranks ? ranks : 0;
}

#endif
