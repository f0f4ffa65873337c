/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backend for one GPU per rank, by NCCL. Requests go to one stream in the order of the posts, after the earlier
 * work of the callers' streams; an event marks their end. States of a request:
 *
 *     posted     the request's event follows the earlier work of the caller's stream; the ranks compare their calls
 *                unless the request is PL_AGREED
 *     given      NCCL has got it, after that event; the call does not block, so NCCL may still work
 *     launched   everything is in the stream, followed by the request's event
 *     ended      the event is reached and all ranks have called the same collective
 *
 * Requests that disagree may already run when the comparison shows it: then the communicator is aborted and every rank
 * reports the mismatch. Collectives for which NCCL's result would differ from what collective.h promises are left to
 * the next backend: see serves().
 */
#include "base/clock.h"
#include "base/environment.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "collectives/bootstrap/bootstrap_private.h"
#include "collectives/core/backend.h"
#include "collectives/core/types.h"
#include "collectives/gpu/compare_calls.h"
#include "collectives/gpu/library_nccl.h"
#include "collectives/gpu/stream_events.h"
#include "collectives/reduce/kernel.h"
#include "collectives/world_private.h"
#include "device/device_private.h"
#include "device/kernel.h"
#include "device/kernel_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t JOIN_NS = 60 * PL_NS_PER_S;
static const int64_t NAP_NS = 50 * PL_NS_PER_US;
/* How long to wait, after an error of NCCL, for a mismatch that would explain it, and, after a rank has left, for
 * the messages that it sent before. */
static const int64_t GRACE_NS = PL_NS_PER_S;
static const int64_t LAST_QUERY_NS = 100 * PL_NS_PER_MS;

enum { MULTI_RANK_VERSION = 23000 }; /* NCCL 2.30 */

/* Number of sets of ranks, the whole job included, whose kernels NCCL can run on one device at the same time. */
enum { SETS_WITHOUT_WARNING = 4 };

enum { WORD_COMPARISON = 1 }; /* word of the request's scratch; word 0 is the event of stream_events.h */

struct nccl {
    struct pl_world *world;
    struct pl_device *device;
    struct pl_nccl library;
    struct pl_stream_events stream;
    struct pl_compare_calls comparisons;
    void *barrier_scratch; /* device memory that a barrier reduces */
    int rank;
    int size;
    int *comm_rank_of;   /* [size]: each rank's number in the communicator */
    bool identity_order; /* whether comm_rank_of[r] is r for all ranks */

    struct pl_request *queued;        /* first request that is posted but not given to NCCL yet */
    struct pl_request *launching;     /* request given to NCCL but not launched yet; may be NULL */
    struct pl_deferred_error failure; /* failure that NCCL or the device has reported */
    int64_t failed_ns;                /* when it was reported */
    int64_t peer_left_since_ns;       /* when a rank was found to have left; 0: none has left */
    bool aborted;
};

static struct pl_call_comparison **comparison_of(struct pl_request *request)
{
    return (struct pl_call_comparison **)(void *)&request->scratch[WORD_COMPARISON];
}

static char *at_elem(const void *data, uint64_t elem, enum pl_dtype dtype)
{
    return (char *)(uintptr_t)data + elem * pl_dtype_bytes(dtype);
}

/* ---- calls of NCCL ---- */

/* How a reduction is scaled: the sources by `before` (by NCCL if `multiplied`, else a kernel writes them to recv
 * first), and the results by `after_sum`. */
struct scaling {
    double before;
    double after_sum;
    bool multiplied;
};

/* Whether the type can hold the factor: the factor of NCCL's multiplying sum has the type of the data. */
static bool holds(enum pl_dtype dtype, double factor)
{
    float single = (float)factor;
    float back;
    uint16_t half;

    if (!pl_is_half(dtype)) {
        return true; /* the host's reductions round it to float32, too */
    }
    pl_kernel_narrow(pl_kernel_best(), dtype, &half, &single, 1);
    pl_kernel_widen(pl_kernel_best(), dtype, &back, &half, 1);
    return (double)back == factor;
}

/*
 * Averages by a power of two are divided before the sum, which is exact. Others are divided after it; half-width inputs
 * are first scaled down by a power of two, so that sums cannot overflow.
 */
static struct scaling scaling_of(const struct nccl *n, const struct pl_collective *c)
{
    struct scaling scaling = {.before = c->prescale, .after_sum = c->postscale};

