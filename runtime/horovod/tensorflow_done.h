/* SPDX-License-Identifier: Apache-2.0 */
/**
 * TensorFlow's done callback of an asynchronous kernel. What the kernel is given is the address of a std::function on
 * its caller's stack, which is gone when the kernel returns: a kernel that ends later keeps a copy.
 */
#ifndef PL_RUNTIME_HOROVOD_TENSORFLOW_DONE_H
#define PL_RUNTIME_HOROVOD_TENSORFLOW_DONE_H

#ifdef __cplusplus
extern "C" {
#endif

struct TF_AsyncOpKernelDoneCallback;

/** Room for a copy. */
struct pl_tensorflow_done {
    void *function[4]; /* as large as a std::function, which the compiler checks */
};

/** Copies `done` into `copy`, for one pl_tensorflow_done_run(). */
void pl_tensorflow_done_copy(struct pl_tensorflow_done *copy, const struct TF_AsyncOpKernelDoneCallback *done);

/** Calls the function, and releases what it holds. */
void pl_tensorflow_done_run(struct pl_tensorflow_done *copy);

#ifdef __cplusplus
}
#endif

#endif
