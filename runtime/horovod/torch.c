/* SPDX-License-Identifier: Apache-2.0 */
/* The module horovod.torch.mpi_lib_v2 that Horovod's own Python calls for torch's tensors in host memory. A tensor is
 * known by its Python attributes, so that one binary serves every torch; CPython's limited API, so that it serves every
 * Python from 3.8 on. */
#define Py_LIMITED_API 0x03080000
#include <Python.h>

#include "base/dtype.h"
#include "runtime/horovod/arguments.h"
#include "runtime/horovod/factors.h"
#include "runtime/horovod/horovod.h"
#include "runtime/horovod/state.h"

#include <stdlib.h>
#include <string.h>

enum { HANDLE_CHAINS = 1024, TEXT_BYTES = 1100 };

/* How a function is called. */
enum { ONE = 0, GROUPED = 1 << 0, ON_GPU = 1 << 1 };

/* What a call has submitted, until the program has waited for it. */
struct handle {
    struct pl_completion completion;
    long number;
    struct handle *next;
    enum pl_kind kind;
    PyObject *inputs, *outputs; /* kept alive; of a group, sequences */
    PyObject *targets;          /* on a GPU, where what `outputs` get is copied to; else NULL */
    PyObject *received;         /* ALLTOALL: the tensor for the numbers of rows that came, */
    int ranks;                  /* and how many there are */
    bool grouped;
    size_t count;
    struct pl_factors *factors; /* [count]; NULL: there are none */
    struct pl_named_result results[];
};

/* Guarded by the interpreter's lock. */
static struct {
    struct handle *chains[HANDLE_CHAINS];
    long numbers;
    PyObject *data_ptr, *size, *resize, *dtype; /* names of attributes */
    bool warned;                                /* that tensors on a GPU are copied */
} torch;

/* Horovod's Python makes a HorovodInternalError of a RuntimeError. */
static PyObject *raise_error(PyObject *type, const struct pl_error *error)
{
    char text[TEXT_BYTES];

    PyErr_SetString(type, pl_error_text(error, text, sizeof(text)));
    return NULL;
}

static PyObject *raise_uninitialised(void)
{
    PyErr_SetString(PyExc_RuntimeError, "Horovod has not been initialized; use hvd.init().");
    return NULL;
}

/* Where `tensor`'s data lies. */
static bool pointer_of(PyObject *tensor, void **ret_pointer)
{
    PyObject *pointer = PyObject_CallMethodObjArgs(tensor, torch.data_ptr, NULL);

    if (!pointer) {
        return false;
    }
    *ret_pointer = PyLong_AsVoidPtr(pointer);
    Py_DECREF(pointer);
    return !PyErr_Occurred();
}

/* The shape; dimensions that an operation has no room for become one. */
static bool shape_of(PyObject *tensor, struct pl_named_op *op)
{
    PyObject *size = PyObject_CallMethodObjArgs(tensor, torch.size, NULL);
    Py_ssize_t dims = size ? PyTuple_Size(size) : -1;

    op->dims = 0;
    for (Py_ssize_t i = 0; i < dims && !PyErr_Occurred(); i++) {
        pl_arguments_dimension(op, PyLong_AsUnsignedLongLong(PyTuple_GetItem(size, i)));
    }
    Py_XDECREF(size);
    return !PyErr_Occurred();
}

/* The type of `tensor`'s elements. */
static bool dtype_of(PyObject *tensor, enum pl_dtype *ret_dtype)
{
    PyObject *dtype = PyObject_GetAttr(tensor, torch.dtype), *text = dtype ? PyObject_Str(dtype) : NULL;
    PyObject *bytes = text ? PyUnicode_AsASCIIString(text) : NULL;
    const char *name = bytes ? PyBytes_AsString(bytes) : NULL, *dot = name ? strchr(name, '.') : NULL;
    bool known = false;

    for (int i = 0; dot && i < PL_DTYPE_COUNT && !known; i++) {
        known = strcmp(dot + 1, pl_dtype_text((enum pl_dtype)i)) == 0;
        *ret_dtype = known ? (enum pl_dtype)i : *ret_dtype;
    }
    if (!known && !PyErr_Occurred()) {
        PyErr_Format(PyExc_ValueError, "tensors of %s are not taken", name);
    }
    Py_XDECREF(bytes);
    Py_XDECREF(text);
    Py_XDECREF(dtype);
    return known;
}

