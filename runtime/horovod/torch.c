/* SPDX-License-Identifier: Apache-2.0 */
/* The module horovod.torch.mpi_lib_v2, which Horovod's own Python code calls for torch tensors. */
#define Py_LIMITED_API 0x03080000
#include <Python.h>

#include "runtime/horovod/torch_tensor.h"

#include "base/dtype.h"
#include "runtime/horovod/horovod.h"
#include "runtime/horovod/state.h"
#include "runtime/horovod/submission.h"

#include <stdlib.h>
#include <string.h>

enum { HANDLE_CHAINS = 1024, TEXT_BYTES = 1100 };

/* How a function is called: its flags. */
enum { ONE = 0, GROUPED = 1 << 0, ON_GPU = 1 << 1 };

/* Arguments of a function of Horovod. */
struct request {
    struct pl_named_op op;
    const char *kind; /* Horovod's word for the operation, which precedes the tensor's name */
    PyObject *name;
    int set;
    int how;
    PyObject *splits, *received; /* ALLTOALL: rows for each rank, and the tensor for the received numbers of rows */
};

/* A submitted call, until the program has waited for it. */
struct handle {
    struct pl_submission *submission;
    long number;
    struct handle *next;
    bool is_join;               /* the call is a join */
    PyObject *inputs, *outputs; /* references that keep the tensors alive */
    PyObject *targets;          /* tensors that get a copy of `outputs`; one that is None: no copy; NULL: no copies */
    PyObject *received;         /* ALLTOALL: the tensor for the received numbers of rows */
    bool listed;                /* inputs, outputs and targets are sequences */
    int gpu;                    /* GPU whose stream follows the operation; -1: the host waits */
};

/* guarded by the interpreter's lock */
static struct {
    struct handle *chains[HANDLE_CHAINS];
    long numbers;
    struct handle *followed, **followed_end; /* handles that a stream follows and that have not ended, oldest first */
    bool warned;                             /* a warning has said that GPU tensors are copied */
} torch = {.followed_end = &torch.followed};

/* Raises an exception. Horovod's Python code converts a RuntimeError to a HorovodInternalError. */
static PyObject *raise_error(PyObject *type, const struct pl_error *error)
{
    char text[TEXT_BYTES];

    PyErr_SetString(type, pl_error_text(error, text, sizeof(text)));
    return NULL;
}

/* Returns the service, until pl_state_release(); NULL, with an exception: there is none. */
static struct pl_service *hold(void)
{
    struct pl_service *service = pl_state_hold();

    if (!service) {
        PyErr_SetString(PyExc_RuntimeError, "Horovod has not been initialized; use hvd.init().");
    }
    return service;
}

/* Returns Horovod's name of the operation, with `kind` before it; NULL: the program gave none. */
static const char *name_of(PyObject *given, const char *kind, char name[PL_NAMED_MAX_NAME_BYTES])
{
    Py_ssize_t length = PyBytes_Check(given) ? PyBytes_Size(given) : 0;
    const char *text = length > 0 ? PyBytes_AsString(given) : NULL;

    return text ? pl_submission_name(kind, text, (size_t)length, name) : NULL;
}

static void handle_free(struct handle *handle)
{
    if (!pl_submission_free(handle->submission)) {
        return; /* leaks the tensors and their copies, which a message may still access */
    }
    Py_XDECREF(handle->inputs);
    Py_XDECREF(handle->outputs);
    Py_XDECREF(handle->targets);
    Py_XDECREF(handle->received);
    free(handle);
}

/* Py_XNewRef() of later Python versions. */
static PyObject *keep(PyObject *object)
{
    Py_XINCREF(object);
    return object;
}

/* Makes a handle for `count` operations like `op`; NULL, with an exception: memory is out. */
static struct handle *handle_new(const struct pl_named_op *op, size_t count)
{
    struct handle *handle = calloc(1, sizeof(*handle));

    if (!handle || !(handle->submission = pl_submission_new(op, count, NULL))) {
        free(handle);
        PyErr_NoMemory();
        return NULL;
    }
    handle->gpu = -1;
    return handle;
}

