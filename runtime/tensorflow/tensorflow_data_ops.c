/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of a tf.data.Dataset of paceline.data, which are registered when TensorFlow loads this module.
 * TensorFlow's GeneratorDataset calls them: Open for each iterator, then for each batch
 *
 *   ready = Poll(iterator); while (!ready) { ready = Wait(iterator); } Take(iterator)
 *
 * Wait returns within WAIT_NS, because only TensorFlow's loop notices that a step was cancelled; a kernel in C does
 * not. The tensor `iterator` contains the iterator. TensorFlow closes the iterator when it drops the tensor's last
 * reference, without Python. */
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "runtime/tensorflow/tensorflow_api.h"
#include "runtime/tensorflow/tensorflow_data.h"
#include "runtime/tensorflow/tensorflow_done.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_BYTES = 1200, MAX_DIMS = 1 + PL_FIELD_MAX_DIMS };

#define POLL_NS (2 * PL_NS_PER_MS)  /* longest time for which Poll keeps one of TensorFlow's threads */
#define WAIT_NS (50 * PL_NS_PER_MS) /* longest time for which a cancelled step goes on */

static const struct pl_tensorflow_api *const tf = &pl_tensorflow_api;

static int code_of(enum pl_status status)
{
    switch (status) {
    case PL_OK:
        return TF_OK;
    case PL_INVALID:
    case PL_LIMIT:
    case PL_MISMATCH:
        return TF_INVALID_ARGUMENT;
    case PL_NOT_FOUND:
        return TF_NOT_FOUND;
    case PL_MEMORY:
        return TF_RESOURCE_EXHAUSTED;
    case PL_TIMEOUT:
        return TF_DEADLINE_EXCEEDED;
    case PL_CANCELLED:
        return TF_CANCELLED;
    case PL_PEER:
        return TF_UNAVAILABLE;
    case PL_CORRUPT:
        return TF_DATA_LOSS;
    case PL_END:
        return TF_OUT_OF_RANGE;
    case PL_UNSUPPORTED:
        return TF_UNIMPLEMENTED;
    case PL_SYSTEM:
    case PL_LIBRARY:
    case PL_FAILED:
        break;
    }
    return TF_UNKNOWN;
}

/* Fails the kernel with the text of Python's DataError. */
static void fail(struct TF_OpKernelContext *context, enum pl_status status, const struct pl_error *error)
{
    struct TF_Status *failure = tf->NewStatus();
    char cause[PL_ERROR_CAUSE_BYTES + PL_ERROR_CONTEXT_BYTES + 1];
    char text[TEXT_BYTES];

    snprintf(text, sizeof(text), "%s [%s]", pl_error_text(error, cause, sizeof(cause)), pl_status_name(status));
    tf->SetStatus(failure, code_of(status), text);
    tf->OpKernelContext_Failure(context, failure);
    tf->DeleteStatus(failure);
}

/* Returns whether TensorFlow's call has succeeded. If not, fails the kernel. */
static bool is_ok(struct TF_OpKernelContext *context, struct TF_Status *status)
{
    bool good = tf->GetCode(status) == TF_OK;

    if (!good) {
        tf->OpKernelContext_Failure(context, status);
    }
    return good;
}

/* ---- outputs ---- */

static const int types[] = {
    [PL_FLOAT32] = TF_FLOAT, [PL_FLOAT64] = TF_DOUBLE, [PL_FLOAT16] = TF_HALF, [PL_BFLOAT16] = TF_BFLOAT16,
    [PL_INT8] = TF_INT8,     [PL_INT16] = TF_INT16,    [PL_INT32] = TF_INT32,  [PL_INT64] = TF_INT64,
    [PL_UINT8] = TF_UINT8,   [PL_BOOL] = TF_BOOL,
};

/* A batch whose memory tensors use. */
struct lease {
    struct pl_batch batch;
    struct pl_tensorflow_leases *leases;
    size_t users; /* number of tensors, plus 1 while the kernel makes them; accessed by __atomic functions */
};

static void drop_lease(struct lease *lease)
{
    if (__atomic_sub_fetch(&lease->users, 1, __ATOMIC_ACQ_REL) == 0) {
        pl_batch_release(&lease->batch);
        __atomic_sub_fetch(&lease->leases->count, 1, __ATOMIC_RELAXED);
        free(lease);
    }
}

static void deallocate(void *data, size_t bytes, void *lease)
{
    (void)data;
    (void)bytes;
    drop_lease(lease);
}

