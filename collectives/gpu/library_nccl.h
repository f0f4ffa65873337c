/* SPDX-License-Identifier: Apache-2.0 */
/**
 * NCCL, loaded at run time, and one communicator of it. Internal to collectives/: only files named *_nccl.c include it.
 *
 * Errors   PL_LIBRARY with PL_DOMAIN_NCCL and NCCL's text.
 * Threads  one at a time per communicator.
 */
#ifndef PL_COLLECTIVES_GPU_LIBRARY_NCCL_H
#define PL_COLLECTIVES_GPU_LIBRARY_NCCL_H

#include "collectives/core/backend.h"
#include "device/device.h"

#include <nccl.h>

/* ncclBfloat16: NCCL has it since 2.10, but its header for C only since 2.24. */
#define PL_NCCL_BFLOAT16 ((ncclDataType_t)9)

/* CTAs, at most, of each kernel of a communicator that has not all ranks of the job. Kernels of several communicators
 * then fit on a device beside each other, and none waits for ever for one that another rank has launched first. */
enum { PL_NCCL_SUBSET_CTAS = 4 };

#define PL_NCCL_FUNCTIONS(X)                                                                                           \
    X(GetVersion)                                                                                                      \
    X(GetUniqueId)                                                                                                     \
    X(GetErrorString)                                                                                                  \
    X(GetLastError)                                                                                                    \
    X(CommInitRankConfig)                                                                                              \
    X(CommFinalize)                                                                                                    \
    X(CommDestroy)                                                                                                     \
    X(CommAbort)                                                                                                       \
    X(CommGetAsyncError)                                                                                               \
    X(RedOpCreatePreMulSum)                                                                                            \
    X(RedOpDestroy)                                                                                                    \
    X(GroupStart)                                                                                                      \
    X(GroupEnd)                                                                                                        \
    X(AllReduce)                                                                                                       \
    X(ReduceScatter)                                                                                                   \
    X(AllGather)                                                                                                       \
    X(Broadcast)                                                                                                       \
    X(Reduce)                                                                                                          \
    X(Send)                                                                                                            \
    X(Recv)

struct pl_nccl {
#define PL_NCCL_MEMBER(name) __typeof__(&nccl##name) name;
    PL_NCCL_FUNCTIONS(PL_NCCL_MEMBER)
#undef PL_NCCL_MEMBER
    int version; /* e.g. 22809 for 2.28.9 */
    ncclComm_t comm;
    struct pl_device *device; /* device of the communicator; the caller sets it before it joins */
};

/** Load the library, which stays loaded until the process ends. False if that fails: `reason` tells what is missing. */
bool pl_gpu_nccl_load(struct pl_nccl *nccl, char reason[PL_BACKEND_REASON_BYTES]);

/**
 * Make the communicator in which this rank has the rank `comm_rank`, on nccl->device, which must be current in this
 * thread. Collective over `world`: ranks share one id through its bootstrap.
 */
enum pl_status pl_gpu_nccl_join(struct pl_nccl *nccl, struct pl_world *world, int comm_rank, int64_t deadline_ns,
                                struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Whether the host's part of the last NCCL call is done. Fails if anything has gone wrong since, also on the device.
 */
enum pl_status pl_gpu_nccl_poll(struct pl_nccl *nccl, bool *ret_ready, struct pl_error *reterr) PL_MUST_CHECK;

/** Turn a result of NCCL into a status: PL_OK for success and for work in progress. */
enum pl_status pl_gpu_nccl_check(const struct pl_nccl *nccl, ncclResult_t result, const char *what,
                                 struct pl_error *reterr) PL_MUST_CHECK;

/** Finalize the communicator: waits, for at most two seconds, until no other rank needs this one's memory. */
void pl_gpu_nccl_leave(struct pl_nccl *nccl);

/**
 * Abort the communicator and its work on the device. NCCL waits for the stream, and so for work queued before its own.
 * After two seconds, for example if a kernel never ends, a separate thread goes on waiting.
 */
void pl_gpu_nccl_abort(struct pl_nccl *nccl);

#endif