/* Horovod's name of the operation, with what it does before it; NULL: none was given. */
static const char *name_of(PyObject *given, const char *kind, char name[PL_NAMED_MAX_NAME_BYTES])
{
    Py_ssize_t length = PyBytes_Check(given) ? PyBytes_Size(given) : 0;
    const char *text = length > 0 ? PyBytes_AsString(given) : NULL;

    return text ? pl_arguments_name(kind, text, (size_t)length, name) : NULL;
}

static void handle_free(struct handle *handle)
{
    for (size_t i = 0; i < handle->count; i++) {
        pl_named_result_done(&handle->results[i]);
        if (handle->factors) {
            pl_factors_done(&handle->factors[i]);
        }
    }
    free(handle->factors);
    Py_XDECREF(handle->inputs);
    Py_XDECREF(handle->outputs);
    Py_XDECREF(handle->targets);
    Py_XDECREF(handle->received);
    free(handle);
}

static struct handle *handle_new(enum pl_kind kind, size_t count, PyObject *inputs, PyObject *outputs)
{
    struct handle *handle = calloc(1, sizeof(*handle) + count * sizeof(struct pl_named_result));

    if (!handle) {
        PyErr_NoMemory();
        return NULL;
    }
    handle->kind = kind;
    handle->count = count;
    handle->completion.results = handle->results;
    Py_XINCREF(inputs);
    Py_XINCREF(outputs);
    handle->inputs = inputs;
    handle->outputs = outputs;
    return handle;
}

/* The end of a call: the number of `handle`, or the error. */
static PyObject *give_number(struct handle *handle, enum pl_status status, const struct pl_error *error)
{
    struct handle **chain;

    if (status != PL_OK) {
        handle_free(handle);
        return raise_error(status == PL_INVALID ? PyExc_ValueError : PyExc_RuntimeError, error);
    }
    handle->number = ++torch.numbers;
    chain = &torch.chains[handle->number % HANDLE_CHAINS];
    handle->next = *chain;
    *chain = handle;
    return PyLong_FromLong(handle->number);
}

/* The place of the handle called so; NULL, with an exception: there is none. */
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

/* A new reference to the object, or to one of a sequence. */
static PyObject *member(PyObject *objects, bool grouped, Py_ssize_t at)
{
    if (grouped) {
        return PySequence_GetItem(objects, at);
    }
    Py_INCREF(objects);
    return objects;
}

