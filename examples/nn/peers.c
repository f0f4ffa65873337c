/* SPDX-License-Identifier: Apache-2.0 */
/* Trains with the ranks of a world or with the workers of parameter servers. */
#include "examples/nn/peers.h"

#include "base/memory.h"
#include "examples/nn/plan.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum pl_status open_ranks(struct nn_peers *peers, struct pl_world *world, const struct pl_plan_options *options,
                                 const struct pl_optimizer_options *optimizer, struct nn_model *model, uint64_t seed,
                                 struct pl_error *reterr)
{
    peers->all = (struct pl_shard){.rank = (uint32_t)pl_world_rank(world), .size = (uint32_t)pl_world_size(world)};
    peers->local =
        (struct pl_shard){.rank = (uint32_t)pl_world_local_rank(world), .size = (uint32_t)pl_world_local_size(world)};
    peers->averages = true;
    PL_TRY(nn_plan_new(world, options, model, seed, &peers->plan, reterr));
    return pl_optimizer_new(peers->plan, optimizer, &peers->optimizer, reterr);
}

static enum pl_status open_workers(struct nn_peers *peers, const struct pl_runtime *runtime,
                                   const struct pl_optimizer_options *optimizer, struct nn_model *model, uint64_t seed,
                                   struct pl_error *reterr)
{
    struct pl_world *world = pl_runtime_world(runtime);
    const char *staleness = pl_world_setting(world, "ps_staleness");
    struct pl_server_options options = {.optimizer = *optimizer, .trace = pl_runtime_trace(runtime)};

    if (nn_model_stream(model)) {
        return pl_error_set(reterr, PL_UNSUPPORTED,
                            "parameter servers have values and gradients in host memory: use --device cpu");
    }
    PL_TRY(pl_server_new(world, &options, &peers->server, reterr));
    peers->plan = pl_server_plan(peers->server);
    peers->averages = strcmp(staleness, "none") != 0 && strtoul(staleness, NULL, 10) == 0;
    PL_TRY(nn_plan_add(peers->plan, model, reterr));
    PL_TRY(pl_server_join(peers->server, reterr));
    PL_TRY(nn_plan_bind(peers->plan, model, reterr));
    if (pl_server_worker(peers->server) == 0) {
        PL_TRY(nn_model_initialize(model, seed, reterr));
    }
    peers->all = (struct pl_shard){.rank = (uint32_t)pl_server_worker(peers->server),
                                   .size = (uint32_t)pl_server_workers(peers->server)};
    peers->local = (struct pl_shard){.rank = (uint32_t)pl_server_local_worker(peers->server),
                                     .size = (uint32_t)pl_server_local_workers(peers->server)};
    return pl_server_start(peers->server, reterr);
}

enum pl_status nn_peers_open(const struct pl_runtime *runtime, const struct pl_plan_options *options,
                             const struct pl_optimizer_options *optimizer, struct nn_model *model, uint64_t seed,
                             struct nn_peers *ret_peers, struct pl_error *reterr)
{
    struct nn_peers peers = {.plan = NULL};
    enum pl_status status =
        pl_server_is_there() ? open_workers(&peers, runtime, optimizer, model, seed, reterr)
                             : open_ranks(&peers, pl_runtime_world(runtime), options, optimizer, model, seed, reterr);

    if (status != PL_OK) {
        nn_peers_close(&peers);
        return status;
    }
    *ret_peers = peers;
    return PL_OK;
}

/* Gives worker 0's `data` to all workers. The servers add numbers, so all other workers contribute zeros. */
static enum pl_status share_bytes(struct nn_peers *peers, void *data, size_t bytes, struct pl_error *reterr)
{
    PL_AUTO_FREE double *values = pl_memory_new(bytes, sizeof(*values), reterr);
    unsigned char *at = data;

    if (!values) {
        return PL_MEMORY;
    }
    for (size_t i = 0; i < bytes && peers->all.rank == 0; i++) {
        values[i] = at[i];
    }
    PL_TRY(pl_server_sum(peers->server, values, bytes, reterr));
    for (size_t i = 0; i < bytes; i++) {
        at[i] = (unsigned char)values[i];
    }
    return PL_OK;
}

