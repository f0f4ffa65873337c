/* SPDX-License-Identifier: Apache-2.0 */
/* Properties of torch tensors, and operations on them, by calls of Python. Also staging: tensors that are contiguous,
 * and in memory that an operation accepts. */
#define Py_LIMITED_API 0x03080000
#include <Python.h>

#include "runtime/horovod/torch_tensor.h"

#include "base/dtype.h"
#include "runtime/horovod/submission.h"

#include <string.h>

/* names of attributes, as Python objects */
static struct {
    PyObject *data_ptr, *size, *stride, *resize, *dtype, *cpu, *contiguous, *is_cuda, *get_device;
} names;

bool pl_torch_tensor_init(void)
{
    names.data_ptr = PyUnicode_InternFromString("data_ptr");
    names.size = PyUnicode_InternFromString("size");
    names.stride = PyUnicode_InternFromString("stride");
    names.resize = PyUnicode_InternFromString("resize_");
    names.dtype = PyUnicode_InternFromString("dtype");
    names.cpu = PyUnicode_InternFromString("cpu");
    names.contiguous = PyUnicode_InternFromString("contiguous");
    names.is_cuda = PyUnicode_InternFromString("is_cuda");
    names.get_device = PyUnicode_InternFromString("get_device");
    return !PyErr_Occurred();
}

bool pl_torch_tensor_pointer(PyObject *tensor, void **ret_pointer)
{
    PyObject *pointer = PyObject_CallMethodObjArgs(tensor, names.data_ptr, NULL);

    if (!pointer) {
        return false;
    }
    *ret_pointer = PyLong_AsVoidPtr(pointer);
    Py_DECREF(pointer);
    return !PyErr_Occurred();
}

bool pl_torch_tensor_shape(PyObject *tensor, struct pl_named_op *op)
{
    PyObject *size = PyObject_CallMethodObjArgs(tensor, names.size, NULL);
    Py_ssize_t dims = size ? PyTuple_Size(size) : -1;

    op->dims = 0;
    for (Py_ssize_t i = 0; i < dims && !PyErr_Occurred(); i++) {
        pl_submission_dimension(op, PyLong_AsUnsignedLongLong(PyTuple_GetItem(size, i)));
    }
    Py_XDECREF(size);
    return !PyErr_Occurred();
}

bool pl_torch_tensor_dtype(PyObject *tensor, enum pl_dtype *ret_dtype)
{
    PyObject *dtype = PyObject_GetAttr(tensor, names.dtype), *text = dtype ? PyObject_Str(dtype) : NULL;
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

bool pl_torch_tensor_resize(PyObject *tensor, uint64_t rows, PyObject *like)
{
    PyObject *size = like ? PyObject_CallMethodObjArgs(like, names.size, NULL) : NULL;
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
        done = PyObject_CallMethodObjArgs(tensor, names.resize, shape, NULL);
    }
    Py_XDECREF(done);
    Py_XDECREF(shape);
    Py_XDECREF(size);
    return done;
}

bool pl_torch_tensor_gpu(PyObject *tensor, int *ret_gpu)
{
    PyObject *is_cuda = PyObject_GetAttr(tensor, names.is_cuda), *number = NULL;
    int far = is_cuda ? PyObject_IsTrue(is_cuda) : -1;

    *ret_gpu = -1;
    if (far == 1) {
        number = PyObject_CallMethodObjArgs(tensor, names.get_device, NULL);
        *ret_gpu = number ? (int)PyLong_AsLong(number) : -1;
    }
    Py_XDECREF(number);
    Py_XDECREF(is_cuda);
    return !PyErr_Occurred();
}

/* Returns the stream's address from torch's C module; NULL: this torch has no such function. */
static PyObject *raw_stream(int gpu)
{
    PyObject *module = PyImport_ImportModule("torch._C");
    PyObject *function = module ? PyObject_GetAttrString(module, "_cuda_getCurrentRawStream") : NULL;
    PyObject *stream = function ? PyObject_CallFunction(function, "i", gpu) : NULL;

    if (module && !function) {
        PyErr_Clear();
    }
    Py_XDECREF(function);
    Py_XDECREF(module);
    return stream;
}

bool pl_torch_stream(int gpu, void **ret_stream)
{
    PyObject *number = raw_stream(gpu);

    if (!number && !PyErr_Occurred()) {
        PyObject *module = PyImport_ImportModule("torch.cuda");
        PyObject *stream = module ? PyObject_CallMethod(module, "current_stream", "i", gpu) : NULL;

        number = stream ? PyObject_GetAttrString(stream, "cuda_stream") : NULL;
        Py_XDECREF(stream);
        Py_XDECREF(module);
    }
    if (number) {
        *ret_stream = PyLong_AsVoidPtr(number);
    }
    Py_XDECREF(number);
    return !PyErr_Occurred();
}

PyObject *pl_torch_tensor_pack(PyObject *tensor, bool stays, bool *was_far)
{
    PyObject *host = stays ? tensor : PyObject_CallMethodObjArgs(tensor, names.cpu, NULL);
    PyObject *packed = host ? PyObject_CallMethodObjArgs(host, names.contiguous, NULL) : NULL;

    *was_far = *was_far || (host && host != tensor);
    Py_XDECREF(stays ? NULL : host);
    return packed;
}