    if (c->op == PL_AVERAGE) {
        if (pl_is_half(c->dtype)) {
            double guard = pl_kernel_guard(n->size);

            scaling.before *= guard;
            scaling.after_sum *= 1.0 / guard / c->divisor;
        } else if ((c->divisor & (c->divisor - 1)) == 0) {
            scaling.before /= c->divisor;
        } else {
            scaling.after_sum /= c->divisor;
        }
    }
    scaling.multiplied = (c->op == PL_SUM || c->op == PL_AVERAGE) && holds(c->dtype, scaling.before);
    return scaling;
}

static bool find_type(enum pl_dtype dtype, ncclDataType_t *ret_type)
{
    static const struct {
        bool has;
        ncclDataType_t type;
    } types[PL_DTYPE_COUNT] = {
        [PL_FLOAT32] = {true, ncclFloat32},   [PL_FLOAT64] = {true, ncclFloat64}, [PL_FLOAT16] = {true, ncclFloat16},
        [PL_BFLOAT16] = {true, ncclBfloat16}, [PL_INT8] = {true, ncclInt8},       [PL_INT32] = {true, ncclInt32},
        [PL_INT64] = {true, ncclInt64},       [PL_UINT8] = {true, ncclUint8},
    };

    *ret_type = types[dtype].type;
    return types[dtype].has;
}

/*
 * Whether NCCL's result is what collective.h promises. NCCL has no int16 and bool; its order of additions depends on
 * the layout; it averages and scales integers in their own width; its float minimum and maximum lose NaNs.
 */
static bool serves(void *state, const struct pl_collective *c)
{
    const struct nccl *n = state;
    struct scaling scaling = scaling_of(n, c);
    ncclDataType_t type;

    if (!pl_kind_reduces(c->kind)) {
        return true;
    }
    if (!find_type(c->dtype, &type) || (c->flags & PL_REPRODUCIBLE)) {
        return false;
    }
    if (!pl_dtype_is_float(c->dtype)) {
        return c->op != PL_AVERAGE && c->prescale == 1.0 && c->postscale == 1.0;
    }
    return c->op != PL_MIN && c->op != PL_MAX &&
           (scaling.before == 1.0 || scaling.multiplied || c->kind == PL_ALLREDUCE);
}

static ncclResult_t make_factor(struct nccl *n, const struct pl_collective *c, ncclDataType_t type, double factor,
                                ncclRedOp_t *ret_op)
{
    float single = (float)factor;
    uint16_t half;
    void *scalar = c->dtype == PL_FLOAT64 ? (void *)&factor : c->dtype == PL_FLOAT32 ? (void *)&single : (void *)&half;

    if (pl_is_half(c->dtype)) {
        pl_kernel_narrow(pl_kernel_best(), c->dtype, &half, &single, 1);
    }
    return n->library.RedOpCreatePreMulSum(ret_op, scalar, type, ncclScalarHostImmediate, n->library.comm);
}

static ncclRedOp_t plain_op(enum pl_op op)
{
    return op == PL_MIN ? ncclMin : op == PL_MAX ? ncclMax : op == PL_PRODUCT ? ncclProd : ncclSum;
}

/* Enqueues one block after the other; the root of each is the rank that owns it. */
static ncclResult_t enqueue_ragged(struct nccl *n, const struct pl_collective *c, ncclDataType_t type, ncclRedOp_t op)
{
    const struct pl_nccl *l = &n->library;
    ncclResult_t result = ncclSuccess;
    uint64_t at = 0;

    for (int r = 0; r < n->size && (result == ncclSuccess || result == ncclInProgress); r++) {
        uint64_t count = pl_counts_get(c->counts, c->count, r);

        if (count && c->kind == PL_ALLGATHER) {
            char *block = at_elem(c->recv, at, c->dtype);

            result = l->Broadcast(r == n->rank ? c->send : block, block, count * pl_dtype_bytes(c->dtype), ncclInt8,
                                  n->comm_rank_of[r], l->comm, n->stream.stream);
        } else if (count) {
            result = l->Reduce(at_elem(c->send, at, c->dtype), r == n->rank ? c->recv : NULL, count, type, op,
                               n->comm_rank_of[r], l->comm, n->stream.stream);
        }
        at += count;
    }
    return result;
}