static enum pl_status load_for_workers(struct nn_peers *peers, const struct pl_checkpoints_options *options,
                                       bool *ret_found, struct pl_checkpoint_state *ret_state, struct pl_error *reterr)
{
    struct {
        bool saves, found;
        struct pl_checkpoint_state state;
    } shared = {.saves = options};

    if (peers->all.rank == 0 && options) {
        struct pl_checkpoints_options of_all = *options;
        struct pl_optimizer *copy;

        of_all.world_size = peers->all.size;
        PL_TRY(pl_server_optimizer(peers->server, &copy, reterr));
        PL_TRY(pl_checkpoints_open(peers->plan, copy, &of_all, &peers->checkpoints, reterr));
        PL_TRY(pl_checkpoints_load(peers->checkpoints, &shared.found, &shared.state, reterr));
        PL_TRY(shared.found ? pl_server_assign_state(peers->server, reterr) : PL_OK);
    }
    PL_TRY(share_bytes(peers, &shared, sizeof(shared), reterr));
    peers->saves = shared.saves;
    *ret_found = shared.found;
    *ret_state = shared.state;
    return pl_server_pull(peers->server, reterr);
}

static void note_checkpoint(void *context, const char *text)
{
    (void)context;
    pl_metrics_clear_progress();
    pl_log(PL_LOG_WARNING, "%s", text);
}

enum pl_status nn_peers_resume(struct nn_peers *peers, const char *directory, bool *ret_found,
                               struct pl_checkpoint_state *ret_state, struct pl_error *reterr)
{
    struct pl_checkpoints_options options = {.directory = directory, .note = note_checkpoint};

    if (!*directory) {
        PL_TRY(pl_checkpoints_directory(&peers->job_checkpoints, reterr));
        options.memory_only = access(peers->job_checkpoints, F_OK) != 0;
        options.directory = peers->job_checkpoints;
    }
    if (peers->server) {
        return load_for_workers(peers, options.memory_only ? NULL : &options, ret_found, ret_state, reterr);
    }
    peers->saves = !options.memory_only;
    PL_TRY(pl_checkpoints_open(peers->plan, peers->optimizer, &options, &peers->checkpoints, reterr));
    return pl_checkpoints_load(peers->checkpoints, ret_found, ret_state, reterr);
}

enum pl_status nn_peers_save(struct nn_peers *peers, const struct pl_checkpoint_state *state, bool is_last,
                             struct pl_error *reterr)
{
    if (!peers->checkpoints) {
        return PL_OK;
    }
    if (peers->server && is_last && !peers->averages) {
        PL_TRY(pl_server_outlast(peers->server, reterr));
    }
    PL_TRY(peers->server ? pl_server_pull_state(peers->server, reterr) : PL_OK);
    return pl_checkpoints_save(peers->checkpoints, state, reterr);
}

bool nn_peers_keep_is_due(const struct nn_peers *peers, uint64_t step)
{
    return peers->checkpoints && !peers->server && pl_checkpoints_keep_is_due(peers->checkpoints, step);
}

enum pl_status nn_peers_keep(struct nn_peers *peers, const struct pl_checkpoint_state *state, struct pl_error *reterr)
{
    return pl_checkpoints_keep(peers->checkpoints, state, reterr);
}

void nn_peers_add_metrics(const struct nn_peers *peers, struct pl_metrics *metrics)
{
    struct pl_server_counts counts;

    if (peers->server) {
        counts = pl_server_counts(peers->server);
        pl_metrics_whole(metrics, "pieces_pulled", (int64_t)counts.pieces_pulled);
        pl_metrics_real(metrics, "server_wait_s", 3, (double)counts.waited_ns / (double)PL_NS_PER_S);
        pl_metrics_whole(metrics, "gradient_bytes_sent", (int64_t)counts.sent_bytes);
    }
}