struct outputs {
    struct TF_OpKernelContext *context;
    struct TF_Status *status;
    struct lease *lease; /* NULL: copy the data */
    int next;
};

/* Sets the next output to the elements at `data`: to this memory itself, or to a copy. */
static bool put(struct outputs *outputs, int type, const int64_t *dims, int count, const void *data, size_t bytes)
{
    struct TF_Tensor *tensor;

    if (!outputs->lease || bytes == 0) {
        tensor = tf->AllocateOutput(outputs->context, outputs->next++, type, dims, count, bytes, outputs->status);
        if (tf->GetCode(outputs->status) == TF_OK && bytes > 0) {
            memcpy(tf->TensorData(tensor), data, bytes);
        }
    } else {
        __atomic_add_fetch(&outputs->lease->users, 1, __ATOMIC_RELAXED);
        tensor = tf->NewTensor(type, dims, count, (void *)(uintptr_t)data, bytes, deallocate, outputs->lease);
        if (tensor) {
            tf->SetOutput(outputs->context, outputs->next++, tensor, outputs->status);
        } else {
            tf->SetStatus(outputs->status, TF_RESOURCE_EXHAUSTED, "TensorFlow has made no tensor for a field");
        }
    }
    if (tensor) {
        tf->DeleteTensor(tensor);
    }
    return is_ok(outputs->context, outputs->status);
}

/* Sets the next output to the samples' bytes as strings. */
static bool put_strings(struct outputs *outputs, const struct pl_batch_field *field, int64_t samples)
{
    struct TF_Tensor *tensor = tf->AllocateOutput(outputs->context, outputs->next++, TF_STRING, &samples, 1,
                                                  (size_t)samples * sizeof(struct TF_TString), outputs->status);
    struct TF_TString *strings;

    if (!is_ok(outputs->context, outputs->status)) {
        return false;
    }
    strings = tf->TensorData(tensor);
    for (int64_t i = 0; i < samples; i++) {
        tf->StringCopy(&strings[i], (const char *)field->data + field->offsets[i],
                       (size_t)(field->offsets[i + 1] - field->offsets[i]));
    }
    tf->DeleteTensor(tensor);
    return true;
}

/* A field of fixed shape, also one of bytes, is one output. A field with a varying number of elements is two: its
 * values, and, for TensorFlow's RaggedTensor, the index at which each sample begins. */
static bool put_field(struct outputs *outputs, const struct pl_field *field, const struct pl_batch_field *data,
                      int64_t samples)
{
    const size_t item_bytes = pl_dtype_bytes(field->type);
    int64_t dims[MAX_DIMS] = {samples};
    size_t items = (size_t)samples;

    if (field->is_varying && field->type == PL_UINT8) {
        return put_strings(outputs, data, samples);
    }
    if (field->is_varying) {
        const int64_t ends = samples + 1;

        return put(outputs, types[field->type], &data->offsets[samples], 1, data->data,
                   (size_t)data->offsets[samples] * item_bytes) &&
               put(outputs, TF_INT64, &ends, 1, data->offsets, (size_t)ends * sizeof(int64_t));
    }
    for (unsigned d = 0; d < field->dims; d++) {
        dims[1 + d] = (int64_t)field->shape[d];
        items *= (size_t)field->shape[d];
    }
    return put(outputs, types[field->type], dims, 1 + (int)field->dims, data->data, items * item_bytes);
}

/* Returns a lease of `batch`; NULL if there are too many, or if memory is out: then the caller copies the batch. */
static struct lease *lease_batch(struct pl_tensorflow_leases *leases, const struct pl_batch *batch)
{
    struct lease *lease = NULL;

    if (__atomic_load_n(&leases->count, __ATOMIC_RELAXED) < leases->limit) {
        lease = malloc(sizeof(*lease));
    }
    if (lease) {
        *lease = (struct lease){.batch = *batch, .leases = leases, .users = 1};
        __atomic_add_fetch(&leases->count, 1, __ATOMIC_RELAXED);
    }
    return lease;
}

static void put_batch(struct TF_OpKernelContext *context, struct pl_tensorflow_data *data, struct pl_batch *batch)
{
    const struct pl_dataset_options *options = &pl_tensorflow_data_options(data)->dataset;
    struct outputs outputs = {.context = context, .status = tf->NewStatus()};
    bool good = true;

    outputs.lease = lease_batch(pl_tensorflow_data_leases(data), batch);
    for (size_t f = 0; f < batch->field_count && good; f++) {
        good = put_field(&outputs, &options->fields[f], &batch->fields[f], (int64_t)batch->samples);
    }
    if (outputs.lease) {
        drop_lease(outputs.lease);
    } else {
        pl_batch_release(batch);
    }
    tf->DeleteStatus(outputs.status);
}