static ncclResult_t enqueue_alltoall(struct nccl *n, const struct pl_collective *c)
{
    const struct pl_nccl *l = &n->library;
    ncclResult_t result = ncclSuccess;
    uint64_t item = pl_dtype_bytes(c->dtype);
    uint64_t send_at = 0;
    uint64_t recv_at = 0;

    for (int r = 0; r < n->size && (result == ncclSuccess || result == ncclInProgress); r++) {
        uint64_t send = pl_counts_get(c->counts, c->count, r);
        uint64_t recv = pl_counts_get(c->recv_counts, c->count, r);

        if (send) {
            result = l->Send(at_elem(c->send, send_at, c->dtype), send * item, ncclInt8, n->comm_rank_of[r], l->comm,
                             n->stream.stream);
        }
        if (recv && (result == ncclSuccess || result == ncclInProgress)) {
            result = l->Recv(at_elem(c->recv, recv_at, c->dtype), recv * item, ncclInt8, n->comm_rank_of[r], l->comm,
                             n->stream.stream);
        }
        send_at += send;
        recv_at += recv;
    }
    return result;
}

static ncclResult_t enqueue(struct nccl *n, const struct pl_collective *c, const void *send, ncclDataType_t type,
                            ncclRedOp_t op)
{
    const struct pl_nccl *l = &n->library;
    void *stream = n->stream.stream;
    uint64_t bytes = c->count * pl_dtype_bytes(c->dtype);
    bool whole = n->identity_order && !c->counts;

    switch (c->kind) {
    case PL_ALLREDUCE:
        return c->count ? l->AllReduce(send, c->recv, c->count, type, op, l->comm, stream) : ncclSuccess;
    case PL_REDUCE:
        return c->count ? l->Reduce(send, c->recv, c->count, type, op, n->comm_rank_of[c->root], l->comm, stream)
                        : ncclSuccess;
    case PL_BROADCAST:
        return bytes ? l->Broadcast(c->send && n->rank == c->root ? c->send : c->recv, c->recv, bytes, ncclInt8,
                                    n->comm_rank_of[c->root], l->comm, stream)
                     : ncclSuccess;
    case PL_ALLGATHER:
        return whole && bytes ? l->AllGather(send, c->recv, bytes, ncclInt8, l->comm, stream)
                              : enqueue_ragged(n, c, type, op);
    case PL_REDUCE_SCATTER:
        return whole && bytes ? l->ReduceScatter(send, c->recv, c->count, type, op, l->comm, stream)
                              : enqueue_ragged(n, c, type, op);
    case PL_ALLTOALL:
        return enqueue_alltoall(n, c);
    case PL_BARRIER:
        return l->AllReduce(n->barrier_scratch, n->barrier_scratch, 1, ncclInt32, ncclSum, l->comm, stream);
    }
    return ncclSuccess;
}

/* Launches one request, inside a group. The stream waits for the caller's event only here: if it waited at the post,
 * that would also delay earlier requests that NCCL has not put in the stream yet. */
static enum pl_status launch(struct nccl *n, struct pl_request *request, struct pl_error *reterr)
{
    const struct pl_collective *c = &request->collective;
    struct scaling scaling = scaling_of(n, c);
    ncclRedOp_t op = plain_op(c->op);
    ncclDataType_t type = ncclInt8;
    const void *send = c->send;
    bool made = false;
    enum pl_status status;

    PL_TRY(pl_stream_events_begin(&n->stream, request, n->stream.stream, reterr));
    if (pl_kind_reduces(c->kind)) {
        find_type(c->dtype, &type);
        if (c->count && scaling.before != 1.0 && !scaling.multiplied) {
            PL_TRY(pl_device_scale(n->device, c->recv, c->dtype, send, c->dtype, c->count, scaling.before,
                                   n->stream.stream, reterr));
            send = c->recv;
        } else if (scaling.before != 1.0) {
            PL_TRY(pl_gpu_nccl_check(&n->library, make_factor(n, c, type, scaling.before, &op), "making a factor",
                                     reterr));
            made = true;
        }
    }
    status = pl_gpu_nccl_check(&n->library, enqueue(n, c, send, type, op), pl_kind_text(c->kind), reterr);
    if (made && status == PL_OK) { /* NCCL has read the factor in the call */
        status =
            pl_gpu_nccl_check(&n->library, n->library.RedOpDestroy(op, n->library.comm), "dropping a factor", reterr);
    }
    return status;
}

