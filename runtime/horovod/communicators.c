/* SPDX-License-Identifier: Apache-2.0 */
/* Process sets from communicators: the ranks gather the members of each set, add the sets in the same order, and store
 * their communicators. */
#include "runtime/horovod/state.h"

#include "base/memory.h"
#include "collectives/bootstrap.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct known {
    struct known *next;
    const void *communicator;
    int set;
};

static struct {
    pthread_mutex_t lock;
    struct {
        struct known *known;
    } synced;
} communicators = {.lock = PTHREAD_MUTEX_INITIALIZER};

int pl_communicators_find(const void *communicator)
{
    const struct known *at;
    int set;

    pthread_mutex_lock(&communicators.lock);
    for (at = communicators.synced.known; at && at->communicator != communicator; at = at->next) {
    }
    set = at ? at->set : -1;
    pthread_mutex_unlock(&communicators.lock);
    return set;
}

static enum pl_status remember(const void *communicator, int set, struct pl_error *reterr)
{
    struct known *known;

    PL_TRY(pl_memory_alloc(&known, 1, sizeof(*known), reterr));
    pthread_mutex_lock(&communicators.lock);
    *known = (struct known){.next = communicators.synced.known, .communicator = communicator, .set = set};
    communicators.synced.known = known;
    pthread_mutex_unlock(&communicators.lock);
    return PL_OK;
}

void pl_communicators_forget(void)
{
    pthread_mutex_lock(&communicators.lock);
    while (communicators.synced.known) {
        struct known *known = communicators.synced.known;

        communicators.synced.known = known->next;
        free(known);
    }
    pthread_mutex_unlock(&communicators.lock);
}

/* Gathers every rank's `*own_at` [width] in `*ret_all`, which the caller frees. If messages may still access the
 * caller's memory, `*own_at` becomes NULL: the caller must not free it. */
static enum pl_status gather(struct pl_service *service, int32_t **own_at, int width, int32_t **ret_all,
                             struct pl_error *reterr)
{
    struct pl_named_result result = {0};
    struct pl_completion completion = {.results = &result};
    const struct pl_named_op op = {.name = "process sets by communicators",
                                   .kind = PL_ALLGATHER,
                                   .dtype = PL_INT32,
                                   .dims = 2,
                                   .shape = {1, (uint64_t)width},
                                   .send = *own_at};
    enum pl_status status;

    PL_TRY(pl_service_submit(service, 0, &op, &completion, reterr));
    status = pl_service_wait(service, &completion, reterr);
    if (status != PL_OK) {
        *own_at = completion.has_leaked ? NULL : *own_at;
        return status;
    }
    *ret_all = PL_TAKE(result.data);
    pl_named_result_done(&result);
    return PL_OK;
}

/* Adds the sets that the ranks have passed for one communicator. `lists` [ranks * width] has a count and the members
 * for each rank. */
static enum pl_status add_lists(struct pl_service *service, const int32_t *lists, int ranks, int width,
                                struct pl_error *reterr)
{
    for (int rank = 0; rank < ranks; rank++) {
        const int32_t *list = lists + (size_t)rank * (size_t)width;
        int set;

        if (list[0] > 0 && pl_service_find_set(service, list + 1, list[0]) < 0) {
            PL_TRY(pl_service_add_set(service, list + 1, list[0], &set, reterr));
        }
    }
    return PL_OK;
}

enum pl_status pl_communicators_add(struct pl_service *service, const void *handles, int count, struct pl_error *reterr)
{
    PL_AUTO_FREE int32_t *own = NULL;
    const void *communicator;
    struct pl_service_set world;
    int ranks;

    PL_TRY(pl_service_get_set(service, 0, &world, NULL, 0, reterr));
    ranks = world.size;
    PL_TRY(pl_memory_alloc(&own, (size_t)ranks + 1, sizeof(int32_t), reterr));
    for (int i = 0; i < count; i++) {
        PL_AUTO_FREE int32_t *all = NULL;

        PL_TRY(pl_bootstrap_mpi_members(handles, i, own + 1, ranks, &own[0], &communicator, reterr));
        if (i > 0) {
            PL_TRY(gather(service, &own, ranks + 1, &all, reterr));
            PL_TRY(add_lists(service, all, ranks, ranks + 1, reterr));
        }
        if (own[0] > 0) {
            PL_TRY(remember(communicator, pl_service_find_set(service, own + 1, own[0]), reterr));
        }
    }
    return PL_OK;
}
