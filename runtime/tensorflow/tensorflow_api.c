/* SPDX-License-Identifier: Apache-2.0 */
/* Finds TensorFlow's C interface in the libraries that the process has loaded. */
#include "runtime/tensorflow/tensorflow_api.h"

#include <dlfcn.h>

struct pl_tensorflow_api pl_tensorflow_api;

/* Returns the function `name` from one of TensorFlow's libraries, or NULL. */
static void *find(const char *name)
{
    static const char *const libraries[] = {"libtensorflow_framework.so.2", "libtensorflow_cc.so.2"};
    void *found = NULL;

    for (size_t i = 0; i < sizeof(libraries) / sizeof(libraries[0]) && !found; i++) {
        void *library = dlopen(libraries[i], RTLD_NOW | RTLD_NOLOAD);

        if (library) {
            found = dlsym(library, name);
            dlclose(library); /* the library stays loaded: TensorFlow never unloads it */
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
                            "TF_" #name                                                                                \
                            " is neither in libtensorflow_framework.so.2 nor in libtensorflow_cc.so.2 of this "        \
                            "process: expected TensorFlow 2.12 to 2.21");                                              \
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
