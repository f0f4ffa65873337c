/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Torch's tensors by their Python attributes, so that one binary serves every torch; CPython's limited API, so that it
 * serves every Python from 3.8 on.
 *
 * Threads  those that hold the interpreter's lock.
 * Errors   false or NULL, with a Python exception.
 * Test     tests/integration/horovod.py
 */
#ifndef PL_RUNTIME_HOROVOD_TORCH_TENSOR_H
#define PL_RUNTIME_HOROVOD_TORCH_TENSOR_H

#include "runtime/named.h"

typedef struct _object PyObject; /* Python.h's, which not every compiler here finds */

/** Before all others, once. */
bool pl_torch_tensor_init(void);

/** Where the data of a tensor in host memory lies. */
bool pl_torch_tensor_pointer(PyObject *tensor, void **ret_pointer);

/** The shape; dimensions that an operation has no room for become one. */
bool pl_torch_tensor_shape(PyObject *tensor, struct pl_named_op *op);

/** The type of the elements. */
bool pl_torch_tensor_dtype(PyObject *tensor, enum pl_dtype *ret_dtype);

/** Let `tensor` have `rows` rows; `like` has the other dimensions. NULL: it has one dimension alone. */
bool pl_torch_tensor_resize(PyObject *tensor, uint64_t rows, PyObject *like);

/**
 * The elements one after the other in host memory: a copy, or a new reference to `tensor`, where they lie so. Sets
 * `*was_far` where they lay in other memory than the host's.
 */
PyObject *pl_torch_tensor_pack(PyObject *tensor, bool *was_far);

/** Put those of `packed` into `tensor`, wherever they lie there; `resizes`: with the shape that they have. */
bool pl_torch_tensor_unpack(PyObject *tensor, PyObject *packed, bool resizes);

/** Whether no two elements lie in the same place. What strides do not prove, as of views made by hand, is not. */
bool pl_torch_tensor_is_distinct(PyObject *tensor, bool *ret_distinct);

#endif
