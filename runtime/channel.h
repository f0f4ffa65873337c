/* SPDX-License-Identifier: Apache-2.0 */
/**
 * From the platform's public variables SM_CHANNEL_<NAME> and SM_INPUT_DATA_CONFIG to the plain struct that s3io reads.
 *
 * Source  the SageMaker developer guide on input modes; SM_CHANNEL_<NAME> names the same path in Pipe Mode, where only
 *         the FIFOs PATH_0, PATH_1, ... exist.
 * Test    tests/unit/runtime/test_channel.c
 */
#ifndef PL_RUNTIME_CHANNEL_H
#define PL_RUNTIME_CHANNEL_H

#include "runtime/start.h"
#include "s3io/channel.h"

/** A channel, with the memory of the strings that `info` points to. Zero-initialise. */
struct pl_channel_setup {
    struct pl_channel info;
    char *name;
    char *path;
};

/**
 * Looks `name` up in the environment of `runtime`. After pl_stop_watch() its FIFOs can be stopped: a wait for a feeder
 * that does not come, or that sends nothing more, ends with PL_CANCELLED if this process is asked to stop. Errors:
 * PL_NOT_FOUND lists the channels that the environment has; PL_INVALID if SM_INPUT_DATA_CONFIG is not strict JSON
 * (base/json/json.h), or if its mode is not text.
 */
enum pl_status pl_channel_setup_find(const struct pl_runtime *runtime, const char *name,
                                     struct pl_channel_setup *ret_setup, struct pl_error *reterr) PL_MUST_CHECK;

/** Describes a File channel `name` at the directory `path`, for programs that run outside the platform. */
enum pl_status pl_channel_setup_directory(const char *name, const char *path, struct pl_channel_setup *ret_setup,
                                          struct pl_error *reterr) PL_MUST_CHECK;

void pl_channel_setup_done(struct pl_channel_setup *setup);

#endif