/* ---- kernels ---- */

static void close_iterator(void *data, size_t bytes, void *argument)
{
    (void)bytes;
    (void)argument;
    pl_tensorflow_iterator_close(data);
}

static void open_iterator(void *kernel, struct TF_OpKernelContext *context)
{
    struct pl_error error = PL_ERROR_NONE;
    struct TF_Status *status = tf->NewStatus();
    struct TF_Tensor *source = NULL, *tensor;
    struct pl_tensorflow_iterator *iterator = NULL;
    enum pl_status opened;

    (void)kernel;
    tf->GetInput(context, 0, &source, status);
    if (is_ok(context, status)) {
        const uint64_t *words = tf->TensorData(source);

        if (tf->TensorElementCount(source) != 2 || words[1] != pl_tensorflow_data_mark()) {
            opened = pl_error_set(&error, PL_INVALID,
                                  "this dataset of paceline.data was made by another process; call tf() in this one");
        } else {
            opened = pl_tensorflow_iterator_open((struct pl_tensorflow_data *)(uintptr_t)words[0], &iterator, &error);
        }
        tf->DeleteTensor(source);
        if (opened != PL_OK) {
            fail(context, opened, &error);
        }
    }
    if (iterator) {
        const int64_t dim = sizeof(*iterator) / sizeof(int64_t);

        tensor = tf->NewTensor(TF_INT64, &dim, 1, iterator, sizeof(*iterator), close_iterator, NULL);
        tf->SetOutput(context, 0, tensor, status);
        tf->DeleteTensor(tensor);
        is_ok(context, status);
    }
    tf->DeleteStatus(status);
}

/* Returns the iterator in the kernel's input, and the tensor that contains it; NULL if the kernel has failed. */
static struct pl_tensorflow_iterator *input(struct TF_OpKernelContext *context, struct TF_Tensor **ret_tensor)
{
    struct TF_Status *status = tf->NewStatus();
    struct pl_tensorflow_iterator *iterator = NULL;

    tf->GetInput(context, 0, ret_tensor, status);
    if (is_ok(context, status)) {
        iterator = tf->TensorData(*ret_tensor);
        if (tf->TensorByteSize(*ret_tensor) != sizeof(*iterator) || iterator->self != iterator) {
            tf->SetStatus(status, TF_INVALID_ARGUMENT, "the tensor is not an iterator of paceline.data");
            tf->OpKernelContext_Failure(context, status);
            tf->DeleteTensor(*ret_tensor);
            iterator = NULL;
        }
    }
    tf->DeleteStatus(status);
    return iterator;
}

static void put_bool(struct TF_OpKernelContext *context, bool value)
{
    struct outputs outputs = {.context = context, .status = tf->NewStatus()};
    unsigned char byte = value;

    put(&outputs, TF_BOOL, NULL, 0, &byte, sizeof(byte));
    tf->DeleteStatus(outputs.status);
}

static void wait_here(struct TF_OpKernelContext *context, int64_t wait_ns)
{
    struct TF_Tensor *tensor;
    struct pl_tensorflow_iterator *iterator = input(context, &tensor);

    if (iterator) {
        put_bool(context, pl_tensorflow_iterator_wait(iterator, pl_deadline_after_ns(wait_ns)));
        tf->DeleteTensor(tensor);
    }
}

static void poll_iterator(void *kernel, struct TF_OpKernelContext *context)
{
    (void)kernel;
    wait_here(context, POLL_NS);
}

/* In TensorFlow 2.12 C kernels cannot be asynchronous: one of its threads waits. */
static void wait_for_iterator_here(void *kernel, struct TF_OpKernelContext *context)
{
    (void)kernel;
    wait_here(context, WAIT_NS);
}

/* A wait in a separate thread, so that none of TensorFlow's few threads has to wait. */
struct wait {
    struct TF_OpKernelContext *context;
    struct pl_tensorflow_iterator *iterator;
    struct TF_Tensor *tensor;
    struct pl_tensorflow_done done;
};

static void *run_wait(void *argument)
{
    struct wait wait = *(struct wait *)argument;

    free(argument);
    put_bool(wait.context, pl_tensorflow_iterator_wait(wait.iterator, pl_deadline_after_ns(WAIT_NS)));
    tf->DeleteTensor(wait.tensor);
    pl_tensorflow_done_run(&wait.done);
    return NULL;
}

