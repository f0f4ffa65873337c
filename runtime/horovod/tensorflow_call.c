/* SPDX-License-Identifier: Apache-2.0 */
/* One run of a kernel: submits its tensors, and calls TensorFlow's callback when the last operation has ended. */
#include "base/memory.h"
#include "runtime/horovod/horovod.h"
#include "runtime/horovod/state.h"
#include "runtime/horovod/submission.h"
#include "runtime/horovod/tensorflow_kernel.h"
#include "runtime/tensorflow/tensorflow_done.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_BYTES = 1100, MAX_DIMS = 254 /* TensorFlow's own limit */ };

static const struct pl_tensorflow_api *const tf = &pl_tensorflow_api;

struct tensor {
    struct TF_Tensor *input, *output; /* owned while the operation uses them */
};

struct call {
    const struct pl_tensorflow_kernel *kernel;
    struct TF_OpKernelContext *context;
    struct pl_tensorflow_done done;
    atomic_size_t left; /* number of submissions in flight, plus one while more may follow */
    bool failed;        /* the call failed before all tensors were submitted; TensorFlow has its error */
    size_t tensor_count, part_count;
    struct tensor *tensors;
    struct pl_submission **parts; /* one for each variable, or one for all tensors */
};

/* Returns the operation of tensor `at`. */
static struct pl_named_op *op_of(const struct call *call, int at)
{
    return call->kernel->in_place ? &call->parts[at]->ops[0] : &call->parts[0]->ops[at];
}

static int code_of(enum pl_status status)
{
    switch (status) {
    case PL_OK:
        return TF_OK;
    case PL_INVALID:
    case PL_UNSUPPORTED:
    case PL_LIMIT:
        return TF_INVALID_ARGUMENT;
    case PL_MEMORY:
        return TF_RESOURCE_EXHAUSTED;
    case PL_MISMATCH:
        return TF_FAILED_PRECONDITION;
    case PL_NOT_FOUND:
    case PL_SYSTEM:
    case PL_LIBRARY:
    case PL_TIMEOUT:
    case PL_CANCELLED:
    case PL_PEER:
    case PL_CORRUPT:
    case PL_END:
    case PL_FAILED:
        break;
    }
    return TF_UNKNOWN; /* Horovod's Python code converts this code to HorovodInternalError */
}

/* Fails the kernel, unless it has failed already. */
static void fail(struct TF_OpKernelContext *context, int code, const char *text)
{
    struct TF_Status *status = tf->NewStatus();

    tf->SetStatus(status, code, text);
    tf->OpKernelContext_Failure(context, status);
    tf->DeleteStatus(status);
}

static void fail_by(struct TF_OpKernelContext *context, enum pl_status status, const struct pl_error *error)
{
    char text[TEXT_BYTES];

    fail(context, code_of(status), pl_error_text(error, text, sizeof(text)));
}

/* Returns whether TensorFlow's call has succeeded. If not, fails the kernel. */
static bool is_ok(struct call *call, struct TF_Status *status)
{
    bool good = tf->GetCode(status) == TF_OK;

    if (!good) {
        tf->OpKernelContext_Failure(call->context, status);
        call->failed = true;
    }
    return good;
}

/* Stores the shape of a tensor, and returns its number of dimensions. */
static int dims_of(const struct TF_Tensor *tensor, int64_t dims[MAX_DIMS])
{
    int count = tf->NumDims(tensor);

    for (int i = 0; i < count; i++) {
        dims[i] = tf->Dim(tensor, i);
    }
    return count;
}

static bool dtype_of(const struct TF_Tensor *tensor, enum pl_dtype *ret_dtype)
{
    switch (tf->TensorType(tensor)) {
    case TF_FLOAT:
        *ret_dtype = PL_FLOAT32;
        return true;
    case TF_DOUBLE:
        *ret_dtype = PL_FLOAT64;
        return true;
    case TF_HALF:
        *ret_dtype = PL_FLOAT16;
        return true;
    case TF_BFLOAT16:
        *ret_dtype = PL_BFLOAT16;
        return true;
    case TF_INT8:
        *ret_dtype = PL_INT8;
        return true;
    case TF_UINT16: /* these types can only be moved, not reduced */
    case TF_INT16:
        *ret_dtype = PL_INT16;
        return true;
    case TF_INT32:
        *ret_dtype = PL_INT32;
        return true;
    case TF_INT64:
        *ret_dtype = PL_INT64;
        return true;
    case TF_UINT8:
        *ret_dtype = PL_UINT8;
        return true;
    case TF_BOOL:
        *ret_dtype = PL_BOOL;
        return true;
    default:
        return false;
    }
}

