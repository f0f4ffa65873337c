/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The collective operations: one descriptor for all, functions that post and wait, and blocking calls.
 *
 * All ranks of a world post the same collectives in the same order; backends run them in that order. Device buffers are
 * used in the order of `stream`: work that was given to that stream before the post, or before the event `ready` was
 * recorded, happens before the collective, and pl_request_stream_wait() lets a stream go on after it. A stream that is
 * captured into a CUDA graph is refused (PL_INVALID), and nothing is posted.
 *
 * Requests advance inside pl_request_test(), pl_request_wait() and the posting calls. In a world of several hosts a
 * thread also advances them (setting `progress`; pl_world_describe() says whether it runs). Without that thread, a
 * program that wants communication to overlap with computing calls pl_request_test() now and then. A call advances its
 * own world only: a program with requests under way on several worlds waits for them in the same order on all ranks, or
 * tests them in turn.
 *
 * Threads  one thread of the program at a time per world; different worlds of one process may be used by different
 *          threads.
 */
#ifndef PL_COLLECTIVES_COLLECTIVE_H
#define PL_COLLECTIVES_COLLECTIVE_H

#include "base/dtype.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct pl_world;
struct pl_request;
struct pl_text;

/* name, text for people */
#define PL_KIND_LIST(X)                                                                                                \
    X(ALLREDUCE, "allreduce")                                                                                          \
    X(REDUCE_SCATTER, "reduce_scatter")                                                                                \
    X(ALLGATHER, "allgather")                                                                                          \
    X(BROADCAST, "broadcast")                                                                                          \
    X(ALLTOALL, "alltoall")                                                                                            \
    X(REDUCE, "reduce")                                                                                                \
    X(BARRIER, "barrier")

enum pl_kind {
#define PL_KIND_ENUM(name, text) PL_##name,
    PL_KIND_LIST(PL_KIND_ENUM)
#undef PL_KIND_ENUM
};

enum { PL_KIND_COUNT = PL_BARRIER + 1 };

/**
 * Where a buffer lies. Device memory needs a world that was given a device (struct pl_world_options) and belongs to
 * that device.
 */
enum pl_memory { PL_MEMORY_HOST, PL_MEMORY_PINNED, PL_MEMORY_DEVICE };

/** Flags of a descriptor. */
enum {
    /**
     * The result has the same bits whatever the number of hosts, ranks per host and algorithm: see
     * pl_collective_post().
     */
    PL_REPRODUCIBLE = 1 << 0,
    /**
     * Between hosts, float32 is sent as float16, bfloat16 or int8 (blocks of 256 with a scale of 4 bytes); the rounding
     * error is added to the next call of the same name.
     */
    PL_WIRE_FLOAT16 = 1 << 1,
    PL_WIRE_BFLOAT16 = 1 << 2,
    PL_WIRE_INT8 = 1 << 4,
    PL_WIRES = PL_WIRE_FLOAT16 | PL_WIRE_BFLOAT16 | PL_WIRE_INT8, /* one of them at most */
    /**
     * All ranks are known to post the same collective (a sealed plan has compared its buckets): they do not compare
     * this call, unless that costs no message of its own (on one host, and for small data between hosts). Ranks that
     * do post different collectives wait until their deadlines.
     */
    PL_AGREED = 1 << 3,
};

/**
 * The operation of the runtime that has posted a collective, and a function that describes the state of that operation.
 * All zero: the program has posted the collective itself.
 */
struct pl_about {
    /* becomes pl_event.name if the collective has no name; ranks do not compare it */
    const char *name;
    void (*append)(const void *subject, struct pl_text *text); /* writes pl_event.about; may be NULL */
    const void *subject;
};