/* Frees the handles that streams followed and that have ended. */
static void free_followed(struct pl_service *service)
{
    while (torch.followed && pl_service_is_done(service, &torch.followed->submission->completion)) {
        struct handle *handle = torch.followed;

        torch.followed = handle->next;
        torch.followed_end = torch.followed ? torch.followed_end : &torch.followed;
        handle_free(handle);
    }
}

/* Stores a handle that a stream follows, until it has ended. */
static void keep_followed(struct handle *handle)
{
    handle->next = NULL;
    *torch.followed_end = handle;
    torch.followed_end = &handle->next;
}

static void enter(struct handle *handle)
{
    struct handle **chain = &torch.chains[handle->number % HANDLE_CHAINS];

    handle->next = *chain;
    *chain = handle;
}

/* Ends a call that has submitted: releases the service, and returns the number of `handle`, or raises the error. */
static PyObject *give_number(struct handle *handle, enum pl_status status, const struct pl_error *error)
{
    pl_state_release();
    if (status != PL_OK) {
        handle_free(handle);
        return raise_error(status == PL_INVALID ? PyExc_ValueError : PyExc_RuntimeError, error);
    }
    handle->number = ++torch.numbers;
    enter(handle);
    return PyLong_FromLong(handle->number);
}

/* Returns the position of the handle with that number; NULL, with an exception: there is none. */
static struct handle **find(PyObject *arguments)
{
    long number = 0;
    struct handle **at;

    if (!PyArg_ParseTuple(arguments, "l", &number)) {
        return NULL;
    }
    at = &torch.chains[(unsigned long)number % HANDLE_CHAINS];
    while (*at && (*at)->number != number) {
        at = &(*at)->next;
    }
    if (!*at) {
        PyErr_Format(PyExc_RuntimeError, "there is no handle %ld: it was waited for already", number);
        return NULL;
    }
    return at;
}

/* Returns the bytes per integer of the tensor `splits`; 0, with an exception: its elements are not integers. */
static size_t split_bytes(PyObject *splits)
{
    enum pl_dtype dtype;

    if (!pl_torch_tensor_dtype(splits, &dtype)) {
        return 0;
    }
    if (dtype != PL_INT32 && dtype != PL_INT64) {
        PyErr_Format(PyExc_ValueError, "splits are int32 or int64, not %s", pl_dtype_text(dtype));
        return 0;
    }
    return dtype == PL_INT32 ? sizeof(int32_t) : sizeof(int64_t);
}

/* Reads the splits, one for each rank of the set. As in Horovod they may be on a GPU, or be a column of a matrix. */
static bool read_splits(struct pl_submission *submission, int set, PyObject *splits)
{
    bool was_far = false;
    PyObject *packed = pl_torch_tensor_pack(splits, false, &was_far);
    size_t bytes = packed ? split_bytes(packed) : 0;
    struct pl_named_op shape = {.dims = 0};
    struct pl_error error = PL_ERROR_NONE;
    void *data = NULL;
    bool good = bytes > 0 && pl_torch_tensor_shape(packed, &shape) && pl_torch_tensor_pointer(packed, &data);

    submission->completion.ranks = horovod_process_set_size(set);
    if (good && shape.dims != 1) {
        PyErr_SetString(PyExc_RuntimeError, "splits have one dimension");
        good = false;
    } else if (good && pl_submission_split(submission, set, data, bytes, shape.shape[0], &error) != PL_OK) {
        raise_error(PyExc_RuntimeError, &error);
        good = false;
    }
    Py_XDECREF(packed);
    return good;
}

/* Resizes the output of a REDUCE_SCATTER in GPU memory to this rank's rows; the set must not change meanwhile. */
static bool make_room(const struct pl_named_op *op, PyObject *tensor, PyObject *output, int set,
                      struct pl_completion *completion)
{
    int ranks = horovod_process_set_size(set), rank = horovod_process_set_rank(set);
    uint64_t rows = op->dims > 0 ? op->shape[0] : 0;

    if (ranks < 1 || rank < 0) {
        return true; /* the submission reports the error */
    }
    completion->ranks = ranks;
    return pl_torch_tensor_resize(output, rows / (uint64_t)ranks + ((uint64_t)rank < rows % (uint64_t)ranks), tensor);
}