/* Sets type and shape of `op` to those of `tensor`. */
static bool describe(struct call *call, const struct TF_Tensor *tensor, struct pl_named_op *op)
{
    int count = tf->NumDims(tensor);

    if (!dtype_of(tensor, &op->dtype)) {
        fail(call->context, TF_INVALID_ARGUMENT, "variables of this type cannot be broadcast in place");
        call->failed = true;
        return false;
    }
    op->dims = 0;
    for (int i = 0; i < count; i++) {
        pl_submission_dimension(op, (uint64_t)tf->Dim(tensor, i));
    }
    return true;
}

/* Makes tensor `at` the input of its operation. */
static bool take_input(struct call *call, int at, struct TF_Status *status)
{
    struct tensor *tensor = &call->tensors[at];
    struct pl_named_op *op = op_of(call, at);

    tf->GetInput(call->context, at, &tensor->input, status);
    if (!is_ok(call, status) || !describe(call, tensor->input, op)) {
        return false;
    }
    op->send = tf->TensorData(tensor->input);
    return true;
}

/* Puts the sum into the input's memory if nobody else uses it, else into new memory. */
static bool take_reduced(struct call *call, int at, struct TF_Status *status)
{
    struct tensor *tensor = &call->tensors[at];
    struct pl_named_op *op = op_of(call, at);
    int64_t dims[MAX_DIMS];
    int count, forwarded = -1;

    if (!take_input(call, at, status)) {
        return false;
    }
    count = dims_of(tensor->input, dims);
    tf->DeleteTensor(tensor->input); /* TensorFlow reuses the input's memory only if nobody else has the tensor */
    tensor->input = NULL;
    tensor->output = tf->ForwardInputOrAllocateOutput(call->context, &at, 1, at, dims, count, &forwarded, status);
    if (!is_ok(call, status)) {
        return false;
    }
    op->recv = tf->TensorData(tensor->output);
    if (forwarded == at) {
        op->send = op->recv;
        return true;
    }
    tf->GetInput(call->context, at, &tensor->input, status);
    op->send = is_ok(call, status) ? tf->TensorData(tensor->input) : NULL;
    return !call->failed;
}

/* Prepares a broadcast. The root's result is its input. */
static bool take_broadcast(struct call *call, struct TF_Status *status)
{
    struct tensor *tensor = &call->tensors[0];
    struct pl_named_op *op = op_of(call, 0);
    int64_t dims[MAX_DIMS];
    int count;

    if (!take_input(call, 0, status)) {
        return false;
    }
    if (horovod_rank() == call->kernel->root) {
        tf->SetOutput(call->context, 0, tensor->input, status);
        op->recv = tf->TensorData(tensor->input);
        op->send = op->recv;
        return is_ok(call, status);
    }
    count = dims_of(tensor->input, dims);
    tensor->output = tf->AllocateOutput(call->context, 0, tf->TensorType(tensor->input), dims, count,
                                        tf->TensorByteSize(tensor->input), status);
    if (!is_ok(call, status)) {
        return false;
    }
    op->recv = tf->TensorData(tensor->output);
    return true;
}

/* Copies a variable whose memory is shared: TensorFlow allocates new memory; this copies the old values there. */
static void copy_tensor(struct TF_OpKernelContext *context, struct TF_Tensor *from, struct TF_Tensor *to)
{
    (void)context;
    if (tf->TensorByteSize(from) > 0) {
        memcpy(tf->TensorData(to), tf->TensorData(from), tf->TensorByteSize(from));
    }
    tf->DeleteTensor(from);
    tf->DeleteTensor(to);
}

