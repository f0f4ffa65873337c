/* SPDX-License-Identifier: Apache-2.0 */
/** A GPU for every rank of a world. Internal to runtime/. */
#ifndef PL_RUNTIME_START_DEVICE_H
#define PL_RUNTIME_START_DEVICE_H

#include "collectives/world.h"
#include "device/device.h"

/**
 * Choose over the ranks of each host, open this rank's device and run on the CPUs beside it; `*ret_device` NULL: none is used. `wanted` is as the
 * knob `device`, NULL: that knob.
 *
 * Collective  yes. All ranks end alike: what goes wrong on one is an error on all.
 * Test        tests/unit/runtime/test_device_start.c
 */
enum pl_status pl_start_choose_device(struct pl_world *world, const char *wanted, struct pl_device **ret_device,
                                      struct pl_error *reterr) PL_MUST_CHECK;

#endif