bool pl_torch_tensor_unpack(PyObject *tensor, PyObject *packed, bool resizes)
{
    PyObject *size = resizes ? PyObject_CallMethodObjArgs(packed, names.size, NULL) : NULL;
    PyObject *resized = size ? PyObject_CallMethodObjArgs(tensor, names.resize, size, NULL) : NULL;
    /* detached, because a parameter that needs a gradient cannot be changed in place */
    PyObject *plain = !resizes || resized ? PyObject_CallMethod(tensor, "detach", NULL) : NULL;
    PyObject *copied = plain ? PyObject_CallMethod(plain, "copy_", "O", packed) : NULL;

    Py_XDECREF(copied);
    Py_XDECREF(plain);
    Py_XDECREF(resized);
    Py_XDECREF(size);
    return copied;
}

/* Returns item `at` of a tuple of integers that are not negative. */
static uint64_t number_at(PyObject *tuple, Py_ssize_t at)
{
    return PyLong_AsUnsignedLongLong(PyTuple_GetItem(tuple, at));
}

/* Returns whether the stride of dimension `at` is larger than the span of all dimensions of smaller strides. */
static bool is_apart(PyObject *size, PyObject *stride, Py_ssize_t dims, Py_ssize_t at)
{
    uint64_t step = number_at(stride, at), reach = 0;

    for (Py_ssize_t i = 0; i < dims; i++) {
        uint64_t other = number_at(stride, i);

        if (other < step || (other == step && i < at)) {
            reach += other * (number_at(size, i) - 1);
        }
    }
    return step > reach || number_at(size, at) == 1;
}

/* Returns whether no two elements have the same address. False if the strides do not prove it, as for some handmade
 * views. */
static bool is_distinct(PyObject *tensor, bool *ret_distinct)
{
    PyObject *size = PyObject_CallMethodObjArgs(tensor, names.size, NULL);
    PyObject *stride = size ? PyObject_CallMethodObjArgs(tensor, names.stride, NULL) : NULL;
    Py_ssize_t dims = stride ? PyTuple_Size(size) : 0;
    bool empty = false;

    *ret_distinct = true;
    for (Py_ssize_t i = 0; i < dims && !empty; i++) {
        empty = number_at(size, i) == 0;
    }
    for (Py_ssize_t i = 0; i < dims && *ret_distinct && !empty; i++) {
        *ret_distinct = is_apart(size, stride, dims, i);
    }
    Py_XDECREF(stride);
    Py_XDECREF(size);
    return !PyErr_Occurred();
}

PyObject *pl_torch_member(PyObject *objects, bool listed, ptrdiff_t at)
{
    if (listed) {
        return PySequence_GetItem(objects, at);
    }
    Py_INCREF(objects);
    return objects;
}

bool pl_torch_place(struct pl_named_op *op, PyObject *tensor, PyObject *output, int *gpu)
{
    int found, other;

    if (!pl_torch_tensor_gpu(tensor, &found) || !pl_torch_tensor_gpu(output, &other)) {
        return false;
    }
    if (found != other || (found >= 0 && *gpu >= 0 && found != *gpu)) {
        PyErr_Format(PyExc_ValueError, "tensors of one operation are on the devices %d and %d: a rank uses one GPU",
                     found, found != other ? other : *gpu);
        return false;
    }
    op->memory = found >= 0 ? PL_MEMORY_DEVICE : PL_MEMORY_HOST;
    *gpu = found >= 0 ? found : *gpu;
    return found < 0 || pl_torch_stream(found, &op->stream);
}

/* Refuses an in-place operation on elements that share memory, because such elements could get different values. */
static bool check_in_place(PyObject *tensor, const char *kind, Py_ssize_t at)
{
    bool distinct;

    if (!is_distinct(tensor, &distinct)) {
        return false;
    }
    if (!distinct) {
        PyErr_Format(PyExc_ValueError,
                     "%s: several elements of tensor %zd share their memory, as expand() makes them, and cannot be "
                     "reduced in place: give its clone() or contiguous()",
                     kind, at);
    }
    return distinct;
}

/* Stages all tensors, or raises an exception. */
static bool stage(struct pl_torch_staged *staged, PyObject *tensor, PyObject *output, const struct pl_named_op *op,
                  const char *kind, Py_ssize_t at, bool *was_far)
{
    bool in_place = op->kind == PL_ALLREDUCE || op->kind == PL_BROADCAST, stays = op->memory == PL_MEMORY_DEVICE;

    staged->tensor = pl_torch_tensor_pack(tensor, stays, was_far);
    if (!staged->tensor || (staged->tensor != tensor && tensor == output && !check_in_place(tensor, kind, at))) {
        return false;
    }
    if (output == tensor || (staged->tensor != tensor && in_place)) {
        staged->output = staged->tensor;
        Py_INCREF(staged->output);
    } else {
        staged->output = pl_torch_tensor_pack(output, stays, was_far);
    }
    staged->target = staged->output == output ? Py_None : output;
    Py_INCREF(staged->target);
    return staged->output;
}

bool pl_torch_stage_all(const struct pl_torch_staged *all, PyObject *tensors, PyObject *outputs,
                        const struct pl_named_op *op, const char *kind, bool grouped, bool *was_far)
{
    Py_ssize_t count = grouped ? PySequence_Size(tensors) : 1;
    bool good = count >= 0;

    for (Py_ssize_t i = 0; i < count && good; i++) {
        PyObject *tensor = pl_torch_member(tensors, grouped, i),
                 *output = tensor ? pl_torch_member(outputs, grouped, i) : NULL;
        struct pl_torch_staged one = {0};

        good = output && stage(&one, tensor, output, op, kind, i, was_far) &&
               PyList_Append(all->tensor, one.tensor) == 0 && PyList_Append(all->output, one.output) == 0 &&
               PyList_Append(all->target, one.target) == 0;
        Py_XDECREF(one.target);
        Py_XDECREF(one.output);
        Py_XDECREF(one.tensor);
        Py_XDECREF(output);
        Py_XDECREF(tensor);
    }
    return good;
}