/* Submit one operation, or as many as the sequence `tensors` has; those may differ in shape and type. */
static PyObject *submit_from_host(struct pl_named_op op, const char *kind, PyObject *name, int set, PyObject *tensors,
                                  PyObject *outputs, PyObject *targets, PyObject *received, bool grouped)
{
    Py_ssize_t count = grouped ? PySequence_Size(tensors) : 1;
    struct pl_error error = PL_ERROR_NONE;
    char text[PL_NAMED_MAX_NAME_BYTES];
    enum pl_status status = PL_OK;
    struct pl_named_op *ops;
    struct pl_service *service;
    struct handle *handle;

    if (count < 0) {
        return NULL;
    }
    ops = calloc((size_t)count + 1, sizeof(*ops));
    handle = ops ? handle_new(op.kind, (size_t)count, tensors, outputs) : NULL;
    if (!handle) {
        free(ops);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    handle->grouped = grouped;
    Py_XINCREF(targets);
    handle->targets = targets;
    Py_XINCREF(received);
    handle->received = received;
    handle->ranks = received ? horovod_process_set_size(set) : 0;
    if (op.scaled && !(handle->factors = calloc((size_t)count + 1, sizeof(*handle->factors)))) {
        PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < count && status == PL_OK && !PyErr_Occurred(); i++) {
        PyObject *tensor = member(tensors, grouped, i), *output = member(outputs, grouped, i);
        void *send = NULL;

        ops[i] = op;
        if (tensor && output && pointer_of(tensor, &send) && shape_of(tensor, &ops[i])) {
            ops[i].send = send;
            (void)(pointer_of(output, &ops[i].recv) && grouped && dtype_of(tensor, &ops[i].dtype));
            status =
                handle->factors && !PyErr_Occurred() ? pl_factors_before(&handle->factors[i], &ops[i], &error) : PL_OK;
        }
        Py_XDECREF(tensor);
        Py_XDECREF(output);
    }
    service = PyErr_Occurred() ? NULL : pl_state_hold();
    if (!service) {
        handle_free(handle);
        free(ops);
        return PyErr_Occurred() ? NULL : raise_uninitialised();
    }
    ops[0].name = name_of(name, kind, text);
    if (status == PL_OK) {
        status = grouped ? pl_service_submit_group(service, set, ops[0].name, ops, (size_t)count, &handle->completion,
                                                   &error)
                         : pl_service_submit(service, set, &ops[0], &handle->completion, &error);
    }
    pl_state_release();
    free(ops);
    return give_number(handle, status, &error);
}

/* `make(object)`, or a list of that for each member of a sequence. */
static PyObject *map(PyObject *objects, bool grouped, PyObject *(*make)(PyObject *object))
{
    Py_ssize_t count = grouped ? PySequence_Size(objects) : 0;
    PyObject *list = !grouped ? make(objects) : count < 0 ? NULL : PyList_New(0);

    for (Py_ssize_t i = 0; list && i < count; i++) {
        PyObject *object = PySequence_GetItem(objects, i), *made = object ? make(object) : NULL;

        if (!made || PyList_Append(list, made) != 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(made);
        Py_XDECREF(object);
    }
    return list;
}

static PyObject *to_host(PyObject *tensor)
{
    return PyObject_CallMethod(tensor, "cpu", NULL);
}

static PyObject *new_empty(PyObject *tensor)
{
    return PyObject_CallMethod(tensor, "new_empty", "((i))", 0);
}

static PyObject *submit(struct pl_named_op op, const char *kind, PyObject *name, int set, PyObject *tensors,
                        PyObject *outputs, PyObject *received, int how)
{
    bool grouped = how & GROUPED, in_place = op.kind == PL_ALLREDUCE || op.kind == PL_BROADCAST;
    PyObject *copies, *results = NULL, *number = NULL;

    if (!(how & ON_GPU)) {
        return submit_from_host(op, kind, name, set, tensors, outputs, NULL, received, grouped);
    }
    if (!torch.warned && PyErr_WarnEx(PyExc_RuntimeWarning,
                                      "Paceline's module for torch works in host memory: tensors on a GPU are copied "
                                      "there and back",
                                      1) != 0) {
        return NULL;
    }
    torch.warned = true;
    copies = map(tensors, grouped, to_host);
    if (copies && in_place) {
        results = copies;
        Py_INCREF(results);
    } else if (copies) {
        results = map(copies, grouped, new_empty);
    }
    if (results) {
        number = submit_from_host(op, kind, name, set, copies, results, outputs, received, grouped);
    }
    Py_XDECREF(results);
    Py_XDECREF(copies);
    return number;
}

/* (tensor, output, divisor, name, op, prescale, postscale, set); the divisor is 1 but for ROCm. */
static PyObject *allreduce(PyObject *arguments, enum pl_dtype dtype, int how)
{
    struct pl_named_op op = {.kind = PL_ALLREDUCE, .dtype = dtype};
    PyObject *tensor, *output, *name;
    double prescale, postscale;
    int divisor, number, set;

    if (!PyArg_ParseTuple(arguments, "OOiOiddi", &tensor, &output, &divisor, &name, &number, &prescale, &postscale,
                          &set)) {
        return NULL;
    }
    pl_arguments_reduce(&op, number, prescale, postscale);
    return submit(op, how & GROUPED ? "grouped_allreduce" : "allreduce", name, set, tensor, output, NULL, how);
}

/* (tensor, output, name, op, set, prescale, postscale) */
static PyObject *reducescatter(PyObject *arguments, enum pl_dtype dtype, int how)
{
    struct pl_named_op op = {.kind = PL_REDUCE_SCATTER, .dtype = dtype};
    PyObject *tensor, *output, *name;
    double prescale, postscale;
    int number, set;

    if (!PyArg_ParseTuple(arguments, "OOOiidd", &tensor, &output, &name, &number, &set, &prescale, &postscale)) {
        return NULL;
    }
    pl_arguments_reduce(&op, number, prescale, postscale);
    return submit(op, how & GROUPED ? "grouped_reducescatter" : "reducescatter", name, set, tensor, output, NULL, how);
}

/* (tensor, output, name, set) */
static PyObject *allgather(PyObject *arguments, enum pl_dtype dtype, int how)
{
    struct pl_named_op op = {.kind = PL_ALLGATHER, .dtype = dtype};
    PyObject *tensor, *output, *name;
    int set;

    if (!PyArg_ParseTuple(arguments, "OOOi", &tensor, &output, &name, &set)) {
        return NULL;
    }
    return submit(op, how & GROUPED ? "grouped_allgather" : "allgather", name, set, tensor, output, NULL, how);
}

/* The place of the job's rank `root` in the set; false, with an exception: it is no member. */
static bool root_in_set(int root, int set, int *ret_root)
{
    struct pl_service *service = pl_state_hold();
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;

    if (!service) {
        raise_uninitialised();
        return false;
    }
    status = pl_arguments_root(service, set, root, ret_root, &error);
    pl_state_release();
    if (status != PL_OK) {
        raise_error(PyExc_RuntimeError, &error);
        return false;
    }
    return true;
}

/* (tensor, output, root, name, set) */
static PyObject *broadcast(PyObject *arguments, enum pl_dtype dtype, int how)
{
    struct pl_named_op op = {.kind = PL_BROADCAST, .dtype = dtype};
    PyObject *tensor, *output, *name;
    int root, set;

    if (!PyArg_ParseTuple(arguments, "OOiOi", &tensor, &output, &root, &name, &set) ||
        !root_in_set(root, set, &op.root)) {
        return NULL;
    }
    return submit(op, "broadcast", name, set, tensor, output, NULL, how);
}

/* Bytes of an integer of the tensor `splits`; 0, with an exception: they are none. */
static size_t split_bytes(PyObject *splits)
{
    enum pl_dtype dtype;

    if (!dtype_of(splits, &dtype)) {
        return 0;
    }
    if (dtype != PL_INT32 && dtype != PL_INT64) {
        PyErr_Format(PyExc_ValueError, "splits are int32 or int64, not %s", pl_dtype_text(dtype));
        return 0;
    }
    return dtype == PL_INT32 ? sizeof(int32_t) : sizeof(int64_t);
}

/* The numbers in `splits`, one a rank of the set; `*ret_splits` NULL: there are none, the rows are equal parts. */
static bool read_host_splits(PyObject *splits, int set, uint64_t **ret_splits)
{
    size_t bytes = split_bytes(splits);
    struct pl_named_op shape = {.dims = 0};
    struct pl_error error = PL_ERROR_NONE;
    void *data = NULL;

    if (bytes == 0 || !shape_of(splits, &shape) || !pointer_of(splits, &data)) {
        return false;
    }
    if (shape.dims != 1) {
        PyErr_SetString(PyExc_RuntimeError, "splits have one dimension");
        return false;
    }
    if (pl_arguments_splits(data, bytes, shape.shape[0], set, horovod_process_set_size(set), ret_splits, &error) !=
        PL_OK) {
        raise_error(PyExc_RuntimeError, &error);
        return false;
    }
    return true;
}

/* Those of a tensor wherever it lies: Horovod takes splits on a GPU too. */
static bool read_splits(PyObject *splits, int set, uint64_t **ret_splits)
{
    PyObject *host = to_host(splits);
    bool good = host && read_host_splits(host, set, ret_splits);

    Py_XDECREF(host);
    return good;
}

/* (tensor, splits, output, received, name, set) */
static PyObject *alltoall(PyObject *arguments, enum pl_dtype dtype, int how)
{
    struct pl_named_op op = {.kind = PL_ALLTOALL, .dtype = dtype};
    PyObject *tensor, *splits, *output, *received, *name, *number = NULL;
    uint64_t *rows = NULL;
    int set;

    if (!PyArg_ParseTuple(arguments, "OOOOOi", &tensor, &splits, &output, &received, &name, &set)) {
        return NULL;
    }
    if (read_splits(splits, set, &rows)) {
        op.splits = rows;
        number = submit(op, "alltoall", name, set, tensor, output, received, how);
    }
    free(rows);
    return number;
}

/* (output, device): when all ranks have joined, the last one's number is in the int32 tensor `output`. */
static PyObject *join(PyObject *module, PyObject *arguments)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_service *service;
    struct handle *handle;
    enum pl_status status;
    PyObject *output;
    int device;

    (void)module;
    if (!PyArg_ParseTuple(arguments, "Oi", &output, &device)) {
        return NULL;
    }
    handle = handle_new(PL_REDUCE, 0, NULL, output);
    service = handle ? pl_state_hold() : NULL;
    if (!service) {
        if (!handle) {
            return NULL;
        }
        handle_free(handle);
        return raise_uninitialised();
    }
    status = pl_service_submit_join(service, &handle->completion, &error);
    pl_state_release();
    return give_number(handle, status, &error);
}

/* (set) */
static PyObject *barrier(PyObject *module, PyObject *arguments)
{
    const struct pl_named_op op = {.kind = PL_BARRIER};
    struct pl_error error = PL_ERROR_NONE;
    struct pl_service *service;
    struct handle *handle;
    enum pl_status status;
    int set;

    (void)module;
    if (!PyArg_ParseTuple(arguments, "i", &set)) {
        return NULL;
    }
    service = pl_state_hold();
    if (!service) {
        return raise_uninitialised();
    }
    handle = handle_new(PL_BARRIER, 1, NULL, NULL);
    status = handle ? pl_service_submit(service, set, &op, &handle->completion, &error) : PL_MEMORY;
    pl_state_release();
    return handle ? give_number(handle, status, &error) : NULL;
}

/* (handle): 1 when a wait would not block. */
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
        done = pl_service_test(service, &(*at)->completion);
        pl_state_release();
    }
    return PyLong_FromLong(done);
}