/**
 * Description of one collective. Zero-initialise; unused fields stay zero. n is the world's size; counts are elements.
 *
 *   kind            send                        recv                        needs
 *   ALLREDUCE       [count]                     [count]                     op
 *   REDUCE_SCATTER  [counts[0]+...+counts[n-1]] [counts[rank]]              op
 *   ALLGATHER       [counts[rank]]              [counts[0]+...+counts[n-1]]
 *   BROADCAST       root: [count] or NULL       [count]                     root; NULL: the root sends from recv
 *   ALLTOALL        [sum of counts]             [sum of recv_counts]        counts[r] go to r, recv_counts[r] come from
 *                   r
 *   REDUCE          [count]                     root: [count]               op, root
 *   BARRIER
 *
 * If `counts` is NULL, each of its entries, and each of `recv_counts`, is `count`. The arrays may be freed after the
 * post has returned. In place: recv == send (ALLREDUCE, REDUCE; BROADCAST also NULL), or the rank's own block in the
 * larger buffer (ALLGATHER, REDUCE_SCATTER, which does not change the rest of `send`). Any other overlap is
 * PL_INVALID.
 */
struct pl_collective {
    enum pl_kind kind;
    enum pl_dtype dtype;
    enum pl_op op;
    unsigned flags;
    bool scaled;      /* whether the two factors are used; otherwise both are 1 */
    double prescale;  /* multiplies every input element first; integers are multiplied as double and truncated toward
                       * zero */
    double postscale; /* multiplies every output element last */
    uint32_t divisor; /* number by which AVERAGE divides sums; 0: by n */
    int root;
    uint64_t count;
    const uint64_t *counts;
    const uint64_t *recv_counts;
    const void *send;
    void *recv;
    enum pl_memory memory; /* kind of both buffers */
    void *stream;          /* CUDA stream after whose work device buffers are used; NULL for host memory */
    /* CUDA event: device buffers are used after it, and not after the work that `stream` has at the post. It must not
     * be recorded again until the request is done. NULL: none. */
    void *ready;
    const char *name; /* for messages and for error feedback; compared between ranks; may be NULL */
    /* on CLOCK_MONOTONIC; 0: the world's timeout, counted from the first wait or test of the unfinished request */
    int64_t deadline_ns;
    struct pl_about about; /* for warnings; `about.subject` must live until the request is done */
};

/**
 * Start `collective` and set `*ret_request`, to be given to pl_request_wait() or pl_request_cancel() once.
 *
 * Order       Every rank gets equal bits, and runs with the same world, algorithm and sizes repeat them. With
 *             PL_REPRODUCIBLE the order of additions is x(0)+x(1)+...+x(n-1), whatever the hosts, ranks per host and
 *             algorithm. Between hosts each rank then sends and receives (n-1)/n of the data twice, while the default
 *             sends it once per host. Half-width floats are then added in float32 and rounded once; otherwise once
 *             per hop.
 * Collective  yes: all ranks, same order, same kind, dtype, op, counts, root, factors, flags and name.
 * Ownership   the buffers stay the caller's; nobody else touches them until the request is done.
 * Errors      PL_INVALID (descriptor; nothing was started), PL_UNSUPPORTED (no backend serves it; nothing started),
 *             PL_MEMORY. From test and wait: PL_MISMATCH (ranks disagree; on all ranks, naming both sides),
 *             PL_TIMEOUT and PL_PEER (naming a rank if it is known), PL_LIBRARY (with MPI's text). After these four the
 *             world is unusable: later posts fail with the same error, since a rank cannot know how far the others got.
 *             Outputs are then undefined, and a message between hosts that MPI cannot cancel any more may access
 *             both buffers until the process ends: see pl_world_has_leaked().
 * Test        tests/unit/collectives, tests/conformance.md
 */
