/* SPDX-License-Identifier: Apache-2.0 */
/* Records SIGTERM, and finds out in each step whether any rank has been asked to stop. */
#include "runtime/stop.h"

#include "runtime/channel.h"
#include "runtime/start_private.h"

#include "base/memory.h"
#include "collectives/collective.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

/*
 * Global, because a signal handler can reach nothing else. A signalfd would need the signal blocked in all threads, but
 * BLAS and MPI have already started threads.
 */
static atomic_bool requested;         /* lock-free, so that a handler may set it while another thread reads it */
static _Atomic int requested_fd = -1; /* an eventfd for poll(), readable once `requested` is set */

static void note_signal(int number)
{
    int saved_errno = errno;
    const uint64_t one = 1;

    (void)number;
    atomic_store(&requested, true);
    (void)!write(atomic_load(&requested_fd), &one, sizeof(one));
    errno = saved_errno;
}

enum pl_status pl_stop_watch(struct pl_error *reterr)
{
    struct sigaction action = {.sa_handler = note_signal, .sa_flags = SA_RESTART};
    uint64_t noted;

    if (atomic_load(&requested_fd) < 0) {
        int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

        if (fd < 0) {
            return pl_error_errno(reterr, "create an eventfd");
        }
        atomic_store(&requested_fd, fd);
    }
    atomic_store(&requested, false);
    (void)!read(atomic_load(&requested_fd), &noted, sizeof(noted));
    if (sigaction(SIGTERM, &action, NULL) != 0) {
        return pl_error_errno(reterr, "watch for SIGTERM");
    }
    return PL_OK;
}

bool pl_stop_requested(void)
{
    return atomic_load(&requested);
}

int pl_stop_fd(void)
{
    return atomic_load(&requested_fd);
}

struct pl_stop {
    struct pl_world *world;
    struct pl_request *request; /* the allreduce of the last call; NULL if it has completed or there was no call */
    int32_t own;                /* whether this rank had been asked to stop when the allreduce began */
    int32_t any;                /* whether any rank had been asked; valid after the allreduce has completed */
};

enum pl_status pl_stop_new(struct pl_world *world, struct pl_stop **ret_stop, struct pl_error *reterr)
{
    struct pl_stop *stop;

    PL_TRY(pl_memory_alloc(&stop, 1, sizeof(*stop), reterr));
    stop->world = world;
    *ret_stop = stop;
    return PL_OK;
}

/* Takes the result of the last call's allreduce. */
static enum pl_status take_answer(struct pl_stop *stop, struct pl_error *reterr)
{
    struct pl_request *request = PL_TAKE(stop->request);

    return request ? pl_request_wait(request, reterr) : PL_OK;
}

enum pl_status pl_stop_agreed(struct pl_stop *stop, bool *ret_stop, struct pl_error *reterr)
{
    const struct pl_collective vote = {.kind = PL_ALLREDUCE,
                                       .dtype = PL_INT32,
                                       .op = PL_MAX,
                                       .count = 1,
                                       .send = &stop->own,
                                       .recv = &stop->any,
                                       .name = "stop"};

    PL_TRY(take_answer(stop, reterr));
    *ret_stop = stop->any != 0;
    if (*ret_stop) {
        return PL_OK;
    }
    stop->own = pl_stop_requested();
    return pl_collective_post(stop->world, &vote, &stop->request, reterr);
}

void pl_stop_free(struct pl_stop *stop)
{
    if (stop) {
        take_answer(stop, NULL); /* a failure is recorded in the world */
        free(stop);
    }
}

enum pl_status pl_channel_setup_find(const struct pl_runtime *runtime, const char *name,
                                     struct pl_channel_setup *ret_setup, struct pl_error *reterr)
{
    PL_TRY(pl_channel_setup_find_in(pl_runtime_environment(runtime), name, ret_setup, reterr));
    ret_setup->info.stop_fd = pl_stop_fd();
    return PL_OK;
}