/* Let `tensor` have `rows` rows; `like` has the other dimensions. NULL: it has one dimension alone. */
static bool resize(PyObject *tensor, uint64_t rows, PyObject *like)
{
    PyObject *size = like ? PyObject_CallMethodObjArgs(like, torch.size, NULL) : NULL;
    Py_ssize_t dims = size ? PyTuple_Size(size) : 1;
    PyObject *shape = !like || size ? PyTuple_New(dims) : NULL, *done = NULL;

    for (Py_ssize_t i = 0; shape && i < dims; i++) {
        PyObject *extent = i == 0 ? PyLong_FromUnsignedLongLong(rows) : PyTuple_GetItem(size, i);

        if (i > 0) {
            Py_XINCREF(extent);
        }
        PyTuple_SetItem(shape, i, extent);
    }
    if (shape && !PyErr_Occurred()) {
        done = PyObject_CallMethodObjArgs(tensor, torch.resize, shape, NULL);
    }
    Py_XDECREF(done);
    Py_XDECREF(shape);
    Py_XDECREF(size);
    return done;
}

/* Put what a rank got into its output. */
static bool fill(PyObject *output, PyObject *input, const struct pl_named_result *result)
{
    void *data = NULL;

    if (!resize(output, result->rows, input) || !pointer_of(output, &data)) {
        return false;
    }
    Py_BEGIN_ALLOW_THREADS if (result->bytes > 0)
    {
        memcpy(data, result->data, result->bytes);
    }
    Py_END_ALLOW_THREADS return true;
}