/* Completes operation `at` of the submission. Sets `*gpu` if its tensors are on a GPU. */
static bool complete_op(struct handle *handle, const struct request *request, Py_ssize_t at, int *gpu)
{
    PyObject *tensor = pl_torch_member(handle->inputs, handle->listed, at);
    PyObject *output = pl_torch_member(handle->outputs, handle->listed, at);
    struct pl_named_op *op = &handle->submission->ops[at];
    void *send = NULL;
    bool good = tensor && output;

    if (op->memory == PL_MEMORY_DEVICE) {
        good = good && pl_torch_place(op, tensor, output, gpu);
    }
    good = good && pl_torch_tensor_pointer(tensor, &send) && pl_torch_tensor_shape(tensor, op);
    if (op->kind == PL_REDUCE_SCATTER && op->memory == PL_MEMORY_DEVICE) {
        good = good && make_room(op, tensor, output, request->set, &handle->submission->completion);
    }
    if (request->how & GROUPED) { /* Horovod's Python code has checked only the first tensor's type */
        good = good && pl_torch_tensor_dtype(tensor, &op->dtype);
    }
    good = good && pl_torch_tensor_pointer(output, &op->recv);
    op->send = send;
    Py_XDECREF(tensor);
    Py_XDECREF(output);
    return good;
}

/* Starts the submission of `handle`, in the memory of `gpu`; -1: host memory. */
static enum pl_status start(struct handle *handle, const struct request *request, struct pl_service *service, int gpu,
                            struct pl_error *reterr)
{
    char name[PL_NAMED_MAX_NAME_BYTES];

    free_followed(service);
    handle->gpu = pl_state_follows() ? gpu : -1;
    handle->submission->completion.lost = handle->gpu >= 0 ? pl_state_lost : NULL;
    if (gpu >= 0) {
        PL_TRY(pl_service_use_device(service, gpu, reterr));
    }
    return pl_submission_start(handle->submission, service, request->set, name_of(request->name, request->kind, name),
                               request->how & GROUPED, reterr);
}

/* Submits one operation, or a group for the lists in `staged`, whose tensors may differ in shape and type. */
static PyObject *submit_all(const struct request *request, const struct pl_torch_staged *staged, bool listed)
{
    Py_ssize_t count = listed ? PyList_Size(staged->tensor) : 1;
    struct handle *handle = count < 0 ? NULL : handle_new(&request->op, (size_t)count);
    struct pl_error error = PL_ERROR_NONE;
    struct pl_service *service;
    bool good;
    int gpu = -1;

    if (!handle) {
        return NULL;
    }
    handle->inputs = keep(staged->tensor);
    handle->outputs = keep(staged->output);
    handle->targets = keep(staged->target);
    handle->received = keep(request->received);
    handle->listed = listed;
    good = !request->splits || read_splits(handle->submission, request->set, request->splits);
    for (Py_ssize_t i = 0; i < count && good; i++) {
        good = complete_op(handle, request, i, &gpu);
    }
    service = good ? hold() : NULL;
    if (!service) {
        handle_free(handle);
        return NULL;
    }
    return give_number(handle, start(handle, request, service, gpu, &error), &error);
}

static bool warn_of_copies(const char *why, const char *kind)
{
    if (!torch.warned &&
        PyErr_WarnFormat(PyExc_RuntimeWarning, 1, "tensors on a GPU are copied to host memory and back: %s%s",
                         why ? why : "Paceline does this for ", why ? "" : kind) != 0) {
        return false;
    }
    torch.warned = true;
    return true;
}

/* Returns whether an operation's GPU tensors stay on the GPU. If not, `*ret_why` is a reason that holds for all
 * operations, or NULL. */
static bool find_place(const struct pl_named_op *op, const char **ret_why)
{
    *ret_why = NULL;
    if (pl_state_hold()) {
        *ret_why = pl_state_why_copied();
        pl_state_release();
    }
    return !*ret_why && op->op != PL_ADASUM;
}

/* Submits tensors. Horovod's Python code has checked only one of them, a group's first: it is contiguous and in host
 * memory except ON_GPU. The others may be anywhere. */
