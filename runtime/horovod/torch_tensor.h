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

typedef struct _object PyObject; /* declared here because not every compiler here finds Python.h */

/** Must be called once, before all other functions. */
bool pl_torch_tensor_init(void);

/** Returns the address of the data of a tensor. */
bool pl_torch_tensor_pointer(PyObject *tensor, void **ret_pointer);

/** Reads the shape. Dimensions beyond the room of an operation are multiplied into one. */
bool pl_torch_tensor_shape(PyObject *tensor, struct pl_named_op *op);

/** Reads the type of the elements. */
bool pl_torch_tensor_dtype(PyObject *tensor, enum pl_dtype *ret_dtype);

/** Resizes `tensor` to `rows` rows; the other dimensions are those of `like`. NULL: there are no others. */
bool pl_torch_tensor_resize(PyObject *tensor, uint64_t rows, PyObject *like);

/**
 * Returns the elements as a contiguous tensor in host memory, or with `stays` in the memory where they are: a copy, or
 * a new reference to `tensor` if it is one already. Sets `*was_far` if they were copied from other memory than the
 * host's.
 */
PyObject *pl_torch_tensor_pack(PyObject *tensor, bool stays, bool *was_far);

/** Finds the number of the GPU that holds the elements, as CUDA counts it in this process; -1: host memory. */
bool pl_torch_tensor_gpu(PyObject *tensor, int *ret_gpu);

/** Finds the CUDA stream on which the calling thread's work for that GPU runs. */
bool pl_torch_stream(int gpu, void **ret_stream);

/** Copies the elements of `packed` into `tensor`. With `resizes`, `tensor` gets the shape of `packed`. */
bool pl_torch_tensor_unpack(PyObject *tensor, PyObject *packed, bool resizes);

/**
 * Whether no two elements have the same address. It is false if the strides do not prove it, as for some views made by
 * hand.
 */
bool pl_torch_tensor_is_distinct(PyObject *tensor, bool *ret_distinct);

#endif
