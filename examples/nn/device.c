/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses CPU or GPU for a training program, and loads the layers for GPUs as a plugin. */
#include "examples/nn/device.h"

#include "base/text.h"
#include "runtime/server.h"

#include <dlfcn.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

static const char plugin[] = "libpaceline-nn-cuda.so"; /* a file in the program's directory */

enum pl_status nn_device_parse(const char *device, const char **ret_knob, struct pl_error *reterr)
{
    if (strcmp(device, "auto") == 0) {
        *ret_knob = NULL;
    } else if (strcmp(device, "cpu") == 0) {
        *ret_knob = "off";
    } else if (strcmp(device, "cuda") == 0) {
        *ret_knob = "on";
    } else if (strncmp(device, "cuda:", 5) == 0) {
        *ret_knob = device; /* the runtime reads the number of "cuda:N" */
    } else {
        return pl_error_set(reterr, PL_INVALID, "--device is '%s', expected auto, cpu, cuda or cuda:N", device);
    }
    return PL_OK;
}

enum pl_status nn_precision_parse(const char *precision, enum nn_precision *ret_precision, struct pl_error *reterr)
{
    static const char *const names[] = {[NN_FLOAT32] = "float32", [NN_TF32] = "tf32", [NN_BFLOAT16] = "bf16"};

    for (size_t i = 0; i < PL_ARRAY_ITEMS(names); i++) {
        if (strcmp(precision, names[i]) == 0) {
            *ret_precision = (enum nn_precision)i;
            return PL_OK;
        }
    }
    return pl_error_set(reterr, PL_INVALID, "--precision is '%s', expected float32, tf32 or bf16", precision);
}

static bool find_plugin(struct pl_text *path)
{
    char program[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);

    if (length <= 0) {
        return false;
    }
    program[length] = '\0';
    program[strrchr(program, '/') - program + 1] = '\0';
    pl_text_clear(path);
    pl_text_printf(path, "%s%s", program, plugin);
    return pl_text_check(path, NULL) == PL_OK && access(pl_text_string(path), F_OK) == 0;
}

/* Loads the plugin. It is never unloaded, because CUDA's libraries have threads and exit handlers. */
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

/* Logs what is missing for a GPU, because the user did not choose the CPU. */
static void log_why_cpu(struct pl_world *world)
{
    struct pl_error why = PL_ERROR_NONE;
    int count;

    if (pl_world_rank(world) == 0 && strcmp(pl_world_setting(world, "device"), "off") != 0 &&
        pl_device_count(&count, &why) != PL_OK) {
        pl_log(PL_LOG_INFO, "training on the CPU: %s", why.cause);
    }
}

enum pl_status nn_device_start(const char *device, const char *precision, struct pl_runtime **ret_runtime,
                               struct nn_device *ret_device, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    struct nn_device chosen = {.backend = &nn_backend_blas};
    struct pl_runtime *runtime = NULL;
    bool installed = find_plugin(&path);
    const char *knob;

    PL_TRY(nn_device_parse(device, &knob, reterr));
    knob = !knob && pl_server_is_there() ? "off" : knob; /* parameter servers use host memory */
    PL_TRY(nn_precision_parse(precision, &chosen.options.precision, reterr));
    if (!installed && knob && strcmp(knob, "off") != 0) {
        return pl_error_set(reterr, PL_UNSUPPORTED, "the layers for GPUs (%s) are not installed next to this program",
                            plugin);
    }
    PL_TRY(pl_runtime_start_on_device(NULL, installed ? knob : "off", &runtime, reterr));
    if (pl_runtime_device(runtime)) {
        /* no pl_runtime_stop(), which would wait for other ranks: the program exits */
        PL_TRY(load_plugin(pl_text_string(&path), &chosen.backend, reterr));
        chosen.options.device = pl_device_info(pl_runtime_device(runtime))->ordinal;
    } else if (installed && !knob) {
        log_why_cpu(pl_runtime_world(runtime));
    }
    *ret_runtime = runtime;
    *ret_device = chosen;
    return PL_OK;
}
