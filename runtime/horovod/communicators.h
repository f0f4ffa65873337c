/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Process sets that are given as MPI communicators, and which communicator belongs to which set.
 *
 * Threads  one at a time: the caller holds the state while it is being started (state.h).
 * Test     tests/integration/horovod.py
 */
#ifndef PL_RUNTIME_HOROVOD_COMMUNICATORS_H
#define PL_RUNTIME_HOROVOD_COMMUNICATORS_H

#include "runtime/service.h"

/**
 * Adds process sets for `communicators` [count], which are MPI_Comms. The first one has all ranks and is set 0. Each of
 * the others may have different members on different ranks, or may be MPI_COMM_NULL. Each of its groups becomes a
 * process set, in the order of their lowest ranks. A set that exists already is not added again. Collective.
 */
enum pl_status pl_communicators_add(struct pl_service *service, const void *communicators, int count,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/** Returns the set of `communicator`, an MPI_Comm, or -1. */
int pl_communicators_find(const void *communicator);

/** Drops all communicators. */
void pl_communicators_forget(void);

#endif
