/* SPDX-License-Identifier: Apache-2.0 */
/** How the ranks of a world find each other: MPI's ranks, threads of one process, or one rank alone. */
#ifndef PL_COLLECTIVES_BOOTSTRAP_H
#define PL_COLLECTIVES_BOOTSTRAP_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pl_transport;

/**
 * How ranks find each other before there is a world; made by one of the functions below, or by the program itself.
 * Every function may be called by one thread at a time per bootstrap, unless `any_thread` says more.
 */
struct pl_bootstrap {
    const char *name; /* "mpi", "threads", "self" */
    void *context;
    int rank;
    int size;

    /**
     * Every rank's `bytes` of `send`, in rank order, in `recv` [size * bytes] on every rank. Collective.
     *
     * A rank that cannot take part calls with `recv` NULL and, in place of its `send`, the struct pl_error that says
     * why: then all ranks fail.
     */
    enum pl_status (*allgather)(void *context, const void *send, void *recv, size_t bytes, int64_t deadline_ns,
                                struct pl_error *reterr);

    /** Return when every rank has called. Collective. */
    enum pl_status (*barrier)(void *context, int64_t deadline_ns, struct pl_error *reterr);

    /** End the whole job at once with exit status `code`, as far as that can be done from here. Does not return. */
    void (*abort)(void *context, int code);

    /** A bootstrap of the `count` ranks listed, in that order; only they call. Collective over them. */
    enum pl_status (*split)(void *context, const int *ranks, int count, int64_t deadline_ns,
                            struct pl_bootstrap **ret_bootstrap, struct pl_error *reterr);

    /** True when several threads may use it, its transport and the ones split off it at once. */
    bool any_thread;

    /** Finalized: pl_bootstrap_leave() went well, all ranks are at their end. */
    bool finalized;

    /** Messages between two ranks, for whatever shared memory does not reach; NULL where there is none. */
    struct pl_transport *transport;

    /** Release `bootstrap` itself too. */
    void (*free)(struct pl_bootstrap *bootstrap);
};

/**
 * MPI's ranks. `communicator_at` points to an MPI_Comm, NULL for MPI_COMM_WORLD; it is duplicated. MPI is initialised
 * if it is not yet (asking for MPI_THREAD_MULTIPLE), and then finalised by the pl_bootstrap_free() of the last
 * bootstrap over it, if pl_bootstrap_leave() went well on that: without a peer MPI_Finalize can hang, and leaving is
 * the program's `_exit`. SIGPIPE is ignored from here on where it has its default effect: a message to a rank that has
 * died would raise it. PL_UNSUPPORTED where the build has no MPI.
 */
enum pl_status pl_bootstrap_new_mpi(const void *communicator_at, struct pl_bootstrap **ret_bootstrap,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Of the array `communicators` of MPI_Comms: whom the one at `index` has, as ranks of the first, in its own order, in
 * `ret_ranks` [room]; 0 in `*ret_count`: it is MPI_COMM_NULL. `*ret_handle` is the MPI_Comm. PL_INVALID: it has members
 * that the first has not, or is between two groups. PL_UNSUPPORTED where the build has no MPI.
 */
enum pl_status pl_bootstrap_mpi_members(const void *communicators, int index, int *ret_ranks, int room, int *ret_count,
                                        const void **ret_handle, struct pl_error *reterr) PL_MUST_CHECK;

/** Whether pl_bootstrap_new_mpi() has initialised MPI, so that nobody else in this process finalises it. */
bool pl_bootstrap_owns_mpi(void);

/** True when this process was started by mpirun or has MPI initialised, so that pl_bootstrap_new_mpi() makes sense. */
bool pl_bootstrap_under_mpi(void);

/**
 * `size` bootstraps for `size` threads of this process in `ret_bootstraps` [size]; each is used and freed by its own
 * thread.
 */
enum pl_status pl_bootstrap_new_threads(int size, struct pl_bootstrap **ret_bootstraps,
                                        struct pl_error *reterr) PL_MUST_CHECK;

/** One rank alone. */
enum pl_status pl_bootstrap_new_self(struct pl_bootstrap **ret_bootstrap, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * The end of a program that went well: return when every rank has called this, up to the deadline; pl_bootstrap_free()
 * may then finalise MPI, which would otherwise wait for missing ranks without end. Worlds made over `bootstrap` may be
 * freed before or after.
 *
 * Collective  yes.
 * Errors      PL_TIMEOUT, naming a rank that did not come; then MPI is left as it is, and its launcher takes this
 *             program's end for a failure.
 */
enum pl_status pl_bootstrap_leave(struct pl_bootstrap *bootstrap, int64_t deadline_ns,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/** Release it on this rank, without waiting for other ranks. NULL is fine. */
void pl_bootstrap_free(struct pl_bootstrap *bootstrap);

#endif
