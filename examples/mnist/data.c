/* SPDX-License-Identifier: Apache-2.0 */
/* Loads images and labels from files, or from a FIFO that one rank reads for all ranks of the host. */
#include "examples/mnist/data.h"

#include "base/text.h"
#include "runtime/server.h"

#include <stdlib.h>
#include <string.h>

enum { LOAD_TIMEOUT_S = 600 };

/* Uses the platform's own FIFOs instead, which carry IDX arrays for one reader, not only this rank's share. */
static enum pl_status take_whole(struct pl_runtime *runtime, const char *name, struct pl_channel_setup *channel,
                                 struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    pl_text_printf(&path, "%s/data/%s", pl_runtime_variable(runtime, "SM_INPUT_DIR", "/opt/ml/input"), name);
    PL_TRY(pl_text_check(&path, reterr));
    free(channel->path);
    channel->path = NULL;
    PL_TRY(pl_text_take(&path, &channel->path, reterr));
    channel->info.path = channel->path;
    channel->info.is_dealt = false;
    return PL_OK;
}

/* Makes a world of the `size` ranks of this host. */
static enum pl_status join_host(struct pl_world *world, int size, struct pl_world **ret_host, struct pl_error *reterr)
{
    PL_AUTO_FREE int *ranks = pl_memory_new((size_t)size, sizeof(*ranks), reterr);
    int count = 0;

    if (!ranks) {
        return PL_MEMORY;
    }
    for (int r = 0; r < pl_world_size(world); r++) {
        if (pl_world_host_of(world, r) == pl_world_cross_rank(world)) {
            ranks[count++] = r;
        }
    }
    return pl_world_new_sub(world, ranks, count, ret_host, reterr);
}

enum pl_status mnist_data_open(struct pl_runtime *runtime, const char *name, const char *directory,
                               struct mnist_data *ret_data, struct pl_error *reterr)
{
    struct pl_world *world = pl_runtime_world(runtime);
    struct pl_shard all = {.rank = (uint32_t)pl_world_rank(world), .size = (uint32_t)pl_world_size(world)};
    struct pl_shard local = {.rank = (uint32_t)pl_world_local_rank(world),
                             .size = (uint32_t)pl_world_local_size(world)};
    struct mnist_data data = {.host = NULL};
    enum pl_status status = PL_OK;

    if (*directory) {
        PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

        pl_text_printf(&path, "%s/%s", directory, name);
        PL_TRY(pl_text_check(&path, reterr));
        PL_TRY(pl_channel_setup_directory(name, pl_text_string(&path), &data.channel, reterr));
    } else {
        PL_TRY(pl_channel_setup_find(runtime, name, &data.channel, reterr));
    }
    if (data.channel.info.is_dealt) {
        PL_TRY(take_whole(runtime, name, &data.channel, reterr));
    }
    data.deal = pl_channel_shard(&data.channel.info, all, local);
    if (data.channel.info.mode == PL_CHANNEL_PIPE && pl_server_is_there() &&
        strcmp(pl_runtime_variable(runtime, PL_SERVER_WORKER_VARIABLE, "0"), "0") != 0) {
        status = pl_error_set(reterr, PL_UNSUPPORTED,
                              "channel '%s': in Pipe Mode a host can have one worker of parameter servers only", name);
    } else if (data.channel.info.mode == PL_CHANNEL_PIPE && local.size > 1) {
        status = join_host(world, (int)local.size, &data.host, reterr);
    }
    if (status != PL_OK) {
        pl_channel_setup_done(&data.channel);
        return status;
    }
    *ret_data = data;
    return PL_OK;
}

static enum pl_status share_idx(struct pl_world *host, struct pl_idx *idx, size_t count, struct pl_error *reterr)
{
    unsigned char *own = idx->data;

    PL_TRY(pl_broadcast(host, idx, sizeof(*idx), PL_UINT8, 0, reterr));
    idx->data = own;
    if (pl_world_rank(host) != 0) {
        idx->data = pl_memory_new(count, idx->item_bytes, reterr);
        if (!idx->data) {
            return PL_MEMORY;
        }
    }
    return pl_broadcast(host, idx->data, count * idx->item_bytes, PL_UINT8, 0, reterr);
}

/* Broadcasts `pairs` to the other ranks of the host. Rank 0 of the host has read them, unless it was asked to stop. */
static enum pl_status share(struct pl_world *host, bool stopped, struct pl_idx_pairs *pairs, struct pl_error *reterr)
{
    const uint64_t none = UINT64_MAX;
    uint64_t count = stopped ? none : pairs->count;

    PL_TRY(pl_broadcast(host, &count, sizeof(count), PL_UINT8, 0, reterr));
    if (count == none) {
        return stopped ? PL_CANCELLED
                       : pl_error_set(reterr, PL_CANCELLED, "the rank that reads this host's FIFOs was asked to stop");
    }
    pairs->count = count;
    PL_TRY(share_idx(host, &pairs->images, count, reterr));
    return share_idx(host, &pairs->labels, count, reterr);
}

static enum pl_status load(struct mnist_data *data, uint64_t epoch, struct pl_error *reterr)
{
    const struct pl_channel *channel = &data->channel.info;
    bool reader = !data->host || pl_world_rank(data->host) == 0;
    enum pl_status status = PL_OK;

    if (reader) {
        status =
            pl_idx_pairs_load(channel, epoch, pl_deadline_after_ns(LOAD_TIMEOUT_S * PL_NS_PER_S), &data->pairs, reterr);
    }
    if (!data->host || (status != PL_OK && status != PL_CANCELLED)) {
        return status;
    }
    return share(data->host, status == PL_CANCELLED, &data->pairs, reterr);
}

enum pl_status mnist_data_load(struct mnist_data *data, uint64_t epoch, struct pl_error *reterr)
{
    const struct pl_channel *channel = &data->channel.info;
    size_t bytes;

    if (data->pairs.count > 0 && (data->epoch == epoch || channel->mode != PL_CHANNEL_PIPE)) {
        return PL_OK;
    }
    pl_idx_pairs_done(&data->pairs);
    data->pairs = (struct pl_idx_pairs){.count = 0};
    data->epoch = epoch;
    PL_TRY(load(data, epoch, reterr));
    bytes = data->pairs.images.item_bytes;
    if (data->image_bytes > 0 && bytes != data->image_bytes) {
        return pl_error_set(reterr, PL_INVALID, "images of the channel '%s' have %zu bytes, expected %zu",
                            channel->name, bytes, data->image_bytes);
    }
    data->image_bytes = bytes;
    return PL_OK;
}

void mnist_data_done(struct mnist_data *data)
{
    pl_idx_pairs_done(&data->pairs);
    pl_channel_setup_done(&data->channel);
    pl_world_free(data->host);
}
