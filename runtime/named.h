/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Named tensors: asynchronous operations that ranks submit in any order, matched by name. Horovod works this way. If a
 * program knows its gradients beforehand, a gradient plan (plan.h) is faster. This header describes operations;
 * service.h has the calls.
 *
 * How ranks agree. Ranks announce submissions in rounds: an allgather of 64 bytes a rank, while a rank has something to
 * announce or to wait for. The first announcement of a name carries its whole definition. When all ranks have announced
 * the same definition, the name gets a number, and then a step's announcements fit in the 64 bytes. Every rank sees all
 * announcements and keeps the same table. So all ranks take the same decisions in the same order, without a
 * coordinator. If ranks disagree about a tensor (kind, type, shape, op, factors, root), it fails on every rank before
 * any exchange, and the error names both sides; other tensors go on. If ranks agree on nothing for timeout_s, every
 * waiting tensor fails, and the error names the ranks that have submitted each.
 *
 * Device memory: all kinds of operations accept it if the rank has a device. An operation begins after the work that
 * its stream had before the submission, and is done when every stream may use the data. Small sums share a fusion
 * buffer: one kernel packs them, another unpacks them. These operations run in a separate world, which all ranks make
 * when they agree on the first one. Meanwhile ranks agree on other names.
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
 * An operation. Zero-initialise; n is the world's size. Everything but buffers, dimension 0 of ALLGATHER and ALLTOALL,
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
    /* NULL: an automatic name by kind, in the order of submission: "allreduce.0" and so on, "allreduce.1.0" and so on
     * after all ranks have joined, "allreduce.2.0" after the next join */
    const char *name;
    enum pl_kind kind;
    enum pl_dtype dtype;
    enum pl_op op;
    unsigned flags; /* PL_REPRODUCIBLE, PL_WIRE_*; PL_AGREED is set for all, because names are agreed on */
    bool scaled;    /* see struct pl_collective */
    /* the caller applies both factors and rounds after each; the engine only compares the factors of all ranks */
    bool is_scaled_by_caller;
    double prescale;
    double postscale;
    int root;
    unsigned dims;
    uint64_t shape[PL_NAMED_MAX_DIMS];
    enum pl_memory memory;  /* memory of send and recv, or of send and the result that the engine makes */
    const uint64_t *splits; /* [n], ALLTOALL only; copied */
    const void *send;
    void *recv;
    /*
     * device memory: the CUDA stream that writes and reads the buffers, the same for all operations of a group; NULL:
     * the default stream
     */
    void *stream;
};

/** The result of an operation that makes new memory. Zero for the other kinds. */
struct pl_named_result {
    void *data; /* the caller frees it; with `buffer` the engine's, valid until pl_named_result_done() */
    uint64_t rows;
    uint64_t bytes;
    uint64_t *rows_of_rank;         /* [n], number of rows from each rank (ALLGATHER, ALLTOALL); the caller frees it */
    struct pl_named_buffer *buffer; /* the engine's buffer if `data` is device memory; NULL: `data` is host memory */
};

/** Frees the memory of a result. Device memory goes back to the engine; nothing may read it any more. */
void pl_named_result_done(struct pl_named_result *result);

/**
 * Copies a result in device memory to `to`, on the caller's `stream`, and gives the memory back to the engine, which
 * reuses it after the copy. Any thread may call it, even during calls of the engine.
 *
 * Errors  PL_CANCELLED: the engine has ended, and its memory is released. The errors of device.h.
 */
enum pl_status pl_named_result_move(struct pl_named_result *result, void *to, void *stream,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/** The divisor of an average while some ranks have joined. */
enum pl_named_divisor {
    PL_NAMED_DIVIDE_BY_CONTRIBUTORS, /* number of ranks that contributed a tensor */
    PL_NAMED_DIVIDE_BY_SIZE,         /* number of all ranks, as in Horovod */
};

/** The phases of an operation. All ranks see them in the same order. ROUND belongs to no operation. */
enum pl_named_phase {
    PL_NAMED_ANNOUNCED, /* one rank, here or elsewhere, has announced it */
    PL_NAMED_AGREED,    /* all ranks have announced it, or it has failed */
    PL_NAMED_STARTED,   /* the operation's collective was started */
    PL_NAMED_ENDED,     /* the operation's collective has ended */
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
    bool first;            /* ANNOUNCED: no rank had announced the operation before */
};

/** Callbacks for the events of an engine. They run in the thread that uses the engine, and must not call the engine. */
struct pl_named_observer {
    bool active; /* set by pl_named_observe(); false: no callback is called */
    void *context;
    void (*happened)(void *context, const struct pl_named_event *event);
};

/** Switches an observer on or off, from any thread. For a moment after this returns, callbacks may still run. */
void pl_named_observe(struct pl_named_observer *observer, bool active);

/** Options of an engine or a service. Zero-initialise. */
struct pl_named_options {
    uint64_t start_bytes; /* number of submitted bytes at which rounds start although no thread waits; 0: 1 MiB */
    enum pl_named_divisor join_divisor;
    bool strict_join;                         /* ALLGATHER and BROADCAST fail while a rank has joined, as in Horovod */
    const struct pl_named_observer *observer; /* must outlive the engine; may differ between ranks; may be NULL */
};

#endif
