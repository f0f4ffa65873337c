/* SPDX-License-Identifier: Apache-2.0 */
/**
 * TensorFlow kernels for Horovod's operations: the attributes of a kernel's node (tensorflow_kernel.c), and runs of the
 * kernel (tensorflow_call.c).
 *
 * Threads  TensorFlow's; a kernel may run any number of times at once.
 * Test     tests/integration/horovod_tensorflow.py
 */
#ifndef PL_RUNTIME_HOROVOD_TENSORFLOW_KERNEL_H
#define PL_RUNTIME_HOROVOD_TENSORFLOW_KERNEL_H

#include "runtime/named.h"
#include "runtime/tensorflow/tensorflow_api.h"

/* name, TensorFlow's name */
#define PL_TENSORFLOW_OP_LIST(X)                                                                                       \
    X(ALLREDUCE, "HorovodAllreduce")                                                                                   \
    X(GROUPED_ALLREDUCE, "HorovodGroupedAllreduce")                                                                    \
    X(ALLGATHER, "HorovodAllgather")                                                                                   \
    X(GROUPED_ALLGATHER, "HorovodGroupedAllgather")                                                                    \
    X(BROADCAST, "HorovodBroadcast")                                                                                   \
    X(BROADCAST_INPLACE, "HorovodBroadcastInplace")                                                                    \
    X(BROADCAST_INPLACE_RESOURCE, "HorovodBroadcastInplaceResource")                                                   \
    X(ALLTOALL, "HorovodAlltoall")                                                                                     \
    X(REDUCESCATTER, "HorovodReducescatter")                                                                           \
    X(GROUPED_REDUCESCATTER, "HorovodGroupedReducescatter")                                                            \
    X(JOIN, "HorovodJoin")                                                                                             \
    X(SIZE, "HorovodSize")                                                                                             \
    X(PROCESS_SET_INCLUDED, "HorovodProcessSetIncluded")                                                               \
    X(LOCAL_SIZE, "HorovodLocalSize")                                                                                  \
    X(RANK, "HorovodRank")                                                                                             \
    X(LOCAL_RANK, "HorovodLocalRank")

enum pl_tensorflow_op {
#define PL_TENSORFLOW_OP_ENUM(name, text) PL_TENSORFLOW_##name,
    PL_TENSORFLOW_OP_LIST(PL_TENSORFLOW_OP_ENUM)
#undef PL_TENSORFLOW_OP_ENUM
        PL_TENSORFLOW_OPS
};

/** Attributes of a node. */
struct pl_tensorflow_kernel {
    enum pl_tensorflow_op op;
    enum pl_kind kind;
    /* grouped: the tensors form a group; in_place: they are variables; has_reference: of TensorFlow 1's kind */
    bool grouped, in_place, has_reference;
    bool is_lone; /* the node runs eagerly, outside a graph */
    int set, root, reduction;
    float prescale, postscale;
    int tensors;                                /* number of tensors */
    char name[PL_NAMED_MAX_NAME_BYTES];         /* equal on all ranks */
    char (*variables)[PL_NAMED_MAX_NAME_BYTES]; /* [tensors] names of the operations, if in_place */
};

/** TensorFlow's names of the operations. */
extern const char *const pl_tensorflow_kernel_names[PL_TENSORFLOW_OPS];

/** The functions that create and delete a kernel of each operation. */
extern pl_tensorflow_create *const pl_tensorflow_kernel_create[PL_TENSORFLOW_OPS];
void pl_tensorflow_kernel_free(void *kernel);

/**
 * Runs a kernel of an operation between ranks: submits it. The operation ends in the thread that drives the service.
 */
void pl_tensorflow_call_start(void *kernel, struct TF_OpKernelContext *context,
                              struct TF_AsyncOpKernelDoneCallback *done);

/** Runs a kernel that returns a number. */
void pl_tensorflow_call_ask(void *kernel, struct TF_OpKernelContext *context);

#endif
