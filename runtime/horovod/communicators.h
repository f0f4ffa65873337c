/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Process sets given as MPI communicators, and which communicator stands for which set.
 *
 * Threads  one at a time: the caller holds the state while it is started (state.h).
 * Test     tests/integration/horovod.py
 */
#ifndef PL_RUNTIME_HOROVOD_COMMUNICATORS_H
#define PL_RUNTIME_HOROVOD_COMMUNICATORS_H

#include "runtime/service.h"

/**
 * The first of the `count` MPI_Comms in `communicators` is that of all ranks, set 0; each other one, which may have
 * other members on other ranks, or be MPI_COMM_NULL, becomes a process set for each of the groups that ranks give for
 * it, in the order of their lowest ranks. A set that is there is not added again. Collective.
 */
enum pl_status pl_communicators_add(struct pl_service *service, const void *communicators, int count,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/** Returns the set that `communicator`, an MPI_Comm, stands for, or -1. */
int pl_communicators_find(const void *communicator);

/** Drops all communicators. */
void pl_communicators_forget(void);

#endif
