/* SPDX-License-Identifier: Apache-2.0 */
/** How the ranks of a world find each other: MPI's ranks, threads of one process, or one rank alone. */
#ifndef PL_COLLECTIVES_BOOTSTRAP_H
#define PL_COLLECTIVES_BOOTSTRAP_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pl_transport;

enum { PL_RANK_NAME_BYTES = 96 }; /* enough for "rank 3 on host algo-2" with the longest host name */

/**
 * The purpose of a split. Splits of one purpose are called in the same order on all their ranks. Splits of different
 * purposes may run at the same time, and in a different order on each rank.
 */
enum pl_split_purpose { PL_SPLIT_FOR_SUB_WORLD, PL_SPLIT_FOR_DEVICES };

/**
 * How ranks find each other before there is a world. It is made by one of the functions below or by the program. Unless
 * `any_thread` is set, only one thread at a time may call its functions.
 */
struct pl_bootstrap {
    const char *name; /* "mpi", "threads", "self" */
    void *context;
    int rank;
    int size;

    /**
     * An allgather: puts the `bytes` of every rank's `send`, in rank order, into `recv` [size * bytes] on every rank.
     * If `bytes` is 0, it is a barrier. If `failed` is not NULL, this rank cannot take part, and the call fails on all
     * ranks with that error. Collective.
     */
    enum pl_status (*exchange)(void *context, const struct pl_error *failed, const void *send, void *recv, size_t bytes,
                               int64_t deadline_ns, struct pl_error *reterr);

    /** Make a bootstrap of the `count` ranks in `ranks`, in that order. Only they call. Collective over them. */
    enum pl_status (*split)(void *context, const int *ranks, int count, enum pl_split_purpose purpose,
                            int64_t deadline_ns, struct pl_bootstrap **ret_bootstrap, struct pl_error *reterr);

    /** Whether several threads may use this bootstrap, its transport and bootstraps split from it at the same time. */
    bool any_thread;

    /** Set when pl_bootstrap_leave() has succeeded: all ranks have reached the end of the program. */
    bool finalized;

    /** Messages between two ranks, for ranks that share no memory; NULL if there is no transport. */
    struct pl_transport *transport;

    /** Release `bootstrap` and all that belongs to it. */
    void (*free)(struct pl_bootstrap *bootstrap);
};

/**
 * Make the bootstrap of MPI's ranks. `communicator_at` points to an MPI_Comm, or is NULL for MPI_COMM_WORLD; the
 * communicator is duplicated. If MPI is not initialised yet, this initialises it and asks for MPI_THREAD_MULTIPLE. Then
 * pl_bootstrap_free() of the last MPI bootstrap finalises MPI, if pl_bootstrap_leave() has succeeded on that bootstrap.
 * Otherwise MPI_Finalize could hang for lack of a peer, and the program must end by `_exit`.
 *
 * If SIGPIPE has its default effect, it is ignored from here on: a message to a rank that has died would raise it.
 * PL_UNSUPPORTED in a build without MPI.
 */
enum pl_status pl_bootstrap_new_mpi(const void *communicator_at, struct pl_bootstrap **ret_bootstrap,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Find the members of communicators[index] (an array of MPI_Comm). `ret_ranks` [room] gets their ranks in
 * communicators[0], in the order of communicators[index]. `*ret_count` is 0 for MPI_COMM_NULL. PL_INVALID if it is an
 * intercommunicator or has members that communicators[0] lacks. PL_UNSUPPORTED in a build without MPI.
 */
enum pl_status pl_bootstrap_mpi_members(const void *communicators, int index, int *ret_ranks, int room, int *ret_count,
                                        const void **ret_handle, struct pl_error *reterr) PL_MUST_CHECK;

/** Whether pl_bootstrap_new_mpi() has initialised MPI; then no other code in this process may finalise it. */
bool pl_bootstrap_owns_mpi(void);

/** Whether mpirun started this process or MPI is initialised. If so, pl_bootstrap_new_mpi() can be used. */
bool pl_bootstrap_under_mpi(void);

/**
 * Make `size` bootstraps for `size` threads of this process, in `ret_bootstraps` [size]. Each thread uses and frees its
 * own.
 */
enum pl_status pl_bootstrap_new_threads(int size, struct pl_bootstrap **ret_bootstraps,
                                        struct pl_error *reterr) PL_MUST_CHECK;

/** Make the bootstrap of one rank alone. */
enum pl_status pl_bootstrap_new_self(struct pl_bootstrap **ret_bootstrap, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Call at the end of a program that has succeeded. Returns when every rank has called, at the latest at the deadline.
 * pl_bootstrap_free() may then finalise MPI, which would otherwise wait for missing ranks without end. Worlds over
 * `bootstrap` may be freed before or after.
 *
 * Collective  yes.
 * Errors      PL_TIMEOUT, naming a rank that did not come; then MPI is not finalised, and its launcher takes the end of
 *             this program for a failure.
 */
enum pl_status pl_bootstrap_leave(struct pl_bootstrap *bootstrap, int64_t deadline_ns,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/** Release `bootstrap` on this rank, without waiting for other ranks. NULL is fine. */
void pl_bootstrap_free(struct pl_bootstrap *bootstrap);

#endif