/* Scales the results if NCCL has not scaled them. */
static enum pl_status finish(struct nccl *n, const struct pl_collective *c, struct pl_error *reterr)
{
    double factor = scaling_of(n, c).after_sum;
    uint64_t count = c->kind == PL_REDUCE_SCATTER                 ? pl_counts_get(c->counts, c->count, n->rank)
                     : c->kind == PL_REDUCE && n->rank != c->root ? 0
                                                                  : c->count;

    if (!pl_kind_reduces(c->kind) || factor == 1.0 || !count) {
        return PL_OK;
    }
    return pl_device_scale(n->device, c->recv, c->dtype, c->recv, c->dtype, count, factor, n->stream.stream, reterr);
}

/* ---- requests under way ---- */

/* Gives the first queued request to NCCL, with all its calls in one NCCL group. */
static enum pl_status give_first(struct nccl *n, struct pl_error *reterr)
{
    struct pl_request *request = n->queued;
    enum pl_status status = pl_gpu_nccl_check(&n->library, n->library.GroupStart(), "opening a group", reterr);
    ncclResult_t closed;

    PL_TRY(status);
    status = launch(n, request, reterr);
    n->launching = request;
    n->queued = request->next && request->next->phase == PL_REQUEST_RUNNING ? request->next : NULL;
    /* also after a failure: the group belongs to the thread, and any later NCCL call of the thread would be part of
     * it */
    closed = n->library.GroupEnd();
    PL_TRY(status);
    return pl_gpu_nccl_check(&n->library, closed, "closing a group", reterr);
}

/* Ends the launch, after NCCL has put everything in the stream: scales the results and records the request's event. */
static enum pl_status launched(struct nccl *n, struct pl_error *reterr)
{
    struct pl_request *request = n->launching;

    PL_TRY(finish(n, &request->collective, reterr));
    PL_TRY(pl_device_event_record(n->device, (*pl_stream_events_event_of(request))->event, n->stream.stream, reterr));
    request->launched = true;
    request->progress_count++;
    n->launching = NULL;
    return PL_OK;
}

static enum pl_status move(struct nccl *n, struct pl_error *reterr)
{
    /* NCCL uses the thread's current device; the progress thread has none at first, and would get the first device */
    PL_TRY(pl_device_enter(n->device, reterr));
    for (;;) {
        bool idle;

        PL_TRY(pl_gpu_nccl_poll(&n->library, &idle, reterr));
        if (!idle) {
            return PL_OK;
        }
        if (n->launching) {
            PL_TRY(launched(n, reterr));
        }
        if (!n->queued) {
            return PL_OK;
        }
        PL_TRY(give_first(n, reterr));
    }
}

static enum pl_status post(void *state, struct pl_request *request, bool *ret_done, struct pl_error *reterr)
{
    struct nccl *n = state;

    (void)ret_done;
    PL_TRY(pl_stream_events_post(&n->stream, request, reterr));
    if (!(request->collective.flags & PL_AGREED) && n->size > 1) {
        PL_TRY(pl_compare_calls_start(&n->comparisons, &request->signature, NULL, comparison_of(request), reterr));
    }
    n->queued = n->queued ? n->queued : request;
    return PL_OK;
}

/* Records a failure of NCCL or of the device. */
static void note_failure(struct nccl *n)
{
    n->failure.failed = true;
    n->failed_ns = pl_clock_now_ns();
    /* If the device is the cause, NCCL says only "unhandled error"; a query makes the device report its own. */
    (void)!pl_device_stream_finish(n->device, n->stream.stream, n->failed_ns, NULL);
    pl_device_failure(n->device, &n->failure.error);
}

static enum pl_status progress(void *state, struct pl_request *request, bool *ret_done, struct pl_error *reterr)
{
    struct nccl *n = state;
    struct pl_call_comparison *comparison = *comparison_of(request);
    bool was_launched = request->launched; /* a request that this call launches has not ended yet */
    bool agreed = true;
    bool reached = false;
    enum pl_status status = PL_OK;

    if (comparison) {
        PL_TRY(pl_compare_calls_progress(&n->comparisons, comparison, &agreed, reterr));
    }
    if (!n->failure.failed) {
        status = move(n, &n->failure.error);
        if (status == PL_OK && was_launched) {
            status =
                pl_stream_events_reached(&n->stream, pl_stream_events_event_of(request), &reached, &n->failure.error);
        }
        if (status != PL_OK) {
            note_failure(n);
        }
    }
    if (n->failure.failed) {
        return pl_deferred_error_report(&n->failure, agreed || pl_clock_now_ns() - n->failed_ns >= GRACE_NS, reterr);
    }
    *ret_done = reached && agreed;
    if (*ret_done) {
        pl_compare_calls_release(&n->comparisons, PL_TAKE(*comparison_of(request)));
    }
    return PL_OK;
}

