/* SPDX-License-Identifier: Apache-2.0 */
/** A world in which every rank has a GPU, where there are any. */
#ifndef PL_COLLECTIVES_WORLD_ON_DEVICE_H
#define PL_COLLECTIVES_WORLD_ON_DEVICE_H

#include "collectives/bootstrap.h"
#include "collectives/world.h"
#include "collectives/world_private.h"
#include "device/device.h"

/**
 * pl_world_new(), with a GPU for each rank: chosen over the ranks of each host (device/choose.h), opened, and this
 * process bound to the CPUs near it. `wanted` is as the knob `device`, NULL: that knob. `*ret_device` NULL: none is
 * used. The device is the caller's, to be closed after the world.
 *
 * Collective  yes. All ranks end alike: what goes wrong on one is an error on all.
 * Errors      those of pl_world_new() and pl_device_choose(); PL_MISMATCH (devices on some hosts only), and a driver's
 *             own: on the rank itself, while the others say which rank it was.
 * Test        tests/unit/runtime/test_start_device.c
 */
enum pl_status pl_world_new_on_device(struct pl_bootstrap *bootstrap, const struct pl_world_options *options,
                                      const char *wanted, struct pl_device **ret_device, struct pl_world **ret_world,
                                      struct pl_error *reterr) PL_MUST_CHECK;

#endif
