/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in for bootstrap_mpi.c in a build without MPI. */
#include "collectives/bootstrap.h"

enum pl_status pl_bootstrap_new_mpi(const void *communicator_at, struct pl_bootstrap **ret_bootstrap,
                                    struct pl_error *reterr)
{
    (void)communicator_at;
    (void)ret_bootstrap;
    return pl_error_set(reterr, PL_UNSUPPORTED, "this build has no MPI (configure with -Dmpi=enabled)");
}

enum pl_status pl_bootstrap_mpi_members(const void *communicators, int index, int *ret_ranks, int room, int *ret_count,
                                        const void **ret_handle, struct pl_error *reterr)
{
    (void)communicators;
    (void)index;
    (void)ret_ranks;
    (void)room;
    (void)ret_count;
    (void)ret_handle;
    return pl_error_set(reterr, PL_UNSUPPORTED, "this build has no MPI (configure with -Dmpi=enabled)");
}

bool pl_bootstrap_owns_mpi(void)
{
    return false;
}

bool pl_bootstrap_under_mpi(void)
{
    return false;
}
