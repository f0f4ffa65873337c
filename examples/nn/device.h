/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The start of a program whose layers run on GPUs or CPUs: --device and --precision.
 *
 * The GPU layers are a shared object in the programs' directory, loaded only if GPUs are used: programs also start
 * without CUDA.
 *
 * Test  tests/unit/examples/test_device.c, tests/integration/nn_device.sh, nn_training.py; tests/gpu.sh on a GPU
 */
#ifndef EXAMPLES_NN_DEVICE_H
#define EXAMPLES_NN_DEVICE_H

#include "examples/nn/nn.h"
#include "examples/nn/options.h"
#include "runtime/paceline.h"

/** Two rows for a table of options; `owner` has fields `device` and `precision`. */
#define NN_DEVICE_OPTIONS(owner)                                                                                       \
    NN_TEXT(owner, device, "auto",                                                                                     \
            "cpu; cuda: a GPU for each rank; cuda:N: GPU N for all ranks; auto: as the setting `device` says"),        \
        NN_TEXT(owner, precision, "float32",                                                                           \
                "precision of products on a GPU: float32, tf32 or bf16; sums are float32")

/** The arguments of nn_model_new() that depend on the device. */
struct nn_device {
    const struct nn_backend *backend;
    struct nn_backend_options options;
};

/**
 * Returns the runtime's setting `device` for --device: "off", "on", "cuda:N", or NULL for "auto". Errors: PL_INVALID if
 * --device has none of these values.
 */
enum pl_status nn_device_parse(const char *device, const char **ret_knob, struct pl_error *reterr) PL_MUST_CHECK;
enum pl_status nn_precision_parse(const char *precision, enum nn_precision *ret_precision,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Calls pl_runtime_start_on_device() for --device, and returns the layers for that device. If the GPU layers are not
 * installed, "auto" means the CPU. If they are installed but there is no GPU, rank 0 logs the reason in one line.
 *
 * Collective  yes.
 * Errors      PL_INVALID: an unknown value; PL_UNSUPPORTED: "cuda", but the GPU layers, or a library that they need,
 *             are missing; those of pl_runtime_start_on_device().
 */
enum pl_status nn_device_start(const char *device, const char *precision, struct pl_runtime **ret_runtime,
                               struct nn_device *ret_device, struct pl_error *reterr) PL_MUST_CHECK;

#endif
