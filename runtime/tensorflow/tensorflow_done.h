/* SPDX-License-Identifier: Apache-2.0 */
/**
 * TensorFlow's done callback of an asynchronous kernel. The kernel gets the address of a std::function on its caller's
 * stack, which exists only until the kernel returns. A kernel that ends later keeps a copy.
 */
#ifndef PL_RUNTIME_TENSORFLOW_TENSORFLOW_DONE_H
#define PL_RUNTIME_TENSORFLOW_TENSORFLOW_DONE_H

#ifdef __cplusplus
extern "C" {
#endif

struct TF_AsyncOpKernelDoneCallback;

/** Memory for a copy of the callback. */
struct pl_tensorflow_done {
    void *function[4]; /* the size of a std::function, which the compiler checks */
};

/** Copies `done` into `copy`, for exactly one call of pl_tensorflow_done_run(). */
void pl_tensorflow_done_copy(struct pl_tensorflow_done *copy, const struct TF_AsyncOpKernelDoneCallback *done);

/** Calls the callback, and releases its memory. */
void pl_tensorflow_done_run(struct pl_tensorflow_done *copy);

#ifdef __cplusplus
}
#endif

#endif
