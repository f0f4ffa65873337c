/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The calls of named tensors (named.h): any thread submits an operation, and waits for its end or gets a callback.
 *
 * One thread at a time, the leader, drives the engines. A thread that waits leads, so that none has to be woken. If no
 * thread waits, the service's own thread leads: 1 to 2 ms after a submission, on one host up to 16 ms, or at once if
 * the operation has a callback or is polled. Between two steps it sleeps; while callbacks are due it yields instead,
 * for at most 100 us after the last progress. A submitting thread leads for one step if start_bytes were submitted, to
 * start large transfers early, or if operations in host memory run; not while callbacks are due.
 *
 * Process sets are numbered groups of ranks, each with a world and names of its own. Set 0 is the whole world. There is
 * no order between sets: ranks may wait for several sets in different orders.
 *
 * Ranks may wait for different names, because other threads may still submit them. After the setting stall_s a warning
 * names them. If the world has a deadline (timeout_s), the waits fail then.
 *
 * Threads  any, all calls but pl_service_new() and pl_service_free(). While an operation is in flight in a set on
 *          any rank, only the service may use the set's world; otherwise the program may.
 * Source   Horovod's process sets, for the programming model.
 * Test     tests/unit/runtime/named/test_simulation.c, test_service.c, test_service_mixed.c, test_process_set.c
 */
#ifndef PL_RUNTIME_SERVICE_H
#define PL_RUNTIME_SERVICE_H

#include "runtime/named.h"

struct pl_service;
struct pl_named_submission;

/**
 * The state of an operation. The caller keeps this memory until the operation has ended. Zero-initialise.
 *
 * If `call` is set, the service calls it once and does not touch the completion afterwards: `call` may free it. It runs
 * in the leading thread; it may submit, but must not wait. If it is NULL, use pl_service_wait() or pl_service_poll().
 */
struct pl_completion {
    void (*call)(struct pl_completion *completion);
    /*
     * in: if set, pl_service_follow() may return before the operation has ended. Called once if the operation fails
     * after that, because no wait returns that error. Not called by pl_service_free() or after pl_service_abort(). It
     * runs as `call` does, but must not free the completion.
     */
    void (*lost)(struct pl_completion *completion);
    /*
     * in: room for one result per operation, set on success; if `lost` is set, results may be set although the
     * operation fails later. NULL: results are dropped
     */
    struct pl_named_result *results;
    /* in: number of ranks for which the caller has made splits or arrays: must equal the set's; 0: not checked */
    int ranks;
    enum pl_status status; /* out: PL_OK or the failure, see pl_service_wait(); `error` has its text */
    struct pl_error error;
    int last_joined_rank; /* out: result of a join */
    bool has_leaked;      /* out, after a failure: the caller must not free the buffers, see pl_world_has_leaked() */
    /* internal; is_launched: pl_service_follow() may return; true at the latest when `done` is */
    bool done, is_launched, is_followed;
    struct pl_named_submission *launched;
};

/**
 * Makes process set 0 on `world`, which must outlive the service, and starts the thread. `options` may be NULL, and
 * must be equal on all ranks. Not collective.
 */