/* The rows that came from each rank, into a tensor in host memory. */
static bool fill_host_received(PyObject *received, const struct pl_named_result *result, int ranks)
{
    size_t bytes = split_bytes(received);
    void *data = NULL;

    if (bytes == 0 || !resize(received, (uint64_t)ranks, NULL) || !pointer_of(received, &data)) {
        return false;
    }
    for (int i = 0; i < ranks; i++) {
        if (bytes == sizeof(int32_t)) {
            ((int32_t *)data)[i] = (int32_t)result->rows_of_rank[i];
        } else {
            ((int64_t *)data)[i] = (int64_t)result->rows_of_rank[i];
        }
    }
    return true;
}

/* From host memory to the GPU, `resizes`: with the shape that it has there. */
static bool copy_back(PyObject *target, PyObject *output, bool resizes)
{
    PyObject *size = resizes ? PyObject_CallMethodObjArgs(output, torch.size, NULL) : NULL;
    PyObject *resized = size ? PyObject_CallMethodObjArgs(target, torch.resize, size, NULL) : NULL;
    PyObject *copied = !resizes || resized ? PyObject_CallMethod(target, "copy_", "O", output) : NULL;

    Py_XDECREF(copied);
    Py_XDECREF(resized);
    Py_XDECREF(size);
    return copied;
}

