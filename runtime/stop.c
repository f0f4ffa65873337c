/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/stop.h"

#include "collectives/collective.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>

/* A handler can reach nothing else. Blocking the signal and reading a signalfd is no way out: BLAS and MPI have threads of their
 * own by now, in which it would not be blocked. */
static atomic_bool requested; /* lock-free, so that a handler may set it while another thread looks */

static void note_signal(int number)
{
    (void)number;
    atomic_store(&requested, true);
}

enum pl_status pl_stop_watch(struct pl_error *reterr)
{
    struct sigaction action = {.sa_handler = note_signal, .sa_flags = SA_RESTART};

    atomic_store(&requested, false);
    if (sigaction(SIGTERM, &action, NULL) != 0) {
        return pl_error_errno(reterr, "watch for SIGTERM");
    }
    return PL_OK;
}

bool pl_stop_requested(void)
{
    return atomic_load(&requested);
}

enum pl_status pl_stop_agreed(struct pl_world *world, bool *ret_stop, struct pl_error *reterr)
{
    int32_t stop = atomic_load(&requested);

    PL_TRY(pl_allreduce(world, &stop, &stop, 1, PL_INT32, PL_MAX, reterr));
    *ret_stop = stop != 0;
    return PL_OK;
}
