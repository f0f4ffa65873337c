/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What an operation of the module for torch works on: the tensors themselves, or copies of them that are contiguous or
 * in other memory.
 *
 * Threads  those that hold the interpreter's lock.
 * Errors   false or NULL, with a Python exception.
 * Test     tests/integration/horovod.py, tests/integration/horovod_gpu.py
 */
#ifndef PL_RUNTIME_HOROVOD_TORCH_STAGE_H
#define PL_RUNTIME_HOROVOD_TORCH_STAGE_H

#include "runtime/named.h"

typedef struct _object PyObject; /* declared here because not every compiler here finds Python.h */

/**
 * What an operation works on in place of a tensor and its output; `target`: the output, where it is to be copied there
 * afterwards, or None. Of several, lists.
 */
struct pl_torch_staged {
    PyObject *tensor, *output, *target;
};

/** Returns a new reference to the object, or to one of a sequence. */
PyObject *pl_torch_member(PyObject *objects, bool listed, ptrdiff_t at);

/**
 * Finds where the tensor and the output of `op` lie, and what they are ordered by. `*gpu` is the GPU of the operations
 * before, -1: none.
 */
bool pl_torch_place(struct pl_named_op *op, PyObject *tensor, PyObject *output, int *gpu);

/**
 * Stages the tensors of a group, or one, into the lists of `all`. `*was_far` is set if tensors were copied from a GPU:
 * with PL_MEMORY_DEVICE in `op` none is.
 */
bool pl_torch_stage_all(const struct pl_torch_staged *all, PyObject *tensors, PyObject *outputs,
                        const struct pl_named_op *op, const char *kind, bool grouped, bool *was_far);

#endif