static PyObject *submit(struct request *request, PyObject *tensors, PyObject *outputs)
{
    const struct pl_torch_staged own = {tensors, outputs, NULL};
    bool grouped = request->how & GROUPED, was_far = false, stays = false;
    const char *why = NULL;
    PyObject *number = NULL;
    struct pl_torch_staged all;

    if (request->how == ONE) {
        return submit_all(request, &own, false);
    }
    if (request->how & ON_GPU) {
        stays = find_place(&request->op, &why);
    }
    request->op.memory = stays ? PL_MEMORY_DEVICE : PL_MEMORY_HOST;
    all = (struct pl_torch_staged){PyList_New(0), PyList_New(0), PyList_New(0)};
    if (all.tensor && all.output && all.target &&
        pl_torch_stage_all(&all, tensors, outputs, &request->op, request->kind, grouped, &was_far) &&
        (!was_far || warn_of_copies(why, request->op.op == PL_ADASUM ? "Adasum" : request->kind))) {
        number = submit_all(request, &all, true);
    }
    Py_XDECREF(all.target);
    Py_XDECREF(all.output);
    Py_XDECREF(all.tensor);
    return number;
}

/* Called as horovod_torch_allreduce_async_torch_FloatTensor and so on, by the macros at the end of this file. (tensor,
 * output, divisor, name, op, prescale, postscale, set); the divisor is 1 except with ROCm. */
static PyObject *allreduce(PyObject *arguments, enum pl_dtype dtype, int how)
{
    struct request request = {.op = {.kind = PL_ALLREDUCE, .dtype = dtype}, .how = how};
    PyObject *tensor, *output;
    double prescale, postscale;
    int divisor, number;

    if (!PyArg_ParseTuple(arguments, "OOiOiddi", &tensor, &output, &divisor, &request.name, &number, &prescale,
                          &postscale, &request.set)) {
        return NULL;
    }
    pl_submission_reduce(&request.op, number, prescale, postscale);
    request.kind = how & GROUPED ? "grouped_allreduce" : "allreduce";
    return submit(&request, tensor, output);
}

/* (tensor, output, name, op, set, prescale, postscale) */
static PyObject *reducescatter(PyObject *arguments, enum pl_dtype dtype, int how)
{
    struct request request = {.op = {.kind = PL_REDUCE_SCATTER, .dtype = dtype}, .how = how};
    PyObject *tensor, *output;
    double prescale, postscale;
    int number;

    if (!PyArg_ParseTuple(arguments, "OOOiidd", &tensor, &output, &request.name, &number, &request.set, &prescale,
                          &postscale)) {
        return NULL;
    }
    pl_submission_reduce(&request.op, number, prescale, postscale);
    request.kind = how & GROUPED ? "grouped_reducescatter" : "reducescatter";
    return submit(&request, tensor, output);
}

/* (tensor, output, name, set) */
static PyObject *allgather(PyObject *arguments, enum pl_dtype dtype, int how)
{
    struct request request = {.op = {.kind = PL_ALLGATHER, .dtype = dtype}, .how = how};
    PyObject *tensor, *output;

    if (!PyArg_ParseTuple(arguments, "OOOi", &tensor, &output, &request.name, &request.set)) {
        return NULL;
    }
    request.kind = how & GROUPED ? "grouped_allgather" : "allgather";
    return submit(&request, tensor, output);
}

/* Converts the job's rank `root` to its rank in the set; false, with an exception: it is not a member. */
static bool root_in_set(int root, int set, int *ret_root)
{
    struct pl_service *service = hold();
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;

    if (!service) {
        return false;
    }
    status = pl_submission_root(service, set, root, ret_root, &error);
    pl_state_release();
    if (status != PL_OK) {
        raise_error(PyExc_RuntimeError, &error);
    }
    return status == PL_OK;
}

/* (tensor, output, root, name, set) */
static PyObject *broadcast(PyObject *arguments, enum pl_dtype dtype, int how)
{
    struct request request = {.op = {.kind = PL_BROADCAST, .dtype = dtype}, .kind = "broadcast", .how = how};
    PyObject *tensor, *output;
    int root;

    if (!PyArg_ParseTuple(arguments, "OOiOi", &tensor, &output, &root, &request.name, &request.set) ||
        !root_in_set(root, request.set, &request.op.root)) {
        return NULL;
    }
    return submit(&request, tensor, output);
}

