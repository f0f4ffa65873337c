/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Named tensors: asynchronous operations that ranks submit in any order, matched by name. Horovod's way of working;
 * the gradient plan (plan.h) is the faster one for programs that know their gradients beforehand.
 *
 * How ranks agree. Submissions are announced in rounds: one allgather of 64 bytes a rank, posted when a rank has
 * something to announce or has to wait. A name announced for the first time travels with its whole definition; when all
 * ranks have announced the same one, it is known by a number from then on, and a step's announcements fit in those 64
 * bytes. Every rank sees all announcements and keeps the same table, so all take the same decisions in the same order
 * without a coordinator. There is no tick: rounds are driven by the calls below, and a waiting rank sleeps in its
 * collective. A thread runs only while a world for device memory is made. A disagreement (kind, type, shape, op,
 * factors, root) fails that tensor on every rank, naming both sides, before anything is exchanged; the engine goes on.
 * When all ranks wait for names that not all have submitted, that is noticed at once and every waiting tensor fails,
 * naming which ranks submitted what.
 *
 * Device memory: every operation takes it where the world has a device. It begins after what the operation's stream
 * has been given before the submission, whenever ranks agree on it, and is done when every stream may use the data.
 * Small sums go together in one fusion buffer, between a kernel that packs and one that unpacks. These operations run
 * in a world of their own, which all ranks make when they agree on the first one; meanwhile, and while they run, ranks
 * agree on other names.
 *
 * Threads  one thread at a time per engine, which uses its world alone while a round or an operation is under way;
 *          service.h is for more threads.
 * Cost     in the steady state one round (an allgather of 64 bytes a rank) for all operations submitted before a wait.
 * Source   Sergeev and Del Balso, "Horovod: fast and easy distributed deep learning in TensorFlow" (2018), for the
 *          programming model.
 * Test     tests/unit/runtime/named/test_named.c, test_named_faults.c
 */
#ifndef PL_RUNTIME_NAMED_H
#define PL_RUNTIME_NAMED_H

#include "collectives/collective.h"
#include "collectives/world.h"

enum {
    PL_NAMED_MAX_DIMS = 8,
    PL_NAMED_MAX_NAME_BYTES = 256, /* including the NUL */
};

struct pl_named;

/** A submitted operation; 0 stands for no operation. */
typedef uint64_t pl_named_handle;

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
    bool scaled;    /* as in struct pl_collective */
    /* the caller applies the factors and rounds after each; ranks only agree on them */
    bool is_scaled_by_caller;
    double prescale;
    double postscale;
    int root;
    unsigned dims;
    uint64_t shape[PL_NAMED_MAX_DIMS];
    enum pl_memory memory;  /* of both buffers, or of send and of the memory that is made */
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
    uint64_t start_bytes; /* submitted bytes at which a round starts without a wait; 0: 1 MiB */
    enum pl_named_divisor join_divisor;
    bool strict_join; /* ALLGATHER and BROADCAST fail while a rank has joined, as in Horovod */
    /*
     * A rank that waits may still submit, from another thread: that all ranks wait for different names is not a mistake
     * then. They go on until a name is complete, or until the deadline; pl_service_new() sets it.
     */
    bool concurrent;
    const struct pl_named_observer *observer; /* must outlive the engine; may differ between ranks; may be NULL */
};

/**
 * Makes an engine on `world`, which must outlive it. `options` may be NULL, and must be equal on all ranks. Not
 * collective.
 */
enum pl_status pl_named_new(struct pl_world *world, const struct pl_named_options *options, struct pl_named **ret_named,
                            struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Releases the engine without waiting. Operations in flight are cancelled, which makes the world unusable. See
 * pl_named_shutdown(). NULL is fine.
 */
void pl_named_free(struct pl_named *named);

/**
 * Submit one operation. Nothing waits here.
 *
 * Ownership  buffers belong to the engine until the handle is done.
 * Errors     PL_INVALID: the name is still under way (the earlier operation goes on), a bad shape or split, what
 *            pl_collective_post() refuses. PL_UNSUPPORTED: device memory for a kind or in a world that does
 *            not take it. PL_CANCELLED after a shutdown. PL_MEMORY. Nothing was submitted then.
 */
enum pl_status pl_named_submit(struct pl_named *named, const struct pl_named_op *op, pl_named_handle *ret_handle,
                               struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Submit `count` operations that start together or not at all, as members "<base>.<i>of<count>" (their own names are
 * not used). They may differ in kind, type and shape. One handle stands for all, and pl_named_wait() gives `count`
 * results; if any member fails on any rank, the whole group fails on all ranks and no output was touched. `base` NULL:
 * numbered. `count` 0 is done at once.
 */
enum pl_status pl_named_submit_group(struct pl_named *named, const char *base, const struct pl_named_op *ops,
                                     size_t count, pl_named_handle *ret_handle, struct pl_error *reterr) PL_MUST_CHECK;

/** Announce what was submitted without waiting for more. */
enum pl_status pl_named_flush(struct pl_named *named, struct pl_error *reterr) PL_MUST_CHECK;

/** Advance; true in `*ret_done` when pl_named_wait() would not block. An unknown handle is PL_INVALID. */
enum pl_status pl_named_poll(struct pl_named *named, pl_named_handle handle, bool *ret_done,
                             struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Wait for `handle`, release it, and return how it ended. `ret_result` has one place for each operation that was
 * submitted with the handle, set on success; NULL drops the results.
 *
 * Errors  PL_MISMATCH: ranks disagree about this tensor, or all ranks wait and not all have submitted it; every rank
 *         that submitted it gets the same text, the engine goes on. PL_TIMEOUT, likewise: for as long as one rank may
 *         wait (timeout_s) rounds have agreed on nothing, because some ranks poll or wait in another process set for
 *         what never comes. PL_CANCELLED: a rank shut down. PL_TIMEOUT, PL_PEER, PL_LIBRARY: the world has failed, and
 *         with it everything under way. PL_INVALID: unknown handle.
 */
enum pl_status pl_named_wait(struct pl_named *named, pl_named_handle handle, struct pl_named_result *ret_result,
                             struct pl_error *reterr) PL_MUST_CHECK;

/** pl_named_submit() and pl_named_wait(). */
enum pl_status pl_named_run(struct pl_named *named, const struct pl_named_op *op, struct pl_named_result *ret_result,
                            struct pl_error *reterr) PL_MUST_CHECK;

/**
 * This rank has no more data: take part in the others' operations with neutral elements (sum 0, product 1, min and max
 * the type's largest and smallest, no rows) until all ranks have joined. Own operations must be done before. ALLREDUCE,
 * BROADCAST from a rank that has not joined, BARRIER and ALLGATHER work meanwhile; ALLTOALL, REDUCE_SCATTER and a
 * BROADCAST from a joined root fail with PL_MISMATCH on the ranks that submitted them.
 *
 * Collective  every rank joins once, whenever it is ready. `*ret_last_rank` is the last one to join, equal on all
 *             ranks.
 * Errors      with strict_join also ALLGATHER and every BROADCAST fail so.
 */
enum pl_status pl_named_join(struct pl_named *named, int *ret_last_rank, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Announce to all ranks that this one leaves: what is under way and not yet agreed fails everywhere with PL_CANCELLED.
 * Waits until all ranks have received that, which they do when they wait, poll, join or shut down too.
 */
enum pl_status pl_named_shutdown(struct pl_named *named, struct pl_error *reterr) PL_MUST_CHECK;

#endif
