/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Which processor a program's layers run on: --device and --precision.
 *
 * The layers for GPUs are a shared object beside the programs, loaded when a GPU is to be used: a program starts where there is no CUDA.
 *
 * Test  tests/unit/examples/test_device.c, tests/integration/nn_device.sh; tests/gpu.sh on a GPU
 */
#ifndef EXAMPLES_NN_DEVICE_H
#define EXAMPLES_NN_DEVICE_H

#include "examples/nn/nn.h"
#include "examples/nn/options.h"
#include "runtime/paceline.h"

/** Two rows of a table of options; `owner` has fields `device` and `precision`. */
#define NN_DEVICE_OPTIONS(owner)                                                                                                                     \
    NN_TEXT(owner, device, "auto", "cpu; cuda: a GPU for each rank; cuda:N: all ranks on GPU N; auto: as cuda where there are GPUs"),                \
        NN_TEXT(owner, precision, "float32", "of products on a GPU: float32, tf32 or bf16; sums are float32")

struct nn_device {
    const struct nn_backend *backend;
    struct nn_backend_options options;
};

enum nn_device_kind { NN_DEVICE_AUTO, NN_DEVICE_CPU, NN_DEVICE_CUDA };

struct nn_device_wish {
    enum nn_device_kind kind;
    int ordinal; /* -1: device/choose.h's choice */
    enum nn_precision precision;
};

/** PL_INVALID: a word is none of those above. */
enum pl_status nn_device_parse(const char *device, const char *precision, struct nn_device_wish *ret_wish, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * What the wish means here: ranks of a host take its GPUs as device/choose.h says, sharing them where PACELINE_SHARE_DEVICE=1. With "auto" all ranks
 * take the same way, and where the layers for GPUs are installed but no GPU can be used, rank 0 says why in one line.
 *
 * Collective  yes.
 * Errors      PL_INVALID: a word that is none of those above, or a host has fewer GPUs than ranks (also with "auto"); PL_UNSUPPORTED: "cuda",
 *             and there is no GPU, no driver, or one of CUDA's libraries or the layers for GPUs are missing.
 */
enum pl_status nn_device_choose(struct pl_world *world, const char *device, const char *precision, struct nn_device *ret_device,
                                struct pl_error *reterr) PL_MUST_CHECK;

#endif
