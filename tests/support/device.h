/* SPDX-License-Identifier: Apache-2.0 */
/** The device that tests run on: a GPU, or the driver of tests/support that stands in for one. */
#ifndef PL_TESTS_SUPPORT_DEVICE_H
#define PL_TESTS_SUPPORT_DEVICE_H

#include "base/clock.h"
#include "device/device.h"
#include "device/device_private.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { DEVICE_SKIPPED = 77 };

/** A function of fake_cuda.h in the tests' driver; NULL: the driver is a real one, or there is none. */
static inline void *device_fake(const char *function)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    void *found = driver ? dlsym(driver, function) : NULL;

    if (driver) {
        dlclose(driver);
    }
    return found;
}

/** For UNIT_MAIN_AFTER(): 0 when there is a device, otherwise it is said why there is none. */
static inline int device_prepare(void)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_device *kept = NULL;
    int count;
    enum pl_status status = pl_device_count(&count, &error);

    /* A GPU's context takes long to make, and goes with its last handle: one stays until the program ends. */
    if (status == PL_OK && !device_fake("fake_cuda_order")) {
        status = pl_device_open(0, &kept, &error);
    }
    if (status == PL_OK) {
        return 0;
    }
    printf("skipped: %s\n", error.cause);
    return status == PL_UNSUPPORTED ? DEVICE_SKIPPED : 1;
}

/** Order the tests' driver; fake_cuda.h lists the words. False: it is a real one, which takes no orders. */
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
 * How often this thread has called the driver's function `name`, NULL: any of them; -1: the driver is a real one, which
 * does not count.
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

/** A copy between host and device memory, waited for. */
static inline enum pl_status device_move(struct pl_device *device, void *to, const void *from, size_t bytes,
                                         struct pl_error *reterr)
{
    return pl_device_copy_now(device, to, from, bytes, NULL, pl_deadline_after_ns(60 * PL_NS_PER_S), reterr);
}

/**
 * How many devices `ranks` ranks may use, one after the other: 1, which they share, and `ranks` where there are so
 * many; 0 ends the list.
 */
static inline int device_next(int devices, int ranks)
{
    int count = 0;

    return devices < ranks && pl_device_count(&count, NULL) == PL_OK && count >= ranks ? ranks : 0;
}

#endif
