/* SPDX-License-Identifier: Apache-2.0 */
/**
 * An eventcount between the ranks of a host. Publishing is one store; the reader polls. A rank that has polled for long
 * sleeps on a futex; before that it adds itself to the number of waiters, and afterwards it removes itself. The
 * publisher stores its counter and then reads the number of waiters; the waiter raises that number and then reads the
 * counter once more. With sequentially consistent operations at least one of the two sees the other's store, so no
 * wake-up is lost (tests/models/eventcount.pml).
 */
#include "collectives/shm/layout.h"

#include "base/clock.h"
#include "collectives/core/types.h"
#include "collectives/world_private.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* How often a sleeping rank checks that its peers live. */
static const int64_t CHECK_PEERS_NS = 50 * PL_NS_PER_MS;

void pl_shm_wake(struct pl_shm *shm)
{
    atomic_fetch_add(&shm->control->wakeups, 1);
    syscall(SYS_futex, &shm->control->wakeups, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void pl_shm_publish(struct pl_shm *shm, _Atomic uint64_t *word, uint64_t value)
{
    atomic_store(word, value);
    if (__builtin_expect(atomic_load(&shm->control->waiters) != 0, 0)) {
        pl_shm_wake(shm);
    }
}

void pl_shm_declare_failure(struct pl_shm *shm, enum pl_status status, const struct pl_error *why)
{
    uint32_t none = 0;

    /* Only this rank writes this error, and others read it only after `failure` names this rank: if this process is
     * killed while it writes, it has not declared a failure. */
    if (atomic_load(&shm->control->failure) != 0) {
        return;
    }
    pl_revoke_relay_error(shm->world, status, why, &pl_shm_counters(shm, shm->rank)->received);
    if (atomic_compare_exchange_strong(&shm->control->failure, &none, (uint32_t)shm->rank + 1)) {
        pl_shm_wake(shm);
    }
}

enum pl_status pl_shm_check(const struct pl_shm *shm, struct pl_error *reterr)
{
    uint32_t failure = atomic_load_explicit(&shm->control->failure, memory_order_acquire);
    const struct pl_error *received;

    if (__builtin_expect(failure == 0, 1)) {
        return PL_OK;
    }
    received = &pl_shm_counters(shm, (int)failure - 1)->received;
    if (reterr) {
        *reterr = *received;
    }
    return received->status;
}

void pl_shm_open_pidfds(struct pl_shm *shm)
{
    for (int rank = 0; rank < shm->size; rank++) {
        pid_t pid = shm->world->topology.pid_of[rank];

        shm->pidfds[rank] = -1;
        if (rank != shm->rank && !shm->one_process && pid > 0) {
            shm->pidfds[rank] = (int)syscall(SYS_pidfd_open, pid, 0);
        }
    }
}

/* Whether the rank's process has ended or the rank has freed its world. Without pidfds (older kernels), a zombie
 * counts as alive until its parent reaps it. */
static bool is_gone(const struct pl_shm *shm, int rank)
{
    struct pollfd poll_fd = {.fd = shm->pidfds[rank], .events = POLLIN};
    pid_t pid = shm->world->topology.pid_of[rank];

    if (atomic_load_explicit(&pl_shm_counters(shm, rank)->left, memory_order_acquire) != 0) {
        return true;
    }
    if (poll_fd.fd >= 0) {
        return poll(&poll_fd, 1, 0) == 1;
    }
    return !shm->one_process && pid > 0 && kill(pid, 0) != 0 && errno == ESRCH;
}

/* Declares a failure if a rank is gone whose data is still missing. Data that it published before it left is used. */
static void check_missing_peers(struct pl_shm *shm)
{
    for (int rank = 0; rank < shm->size; rank++) {
        if (rank != shm->rank && is_gone(shm, rank) && !pl_shm_is_complete(shm, rank)) {
            int label = pl_world_global_rank(shm->world, rank);
            char name[PL_RANK_NAME_BYTES];
            struct pl_error gone;

            pl_error_raise(&gone, PL_PEER, PL_DOMAIN_RANK, label,
                           "the process of %s has ended or left the world while rank %d was waiting for it",
                           pl_world_rank_name(shm->world, rank, name), pl_world_global_rank(shm->world, shm->rank));
            pl_shm_declare_failure(shm, PL_PEER, &gone);
            return;
        }
    }
}

void pl_shm_sleep(struct pl_shm *shm, int64_t until_ns)
{
    struct pl_shm_control *control = shm->control;
    int64_t now_ns = pl_clock_now_ns();
    int64_t wait_ns = until_ns - now_ns < CHECK_PEERS_NS ? until_ns - now_ns : CHECK_PEERS_NS;
    struct timespec timeout = {.tv_sec = wait_ns / PL_NS_PER_S, .tv_nsec = wait_ns % PL_NS_PER_S};
    uint32_t received = atomic_load(&control->wakeups);

    check_missing_peers(shm);
    atomic_fetch_add(&control->waiters, 1);
    if (wait_ns > 0 && !pl_shm_is_ready(shm) && atomic_load(&control->failure) == 0) {
        syscall(SYS_futex, &control->wakeups, FUTEX_WAIT, received, &timeout, NULL, 0);
    }
    atomic_fetch_sub(&control->waiters, 1);
}

enum pl_status pl_shm_check_peers(void *state, bool *ret_left, struct pl_error *reterr)
{
    const struct pl_shm *shm = state;

    PL_TRY(pl_shm_check(shm, reterr));
    for (int rank = 0; rank < shm->size; rank++) {
        if (rank != shm->rank && is_gone(shm, rank)) {
            char name[PL_RANK_NAME_BYTES];

            *ret_left = true;
            return pl_error_raise(reterr, PL_PEER, PL_DOMAIN_RANK, pl_world_global_rank(shm->world, rank),
                                  "the process of %s has ended or left the world",
                                  pl_world_rank_name(shm->world, rank, name));
        }
    }
    return PL_OK;
}