static bool take_variable(struct call *call, int at, struct TF_Status *status)
{
    struct tensor *tensor = &call->tensors[at];
    struct pl_named_op *op = op_of(call, at);

    tf->GetInputTensorFromVariable(call->context, at, false, false, false, copy_tensor, &tensor->output, status);
    if (!is_ok(call, status)) {
        return false;
    }
    if (!tensor->output || tf->TensorElementCount(tensor->output) < 0) {
        call->failed = true; /* TensorFlow has the error */
        return false;
    }
    if (call->kernel->has_reference) {
        tf->OpKernelContext_ForwardRefInputToRefOutput(call->context, at, at);
    }
    op->recv = tf->TensorData(tensor->output);
    op->send = op->recv;
    return describe(call, tensor->output, op);
}

/* Reads the number of rows for each rank from the second input. */
static void take_splits(struct call *call, struct TF_Status *status)
{
    struct pl_error error = PL_ERROR_NONE;
    struct TF_Tensor *splits = NULL;
    enum pl_status taken;

    tf->GetInput(call->context, 1, &splits, status);
    if (!is_ok(call, status)) {
        return;
    }
    taken = pl_submission_split(call->parts[0], call->kernel->set, tf->TensorData(splits), sizeof(int32_t),
                                (uint64_t)tf->TensorElementCount(splits), &error);
    tf->DeleteTensor(splits);
    if (taken != PL_OK) {
        fail_by(call->context, taken, &error);
        call->failed = true;
    }
}

/* Fills in the operation of tensor `at`, except its name. */
static bool take(struct call *call, int at, struct TF_Status *status)
{
    const struct pl_tensorflow_kernel *kernel = call->kernel;

    if (kernel->in_place) {
        return take_variable(call, at, status);
    }
    switch (kernel->op) {
    case PL_TENSORFLOW_ALLREDUCE:
    case PL_TENSORFLOW_GROUPED_ALLREDUCE:
        return take_reduced(call, at, status);
    case PL_TENSORFLOW_BROADCAST:
        return take_broadcast(call, status);
    default:
        return take_input(call, at, status);
    }
}

/* Allocates memory for the kernel's tensors, and their operations, which are like `op`. */
static enum pl_status make_room(struct call *call, const struct pl_named_op *op, int ranks, struct pl_error *reterr)
{
    const struct pl_tensorflow_kernel *kernel = call->kernel;
    size_t tensors = kernel->op == PL_TENSORFLOW_JOIN ? 0 : (size_t)kernel->tensors;
    size_t parts = kernel->in_place ? tensors : 1, each = kernel->in_place ? 1 : tensors;

    PL_TRY(pl_memory_alloc(&call->tensors, tensors + 1, sizeof(*call->tensors), reterr));
    PL_TRY(pl_memory_alloc(&call->parts, parts + 1, sizeof(*call->parts), reterr));
    call->tensor_count = tensors;
    while (call->part_count < parts) {
        struct pl_submission *part = pl_submission_new(op, each, reterr);

        if (!part) {
            return PL_MEMORY;
        }
        part->owner = call;
        part->completion.ranks = ranks;
        call->parts[call->part_count++] = part;
    }
    return PL_OK;
}

/* Releases tensors and results, unless a message may still access them. */
static void release(struct call *call)
{
    bool good = true;

    for (size_t i = 0; i < call->part_count; i++) {
        good = pl_submission_free(call->parts[i]) && good;
    }
    for (size_t i = 0; i < call->tensor_count && good; i++) {
        if (call->tensors[i].input) {
            tf->DeleteTensor(call->tensors[i].input);
        }
        if (call->tensors[i].output) {
            tf->DeleteTensor(call->tensors[i].output);
        }
    }
    free(call->tensors);
    free(call->parts);
}

/* Makes a new output of `bytes` bytes with a copy of `data`. */
static bool give(struct call *call, int at, int type, const int64_t *dims, int count, const void *data, size_t bytes,
                 struct TF_Status *status)
{
    struct TF_Tensor *output = tf->AllocateOutput(call->context, at, type, dims, count, bytes, status);

    if (!is_ok(call, status)) {
        return false;
    }
    if (bytes > 0) {
        memcpy(tf->TensorData(output), data, bytes);
    }
    tf->DeleteTensor(output);
    return true;
}

