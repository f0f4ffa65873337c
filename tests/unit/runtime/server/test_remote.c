/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/server/remote.c. */
/* Messages between servers that cannot be cancelled, as in MPI: who frees what they use is told. */
#include "collectives/bootstrap.h"
#include "collectives/bootstrap/bootstrap_private.h"
#include "runtime/server/remote.h"
#include "tests/support/unit.h"

enum { HERE, THERE, HOSTS };

static char room[100];

static struct pl_transport real; /* of server 0 */
static struct pl_transfer *held; /* where the leak checker finds what nobody frees */

static enum pl_status place(void *context, int server, const struct pl_server_packet *packet, void **ret_data,
                            struct pl_error *reterr)
{
    ck_assert_int_eq(server, THERE);
    ck_assert_uint_eq(packet->data_bytes, sizeof(room));
    *(bool *)context = true;
    *ret_data = room;
    return PL_OK;
}

static enum pl_status handle(void *context, int server, const struct pl_server_packet *packet, void *data,
                             struct pl_error *reterr)
{
    return pl_error_set(reterr, PL_FAILED, "the data has come");
}

/* A message of data that is under way stays so. */
static enum pl_status test_held(void *context, struct pl_transfer *transfer, bool *ret_done, size_t *ret_bytes,
                                struct pl_error *reterr)
{
    if (transfer->scratch[0] != (uintptr_t)room) {
        return real.test(context, transfer, ret_done, ret_bytes, reterr);
    }
    *ret_done = false;
    return PL_OK;
}

static bool cancel_held(void *context, struct pl_transfer *transfer)
{
    if (transfer->scratch[0] != (uintptr_t)room) {
        return real.cancel(context, transfer);
    }
    held = transfer;
    return false;
}

TEST(what_may_still_come_is_said)
{
    const struct pl_server_packet push = {.kind = PL_SERVER_PACKET_PUSH, .data_bytes = sizeof(room)};
    bool is_placed[HOSTS] = {false};
    struct pl_bootstrap *bootstraps[HOSTS];
    struct pl_server_remote *remotes[HOSTS];
    bool moved;

    ck_ok(pl_bootstrap_new_threads, HOSTS, bootstraps);
    for (int h = 0; h < HOSTS; h++) {
        const struct pl_server_receiver receiver = {.context = &is_placed[h], .place = place, .handle = handle};

        ck_ok(pl_server_remote_new, bootstraps[h], &receiver, &remotes[h]);
    }
    real = *bootstraps[HERE]->transport;
    bootstraps[HERE]->transport->test = test_held;
    bootstraps[HERE]->transport->cancel = cancel_held;
    ck_ok(pl_server_remote_send, remotes[THERE], HERE, &push, (char[sizeof(room)]){0}, false);
    while (!is_placed[HERE]) {
        ck_ok(pl_server_remote_poll, remotes[HERE], &moved);
        ck_ok(pl_server_remote_poll, remotes[THERE], &moved);
    }
    ck_assert(!pl_server_remote_free(remotes[HERE]));
    ck_assert_ptr_nonnull(held);
    ck_assert(pl_server_remote_free(remotes[THERE]));
    for (int h = 0; h < HOSTS; h++) {
        pl_bootstrap_free(bootstraps[h]);
    }
}

UNIT_MAIN("runtime/server/remote")
