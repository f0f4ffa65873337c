/* SPDX-License-Identifier: Apache-2.0 */
/**
 * NCCL, loaded at run time, and one NCCL communicator. Internal to collectives/.
 *
 * Errors   PL_LIBRARY with PL_DOMAIN_NCCL and NCCL's text.
 * Threads  one at a time per communicator.
 */
#ifndef PL_COLLECTIVES_GPU_LIBRARY_NCCL_H
#define PL_COLLECTIVES_GPU_LIBRARY_NCCL_H

#include "collectives/core/backend.h"
#include "device/device.h"

#include <limits.h>

/* The part of NCCL's interface that we use, declared here so that no build needs NCCL's header. If the header is
 * installed, tests/unit/collectives/gpu/test_nccl.c compares it with this. */
#define PL_NCCL_CONSTANTS(X)                                                                                           \
    X(ncclSuccess, 0)                                                                                                  \
    X(ncclUnhandledCudaError, 1)                                                                                       \
    X(ncclSystemError, 2)                                                                                              \
    X(ncclInternalError, 3)                                                                                            \
    X(ncclInvalidArgument, 4)                                                                                          \
    X(ncclInvalidUsage, 5)                                                                                             \
    X(ncclRemoteError, 6)                                                                                              \
    X(ncclInProgress, 7)                                                                                               \
    X(ncclInt8, 0)                                                                                                     \
    X(ncclUint8, 1)                                                                                                    \
    X(ncclInt32, 2)                                                                                                    \
    X(ncclInt64, 4)                                                                                                    \
    X(ncclFloat16, 6)                                                                                                  \
    X(ncclFloat32, 7)                                                                                                  \
    X(ncclFloat64, 8)                                                                                                  \
    X(ncclBfloat16, 9)                                                                                                 \
    X(ncclSum, 0)                                                                                                      \
    X(ncclProd, 1)                                                                                                     \
    X(ncclMax, 2)                                                                                                      \
    X(ncclMin, 3)                                                                                                      \
    X(ncclNumOps, 5)                                                                                                   \
    X(ncclScalarHostImmediate, 1)

#ifndef NCCL_VERSION_CODE /* otherwise NCCL's header declares all of these */
enum {
#define PL_NCCL_CONSTANT(name, value) name = (value),
    PL_NCCL_CONSTANTS(PL_NCCL_CONSTANT)
#undef PL_NCCL_CONSTANT
};
typedef unsigned ncclResult_t, ncclDataType_t, ncclRedOp_t, ncclScalarResidence_t;
typedef struct ncclComm *ncclComm_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct {
    char internal[128];
} ncclUniqueId;
#endif

/* ncclConfig_t as of NCCL 2.17. Earlier versions read only the first members; later versions use their defaults for
 * members that this struct lacks. */
struct pl_nccl_config {
    size_t size;
    unsigned magic;
    unsigned version;
    int blocking;
    int cga_cluster_size;
    int min_ctas;
    int max_ctas;
    const char *net_name;
};

#define PL_NCCL_CONFIG_NONE                                                                                            \
    {                                                                                                                  \
        sizeof(struct pl_nccl_config), 0xcafebeef, 21700, INT_MIN, INT_MIN, INT_MIN, INT_MIN, NULL                     \
    }

/* Most CTAs of each kernel of a communicator without some of the job's ranks. So kernels of several communicators run
 * on a device at the same time, and none waits for ever for one that another rank has launched first. */
enum { PL_NCCL_SUBSET_CTAS = 4 };

#define PL_NCCL_FUNCTIONS(X)                                                                                           \
    X(ncclResult_t, GetVersion, int *version)                                                                          \
    X(ncclResult_t, GetUniqueId, ncclUniqueId *id)                                                                     \
    X(const char *, GetErrorString, ncclResult_t result)                                                               \
    X(const char *, GetLastError, ncclComm_t comm)                                                                     \
    X(ncclResult_t, CommInitRankConfig, ncclComm_t *comm, int size, ncclUniqueId id, int rank,                         \
      struct pl_nccl_config *config)                                                                                   \
    X(ncclResult_t, CommFinalize, ncclComm_t comm)                                                                     \
    X(ncclResult_t, CommDestroy, ncclComm_t comm)                                                                      \
    X(ncclResult_t, CommAbort, ncclComm_t comm)                                                                        \
    X(ncclResult_t, CommGetAsyncError, ncclComm_t comm, ncclResult_t *state)                                           \
    X(ncclResult_t, RedOpCreatePreMulSum, ncclRedOp_t *op, void *scalar, ncclDataType_t type,                          \
      ncclScalarResidence_t residence, ncclComm_t comm)                                                                \
    X(ncclResult_t, RedOpDestroy, ncclRedOp_t op, ncclComm_t comm)                                                     \
    X(ncclResult_t, GroupStart, void)                                                                                  \
    X(ncclResult_t, GroupEnd, void)                                                                                    \
    X(ncclResult_t, AllReduce, const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,        \
      ncclComm_t comm, cudaStream_t stream)                                                                            \
    X(ncclResult_t, ReduceScatter, const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,    \
      ncclComm_t comm, cudaStream_t stream)                                                                            \
    X(ncclResult_t, AllGather, const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,       \
      cudaStream_t stream)                                                                                             \
    X(ncclResult_t, Broadcast, const void *send, void *recv, size_t count, ncclDataType_t type, int root,              \
      ncclComm_t comm, cudaStream_t stream)                                                                            \
    X(ncclResult_t, Reduce, const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root, \
      ncclComm_t comm, cudaStream_t stream)                                                                            \
    X(ncclResult_t, Send, const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,              \
      cudaStream_t stream)                                                                                             \
    X(ncclResult_t, Recv, void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)

struct pl_nccl {
#define PL_NCCL_MEMBER(type, name, ...) type (*name)(__VA_ARGS__);
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

/** Whether the host's part of the last NCCL call is done. Fails if anything failed since then, also on the device. */
enum pl_status pl_gpu_nccl_poll(struct pl_nccl *nccl, bool *ret_idle, struct pl_error *reterr) PL_MUST_CHECK;

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
