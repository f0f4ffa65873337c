/* SPDX-License-Identifier: Apache-2.0 */
/* TensorFlow's C interface in the libraries that the process has loaded. */
#include "runtime/horovod/tensorflow_api.h"

#include <dlfcn.h>

struct pl_tensorflow_api pl_tensorflow_api;

/* The function called so, in one of the libraries that TensorFlow is made of; NULL: in none. */
static void *find(const char *name)
{
    static const char *const libraries[] = {"libtensorflow_framework.so.2", "libtensorflow_cc.so.2"};
    void *found = NULL;

    for (size_t i = 0; i < sizeof(libraries) / sizeof(libraries[0]) && !found; i++) {
        void *library = dlopen(libraries[i], RTLD_NOW | RTLD_NOLOAD);

        if (library) {
            found = dlsym(library, name);
            dlclose(library); /* it stays: TensorFlow never unloads */
        }
    }
    return found;
}

enum pl_status pl_tensorflow_api_find(struct pl_error *reterr)
{
#define FIND(result, name, parameters) *(void **)&pl_tensorflow_api.name = find("TF_" #name);
#define CHECK(result, name, parameters)                                                                                \
    if (!pl_tensorflow_api.name) {                                                                                     \
        return pl_error_set(reterr, PL_NOT_FOUND,                                                                      \
                            "TF_" #name " is not in libtensorflow_framework.so.2 nor libtensorflow_cc.so.2 as this "   \
                            "process has them: TensorFlow 2.12 to 2.21 is expected");                                  \
    }
    PL_TENSORFLOW_CALLS(FIND)
    PL_TENSORFLOW_EXPERIMENTS(FIND)
    PL_TENSORFLOW_CALLS(CHECK)
    return PL_OK;
}

const char *pl_tensorflow_api_missing(void)
{
#define MISSING(result, name, parameters)                                                                              \
    if (!pl_tensorflow_api.name) {                                                                                     \
        return "TF_" #name;                                                                                            \
    }
    PL_TENSORFLOW_EXPERIMENTS(MISSING)
    return NULL;
}
