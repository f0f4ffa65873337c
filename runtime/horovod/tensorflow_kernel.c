/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a TensorFlow kernel's attributes when its node is made. */
#include "runtime/horovod/tensorflow_kernel.h"

#include "runtime/horovod/submission.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct pl_tensorflow_api *const tf = &pl_tensorflow_api;

/* Properties of the operations, indexed by pl_tensorflow_op. */
static const struct traits {
    enum pl_kind kind;
    bool reduces, has_root, has_set, has_scope, grouped, in_place, has_reference;
} traits_of[PL_TENSORFLOW_OPS] = {
    [PL_TENSORFLOW_ALLREDUCE] = {PL_ALLREDUCE, .reduces = true, .has_set = true, .has_scope = true},
    [PL_TENSORFLOW_GROUPED_ALLREDUCE] = {PL_ALLREDUCE, .reduces = true, .has_set = true, .has_scope = true,
                                         .grouped = true},
    [PL_TENSORFLOW_ALLGATHER] = {PL_ALLGATHER, .has_set = true, .has_scope = true},
    [PL_TENSORFLOW_GROUPED_ALLGATHER] = {PL_ALLGATHER, .has_set = true, .has_scope = true, .grouped = true},
    [PL_TENSORFLOW_BROADCAST] = {PL_BROADCAST, .has_root = true, .has_set = true, .has_scope = true},
    [PL_TENSORFLOW_BROADCAST_INPLACE] = {PL_BROADCAST, .has_root = true, .has_set = true, .in_place = true,
                                         .has_reference = true},
    [PL_TENSORFLOW_BROADCAST_INPLACE_RESOURCE] = {PL_BROADCAST, .has_root = true, .has_set = true, .in_place = true},
    [PL_TENSORFLOW_ALLTOALL] = {PL_ALLTOALL, .has_set = true, .has_scope = true},
    [PL_TENSORFLOW_REDUCESCATTER] = {PL_REDUCE_SCATTER, .reduces = true, .has_set = true, .has_scope = true},
    [PL_TENSORFLOW_GROUPED_REDUCESCATTER] = {PL_REDUCE_SCATTER, .reduces = true, .has_set = true, .has_scope = true,
                                             .grouped = true},
    [PL_TENSORFLOW_SIZE] = {.has_set = true},
    [PL_TENSORFLOW_PROCESS_SET_INCLUDED] = {.has_set = true},
};

static bool read_int(struct TF_OpKernelConstruction *construction, const char *name, int *ret_value,
                     struct TF_Status *status)
{
    int32_t value = 0;

    tf->OpKernelConstruction_GetAttrInt32(construction, name, &value, status);
    *ret_value = value;
    return tf->GetCode(status) == TF_OK;
}

static bool read_float(struct TF_OpKernelConstruction *construction, const char *name, float *ret_value,
                       struct TF_Status *status)
{
    tf->OpKernelConstruction_GetAttrFloat(construction, name, ret_value, status);
    return tf->GetCode(status) == TF_OK;
}

static bool read_bool(struct TF_OpKernelConstruction *construction, const char *name, bool *ret_value,
                      struct TF_Status *status)
{
    unsigned char value = 0;

    tf->OpKernelConstruction_GetAttrBool(construction, name, &value, status);
    *ret_value = value != 0;
    return tf->GetCode(status) == TF_OK;
}

/* Sets the kernel's name to the node's name, which is the same on all ranks. Removes scopes from the name if the
 * program asks for it. */
static void name_kernel(struct TF_OpKernelConstruction *construction, struct pl_tensorflow_kernel *kernel,
                        bool ignores_scope)
{
    struct TF_StringView name = tf->OpKernelConstruction_GetName(construction);
    size_t start = ignores_scope ? name.length : 0;

    kernel->is_lone = name.length == strlen(pl_tensorflow_kernel_names[kernel->op]) &&
                      memcmp(name.data, pl_tensorflow_kernel_names[kernel->op], name.length) == 0;
    while (start > 0 && name.data[start - 1] != '/') {
        start--;
    }
    pl_submission_name(NULL, name.data + start, name.length - start, kernel->name);
}

/* Makes the name "<kernel>_<variable>". The variable's name is changed to a valid name of TensorFlow. If memory is out,
 * the variable's number is used instead. */
static void name_variable(struct pl_tensorflow_kernel *kernel, int at, const char *text, size_t length)
{
    char *full = calloc(1, strlen(kernel->name) + length + sizeof("_2147483647"));
    size_t start = strlen(kernel->name) + 1, end = start + length;

    if (!full) {
        snprintf(kernel->variables[at], PL_NAMED_MAX_NAME_BYTES, "variable_%d", at);
        return;
    }
    memcpy(full, kernel->name, start - 1);
    full[start - 1] = '_';
    for (size_t i = 0; i < length; i++) {
        full[start + i] = '_';
        if (isalnum((unsigned char)text[i])) {
            full[start + i] = text[i];
        }
    }
    if (length == 0) {
        end = start + (size_t)sprintf(full + start, "%d", at);
    }
    pl_submission_name(NULL, full, end, kernel->variables[at]);
    free(full);
}

