/* SPDX-License-Identifier: Apache-2.0 */
/** A copy between host and device memory, waited for. */
#ifndef PL_TESTS_SUPPORT_DEVICE_MOVE_H
#define PL_TESTS_SUPPORT_DEVICE_MOVE_H

#include "base/clock.h"
#include "device/device.h"

static inline enum pl_status device_move(struct pl_device *device, void *to, const void *from, size_t bytes, struct pl_error *reterr)
{
    void *stream;
    enum pl_status status;

    PL_TRY(pl_device_stream_new(device, &stream, reterr));
    status = pl_device_copy(device, to, from, bytes, stream, reterr);
    if (status == PL_OK) {
        status = pl_device_stream_finish(device, stream, pl_deadline_after_ns(60 * PL_NS_PER_S), reterr);
    }
    pl_device_stream_free(device, stream);
    return status;
}

#endif
