/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Access to torch tensors by their Python attributes, so that one binary works with every torch, and by CPython's
 * limited API, so that it works with every Python from 3.8 on. Also staging for operations: the tensors themselves, or
 * copies that are contiguous or in other memory.
 *
 * Threads  those that hold the interpreter's lock.
 * Errors   false or NULL, with a Python exception.
 * Test     tests/integration/horovod.py, tests/integration/horovod_gpu.py
 */
#ifndef PL_RUNTIME_HOROVOD_TORCH_TENSOR_H
#define PL_RUNTIME_HOROVOD_TORCH_TENSOR_H

#include "runtime/named.h"

typedef struct _object PyObject; /* declared here because Python.h is not available in every build */

/** Call it once, before all other functions. */
bool pl_torch_tensor_init(void);

/** Returns the address of the data of a tensor. */
bool pl_torch_tensor_pointer(PyObject *tensor, void **ret_pointer);

/** Reads the shape. Dimensions beyond the most that an operation has are multiplied into one. */
bool pl_torch_tensor_shape(PyObject *tensor, struct pl_named_op *op);

/** Reads the type of the elements. */
bool pl_torch_tensor_dtype(PyObject *tensor, enum pl_dtype *ret_dtype);

/** Resizes `tensor` to `rows` rows with the other dimensions of `like`; `like` NULL: there are none. */
bool pl_torch_tensor_resize(PyObject *tensor, uint64_t rows, PyObject *like);

/**
 * Returns the elements as a contiguous tensor in host memory, with `stays` in their own memory: a copy, or a new
 * reference to `tensor` if it is such a tensor. Sets `*was_far` if elements were copied from a GPU.
 */
PyObject *pl_torch_tensor_pack(PyObject *tensor, bool stays, bool *was_far);

/** Finds the number of the GPU that has the elements, as CUDA counts in this process; -1: host memory. */
bool pl_torch_tensor_gpu(PyObject *tensor, int *ret_gpu);

/** Finds the CUDA stream on which the calling thread's work for that GPU runs. */
bool pl_torch_stream(int gpu, void **ret_stream);

/** Copies the elements of `packed` into `tensor`. With `resizes`, `tensor` gets the shape of `packed`. */
bool pl_torch_tensor_unpack(PyObject *tensor, PyObject *packed, bool resizes);

/**
 * Staged tensors of an operation: the input, the output, and `target`: the tensor to which the output is copied at the
 * end, or None. For several operations these are lists.
 */
struct pl_torch_staged {
    PyObject *tensor, *output, *target;
};

/** Returns a new reference to `objects`, or to item `at` if it is a sequence (`listed`). */
PyObject *pl_torch_member(PyObject *objects, bool listed, ptrdiff_t at);

/**
 * Finds the memory of the tensor and the output of `op`, and the stream that orders them. `*gpu` is the GPU of the
 * earlier operations; -1: none.
 */
bool pl_torch_place(struct pl_named_op *op, PyObject *tensor, PyObject *output, int *gpu);

/**
 * Stages one tensor, or a group's tensors into the lists of `all`. Sets `*was_far` if tensors were copied from a GPU;
 * with PL_MEMORY_DEVICE in `op` none are.
 */
bool pl_torch_stage_all(const struct pl_torch_staged *all, PyObject *tensors, PyObject *outputs,
                        const struct pl_named_op *op, const char *kind, bool grouped, bool *was_far);

#endif