/* (tensor, splits, output, received, name, set) */
static PyObject *alltoall(PyObject *arguments, enum pl_dtype dtype, int how)
{
    struct request request = {.op = {.kind = PL_ALLTOALL, .dtype = dtype}, .kind = "alltoall", .how = how};
    PyObject *tensor, *output;

    if (!PyArg_ParseTuple(arguments, "OOOOOi", &tensor, &request.splits, &output, &request.received, &request.name,
                          &request.set)) {
        return NULL;
    }
    return submit(&request, tensor, output);
}

/* (output, device): when all ranks have joined, the int32 tensor `output` gets the number of the last one to join. */
static PyObject *join(PyObject *module, PyObject *arguments)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_service *service;
    struct handle *handle;
    PyObject *output;
    int device;

    (void)module;
    if (!PyArg_ParseTuple(arguments, "Oi", &output, &device) || !(handle = handle_new(NULL, 0))) {
        return NULL;
    }
    handle->is_join = true;
    handle->outputs = keep(output);
    service = hold();
    if (!service) {
        handle_free(handle);
        return NULL;
    }
    if (device >= 0 && !pl_state_why_copied()) {
        /* a joined rank may take part in others' GPU sums; if it cannot, the sums report that */
        (void)!pl_service_use_device(service, device, NULL);
    }
    return give_number(handle, pl_service_submit_join(service, &handle->submission->completion, &error), &error);
}

/* (set) */
static PyObject *barrier(PyObject *module, PyObject *arguments)
{
    const struct pl_named_op op = {.kind = PL_BARRIER};
    struct pl_error error = PL_ERROR_NONE;
    struct pl_service *service;
    struct handle *handle;
    int set;

    (void)module;
    if (!PyArg_ParseTuple(arguments, "i", &set) || !(handle = handle_new(&op, 1))) {
        return NULL;
    }
    service = hold();
    if (!service) {
        handle_free(handle);
        return NULL;
    }
    return give_number(handle, pl_submission_start(handle->submission, service, set, NULL, false, &error), &error);
}

/* (handle): returns 1 if a wait would not block. */
static PyObject *poll(PyObject *module, PyObject *arguments)
{
    struct handle **at = find(arguments);
    struct pl_service *service;
    bool done = true;

    (void)module;
    if (!at) {
        return NULL;
    }
    service = pl_state_hold();
    if (service) {
        done = pl_service_poll(service, &(*at)->submission->completion);
        pl_state_release();
    }
    return PyLong_FromLong(done);
}

/* Copies a result on the GPU, ordered by the calling thread's stream: later work on that stream sees it. */
static bool fill_on_gpu(PyObject *output, void *data, struct pl_named_result *result)
{
    struct pl_error error = PL_ERROR_NONE;
    void *stream = NULL;
    int gpu;

    if (!pl_torch_tensor_gpu(output, &gpu) || !pl_torch_stream(gpu, &stream)) {
        return false;
    }
    if (pl_named_result_move(result, data, stream, &error) != PL_OK) {
        raise_error(PyExc_RuntimeError, &error);
        return false;
    }
    return true;
}

/* Puts a result into its output. */
static bool fill(PyObject *output, PyObject *input, struct pl_named_result *result)
{
    void *data = NULL;

    if (!pl_torch_tensor_resize(output, result->rows, input) || !pl_torch_tensor_pointer(output, &data)) {
        return false;
    }
    if (result->buffer) {
        return fill_on_gpu(output, data, result);
    }
    Py_BEGIN_ALLOW_THREADS if (result->bytes > 0)
    {
        memcpy(data, result->data, result->bytes);
    }
    Py_END_ALLOW_THREADS return true;
}