static void wait_for_iterator(void *kernel, struct TF_OpKernelContext *context,
                              struct TF_AsyncOpKernelDoneCallback *done)
{
    struct wait wait = {.context = context}, *own;
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;
    pthread_t thread;

    (void)kernel;
    pl_tensorflow_done_copy(&wait.done, done);
    wait.iterator = input(context, &wait.tensor);
    if (!wait.iterator) {
        pl_tensorflow_done_run(&wait.done);
        return;
    }
    status = pl_memory_alloc(&own, 1, sizeof(*own), &error);
    if (status == PL_OK) {
        *own = wait;
        status = pl_thread_start(&thread, run_wait, own, "a thread that waits for data", &error);
    }
    if (status == PL_OK) {
        pthread_detach(thread);
        return;
    }
    free(own);
    fail(context, status, &error);
    tf->DeleteTensor(wait.tensor);
    pl_tensorflow_done_run(&wait.done);
}

static void take_batch(void *kernel, struct TF_OpKernelContext *context)
{
    struct pl_error error = PL_ERROR_NONE;
    struct TF_Tensor *tensor;
    struct pl_tensorflow_iterator *iterator = input(context, &tensor);
    struct pl_batch batch;
    enum pl_status status;

    (void)kernel;
    if (!iterator) {
        return;
    }
    status = pl_tensorflow_iterator_take(iterator, &batch, &error);
    if (status == PL_OK) {
        put_batch(context, iterator->data, &batch);
    } else {
        fail(context, status, &error);
    }
    tf->DeleteTensor(tensor);
}

static void unknown_shapes(struct TF_ShapeInferenceContext *context, struct TF_Status *status)
{
    tf->ShapeInferenceContextSetUnknownShape(context, status);
}

static void no_kernel(void *kernel)
{
    (void)kernel;
}

static const struct operation {
    const char *name, *attribute, *input, *output;
    pl_tensorflow_compute *compute;
    pl_tensorflow_compute_async *compute_async;
} operations[] = {
    {"PacelineDataOpen", NULL, "source: int64", "iterator: int64", open_iterator, NULL},
    {"PacelineDataPoll", NULL, "iterator: int64", "ready: bool", poll_iterator, NULL},
    {"PacelineDataWait", NULL, "iterator: int64", "ready: bool", wait_for_iterator_here, wait_for_iterator},
    {"PacelineDataTake", "types: list(type) >= 1", "iterator: int64", "components: types", take_batch, NULL},
};

static void define(const struct operation *operation, struct TF_Status *status)
{
    struct TF_OpDefinitionBuilder *builder = tf->NewOpDefinitionBuilder(operation->name);
    struct TF_KernelBuilder *kernel;

    if (operation->attribute) {
        tf->OpDefinitionBuilderAddAttr(builder, operation->attribute);
    }
    tf->OpDefinitionBuilderAddInput(builder, operation->input);
    tf->OpDefinitionBuilderAddOutput(builder, operation->output);
    tf->OpDefinitionBuilderSetIsStateful(builder, true);
    tf->OpDefinitionBuilderSetShapeInferenceFunction(builder, unknown_shapes);
    tf->RegisterOpDefinition(builder, status);
    if (tf->GetCode(status) == TF_OK) {
        kernel = operation->compute_async && tf->NewAsyncKernelBuilder
                     ? tf->NewAsyncKernelBuilder(operation->name, "CPU", NULL, operation->compute_async, no_kernel)
                     : tf->NewKernelBuilder(operation->name, "CPU", NULL, operation->compute, no_kernel);
        tf->RegisterKernelBuilder(operation->name, kernel, status);
    }
}

/* Registers the operations while TensorFlow loads the module, because TensorFlow looks for them then. */
__attribute__((constructor)) static void register_operations(void)
{
    struct pl_error error = PL_ERROR_NONE;
    struct TF_Status *status;

    if (pl_tensorflow_api_find(&error) != PL_OK) {
        pl_log_error(&error, "cannot register paceline.data's operations for TensorFlow");
        return;
    }
    status = tf->NewStatus();
    for (size_t i = 0; i < PL_ARRAY_ITEMS(operations) && tf->GetCode(status) == TF_OK; i++) {
        define(&operations[i], status);
        if (tf->GetCode(status) != TF_OK) {
            pl_log(PL_LOG_ERROR, "TensorFlow refused the operation %s: %s", operations[i].name, tf->Message(status));
        }
    }
    tf->DeleteStatus(status);
}