enum pl_status pl_service_new(struct pl_world *world, const struct pl_named_options *options,
                              struct pl_service **ret_service, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Releases the service without waiting. Operations in flight end with PL_CANCELLED, which makes the world unusable. See
 * pl_service_shutdown(). No other thread may be in a call. NULL is fine.
 */
void pl_service_free(struct pl_service *service);

/**
 * Submits one operation in process set `set`, without waiting. Name, splits and shape are copied.
 *
 * Ownership  buffers belong to the service until the operation has ended.
 * Errors     PL_INVALID: unknown set, `ranks` of the completion is wrong, this rank is not a member, the name is still
 *            in flight in the set (the earlier operation goes on), this rank is joining, a bad shape or split, and what
 *            pl_collective_post() refuses. PL_UNSUPPORTED: device memory that this kind or this world cannot use.
 *            PL_CANCELLED after a shutdown. PL_MEMORY. On an error nothing was submitted.
 */
enum pl_status pl_service_submit(struct pl_service *service, int set, const struct pl_named_op *op,
                                 struct pl_completion *completion, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Lets this rank submit operations in the memory of the GPU with CUDA's number `ordinal` in this process. Without this
 * call a service accepts device memory only if its world has a device. The first call opens the GPU; later calls only
 * compare the number. Not collective.
 *
 * Errors   PL_INVALID: another GPU than the rank's first. The errors of pl_device_count().
 */
enum pl_status pl_service_use_device(struct pl_service *service, int ordinal, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Releases the service's objects on the GPU before CUDA shuts down: for the exit handlers of a program. It waits for
 * operations on the GPU; at the deadline it cancels them, and the other ranks get the error `why`. No operation in
 * device memory may be submitted afterwards. Waits at most one second for a thread that is inside a collective.
 */
void pl_service_release_device(struct pl_service *service, int64_t deadline_ns, const struct pl_error *why);

/**
 * Submit `count` operations that start together or not at all, as members "<base>.<i>of<count>" (their own names are
 * not used). They may differ in kind, type and shape. If any member fails on any rank, the whole group fails on all
 * ranks, and no output was written. `base` NULL: an automatic name. A group of 0 operations ends at once.
 */
enum pl_status pl_service_submit_group(struct pl_service *service, int set, const char *base,
                                       const struct pl_named_op *ops, size_t count, struct pl_completion *completion,
                                       struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Says that this rank submits no more in set 0 (earlier ones may still be in flight). It takes part in others'
 * operations with neutral elements (sum 0, product 1, min and max the type's largest and smallest, no rows) until all
 * ranks have joined. Until then it must not submit anything in set 0. ALLREDUCE, BROADCAST from a rank that has not
 * joined, BARRIER and ALLGATHER work meanwhile; ALLTOALL, REDUCE_SCATTER and a BROADCAST from a joined root fail with
 * PL_MISMATCH on the ranks that submitted them, with strict_join also ALLGATHER and every BROADCAST.
 *
 * Collective  every rank joins once, whenever it is ready. `last_joined_rank` of the completion is the rank that joined
 *             last, the same on all ranks.
 */
enum pl_status pl_service_submit_join(struct pl_service *service, struct pl_completion *completion,
                                      struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Returns whether the operation has ended. If no thread waits for it, the service's thread continues with it at once.
 */
bool pl_service_poll(struct pl_service *service, const struct pl_completion *completion);

/**
 * Waits for the operation and returns its status. Any number of threads may wait at the same time, one for each
 * completion.
 *
 * Errors  PL_MISMATCH: ranks disagree about this tensor; every rank that submitted it gets the same text; other
 *         operations go on. PL_TIMEOUT, also on every rank: rounds have agreed on nothing for timeout_s, because some
 *         ranks wait for submissions that never come. PL_CANCELLED: a rank shut down. PL_TIMEOUT, PL_PEER, PL_LIBRARY:
 *         the world has failed, and with it all operations in flight.
 */
enum pl_status pl_service_wait(struct pl_service *service, struct pl_completion *completion,
                               struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Returns as soon as the whole operation is queued on the device. Later work on the program's `stream` waits for that
 * end. The name may be used again. If `*ret_done` is false, buffers and completion belong to the service until
 * pl_service_is_done(); results are set, and later work on `stream` may read them. If the completion has no `lost`, or
 * for host memory, this is pl_service_wait().
 *
 * Errors   as pl_service_wait(), with `*ret_done` true. With `*ret_done` false the stream does not wait, and the caller
 *          may wait for the operation again. PL_INVALID: the stream is captured into a CUDA graph. Errors of device.h.
 */
enum pl_status pl_service_follow(struct pl_service *service, struct pl_completion *completion, void *stream,
                                 bool *ret_done, struct pl_error *reterr) PL_MUST_CHECK;

/** Returns whether the operation has ended, as pl_service_poll() does, but does not make the service work on it. */
bool pl_service_is_done(struct pl_service *service, const struct pl_completion *completion);

/**
 * Adds a set of the `count` ranks listed, or removes one, at a point that all ranks agree on; other operations may be
 * in flight. Rank i of the set is ranks[i]; the set gets the lowest free number from 1. Removing a set frees its world:
 * free plans and arenas of that world before. An operation that another thread submits in the set too late, while it is
 * being removed, ends with PL_INVALID.
 *
 * Collective  over all ranks, members or not; one thread of a rank at a time (PL_INVALID). A rank that comes later is
 *             waited for. All ranks pass the same list, or the same set.
 * Errors      on all ranks: PL_INVALID to add (empty list, unknown or repeated rank, or the set exists: its number is
 *             named) or to remove (set 0, unknown set, or an operation is in flight in it: rank and operation are
 *             named); PL_MISMATCH (different lists: two ranks are named; or a rank has joined); the failure of one
 *             rank, which is named (no memory, no sub-world). Nothing has changed then.
 */
enum pl_status pl_service_add_set(struct pl_service *service, const int *ranks, int count, int *ret_set,
                                  struct pl_error *reterr) PL_MUST_CHECK;
enum pl_status pl_service_remove_set(struct pl_service *service, int set, struct pl_error *reterr) PL_MUST_CHECK;

/** Lists all sets' numbers, ascending, up to `room` of them. Returns how many sets there are. */
int pl_service_list_sets(struct pl_service *service, int *ret_sets, int room);

/** Returns the set of these ranks in this order, or -1 if there is none. */
int pl_service_find_set(struct pl_service *service, const int *ranks, int count);

struct pl_service_set {
    int size;
    int rank; /* number of this rank in the set; -1: it is not a member */
    /* for collectives and plans; its rank numbers count in the set. NULL: this rank is not a member */
    struct pl_world *world;
};

/**
 * Describes `set`, and stores its ranks in `ret_ranks` [room], unless that is NULL. Errors: PL_INVALID if there is no
 * such set, or if it does not have `room` ranks any more.
 */
enum pl_status pl_service_get_set(struct pl_service *service, int set, struct pl_service_set *ret_set, int *ret_ranks,
                                  int room, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Call it before this process ends without a shutdown, because of the error `why`: the other ranks' operations then
 * fail with `why` at once, and do not wait for this rank. The service's thread ends, and operations in flight here
 * fail. Waits at most one second for a thread that is inside a collective; after that the other ranks are not told.
 */
void pl_service_abort(struct pl_service *service, const struct pl_error *why);

/**
 * Leaves all sets of this rank. Operations that the ranks have not agreed on end with PL_CANCELLED on all ranks. Waits
 * until the other ranks have received the message: each of them must wait, poll, join or shut down.
 */
enum pl_status pl_service_shutdown(struct pl_service *service, struct pl_error *reterr) PL_MUST_CHECK;

#endif
