/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libnccl.so.2 for machines without GPUs: the ranks are threads or processes of one host that share a file in
 * /dev/shm. Operations run in the order of a stream of the fake driver (with delay_us; otherwise they would run in the
 * caller). As with the real library, calls return before their work is done: a group gets to its stream only at the
 * second poll after it was closed.
 *
 *     FAKE_NCCL_FAULT=init:R      joining fails on rank R
 *     FAKE_NCCL_FAULT=async:R:N   rank R's operation number N (from 1) ends in a network error
 *     FAKE_NCCL_FAULT=hang:R:N    rank R's operation number N never begins
 *     FAKE_NCCL_FAULT=ask:R:N     the call of rank R's operation number N fails
 *     FAKE_NCCL_ROOM=N            a device runs N groups at the same time: others wait until one of these has ended
 *     FAKE_NCCL_ABORT_HANGS=1     an abort lets the streams go on, and does not return
 *
 * The fake driver's order fail=NAME:N counts these functions, too (fake_cuda.h); those that release do so all the same.
 *
 * Misuse that the real library reports much later ends the test at once: calls or aborts from a thread without a
 * device, overlapping buffers, and leaving with a group open.
 */
#include "collectives/gpu/library_nccl.h"
#include "collectives/reduce/kernel.h"
#include "tests/fakes/fake_cuda.h"
#include "tests/fakes/fake_nccl_room.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

enum { VERSION = 22809, MOST_RANKS = 16, CHUNK_BYTES = 4096, POLLS = 2, MOST_FACTORS = 64 };

/* A message under way from one rank to another. */
struct box {
    _Atomic size_t bytes; /* 0: empty */
    char data[CHUNK_BYTES];
};

struct rendezvous {
    _Atomic int joined;
    _Atomic int finalized;
    _Atomic int arrived; /* ranks that have reached a barrier */
    _Atomic int generation;
    char slots[MOST_RANKS][CHUNK_BYTES];
    struct box boxes[MOST_RANKS][MOST_RANKS]; /* [from][to] */
};

enum kind { ALLREDUCE, REDUCE_SCATTER, ALLGATHER, BROADCAST, REDUCE, SEND, RECV };

struct operation {
    struct operation *next; /* next one of the same group */
    struct ncclComm *comm;
    enum kind kind;
    const char *send;
    char *recv;
    size_t count;
    size_t moved; /* bytes moved so far, for SEND and RECV */
    enum pl_dtype dtype;
    enum pl_op op;
    double factor;
    int root;
    int number;
    void *stream;
};

struct ncclComm {
    int rank;
    int size;
    int device;
    int room; /* groups that run on the device at the same time; 0: any number */
    char path[64];
    struct rendezvous *rendezvous;
    pthread_t joiner;
    _Atomic int state; /* ncclResult_t */
    _Atomic bool aborted;
    _Atomic int pending; /* operations in streams */
    struct operation *group;
    struct operation **tail;
    int polls; /* polls until the group goes to its stream */
    int operations;
    _Atomic bool in_group; /* an operation was added to a group that is still open */
    bool finalizing;
    double factors[MOST_FACTORS]; /* factors of operators; 0: unused */
    char fault[16];
    int fault_rank;
    int fault_number;
    __typeof__(&fake_cuda_run) launch;
    __typeof__(&fake_cuda_has_context) has_context;
};

/* Groups that are open in this thread, and their operations. */
static _Thread_local int depth;
static _Thread_local struct operation *opened;
static _Thread_local struct operation **opened_tail;
static _Thread_local struct ncclComm *asked;

/* NCCL's header declares them without prototypes. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

static void need(bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "fake_nccl: %s\n", what);
        abort();
    }
}

/* Whether the call fails by an order to the fake driver. */
static bool fails(const char *function)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    bool (*asked_for)(const char *function) = NULL;
    bool yes;

    if (!driver) {
        return false;
    }
    *(void **)&asked_for = dlsym(driver, "fake_cuda_fails");
    yes = asked_for(function);
    dlclose(driver);
    return yes;
}

/* ---- work in a stream ---- */