static enum pl_status stream_wait(void *state, struct pl_request *request, void *stream, struct pl_error *reterr)
{
    const struct nccl *n = state;

    return pl_stream_events_order(&n->stream, request, stream, reterr);
}

static enum pl_status block_until(void *state, struct pl_request *request, int64_t until_ns, struct pl_error *reterr)
{
    struct nccl *n = state;
    enum pl_status status;
    bool left;

    if (*comparison_of(request) && (*comparison_of(request))->gather) {
        return pl_request_wait_until(n->world->host_world, until_ns, reterr);
    }
    pl_clock_nap(NAP_NS, until_ns);
    if (n->size == 1) {
        return PL_OK;
    }
    status = pl_request_check_peers(n->world->host_world, &left, reterr);
    if (!left) {
        return status;
    }
    /* A rank may have left because it is done: then this rank's request ends soon, too. Otherwise report it after a
     * second. */
    if (!n->peer_left_since_ns) {
        n->peer_left_since_ns = pl_clock_now_ns();
    }
    return pl_clock_now_ns() - n->peer_left_since_ns < GRACE_NS ? PL_OK : status;
}

static void cancel(void *state, struct pl_request *request)
{
    struct nccl *n = state;

    if (!n->aborted) {
        n->aborted = true;
        if (n->size > 1) { /* revoke first, because an abort may take seconds */
            pl_request_revoke_world(n->world->host_world, &n->world->failure);
        }
        pl_gpu_nccl_abort(&n->library);
        /* the query makes the device report work that hangs */
        (void)!pl_device_stream_finish(n->device, n->stream.stream, pl_deadline_after_ns(LAST_QUERY_NS), NULL);
    }
    pl_device_event_release(PL_TAKE(*pl_stream_events_event_of(request)));
    pl_compare_calls_release(&n->comparisons, PL_TAKE(*comparison_of(request)));
    n->queued = NULL;
    n->launching = NULL;
}

static int waits_for(void *state, const struct pl_request *request)
{
    const struct nccl *n = state;

    (void)request;
    return n->size > 1 ? pl_late_waits_for(n->world->host_world) : -1;
}

/* ---- init and free ---- */

/* Whether NCCL was told to accept several ranks on one GPU, which is possible since 2.30. */
static bool takes_shared_devices(const struct pl_nccl *library)
{
    const char *word = pl_environment_own("NCCL_MULTI_RANK_GPU_ENABLE");

    return library->version >= MULTI_RANK_VERSION && word && strcmp(word, "1") == 0;
}

static bool probe(const struct pl_world *world, char reason[PL_BACKEND_REASON_BYTES])
{
    struct pl_nccl library;
    int size = pl_world_size(world);
    bool is_loaded, may_share;

    if (size == 1 && strcmp(pl_knob_text(pl_world_knobs(world), PL_KNOB_BACKEND), pl_backend_nccl.name) != 0) {
        strcpy(reason, "one rank alone");
        return false;
    }
    is_loaded = pl_gpu_nccl_load(&library, reason);
    may_share = is_loaded && takes_shared_devices(&library);
    for (int r = 0; r < size; r++) {
        for (int other = 0; other < r && !may_share; other++) {
            if (strcmp(world->topology.localities[r].device, world->topology.localities[other].device) == 0) {
                snprintf(
                    reason, PL_BACKEND_REASON_BYTES,
                    "ranks %d and %d share %s, but NCCL needs one GPU per rank; from 2.30 on it can share one: set "
                    "NCCL_MULTI_RANK_GPU_ENABLE=1",
                    pl_world_global_rank(world, other), pl_world_global_rank(world, r),
                    world->topology.localities[r].device);
                return false;
            }
        }
    }
    return is_loaded;
}

static void free_nccl(void *state)
{
    struct nccl *n = state;

    if (n->library.comm && n->world->is_subset) {
        pl_device_subset_worlds(n->device, -1);
    }
    if (n->world->failure.status == PL_OK) {
        pl_gpu_nccl_leave(&n->library);
    } else { /* the other ranks abort too, so nobody waits for them */
        pl_gpu_nccl_abort(&n->library);
    }
    pl_compare_calls_done(&n->comparisons);
    pl_device_release(n->device, n->barrier_scratch);
    pl_stream_events_done(&n->stream);
    free(n->comm_rank_of);
}