/* Reads the list of the variables' names. */
static bool read_variables(struct TF_OpKernelConstruction *construction, struct pl_tensorflow_kernel *kernel,
                           struct TF_Status *status)
{
    size_t room = (size_t)kernel->tensors + 1;
    char **texts = calloc(room, sizeof(*texts)), *storage = NULL;
    size_t *lengths = calloc(room, sizeof(*lengths));
    int32_t count = 0, bytes = 0;

    kernel->variables = calloc(room, sizeof(*kernel->variables));
    tf->OpKernelConstruction_GetAttrSize(construction, "variable_names", &count, &bytes, status);
    if (tf->GetCode(status) == TF_OK && count != kernel->tensors) {
        tf->SetStatus(status, TF_INVALID_ARGUMENT, "expected as many variable_names as num_variables");
    }
    storage = tf->GetCode(status) == TF_OK ? calloc(1, (size_t)bytes + 1) : NULL;
    if (texts && lengths && kernel->variables && storage) {
        tf->OpKernelConstruction_GetAttrStringList(construction, "variable_names", texts, lengths, count, storage,
                                                   (size_t)bytes, status);
    } else if (tf->GetCode(status) == TF_OK) {
        tf->SetStatus(status, TF_RESOURCE_EXHAUSTED, "out of memory for the names of variables");
    }
    for (int i = 0; i < kernel->tensors && tf->GetCode(status) == TF_OK; i++) {
        name_variable(kernel, i, texts[i], lengths[i]);
    }
    free(texts);
    free(storage);
    free(lengths);
    return tf->GetCode(status) == TF_OK;
}

/* Returns whether this TensorFlow has the experimental calls that in-place operations need. */
static bool has_calls(struct TF_Status *status)
{
    const char *missing = pl_tensorflow_api_missing();
    char text[160];

    if (missing) {
        snprintf(text, sizeof(text), "broadcasting in place needs %s, which this TensorFlow does not have", missing);
        tf->SetStatus(status, TF_UNIMPLEMENTED, text);
    }
    return !missing;
}

static bool read_attributes(struct TF_OpKernelConstruction *construction, struct pl_tensorflow_kernel *kernel,
                            struct TF_Status *status)
{
    const struct traits *traits = &traits_of[kernel->op];
    bool ignores_scope = false;

    if ((traits->has_set && !read_int(construction, "process_set_id", &kernel->set, status)) ||
        (traits->has_root && !read_int(construction, "root_rank", &kernel->root, status)) ||
        (traits->has_scope && !read_bool(construction, "ignore_name_scope", &ignores_scope, status)) ||
        (traits->grouped && !read_int(construction, "num_tensors", &kernel->tensors, status)) ||
        (traits->in_place && !read_int(construction, "num_variables", &kernel->tensors, status)) ||
        (traits->reduces && !read_int(construction, "reduce_op", &kernel->reduction, status)) ||
        (traits->reduces && !read_float(construction, "prescale_factor", &kernel->prescale, status)) ||
        (traits->reduces && !read_float(construction, "postscale_factor", &kernel->postscale, status))) {
        return false;
    }
    name_kernel(construction, kernel, ignores_scope);
    return !traits->in_place || (has_calls(status) && read_variables(construction, kernel, status));
}

static void *create(struct TF_OpKernelConstruction *construction, enum pl_tensorflow_op op)
{
    struct pl_tensorflow_kernel *kernel = calloc(1, sizeof(*kernel));
    struct TF_Status *status = tf->NewStatus();

    if (kernel) {
        kernel->op = op;
        kernel->kind = traits_of[op].kind;
        kernel->grouped = traits_of[op].grouped;
        kernel->in_place = traits_of[op].in_place;
        kernel->has_reference = traits_of[op].has_reference;
        kernel->tensors = 1;
    } else {
        tf->SetStatus(status, TF_RESOURCE_EXHAUSTED, "out of memory for a kernel");
    }
    if (!kernel || !read_attributes(construction, kernel, status)) {
        tf->OpKernelConstruction_Failure(construction, status);
        pl_tensorflow_kernel_free(kernel);
        kernel = NULL;
    }
    tf->DeleteStatus(status);
    return kernel;
}

void pl_tensorflow_kernel_free(void *kernel)
{
    struct pl_tensorflow_kernel *own = kernel;

    if (own) {
        free(own->variables);
        free(own);
    }
}

/* each operation needs its own function, because TensorFlow does not tell the function the operation */
#define MAKER(op, text)                                                                                                \
    static void *create_##op(struct TF_OpKernelConstruction *construction)                                             \
    {                                                                                                                  \
        return create(construction, PL_TENSORFLOW_##op);                                                               \
    }
PL_TENSORFLOW_OP_LIST(MAKER)

#define PLACE(op, text) [PL_TENSORFLOW_##op] = create_##op,
pl_tensorflow_create *const pl_tensorflow_kernel_create[PL_TENSORFLOW_OPS] = {PL_TENSORFLOW_OP_LIST(PLACE)};

#define NAME(op, text) [PL_TENSORFLOW_##op] = (text),
const char *const pl_tensorflow_kernel_names[PL_TENSORFLOW_OPS] = {PL_TENSORFLOW_OP_LIST(NAME)};