enum pl_status pl_collective_post(struct pl_world *world, const struct pl_collective *collective,
                                  struct pl_request **ret_request, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Let work given to `stream` from now on wait for the request, on the device. Returns at once if the GPU moves the
 * data, otherwise when the request has ended. Does not release the request. Only pl_request_test() and
 * pl_request_wait() report failures and enforce the deadline: if a rank is lost, a program that waits on the device
 * alone (for `stream`) waits for ever.
 *
 * Errors   those of wait, as far as they are known.
 */
enum pl_status pl_request_stream_wait(struct pl_request *request, void *stream, struct pl_error *reterr) PL_MUST_CHECK;
#define pl_request_order pl_request_stream_wait /* former name, kept for one release */

/**
 * True if the GPU finishes the request without help from the host, so that pl_request_test() only polls. False if the
 * host moves data.
 */
bool pl_request_launched(const struct pl_request *request);

/**
 * Advance the world; `*ret_done` is whether the request has ended, by success or failure. Never blocks, does not
 * release the request.
 */
enum pl_status pl_request_test(struct pl_request *request, bool *ret_done, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Wait until the request has ended or its deadline has passed, release it unless it is persistent, and return its
 * status. A waiting rank spins for a short while, yielding now and then, and then sleeps.
 */
enum pl_status pl_request_wait(struct pl_request *request, struct pl_error *reterr) PL_MUST_CHECK;

/** Cancel the request and release it. If it had not ended, the world is unusable afterwards (PL_CANCELLED). */
void pl_request_cancel(struct pl_request *request);

/** Post and wait. */
enum pl_status pl_collective_run(struct pl_world *world, const struct pl_collective *collective,
                                 struct pl_error *reterr) PL_MUST_CHECK;

/**
 * The collectives as blocking calls: pl_collective_run() with the world's timeout, in host memory.
 *
 * Shapes      n is the world's size. In place: `recv` == `send` in pl_allreduce() and pl_reduce(); the rank's own block
 *             inside the larger buffer in pl_allgather() and pl_reduce_scatter().
 *               pl_allreduce()       send, recv [count]
 *               pl_broadcast()       data [count]: read on `root`, written on the others
 *               pl_reduce()          send [count]; recv [count] on `root`, unused elsewhere
 *               pl_allgather()       send [count], recv [n * count]: rank r's block at r * count
 *               pl_reduce_scatter()  send [n * count], recv [count]: the sum of block `rank`
 *               pl_alltoall()        send, recv [n * count]: block r goes to, and comes from, rank r
 * Units       `count` is in elements of `dtype`, per block if there are blocks.
 * Order       as pl_collective_post(): every rank gets equal bits.
 * Collective  yes: all ranks of `world`, same order, same count, dtype, op and root.
 * Ownership   buffers stay the caller's, and are free for use when the call returns PL_OK.
 * Errors      those of pl_collective_post() and of pl_request_wait(): PL_INVALID, PL_UNSUPPORTED and PL_MEMORY (nothing
 *             was started); PL_MISMATCH, PL_TIMEOUT, PL_PEER and PL_LIBRARY, after which the world is unusable.
 * Test        tests/unit/collectives/test_conformance.c
 */
enum pl_status pl_allreduce(struct pl_world *world, const void *send, void *recv, uint64_t count, enum pl_dtype dtype,
                            enum pl_op op, struct pl_error *reterr) PL_MUST_CHECK;
enum pl_status pl_broadcast(struct pl_world *world, void *data, uint64_t count, enum pl_dtype dtype, int root,
                            struct pl_error *reterr) PL_MUST_CHECK;
enum pl_status pl_reduce(struct pl_world *world, const void *send, void *recv, uint64_t count, enum pl_dtype dtype,
                         enum pl_op op, int root, struct pl_error *reterr) PL_MUST_CHECK;
enum pl_status pl_allgather(struct pl_world *world, const void *send, void *recv, uint64_t count, enum pl_dtype dtype,
                            struct pl_error *reterr) PL_MUST_CHECK;
enum pl_status pl_reduce_scatter(struct pl_world *world, const void *send, void *recv, uint64_t count,
                                 enum pl_dtype dtype, enum pl_op op, struct pl_error *reterr) PL_MUST_CHECK;
enum pl_status pl_alltoall(struct pl_world *world, const void *send, void *recv, uint64_t count, enum pl_dtype dtype,
                           struct pl_error *reterr) PL_MUST_CHECK;
enum pl_status pl_barrier(struct pl_world *world, struct pl_error *reterr) PL_MUST_CHECK;

/** "allreduce" for PL_ALLREDUCE. */
const char *pl_kind_text(enum pl_kind kind);

#endif
