/* SPDX-License-Identifier: Apache-2.0 */
/** A world in which every rank has a GPU if the hosts have GPUs. */
#ifndef PL_COLLECTIVES_WORLD_ON_DEVICE_H
#define PL_COLLECTIVES_WORLD_ON_DEVICE_H

#include "collectives/bootstrap.h"
#include "collectives/world.h"
#include "collectives/world_private.h"
#include "device/device.h"

/**
 * pl_world_new(), with a GPU for each rank: chosen over the ranks of each host (device/choose.h) and opened; this
 * process is bound to the CPUs near it. `wanted` has the form of the setting `device`, and NULL means that setting.
 * `*ret_device` is NULL if no device is used. The caller owns the device and closes it after the world.
 *
 * Collective  yes. If one rank fails, all fail.
 * Errors      those of pl_world_new() and pl_device_choose(); PL_MISMATCH (devices on some hosts only); a driver's
 *             error on its own rank, while the other ranks name that rank.
 * Test        tests/unit/runtime/test_start_device.c
 */
enum pl_status pl_world_new_on_device(struct pl_bootstrap *bootstrap, const struct pl_world_options *options,
                                      const char *wanted, struct pl_device **ret_device, struct pl_world **ret_world,
                                      struct pl_error *reterr) PL_MUST_CHECK;

#endif