static bool give_rows(struct call *call, int at, struct TF_Status *status)
{
    const struct pl_named_result *result = &call->parts[0]->results[at];
    const struct TF_Tensor *input = call->tensors[at].input;
    int64_t dims[MAX_DIMS];
    int count = dims_of(input, dims);

    dims[0] = (int64_t)result->rows;
    return give(call, at, tf->TensorType(input), dims, count, result->data, (size_t)result->bytes, status);
}

static bool give_received(struct call *call, struct TF_Status *status)
{
    const int64_t ranks = call->parts[0]->completion.ranks;
    size_t bytes = (size_t)ranks * sizeof(int32_t);
    struct pl_error error = PL_ERROR_NONE;
    PL_AUTO_FREE int32_t *rows = pl_memory_new((size_t)ranks, sizeof(*rows), &error);
    enum pl_status taken = rows ? pl_submission_received(call->parts[0], sizeof(*rows), rows, &error) : PL_MEMORY;

    if (taken != PL_OK) {
        fail_by(call->context, taken, &error);
    }
    return taken == PL_OK && give(call, 1, TF_INT32, &ranks, 1, rows, bytes, status);
}

/* Makes the outputs whose sizes are known only after the operations. */
static void give_all(struct call *call)
{
    struct TF_Status *status = tf->NewStatus();
    bool good = true;

    for (size_t i = 0; i < call->part_count; i++) {
        pl_submission_finish(call->parts[i]);
    }
    if (call->kernel->op == PL_TENSORFLOW_JOIN) {
        const int32_t last = call->parts[0]->completion.last_joined_rank;

        good = give(call, 0, TF_INT32, NULL, 0, &last, sizeof(last), status);
    }
    for (size_t i = 0; i < call->tensor_count && !call->kernel->in_place && good; i++) {
        good = !call->parts[0]->results[i].data || give_rows(call, (int)i, status);
    }
    if (good && call->kernel->op == PL_TENSORFLOW_ALLTOALL) {
        give_received(call, status);
    }
    tf->DeleteStatus(status);
}

/* Ends the call after all its operations: reports the first error, and calls TensorFlow's callback. */
static void finish(struct call *call)
{
    bool failed = call->failed;

    for (size_t i = 0; i < call->part_count && !failed; i++) {
        const struct pl_completion *completion = &call->parts[i]->completion;

        if (completion->status != PL_OK) {
            fail_by(call->context, completion->status, &completion->error);
            failed = true;
        }
    }
    if (!failed) {
        give_all(call);
    }
    release(call);
    pl_tensorflow_done_run(&call->done); /* not copied, because a std::function may have pointers into itself */
    free(call);
}

static void drop(struct call *call)
{
    if (atomic_fetch_sub(&call->left, 1) == 1) {
        finish(call);
    }
}

/* Runs in the thread that drives the service. */
static void part_ended(struct pl_completion *completion)
{
    drop(((struct pl_submission *)(void *)completion)->owner);
}

/* Submits part `at`. */
static enum pl_status submit_part(struct call *call, struct pl_service *service, size_t at, struct pl_error *reterr)
{
    const struct pl_tensorflow_kernel *kernel = call->kernel;
    struct pl_submission *part = call->parts[at];
    enum pl_status status;

    part->completion.call = part_ended;
    atomic_fetch_add(&call->left, 1);
    status =
        kernel->op == PL_TENSORFLOW_JOIN
            ? pl_service_submit_join(service, &part->completion, reterr)
            : pl_submission_start(part, service, kernel->set, kernel->in_place ? kernel->variables[at] : kernel->name,
                                  kernel->grouped, reterr);
    if (status != PL_OK) {
        atomic_fetch_sub(&call->left, 1);
    }
    return status;
}

/* Prepares the settings that all operations of the kernel share. */
static enum pl_status prepare(struct call *call, struct pl_service *service, struct pl_error *reterr)
{
    const struct pl_tensorflow_kernel *kernel = call->kernel;
    struct pl_named_op op = {.kind = kernel->kind};
    struct pl_service_set set;

