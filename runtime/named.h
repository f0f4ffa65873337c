/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Named tensors: asynchronous operations that ranks submit in any order, matched by name. Horovod's way of working;
 * the gradient plan (plan.h) is the faster one for programs that know their gradients beforehand. What an operation is
 * stands here, and the calls in service.h.
 *
 * How ranks agree. Submissions are announced in rounds: one allgather of 64 bytes a rank, posted while a rank has
 * something to announce or to wait for. A name announced for the first time travels with its whole definition; when all
 * ranks have announced the same one, it is known by a number from then on, and a step's announcements fit in those 64
 * bytes. Every rank sees all announcements and keeps the same table, so all take the same decisions in the same order
 * without a coordinator. A disagreement (kind, type, shape, op, factors, root) fails that tensor on every rank, naming
 * both sides, before anything is exchanged; the others go on. When for as long as one rank may wait (timeout_s) ranks
 * have agreed on nothing, every waiting tensor fails, naming which ranks submitted what.
 *
 * Device memory: every operation takes it where the rank has a device. It begins after what the operation's stream
 * has been given before the submission, whenever ranks agree on it, and is done when every stream may use the data.
 * Small sums go together in one fusion buffer, between a kernel that packs and one that unpacks. These operations run
 * in a world of their own, which all ranks make when they agree on the first one; meanwhile, and while they run, ranks
 * agree on other names.
 *
 * Cost     in the steady state one round (an allgather of 64 bytes a rank) for all operations submitted before a wait.
 * Source   Sergeev and Del Balso, "Horovod: fast and easy distributed deep learning in TensorFlow" (2018), for the
 *          programming model.
 * Test     tests/unit/runtime/named/test_simulation.c, test_named.c, test_named_faults.c
 */
#ifndef PL_RUNTIME_NAMED_H
#define PL_RUNTIME_NAMED_H

#include "collectives/collective.h"
#include "collectives/world.h"

enum {
    PL_NAMED_MAX_DIMS = 8,
    PL_NAMED_MAX_NAME_BYTES = 256, /* including the NUL */
};

/**
 * What to do. Zero-initialise; n is the world's size. Everything but buffers, dimension 0 of ALLGATHER and ALLTOALL,
 * and splits must be equal on all ranks.
 *
 *   kind            send            result
 *   ALLREDUCE       shape           recv, shape; in place when recv == send
 *   BROADCAST       root: shape     recv, shape; in place when send is NULL or equals recv
 *   ALLGATHER       shape           new memory: all ranks' rows (dimension 0), in rank order
 *   ALLTOALL        shape           new memory: splits[r] rows go to rank r; NULL: shape[0] / n to each
 *   REDUCE_SCATTER  shape           new memory: this rank's rows; where shape[0] does not divide, the first ranks get
 *                   one more. Device memory: recv, this rank's rows
 *   BARRIER                         nothing; done when every rank has submitted it
 *
 * ALLGATHER, ALLTOALL and REDUCE_SCATTER need at least one dimension; no dimensions mean one element.
 */
struct pl_named_op {
    /* NULL: numbered by kind, "allreduce.0" and so on, in the order of submission; when all ranks have joined,
     * "allreduce.1.0" and so on, after the next join "allreduce.2.0" */
    const char *name;
    enum pl_kind kind;
    enum pl_dtype dtype;
    enum pl_op op;
    unsigned flags; /* PL_REPRODUCIBLE, PL_WIRE_*; PL_AGREED is set for all, because names are agreed on */
    bool scaled;    /* the same field of struct pl_collective */
    /* the caller applies the factors and rounds after each; ranks only agree on them */
    bool is_scaled_by_caller;
    double prescale;
    double postscale;
    int root;
    unsigned dims;
    uint64_t shape[PL_NAMED_MAX_DIMS];
    enum pl_memory memory;  /* memory of both buffers; if recv is made by the engine, of send and of the result */
    const uint64_t *splits; /* [n], ALLTOALL; copied */
    const void *send;
    void *recv;
    /*
     * device memory: the CUDA stream that writes and reads the buffers, with the same one in all operations of a group;
     * NULL: the default stream
     */
    void *stream;
};

/** The result of an operation that makes new memory. Zero for the other kinds. */
struct pl_named_result {
    void *data; /* belongs to the caller, who frees it; with `buffer` the engine's, valid until it is given back */
    uint64_t rows;
    uint64_t bytes;
    uint64_t *rows_of_rank;         /* [n], number of rows from each rank (ALLGATHER, ALLTOALL); the caller frees it */
    struct pl_named_buffer *buffer; /* `data` is device memory of the engine; NULL: it is host memory */
};

/** Frees the memory of a result, or gives device memory back, which nothing may read any more. */
void pl_named_result_done(struct pl_named_result *result);

/**
 * Copies a result in device memory to `to`, on `stream` of the caller, and gives the memory back: the engine uses it
 * again when the copy has ended. Any thread may call it, also beside calls of the engine.
 *
 * Errors  PL_CANCELLED: the engine has ended, and its memory is released. Those of device.h.
 */
enum pl_status pl_named_result_move(struct pl_named_result *result, void *to, void *stream,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/** The divisor of an average while some ranks have joined. */
enum pl_named_divisor {
    PL_NAMED_DIVIDE_BY_CONTRIBUTORS, /* number of ranks that gave a tensor */
    PL_NAMED_DIVIDE_BY_SIZE,         /* number of all ranks, as in Horovod */
};

/** The phases of an operation, which all ranks see in the same order. ROUND belongs to no operation. */
enum pl_named_phase {
    PL_NAMED_ANNOUNCED, /* one rank, here or elsewhere, has announced it */
    PL_NAMED_AGREED,    /* all ranks have announced it, or it has failed */
    PL_NAMED_STARTED,   /* its collective was started */
    PL_NAMED_ENDED,     /* its collective has ended */
    PL_NAMED_ROUND,     /* a round of announcements has arrived */
};

struct pl_named_event {
    enum pl_named_phase phase;
    const char *name;
    enum pl_kind kind;
    enum pl_dtype dtype;
    unsigned dims;
    const uint64_t *shape; /* [dims], shape on this rank; dimension 0 is 0 for ALLGATHER and ALLTOALL */
    int rank;              /* ANNOUNCED: the rank, as pl_world_global_rank() numbers it */
    bool first;            /* ANNOUNCED: it is the first rank that announces the operation */
};

/** Callbacks for the events of an engine. They run in the thread that uses the engine, and must not use it. */
struct pl_named_observer {
    bool active; /* set by pl_named_observe(); false: no callback is called */
    void *context;
    void (*happened)(void *context, const struct pl_named_event *event);
};

/**
 * Switches an observer on or off, from any thread. A call may still be in progress, or begin, when this has returned.
 */
void pl_named_observe(struct pl_named_observer *observer, bool active);

/** Zero-initialise. */
struct pl_named_options {
    uint64_t start_bytes; /* submitted bytes at which rounds start without a wait; 0: 1 MiB */
    enum pl_named_divisor join_divisor;
    bool strict_join;                         /* ALLGATHER and BROADCAST fail while a rank has joined, as in Horovod */
    const struct pl_named_observer *observer; /* must outlive the engine; may differ between ranks; may be NULL */
};

#endif
