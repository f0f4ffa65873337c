/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/nn/device.h"

#include "base/text.h"
#include "device/choose.h"
#include "device/device.h"

#include <dlfcn.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

static const char plugin[] = "libpaceline-nn-cuda.so";

enum pl_status nn_device_parse(const char *device, const char *precision, struct nn_device_wish *ret_wish, struct pl_error *reterr)
{
    static const char *const precisions[] = {[NN_FLOAT32] = "float32", [NN_TF32] = "tf32", [NN_BFLOAT16] = "bf16"};
    struct nn_device_wish wish = {.kind = NN_DEVICE_AUTO, .ordinal = -1};
    size_t which = 0;

    while (which < PL_ARRAY_ITEMS(precisions) && strcmp(precision, precisions[which]) != 0) {
        which++;
    }
    if (which == PL_ARRAY_ITEMS(precisions)) {
        return pl_error_set(reterr, PL_INVALID, "--precision is '%s', expected float32, tf32 or bf16", precision);
    }
    wish.precision = (enum nn_precision)which;
    if (strcmp(device, "cpu") == 0) {
        wish.kind = NN_DEVICE_CPU;
    } else if (strcmp(device, "cuda") == 0) {
        wish.kind = NN_DEVICE_CUDA;
    } else if (strncmp(device, "cuda:", 5) == 0 && device[5] && strspn(device + 5, "0123456789") == strlen(device + 5) && strlen(device) <= 8) {
        wish.kind = NN_DEVICE_CUDA;
        wish.ordinal = 0;
        for (const char *at = device + 5; *at; at++) {
            wish.ordinal = wish.ordinal * 10 + (*at - '0');
        }
    } else if (strcmp(device, "auto") != 0) {
        return pl_error_set(reterr, PL_INVALID, "--device is '%s', expected auto, cpu, cuda or cuda:N", device);
    }
    *ret_wish = wish;
    return PL_OK;
}

/* Beside the program where both are installed; next to its own folder where they were built. */
static bool find_plugin(struct pl_text *path)
{
    static const char *const folders[] = {"", "../nn/"};
    char program[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);

    if (length <= 0) {
        return false;
    }
    program[length] = '\0';
    program[strrchr(program, '/') - program + 1] = '\0';
    for (size_t i = 0; i < PL_ARRAY_ITEMS(folders); i++) {
        pl_text_clear(path);
        pl_text_printf(path, "%s%s%s", program, folders[i], plugin);
        if (pl_text_check(path, NULL) == PL_OK && access(pl_text_string(path), F_OK) == 0) {
            return true;
        }
    }
    return false;
}

/* Never unloaded: CUDA's libraries have threads and exit handlers of their own. */
static enum pl_status load_plugin(const char *path, const struct nn_backend **ret_backend, struct pl_error *reterr)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const struct nn_backend *backend = library ? dlsym(library, "nn_backend_cuda") : NULL;

    if (!backend) {
        return pl_error_set(reterr, PL_UNSUPPORTED, "the layers for GPUs cannot be loaded: %s", dlerror());
    }
    *ret_backend = backend;
    return PL_OK;
}

/* The GPU of this rank among those of its host's ranks; -1 with *ret_why: there is none. */
static enum pl_status choose_ordinal(struct pl_world *world, int *ret_ordinal, struct pl_error *ret_why, struct pl_error *reterr)
{
    size_t ranks = (size_t)pl_world_size(world);
    PL_AUTO_FREE struct pl_device_sight *sights = pl_memory_new(ranks, sizeof(*sights), reterr);
    struct pl_device_sight own;
    int local = 0;

    if (!sights) {
        return PL_MEMORY;
    }
    pl_device_look(&own);
    PL_TRY(pl_allgather(world, &own, sights, sizeof(own), PL_UINT8, reterr));
    for (int r = 0; r < (int)ranks; r++) { /* those of this host move to the front, in their order */
        if (pl_world_host_of(world, r) == pl_world_cross_rank(world)) {
            memmove(&sights[local++], &sights[r], sizeof(own));
        }
    }
    (void)pl_error_set(ret_why, PL_UNSUPPORTED, "%s", own.reason);
    return pl_device_choose(sights, local, pl_world_local_rank(world), PL_DEVICE_AUTO, pl_knob_bool(pl_world_knobs(world), PL_KNOB_SHARE_DEVICE),
                            ret_ordinal, reterr);
}

/* All ranks use GPU `ordinal` as each of them counts. */
static enum pl_status check_ordinal(int ordinal, int *ret_ordinal, struct pl_error *reterr)
{
    int count = 0;

    PL_TRY(pl_device_count(&count, reterr));
    if (ordinal >= count) {
        return pl_error_set(reterr, PL_INVALID, "there is no GPU %d: this process sees %d", ordinal, count);
    }
    *ret_ordinal = ordinal;
    return PL_OK;
}

enum pl_status nn_device_choose(struct pl_world *world, const char *device, const char *precision, struct nn_device *ret_device,
                                struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    struct nn_device_wish wish;
    struct nn_device chosen = {.backend = &nn_backend_blas};
    struct pl_error why = PL_ERROR_NONE;
    bool installed = find_plugin(&path);
    int ordinal = -1;
    int64_t usable;

    PL_TRY(nn_device_parse(device, precision, &wish, reterr));
    chosen.options.precision = wish.precision;
    if (wish.kind == NN_DEVICE_CPU) {
        *ret_device = chosen;
        return PL_OK;
    }
    if (wish.kind == NN_DEVICE_CUDA && !installed) {
        return pl_error_set(reterr, PL_UNSUPPORTED, "the layers for GPUs (%s) are not installed beside this program", plugin);
    }
    PL_TRY(wish.ordinal >= 0 ? check_ordinal(wish.ordinal, &ordinal, reterr) : choose_ordinal(world, &ordinal, &why, reterr));
    usable = installed && ordinal >= 0;
    if (wish.kind == NN_DEVICE_AUTO) {
        PL_TRY(pl_allreduce(world, &usable, &usable, 1, PL_INT64, PL_MIN, reterr));
    } else if (!usable) {
        return pl_error_set(reterr, PL_UNSUPPORTED, "%s", why.cause);
    }
    if (usable) {
        chosen.options.device = ordinal;
        PL_TRY(load_plugin(pl_text_string(&path), &chosen.backend, reterr));
    } else if (installed && pl_world_rank(world) == 0) {
        pl_log(PL_LOG_WARNING, "training on the CPU: %s", ordinal < 0 ? why.cause : "another host has no GPU");
    }
    *ret_device = chosen;
    return PL_OK;
}