/* Puts the numbers of rows from each rank into `received`, which is resized; it is in the same memory as the splits. */
static bool fill_received(PyObject *received, const struct pl_submission *submission)
{
    bool was_far = false;
    PyObject *packed = pl_torch_tensor_pack(received, false, &was_far); /* `received` itself if it is in that memory */
    size_t bytes = packed ? split_bytes(packed) : 0;
    struct pl_error error = PL_ERROR_NONE;
    void *data = NULL;
    bool good = bytes > 0 && pl_torch_tensor_resize(packed, (uint64_t)submission->completion.ranks, NULL) &&
                pl_torch_tensor_pointer(packed, &data);

    if (good && pl_submission_received(submission, bytes, data, &error) != PL_OK) {
        raise_error(PyExc_RuntimeError, &error);
        good = false;
    }
    good = good && (packed == received || pl_torch_tensor_unpack(received, packed, true));
    Py_XDECREF(packed);
    return good;
}

/*
 * Puts the results of `handle` into its outputs. An allreduce has no results here, because it writes its output tensor
 * directly. In GPU memory this is ordered by the calling thread's stream.
 */
static bool fill_all(struct handle *handle)
{
    struct pl_submission *submission = handle->submission;
    struct pl_named_result *results = submission->results;
    void *data = NULL;
    bool good = true;

    if (handle->is_join) {
        good = pl_torch_tensor_pointer(handle->outputs, &data);
        if (good) {
            *(int32_t *)data = submission->completion.last_joined_rank;
        }
        return good;
    }
    for (size_t i = 0; i < submission->count && good && (results[i].data || handle->targets); i++) {
        PyObject *output = pl_torch_member(handle->outputs, handle->listed, (Py_ssize_t)i);
        PyObject *input = pl_torch_member(handle->inputs, handle->listed, (Py_ssize_t)i);
        PyObject *target = handle->targets ? pl_torch_member(handle->targets, handle->listed, (Py_ssize_t)i) : NULL;
        bool made = results[i].data;

        good = output && input && (!made || fill(output, input, &results[i]));
        if (good && target && target != Py_None) {
            good = pl_torch_tensor_unpack(target, output, made);
        }
        Py_XDECREF(target);
        Py_XDECREF(output);
        Py_XDECREF(input);
    }
    return good && (!handle->received || fill_received(handle->received, submission));
}

/* Waits for the end of `handle`. On a GPU it may only make `stream` wait for it: then `*ret_done` is false. */
static enum pl_status wait_for(struct handle *handle, void *stream, bool *ret_done, struct pl_error *reterr)
{
    struct pl_completion *completion = &handle->submission->completion;
    struct pl_service *service = pl_state_hold();
    enum pl_status status;

    *ret_done = true;
    if (service) {
        status = pl_service_follow(service, completion, stream, ret_done, reterr);
        pl_state_release();
    } else { /* all operations ended when the service ended */
        status = completion->status;
        *reterr = completion->error;
    }
    if (status == PL_OK) {
        pl_submission_finish(handle->submission);
    }
    return status;
}

/* (handle): waits, and drops the handle. */
static PyObject *wait_and_clear(PyObject *module, PyObject *arguments)
{
    struct handle **at = find(arguments), *handle;
    struct pl_error error = PL_ERROR_NONE;
    PyObject *result = NULL;
    enum pl_status status;
    void *stream = NULL;
    bool done;

    (void)module;
    if (!at || ((*at)->gpu >= 0 && !pl_torch_stream((*at)->gpu, &stream))) {
        return NULL;
    }
    handle = *at;
    *at = handle->next;
    Py_BEGIN_ALLOW_THREADS
    {
        status = wait_for(handle, stream, &done, &error);
    }
    Py_END_ALLOW_THREADS if (status != PL_OK)
    {
        raise_error(PyExc_RuntimeError, &error);
    }
    else if (fill_all(handle))
    {
        result = Py_None;
        Py_INCREF(result);
    }
    if (done) {
        handle_free(handle);
    } else if (status != PL_OK) { /* this stream cannot follow, but another may: keep the handle */
        enter(handle);
    } else {
        keep_followed(handle);
    }
    return result;
}

/* Drops all handles; Horovod's shutdown() calls it first. Handles in flight stay until the process ends, because the
 * service may still use their memory. */
