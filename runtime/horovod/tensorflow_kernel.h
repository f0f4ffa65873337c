/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Horovod's operations as TensorFlow's kernels: what a kernel knows of its node (tensorflow_kernel.c), and one run of
 * it (tensorflow_call.c).
 *
 * Threads  TensorFlow's; a kernel runs any number of times at once.
 * Test     tests/integration/horovod_tensorflow.py
 */
#ifndef PL_RUNTIME_HOROVOD_TENSORFLOW_KERNEL_H
#define PL_RUNTIME_HOROVOD_TENSORFLOW_KERNEL_H

#include "runtime/horovod/tensorflow_api.h"
#include "runtime/named.h"

enum pl_tensorflow_op {
    PL_TENSORFLOW_ALLREDUCE,
    PL_TENSORFLOW_GROUPED_ALLREDUCE,
    PL_TENSORFLOW_ALLGATHER,
    PL_TENSORFLOW_GROUPED_ALLGATHER,
    PL_TENSORFLOW_BROADCAST,
    PL_TENSORFLOW_BROADCAST_INPLACE,
    PL_TENSORFLOW_BROADCAST_INPLACE_RESOURCE,
    PL_TENSORFLOW_ALLTOALL,
    PL_TENSORFLOW_REDUCESCATTER,
    PL_TENSORFLOW_GROUPED_REDUCESCATTER,
    PL_TENSORFLOW_JOIN,
    PL_TENSORFLOW_SIZE,
    PL_TENSORFLOW_PROCESS_SET_INCLUDED,
    PL_TENSORFLOW_LOCAL_SIZE,
    PL_TENSORFLOW_RANK,
    PL_TENSORFLOW_LOCAL_RANK,
    PL_TENSORFLOW_OPS
};

/** A node's attributes. */
struct pl_tensorflow_kernel {
    enum pl_tensorflow_op op;
    enum pl_kind kind;
    bool grouped, in_place, has_reference; /* its tensors are one group, are variables, are those of TensorFlow 1 */
    int set, root, reduction;
    float prescale, postscale;
    int tensors;                                /* how many it takes */
    char name[PL_NAMED_MAX_NAME_BYTES];         /* equal on all ranks */
    char (*variables)[PL_NAMED_MAX_NAME_BYTES]; /* in_place: [tensors], the operations' names */
};

/** What makes a kernel of each operation, and what releases it. */
extern pl_tensorflow_create *const pl_tensorflow_kernel_create[PL_TENSORFLOW_OPS];
void pl_tensorflow_kernel_free(void *kernel);

/** Run a kernel of an operation between ranks: submitted here, ended later, in whichever thread drives the service. */
void pl_tensorflow_call_start(void *kernel, struct TF_OpKernelContext *context,
                              struct TF_AsyncOpKernelDoneCallback *done);

/** Run a kernel that asks for a number. */
void pl_tensorflow_call_ask(void *kernel, struct TF_OpKernelContext *context);

#endif