static enum pl_status allocate(struct nccl *n, struct pl_error *reterr)
{
    char reason[PL_BACKEND_REASON_BYTES];

    PL_TRY(pl_memory_alloc(&n->comm_rank_of, (size_t)n->size, sizeof(*n->comm_rank_of), reterr));
    if (!pl_gpu_nccl_load(&n->library, reason)) {
        return pl_error_set(reterr, PL_UNSUPPORTED, "%s", reason);
    }
    for (int comm_rank = 0; comm_rank < n->size; comm_rank++) {
        n->comm_rank_of[n->world->topology.order[comm_rank]] = comm_rank;
        n->identity_order = n->identity_order && n->world->topology.order[comm_rank] == comm_rank;
    }
    n->library.device = n->device;
    /* not while kernels of NCCL run, which wait for other ranks; from here on the device is current in this thread */
    PL_TRY(pl_device_load_kernels(n->device, reterr));
    PL_TRY(pl_device_alloc(n->device, sizeof(int32_t), &n->barrier_scratch, reterr));
    return pl_stream_events_init(&n->stream, n->device, reterr);
}

static enum pl_status init(struct pl_world *world, void *state, struct pl_error *reterr)
{
    struct nccl *n = state;
    /* The time is within the deadline for making the world, so that the vote after it reaches all ranks in time. */
    int64_t join_ns = world->timeout_ns >= 0 && world->timeout_ns / 2 < JOIN_NS ? world->timeout_ns / 2 : JOIN_NS;
    struct pl_packed_error vote = {.status = PL_OK};
    enum pl_status status;

    n->world = world;
    n->device = pl_world_device(world);
    n->rank = pl_world_rank(world);
    n->size = pl_world_size(world);
    n->identity_order = true;
    n->comparisons.world = world;
    status = allocate(n, reterr);
    /* No rank joins unless all can. */
    vote.status = (int32_t)status;
    if (pl_world_vote(world, &vote, pl_deadline_after_ns(join_ns), status == PL_OK ? reterr : NULL) != PL_OK ||
        vote.status != PL_OK) {
        status = status != PL_OK ? status : pl_error_set(reterr, PL_PEER, "another rank could not prepare for NCCL");
    }
    PL_TRY(status);
    PL_TRY(pl_gpu_nccl_join(&n->library, world, n->comm_rank_of[n->rank], pl_deadline_after_ns(join_ns), reterr));
    if (n->world->is_subset && pl_device_subset_worlds(n->device, 1) == SETS_WITHOUT_WARNING) {
        pl_log(
            PL_LOG_WARNING,
            "rank %d: more than %d sets of ranks use cuda:%d by NCCL; if operations of several sets run at the same "
            "time, their kernels may not fit on the GPU and wait for each other for ever: use fewer sets on GPUs, or "
            "wait for the operations of one set before those of the next",
            pl_world_global_rank(world, n->rank), SETS_WITHOUT_WARNING, world->topology.localities[n->rank].ordinal);
    }
    return PL_OK;
}

static void describe(void *state, struct pl_text *text)
{
    const struct nccl *n = state;

    pl_text_printf(text, "  NCCL %d.%d.%d; ranks 0 to %d of its communicator: ranks", n->library.version / 10000,
                   n->library.version / 100 % 100, n->library.version % 100, n->size - 1);
    for (int comm_rank = 0; comm_rank < n->size; comm_rank++) {
        pl_text_printf(text, " %d", n->world->topology.order[comm_rank]);
    }
    if (n->world->is_subset) {
        pl_text_printf(text, "; at most %d CTAs a kernel", PL_NCCL_SUBSET_CTAS);
    }
    pl_text_append(text, "\n  left to the backend device: reductions of int16 and bool, integer averages and factors, "
                         "minimum and maximum of floats,\n"
                         "  reproducible sums, factors that a half-width type cannot hold (except in allreduce)\n");
}

const struct pl_backend pl_backend_nccl = {.name = "nccl",
                                           .on_device = true,
                                           .streamed = true,
                                           .probe = probe,
                                           .init = init,
                                           .state_bytes = sizeof(struct nccl),
                                           .serves = serves,
                                           .post = post,
                                           .progress = progress,
                                           .block_until = block_until,
                                           .stream_wait = stream_wait,
                                           .cancel = cancel,
                                           .waits_for = waits_for,
                                           .describe = describe,
                                           .free = free_nccl};