/* A barrier of all ranks. False if aborted. */
static bool meet(struct ncclComm *comm)
{
    struct rendezvous *m = comm->rendezvous;
    int generation = atomic_load(&m->generation);

    if (atomic_fetch_add(&m->arrived, 1) == comm->size - 1) {
        atomic_store(&m->arrived, 0);
        atomic_fetch_add(&m->generation, 1);
        return true;
    }
    while (atomic_load(&m->generation) == generation) {
        if (atomic_load(&comm->aborted)) {
            return false;
        }
        sched_yield();
    }
    return true;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Sums up every rank's `bytes` of `send` in `sum`. */
static bool reduce_chunk(const struct operation *o, const char *send, char *sum, size_t elems)
{
    struct ncclComm *comm = o->comm;
    const struct pl_reduction reduction = {
        .dtype = o->dtype, .op = o->op, .divisor = 1, .prescale = o->factor, .postscale = 1};
    const void *sources[MOST_RANKS];
    void *dest = sum;

    memcpy(comm->rendezvous->slots[comm->rank], send, elems * pl_dtype_bytes(o->dtype));
    if (!meet(comm)) {
        return false;
    }
    for (int r = 0; r < comm->size; r++) {
        sources[r] = comm->rendezvous->slots[r];
    }
    pl_kernel_reduce(pl_kernel_best(), &reduction, &dest, 1, sources, (uint32_t)comm->size, elems);
    for (size_t i = 0; i < elems && o->dtype == PL_FLOAT32 && (o->op == PL_MIN || o->op == PL_MAX); i++) {
        float result = NAN; /* NCCL's minimum and maximum ignore NaNs */

        for (int r = 0; r < comm->size; r++) {
            float x = ((const float *)sources[r])[i];

            result = o->op == PL_MIN ? fminf(result, x) : fmaxf(result, x);
        }
        ((float *)dest)[i] = result;
    }
    return meet(comm);
}

/* Reduces `count` elements and keeps those of `wanted` (a rank's part of `each`); -1 keeps all, -2 keeps nothing. */
static bool reduce(const struct operation *o, size_t count, size_t each, int wanted)
{
    size_t item = pl_dtype_bytes(o->dtype);
    _Alignas(16) char sum[CHUNK_BYTES];

    for (size_t at = 0; at < count;) {
        size_t elems = smaller(CHUNK_BYTES / item, each - at % each);

        if (!reduce_chunk(o, o->send + at * item, sum, elems)) {
            return false;
        }
        if (wanted == -1) {
            memcpy(o->recv + at * item, sum, elems * item);
        } else if (wanted >= 0 && at / each == (size_t)wanted) {
            memcpy(o->recv + at % each * item, sum, elems * item);
        }
        at += elems;
    }
    return true;
}

static bool broadcast(struct ncclComm *comm, const char *send, char *recv, size_t bytes, int root)
{
    for (size_t at = 0; at < bytes; at += CHUNK_BYTES) {
        size_t now = smaller(CHUNK_BYTES, bytes - at);

        if (comm->rank == root) {
            memcpy(comm->rendezvous->slots[root], send + at, now);
        }
        if (!meet(comm)) {
            return false;
        }
        memmove(recv + at, comm->rendezvous->slots[root], now);
        if (!meet(comm)) {
            return false;
        }
    }
    return true;
}

static bool allgather(const struct operation *o)
{
    size_t bytes = o->count * pl_dtype_bytes(o->dtype);

    for (int r = 0; r < o->comm->size; r++) {
        if (!broadcast(o->comm, o->send, o->recv + (size_t)r * bytes, bytes, r)) {
            return false;
        }
    }
    return true;
}

/* Whether `o` is next: messages between two ranks stay in order. */
static bool is_next(const struct operation *first, const struct operation *o)
{
    for (; first != o; first = first->next) {
        if (first->kind == o->kind && first->root == o->root &&
            first->moved < first->count * pl_dtype_bytes(first->dtype)) {
            return false;
        }
    }
    return true;
}

/* Moves all messages of a group concurrently, as far as possible. */
static bool exchange(struct operation *first)
{
    struct ncclComm *comm = first->comm;

    for (bool busy = true; busy && !atomic_load(&comm->aborted);) {
        busy = false;
        for (struct operation *o = first; o && (o->kind == SEND || o->kind == RECV); o = o->next) {
            struct box *box = o->kind == SEND ? &comm->rendezvous->boxes[comm->rank][o->root]
                                              : &comm->rendezvous->boxes[o->root][comm->rank];
            size_t bytes = o->count * pl_dtype_bytes(o->dtype);
            size_t filled = atomic_load(&box->bytes);

            if (!is_next(first, o)) {
                busy = true;
            } else if (o->kind == SEND && o->moved < bytes && filled == 0) {
                size_t now = smaller(CHUNK_BYTES, bytes - o->moved);

                memcpy(box->data, o->send + o->moved, now);
                o->moved += now;
                atomic_store(&box->bytes, now);
            } else if (o->kind == RECV && o->moved < bytes && filled > 0) {
                memcpy(o->recv + o->moved, box->data, filled);
                o->moved += filled;
                atomic_store(&box->bytes, 0);
            }
            busy = busy || o->moved < bytes;
        }
        sched_yield();
    }
    return !atomic_load(&comm->aborted);
}

static bool run_one(struct operation *o)
{
    struct ncclComm *comm = o->comm;

    if (comm->rank == comm->fault_rank && o->number == comm->fault_number && strcmp(comm->fault, "init") != 0) {
        if (strcmp(comm->fault, "async") == 0) {
            atomic_store(&comm->state, ncclRemoteError);
        }
        while (!atomic_load(&comm->aborted)) {
            sched_yield();
        }
        return false;
    }
    switch (o->kind) {
    case ALLREDUCE:
        return reduce(o, o->count, o->count, -1);
    case REDUCE:
        return reduce(o, o->count, o->count, comm->rank == o->root ? -1 : -2);
    case REDUCE_SCATTER:
        return reduce(o, o->count * (size_t)comm->size, o->count, comm->rank);
    case ALLGATHER:
        return allgather(o);
    case BROADCAST:
        return broadcast(comm, o->send, o->recv, o->count * pl_dtype_bytes(o->dtype), o->root);
    case SEND:
    case RECV:
        return exchange(o);
    }
    return false;
}

/* Runs a group. `runs` is false if the device will do no more work; like the real library it leaves it to the caller
 * to notice that and to abort. */
static void run_group(void *argument, bool runs)
{
    struct operation *first = argument;
    struct ncclComm *comm = first->comm;
    bool has_room = runs && fake_nccl_find_room(comm->device, comm->room, &comm->aborted);
    bool good = has_room && !atomic_load(&comm->aborted);
    bool exchanged = false;

    while (first) {
        struct operation *o = first;
        bool message = o->kind == SEND || o->kind == RECV;

        if (good && !(message && exchanged)) {
            good = run_one(o); /* the first message stands for all that follow it */
        }
        exchanged = message;
        first = o->next;
        free(o);
    }
    fake_nccl_give_room(comm->device, has_room);
    atomic_fetch_sub(&comm->pending, 1);
}

/* ---- calls ---- */

static void free_group(struct operation *first)
{
    while (first) {
        struct operation *next = first->next;

        free(first);
        first = next;
    }
}

/* The operations of the group that this thread has opened, which is closed. */
static struct operation *take_opened(void)
{
    struct operation *first = opened;

    opened = NULL;
    if (asked) {
        atomic_store(&asked->in_group, false);
        asked = NULL;
    }
    return first;
}

static ncclResult_t close_group(void)
{
    struct operation *first = take_opened();
    struct ncclComm *comm;
    int state = ncclSuccess;

    if (!first) {
        return ncclSuccess;
    }
    comm = first->comm;
    if (comm->group || !atomic_compare_exchange_strong(&comm->state, &state, ncclInProgress)) {
        free_group(first);
        /* the last call is not complete, or has failed */
        return comm->group || state == ncclInProgress ? ncclInvalidUsage : (ncclResult_t)state;
    }
    comm->group = first;
    comm->polls = POLLS;
    return ncclInProgress;
}

static void open_group(void)
{
    if (depth++ == 0) {
        opened = NULL;
        opened_tail = &opened;
    }
}

API ncclResult_t ncclGroupStart(void)
{
    if (fails(__func__)) {
        return ncclInternalError;
    }
    open_group();
    return ncclSuccess;
}

API ncclResult_t ncclGroupEnd(void)
{
    if (depth == 0) {
        return ncclInvalidUsage;
    }
    if (fails(__func__)) {
        depth--;
        free_group(take_opened());
        return ncclInternalError;
    }
    return --depth == 0 ? close_group() : ncclSuccess;
}

/* Checks that the two buffers are separate, or that one is the rank's own part of the other: NCCL defines nothing
 * else. */
static void check_buffers(const struct operation *o)
{
    size_t bytes = o->count * pl_dtype_bytes(o->dtype);
    size_t all = bytes * (size_t)o->comm->size;
    const char *send = o->send, *recv = o->recv;
    size_t own = bytes * (size_t)o->comm->rank;

    switch (o->kind) {
    case ALLREDUCE:
    case BROADCAST:
        need(send == recv || send + bytes <= recv || recv + bytes <= send, "buffers overlap");
        break;
    case REDUCE:
        need(!recv || send == recv || send + bytes <= recv || recv + bytes <= send, "buffers overlap");
        break;
    case REDUCE_SCATTER:
        need(recv == send + own || send + all <= recv || recv + bytes <= send, "buffers overlap");
        break;
    case ALLGATHER:
        need(send == recv + own || recv + all <= send || send + bytes <= recv, "buffers overlap");
        break;
    case SEND:
    case RECV:
        break;
    }
}

/* The result of a call while the last one is not complete, or after an error: that error, as in the real library. */
static ncclResult_t readiness(struct ncclComm *comm)
{
    int state = atomic_load(&comm->state);

    return state == ncclInProgress ? ncclInvalidArgument : (ncclResult_t)state;
}

static ncclResult_t ask(const struct operation *wanted, ncclDataType_t type, ncclRedOp_t op)
{
    static const enum pl_dtype types[] = {
        [ncclInt8] = PL_INT8,       [ncclUint8] = PL_UINT8,      [ncclInt32] = PL_INT32,
        [ncclInt64] = PL_INT64,     [ncclFloat16] = PL_FLOAT16,  [ncclFloat32] = PL_FLOAT32,
        [ncclFloat64] = PL_FLOAT64, [ncclBfloat16] = PL_BFLOAT16};
    static const enum pl_op ops[] = {
        [ncclSum] = PL_SUM, [ncclProd] = PL_PRODUCT, [ncclMax] = PL_MAX, [ncclMin] = PL_MIN};
    struct operation *o = malloc(sizeof(*o));
    static const char *const functions[] = {[ALLREDUCE] = "ncclAllReduce",
                                            [REDUCE_SCATTER] = "ncclReduceScatter",
                                            [ALLGATHER] = "ncclAllGather",
                                            [BROADCAST] = "ncclBroadcast",
                                            [REDUCE] = "ncclReduce",
                                            [SEND] = "ncclSend",
                                            [RECV] = "ncclRecv"};
    struct ncclComm *comm = wanted->comm;
    ncclResult_t ready = readiness(comm);

    need(comm->has_context(), "an operation in a thread without a device");
    asked = depth > 0 ? comm : NULL;
    atomic_store(&comm->in_group, depth > 0);
    if (fails(functions[wanted->kind]) || (strcmp(comm->fault, "ask") == 0 && comm->fault_rank == comm->rank &&
                                           comm->fault_number == comm->operations + 1)) {
        free(o);
        return ncclInvalidArgument;
    }
    if (ready != ncclSuccess) {
        free(o);
        return ready;
    }
    if (!o || wanted->root < 0 || wanted->root >= wanted->comm->size || (op > ncclMin && op < ncclNumOps)) {
        free(o);
        return ncclInvalidArgument;
    }
    *o = *wanted;
    o->dtype = types[type];
    check_buffers(o);
    o->op = op <= ncclMin ? ops[op] : PL_SUM;
    o->factor = op >= ncclNumOps ? o->comm->factors[op - ncclNumOps] : 1;
    o->number = ++o->comm->operations;
    open_group();
    *opened_tail = o;
    opened_tail = &o->next;
    return --depth == 0 ? close_group() : ncclSuccess;
}

#define ASK(op, ...) ask(&(struct operation){.comm = comm, .count = count, .stream = stream, __VA_ARGS__}, type, op)

API ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream)
{
    return ASK(op, .kind = ALLREDUCE, .send = send, .recv = recv);
}

API ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                   ncclComm_t comm, cudaStream_t stream)
{
    return ASK(op, .kind = REDUCE_SCATTER, .send = send, .recv = recv);
}

API ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                               cudaStream_t stream)
{
    return ASK(ncclSum, .kind = ALLGATHER, .send = send, .recv = recv);
}

API ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                               ncclComm_t comm, cudaStream_t stream)
{
    return ASK(ncclSum, .kind = BROADCAST, .send = send, .recv = recv, .root = root);
}

API ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                            ncclComm_t comm, cudaStream_t stream)
{
    return ASK(op, .kind = REDUCE, .send = send, .recv = recv, .root = root);
}

API ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                          cudaStream_t stream)
{
    return ASK(ncclSum, .kind = SEND, .send = send, .root = peer);
}

API ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
    return ASK(ncclSum, .kind = RECV, .recv = recv, .root = peer);
}

API ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type,
                                          ncclScalarResidence_t residence, ncclComm_t comm)
{
    ncclResult_t ready = readiness(comm);
    float half = 0;
    double factor;

    if (fails(__func__)) {
        return ncclInternalError;
    }
    if (residence != ncclScalarHostImmediate || ready != ncclSuccess) {
        return ready != ncclSuccess ? ready : ncclInvalidArgument;
    }
    if (type == ncclFloat16 || type == ncclBfloat16) {
        pl_kernel_widen(pl_kernel_best(), type == ncclFloat16 ? PL_FLOAT16 : PL_BFLOAT16, &half, scalar, 1);
    }
    factor = type == ncclFloat64 ? *(double *)scalar : type == ncclFloat32 ? (double)*(float *)scalar : (double)half;
    for (int i = 0; i < MOST_FACTORS; i++) {
        if (comm->factors[i] == 0.0) {
            comm->factors[i] = factor;
            *op = (ncclRedOp_t)(ncclNumOps + i);
            return ncclSuccess;
        }
    }
    return ncclInternalError; /* operators are not given back */
}

API ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    if (op < ncclNumOps || op >= ncclNumOps + MOST_FACTORS || comm->factors[op - ncclNumOps] == 0.0) {
        return ncclInvalidArgument;
    }
    comm->factors[op - ncclNumOps] = 0;
    return fails(__func__) ? ncclInternalError : ncclSuccess;
}

/* ---- communicators ---- */

API ncclResult_t ncclGetVersion(int *version)
{
    const char *other = getenv("FAKE_NCCL_VERSION");

    *version = other ? atoi(other) : VERSION;
    return fails(__func__) ? ncclInternalError : ncclSuccess;
}

API const char *ncclGetErrorString(ncclResult_t result)
{
    return result == ncclRemoteError          ? "remote process exited or there was a network error"
           : result == ncclSystemError        ? "unhandled system error"
           : result == ncclUnhandledCudaError ? "unhandled cuda error"
           : result == ncclInvalidUsage       ? "invalid usage"
           : result == ncclInvalidArgument    ? "invalid argument"
                                              : "internal error";
}

API const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return "the test lets this call fail";
}

API ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    memset(id, 0, sizeof(*id));
    return !fails(__func__) && getrandom(id->internal, 16, 0) == 16 ? ncclSuccess : ncclSystemError;
}

static void *join(void *argument)
{
    struct ncclComm *comm = argument;
    struct rendezvous *m;
    int fd = open(comm->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    if (fd < 0 || ftruncate(fd, sizeof(*m)) != 0) {
        atomic_store(&comm->state, ncclSystemError);
        return NULL;
    }
    m = mmap(NULL, sizeof(*m), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (m == MAP_FAILED) {
        atomic_store(&comm->state, ncclSystemError);
        return NULL;
    }
    comm->rendezvous = m;
    atomic_fetch_add(&m->joined, 1);
    while (atomic_load(&m->joined) < comm->size) {
        if (atomic_load(&comm->aborted)) {
            return NULL;
        }
        usleep(100);
    }
    unlink(comm->path);
    atomic_store(&comm->state, ncclSuccess);
    return NULL;
}

int fake_nccl_max_ctas(void);

static _Atomic int last_max_ctas;

/* The maxCTAs of the communicator that was made last. */
API int fake_nccl_max_ctas(void)
{
    return atomic_load(&last_max_ctas);
}

API ncclResult_t ncclCommInitRankConfig(ncclComm_t *ret_comm, int size, ncclUniqueId id, int rank,
                                        struct pl_nccl_config *config)
{
    const char *fault = getenv("FAKE_NCCL_FAULT");
    struct ncclComm *comm = calloc(1, sizeof(*comm));
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    __typeof__(&fake_cuda_device) device;

    if (!comm || !driver || size > MOST_RANKS || rank < 0 || rank >= size || config->blocking != 0 ||
        config->size != sizeof(*config) || config->magic != 0xcafebeef || config->version != 21700) {
        free(comm);
        return ncclInvalidArgument;
    }
    *(void **)&comm->launch = dlsym(driver, "fake_cuda_run");
    *(void **)&comm->has_context = dlsym(driver, "fake_cuda_has_context");
    need(comm->has_context(), "joining in a thread without a device");
    *(void **)&device = dlsym(driver, "fake_cuda_device");
    comm->device = device();
    comm->room = fake_nccl_room();
    comm->rank = rank;
    comm->size = size;
    atomic_store(&last_max_ctas, config->max_ctas);
    comm->fault_rank = -1;
    sscanf(fault ? fault : "", "%15[a-z]:%d:%d", comm->fault, &comm->fault_rank, &comm->fault_number);
    strcpy(comm->path, "/dev/shm/paceline-fake-nccl-");
    for (int i = 0; i < 12; i++) {
        snprintf(comm->path + strlen(comm->path), 3, "%02x", (unsigned char)id.internal[i]);
    }
    if (fails(__func__) || (strcmp(comm->fault, "init") == 0 && comm->fault_rank == rank)) {
        free(comm);
        return ncclSystemError;
    }
    atomic_store(&comm->state, ncclInProgress);
    if (pthread_create(&comm->joiner, NULL, join, comm) != 0) {
        free(comm);
        return ncclSystemError;
    }
    *ret_comm = comm;
    return ncclInProgress;
}

static void launch_group(struct ncclComm *comm)
{
    struct operation *group = comm->group;

    comm->group = NULL;
    atomic_fetch_add(&comm->pending, 1);
    if (comm->launch(group->stream, run_group, group) != 0) {
        atomic_fetch_sub(&comm->pending, 1);
        atomic_store(&comm->state, ncclUnhandledCudaError);
        comm->group = group;
        comm->polls = 0; /* never again */
        return;
    }
    int expected = ncclInProgress; /* an earlier error stays */
    atomic_compare_exchange_strong(&comm->state, &expected, ncclSuccess);
}

API ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    if (fails(__func__)) {
        return ncclInternalError;
    }
    if (comm->group && --comm->polls == 0) {
        launch_group(comm);
    }
    if (comm->finalizing && atomic_load(&comm->rendezvous->finalized) == comm->size) {
        atomic_store(&comm->state, ncclSuccess);
    }
    *state = (ncclResult_t)atomic_load(&comm->state);
    return ncclSuccess;
}

static void end(struct ncclComm *comm)
{
    pthread_join(comm->joiner, NULL);
    while (atomic_load(&comm->pending) > 0) {
        sched_yield();
    }
    while (comm->group) {
        struct operation *o = comm->group;

        comm->group = o->next;
        free(o);
    }
    if (comm->rendezvous) {
        munmap(comm->rendezvous, sizeof(*comm->rendezvous));
    }
    unlink(comm->path);
    free(comm);
}

API ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    need(comm->has_context(), "finalized in a thread without a device");
    if (fails(__func__)) {
        return ncclInternalError;
    }
    if (atomic_load(&comm->state) != ncclSuccess) {
        return ncclInvalidUsage;
    }
    comm->finalizing = true;
    atomic_store(&comm->state, ncclInProgress);
    atomic_fetch_add(&comm->rendezvous->finalized, 1);
    return ncclInProgress;
}

API ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    need(comm->has_context(), "left in a thread without a device");
    end(comm);
    return fails(__func__) ? ncclInternalError : ncclSuccess;
}

API ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    bool failed = fails(__func__); /* an abort that takes long may end when the driver is gone */
    need(!atomic_load(&comm->in_group), "leaving with a group open");
    /* the real library would make a context on the first device */
    need(comm->has_context(), "aborted in a thread without a device");
    atomic_store(&comm->aborted, true);
    while (getenv("FAKE_NCCL_ABORT_HANGS")) {
        pause();
    }
    end(comm);
    return failed ? ncclInternalError : ncclSuccess;
}