/* The same, into a tensor that lies where the splits do. */
static bool fill_received(PyObject *received, const struct pl_named_result *result, int ranks)
{
    PyObject *host = to_host(received); /* `received` itself where it lies there */
    bool good =
        host && fill_host_received(host, result, ranks) && (host == received || copy_back(received, host, true));

    Py_XDECREF(host);
    return good;
}

/* What the operations of `handle` made, into its outputs; those that are reduced in place have it already. */
static bool fill_all(const struct handle *handle)
{
    void *data = NULL;
    bool good = true;

    if (handle->kind == PL_REDUCE) { /* a join */
        good = pointer_of(handle->outputs, &data);
        if (good) {
            *(int32_t *)data = handle->completion.last_joined_rank;
        }
        return good;
    }
    for (size_t i = 0; i < handle->count && good && (handle->results[i].data || handle->targets); i++) {
        PyObject *output = member(handle->outputs, handle->grouped, (Py_ssize_t)i);
        PyObject *input = member(handle->inputs, handle->grouped, (Py_ssize_t)i);
        PyObject *target = handle->targets ? member(handle->targets, handle->grouped, (Py_ssize_t)i) : NULL;

        good = output && input && (!handle->results[i].data || fill(output, input, &handle->results[i]));
        if (good && handle->targets) {
            good = target && copy_back(target, output, handle->results[i].data);
        }
        Py_XDECREF(target);
        Py_XDECREF(output);
        Py_XDECREF(input);
    }
    return good && handle->received ? fill_received(handle->received, &handle->results[0], handle->ranks) : good;
}

/* (handle): wait, and forget it. */
static PyObject *wait_and_clear(PyObject *module, PyObject *arguments)
{
    struct handle **at = find(arguments), *handle;
    PyObject *result = NULL;
    enum pl_status status;

    (void)module;
    if (!at) {
        return NULL;
    }
    handle = *at;
    *at = handle->next;
    Py_BEGIN_ALLOW_THREADS
    {
        struct pl_service *service = pl_state_hold();

        if (service) {
            status = pl_service_wait(service, &handle->completion, NULL);
            pl_state_release();
        } else { /* everything ended when the service did */
            status = handle->completion.status;
        }
        for (size_t i = 0; i < handle->count && status == PL_OK && handle->factors; i++) {
            pl_factors_after(&handle->factors[i], &handle->results[i]);
        }
    }
    Py_END_ALLOW_THREADS if (status != PL_OK)
    {
        raise_error(PyExc_RuntimeError, &handle->completion.error);
    }
    else if (fill_all(handle))
    {
        result = Py_None;
        Py_INCREF(result);
    }
    handle_free(handle);
    return result;
}

/* Forget what nobody will wait for: Horovod's shutdown() calls it first. What is under way stays until the process
 * ends, since the service may still use its memory. */
static PyObject *reset(PyObject *module, PyObject *arguments)
{
    struct pl_service *service = pl_state_hold();

    (void)module;
    (void)arguments;
    for (size_t i = 0; i < HANDLE_CHAINS; i++) {
        struct handle **at = &torch.chains[i];

        while (*at) {
            struct handle *handle = *at;

            if (service && !pl_service_test(service, &handle->completion)) {
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

/* function of Horovod's, what it does, groups or not; the types that it takes */
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
    REDUCTIONS(REDUCTION_METHODS) MOVES(MOVE_METHODS) /* by kind, tensor's type */
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
    torch.data_ptr = PyUnicode_InternFromString("data_ptr");
    torch.size = PyUnicode_InternFromString("size");
    torch.resize = PyUnicode_InternFromString("resize_");
    torch.dtype = PyUnicode_InternFromString("dtype");
    return torch.data_ptr && torch.size && torch.resize && torch.dtype ? PyModule_Create(&definition) : NULL;
}