static PyObject *reset(PyObject *module, PyObject *arguments)
{
    struct pl_service *service = pl_state_hold();

    (void)module;
    (void)arguments;
    for (size_t i = 0; i < HANDLE_CHAINS; i++) {
        struct handle **at = &torch.chains[i];

        while (*at) {
            struct handle *handle = *at;

            if (service && !pl_service_poll(service, &handle->submission->completion)) {
                at = &handle->next;
                continue;
            }
            *at = handle->next;
            handle_free(handle);
        }
    }
    if (service) {
        pl_state_release();
    }
    Py_RETURN_NONE;
}

/* Horovod's function name, our function, GROUPED or not; types that it takes */
#define REDUCTIONS(X)                                                                                                  \
    X(allreduce, allreduce, ONE)                                                                                       \
    X(grouped_allreduce, allreduce, GROUPED)                                                                           \
    X(reducescatter, reducescatter, ONE)                                                                               \
    X(grouped_reducescatter, reducescatter, GROUPED)
#define MOVES(X)                                                                                                       \
    X(allgather, allgather, ONE)                                                                                       \
    X(grouped_allgather, allgather, GROUPED)                                                                           \
    X(broadcast, broadcast, ONE)                                                                                       \
    X(alltoall, alltoall, ONE)

#define FUNCTION(function, body, how, tensor, type)                                                                    \
    static PyObject *function##_##tensor(PyObject *module, PyObject *arguments)                                        \
    {                                                                                                                  \
        (void)module;                                                                                                  \
        return body(arguments, type, how);                                                                             \
    }                                                                                                                  \
                                                                                                                       \
    static PyObject *function##_cuda_##tensor(PyObject *module, PyObject *arguments)                                   \
    {                                                                                                                  \
        (void)module;                                                                                                  \
        return body(arguments, type, (how) | ON_GPU);                                                                  \
    }
#define REDUCTION_FUNCTIONS(function, body, how)                                                                       \
    FUNCTION(function, body, how, Int, PL_INT32)                                                                       \
    FUNCTION(function, body, how, Long, PL_INT64)                                                                      \
    FUNCTION(function, body, how, Half, PL_FLOAT16)                                                                    \
    FUNCTION(function, body, how, Float, PL_FLOAT32)                                                                   \
    FUNCTION(function, body, how, Double, PL_FLOAT64)
#define MOVE_FUNCTIONS(function, body, how)                                                                            \
    REDUCTION_FUNCTIONS(function, body, how)                                                                           \
    FUNCTION(function, body, how, Byte, PL_UINT8)                                                                      \
    FUNCTION(function, body, how, Char, PL_INT8)                                                                       \
    FUNCTION(function, body, how, Short, PL_INT16)
REDUCTIONS(REDUCTION_FUNCTIONS)
MOVES(MOVE_FUNCTIONS)

#define METHOD(function, tensor)                                                                                       \
    {"horovod_torch_" #function "_async_torch_" #tensor "Tensor", function##_##tensor, METH_VARARGS, NULL},            \
        {"horovod_torch_" #function "_async_torch_cuda_" #tensor "Tensor", function##_cuda_##tensor, METH_VARARGS,     \
         NULL},
#define REDUCTION_METHODS(function, body, how)                                                                         \
    METHOD(function, Int) METHOD(function, Long) METHOD(function, Half) METHOD(function, Float) METHOD(function, Double)
#define MOVE_METHODS(function, body, how)                                                                              \
    REDUCTION_METHODS(function, body, how)                                                                             \
    METHOD(function, Byte) METHOD(function, Char) METHOD(function, Short)

static PyMethodDef methods[] = {
    REDUCTIONS(REDUCTION_METHODS) MOVES(MOVE_METHODS) /* for each function and tensor type */
    {"horovod_torch_join", join, METH_VARARGS, NULL},
    {"horovod_torch_barrier", barrier, METH_VARARGS, NULL},
    {"horovod_torch_poll", poll, METH_VARARGS, NULL},
    {"horovod_torch_wait_and_clear", wait_and_clear, METH_VARARGS, NULL},
    {"horovod_torch_reset", reset, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "mpi_lib_v2",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit_mpi_lib_v2(void);

PyMODINIT_FUNC PyInit_mpi_lib_v2(void)
{
    return pl_torch_tensor_init() ? PyModule_Create(&definition) : NULL;
}
