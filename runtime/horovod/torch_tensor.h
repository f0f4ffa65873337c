/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Torch's tensors by their Python attributes, so that one binary serves every torch; CPython's limited API, so that it
 * serves every Python from 3.8 on. And what an operation works on: the tensors themselves, or copies of them that are
 * contiguous or in other memory.
 *
 * Threads  those that hold the interpreter's lock.
 * Errors   false or NULL, with a Python exception.
 * Test     tests/integration/horovod.py, tests/integration/horovod_gpu.py
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
 * What an operation works on instead of a tensor and its output; `target`: the output, where it is to be copied there
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