    PL_TRY(pl_service_get_set(service, kernel->set, &set, NULL, 0, reterr));
    if (kernel->kind == PL_ALLREDUCE || kernel->kind == PL_REDUCE_SCATTER) {
        pl_submission_reduce(&op, kernel->reduction, (double)kernel->prescale, (double)kernel->postscale);
    }
    if (kernel->kind == PL_BROADCAST) {
        PL_TRY(pl_submission_root(service, kernel->set, kernel->root, &op.root, reterr));
    }
    return make_room(call, &op, set.size, reterr);
}

static void submit(struct call *call, struct pl_service *service)
{
    struct TF_Status *state = tf->NewStatus();
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status = prepare(call, service, &error);

    for (size_t i = 0; i < call->tensor_count && status == PL_OK && !call->failed; i++) {
        take(call, (int)i, state);
    }
    if (call->kernel->op == PL_TENSORFLOW_ALLTOALL && status == PL_OK && !call->failed) {
        take_splits(call, state);
    }
    for (size_t i = 0; i < call->part_count && status == PL_OK && !call->failed; i++) {
        status = submit_part(call, service, i, &error);
    }
    if (status != PL_OK) {
        fail_by(call->context, status, &error);
        call->failed = true;
    }
    tf->DeleteStatus(state);
}

static const char uninitialised[] = "Horovod has not been initialized; use hvd.init().";

/*
 * Returns whether TensorFlow is optimising a graph and runs the kernel in order to replace a node that has constant
 * inputs by its result. Each rank does so for its own graph, so other ranks may not take part. If the run fails, the
 * node stays in the graph. Such a run has no step: its number is 0, or one of LogMemory::SpecialStepIds, -6 to -1. An
 * eager run has no step either, but its node has no name of its own.
 */
static bool is_folding(const struct pl_tensorflow_kernel *kernel, struct TF_OpKernelContext *context)
{
    int64_t step = tf->StepId(context);

    return !kernel->is_lone && step <= 0 && step >= -6;
}

void pl_tensorflow_call_start(void *kernel, struct TF_OpKernelContext *context,
                              struct TF_AsyncOpKernelDoneCallback *done)
{
    struct call *call = calloc(1, sizeof(*call));
    bool folding = is_folding(kernel, context);
    struct pl_service *service = call && !folding ? pl_state_hold() : NULL;
    struct pl_tensorflow_done copy;

    if (!service) {
        if (folding) {
            fail(context, TF_UNIMPLEMENTED, "the result is not constant, because it depends on other ranks");
        } else {
            fail(context, call ? TF_FAILED_PRECONDITION : TF_RESOURCE_EXHAUSTED,
                 call ? uninitialised : "out of memory");
        }
        free(call);
        pl_tensorflow_done_copy(&copy, done);
        pl_tensorflow_done_run(&copy);
        return;
    }
    call->kernel = kernel;
    call->context = context;
    pl_tensorflow_done_copy(&call->done, done);
    atomic_init(&call->left, 1);
    submit(call, service);
    pl_state_release();
    drop(call);
}

static int answer(const struct pl_tensorflow_kernel *kernel)
{
    switch (kernel->op) {
    case PL_TENSORFLOW_SIZE:
        return horovod_process_set_size(kernel->set);
    case PL_TENSORFLOW_PROCESS_SET_INCLUDED:
        return horovod_process_set_included(kernel->set);
    case PL_TENSORFLOW_LOCAL_SIZE:
        return horovod_local_size();
    case PL_TENSORFLOW_RANK:
        return horovod_rank();
    case PL_TENSORFLOW_LOCAL_RANK:
        return horovod_local_rank();
    default:
        return HOROVOD_ERROR_INIT;
    }
}

void pl_tensorflow_call_ask(void *kernel, struct TF_OpKernelContext *context)
{
    struct TF_Status *status = tf->NewStatus();
    struct TF_Tensor *output;

    if (!horovod_is_initialized()) {
        fail(context, TF_FAILED_PRECONDITION, uninitialised);
    } else {
        output = tf->AllocateOutput(context, 0, TF_INT32, NULL, 0, sizeof(int32_t), status);
        if (tf->GetCode(status) == TF_OK) {
            *(int32_t *)tf->TensorData(output) = answer(kernel);
            tf->DeleteTensor(output);
        } else {
            tf->OpKernelContext_Failure(context, status);
        }
    }
    tf->DeleteStatus(status);
}
