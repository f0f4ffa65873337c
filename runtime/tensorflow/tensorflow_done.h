/* SPDX-License-Identifier: Apache-2.0 */
/**
 * TensorFlow's done callback of an asynchronous kernel. The kernel gets the address of a std::function on its caller's
 * stack, which no longer exists after the kernel has returned. A kernel that ends later keeps a copy.
 */
#ifndef PL_RUNTIME_TENSORFLOW_TENSORFLOW_DONE_H
#define PL_RUNTIME_TENSORFLOW_TENSORFLOW_DONE_H

#ifdef __cplusplus
extern "C" {
#endif

struct TF_AsyncOpKernelDoneCallback;

/** Memory for a copy. */
struct pl_tensorflow_done {
    void *function[4]; /* as large as a std::function; the compiler checks that */
};

/** Copies `done` into `copy`, for one pl_tensorflow_done_run(). */
void pl_tensorflow_done_copy(struct pl_tensorflow_done *copy, const struct TF_AsyncOpKernelDoneCallback *done);

/** Calls the function, and releases what it holds. */
void pl_tensorflow_done_run(struct pl_tensorflow_done *copy);

#ifdef __cplusplus
}
#endif

#endif
