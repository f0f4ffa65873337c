/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors as operations need them: contiguous, and in memory that the operation takes. */
#define Py_LIMITED_API 0x03080000
#include <Python.h>

#include "runtime/horovod/torch_tensor.h"

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

/* Elements that share their memory have one value each to get. */
static bool check_in_place(PyObject *tensor, const char *kind, Py_ssize_t at)
{
    bool distinct;

    if (!pl_torch_tensor_is_distinct(tensor, &distinct)) {
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

/* All of it, or an exception. */
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