enum pl_status nn_peers_stop_agreed(struct nn_peers *peers, struct pl_stop *stop, bool *ret_stop,
                                    struct pl_error *reterr)
{
    if (!peers->server) {
        return pl_stop_agreed(stop, ret_stop, reterr);
    }
    if (pl_stop_requested()) {
        pl_server_ask_stop(peers->server);
    }
    *ret_stop = pl_server_is_stopping(peers->server);
    return PL_OK;
}

void nn_peers_set_rate(struct nn_peers *peers, double rate)
{
    peers->rate = rate;
    if (peers->server) {
        pl_server_set_rate(peers->server, rate);
    }
}

enum pl_status nn_peers_step(struct nn_peers *peers, struct pl_error *reterr)
{
    return peers->server ? pl_server_step(peers->server, reterr)
                         : pl_optimizer_step(peers->optimizer, peers->rate, reterr);
}

enum pl_status nn_peers_sum(struct nn_peers *peers, double *values, size_t count, struct pl_error *reterr)
{
    return peers->server ? pl_server_sum(peers->server, values, count, reterr)
                         : pl_allreduce(pl_plan_world(peers->plan), values, values, count, PL_FLOAT64, PL_SUM, reterr);
}

enum pl_status nn_peers_sum_score(struct nn_peers *peers, struct nn_score *score, struct pl_error *reterr)
{
    double sums[3] = {score->loss_sum, (double)score->correct, (double)score->samples};

    PL_TRY(nn_peers_sum(peers, sums, 3, reterr));
    *score = (struct nn_score){.loss_sum = sums[0], .correct = (uint64_t)sums[1], .samples = (uint64_t)sums[2]};
    return PL_OK;
}

/*
 * Finds the least value. Servers can only add, so each worker has its own element of a list; the element of a worker
 * that has left stays 0.
 */
static enum pl_status least_of_workers(struct nn_peers *peers, uint64_t *value, struct pl_error *reterr)
{
    PL_AUTO_FREE double *values = pl_memory_new(peers->all.size, sizeof(*values), reterr);

    if (!values) {
        return PL_MEMORY;
    }
    values[peers->all.rank] = (double)*value + 1.0;
    PL_TRY(pl_server_sum(peers->server, values, peers->all.size, reterr));
    for (uint32_t w = 0; w < peers->all.size; w++) {
        if (values[w] > 0.0 && (uint64_t)values[w] - 1 < *value) {
            *value = (uint64_t)values[w] - 1;
        }
    }
    return PL_OK;
}

enum pl_status nn_peers_least(struct nn_peers *peers, uint64_t *value, struct pl_error *reterr)
{
    return peers->server ? least_of_workers(peers, value, reterr)
                         : pl_allreduce(pl_plan_world(peers->plan), value, value, 1, PL_INT64, PL_MIN, reterr);
}

enum pl_status nn_peers_meet(struct nn_peers *peers, struct pl_error *reterr)
{
    if (!peers->server) {
        return PL_OK;
    }
    PL_TRY(pl_server_sum(peers->server, NULL, 0, reterr));
    return pl_server_pull(peers->server, reterr);
}

enum pl_status nn_peers_finish(struct nn_peers *peers, const struct pl_runtime *runtime, const char *directory,
                               double accuracy, struct pl_error *reterr)
{
    PL_TRY(peers->checkpoints ? pl_checkpoints_flush(peers->checkpoints, reterr) : PL_OK);
    if (peers->server && peers->all.rank == 0) {
        PL_TRY(pl_server_pull(peers->server, reterr));
    }
    if (peers->all.rank == 0) {
        PL_TRY(nn_plan_save(runtime, peers->plan, directory, accuracy, reterr));
    }
    return peers->server ? pl_server_leave(peers->server, reterr) : PL_OK;
}

void nn_peers_close(struct nn_peers *peers)
{
    pl_checkpoints_close(peers->checkpoints);
    free(peers->job_checkpoints);
    pl_optimizer_free(peers->optimizer);
    if (peers->server) {
        pl_server_free(peers->server);
    } else {
        pl_plan_free(peers->plan);
    }
}
