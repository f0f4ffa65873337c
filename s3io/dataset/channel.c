/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a channel's files or FIFOs, and decides how its records are sharded. */
#include "s3io/channel.h"

#include "base/text.h"
#include "s3io/channel_private.h"
#include "s3io/source.h"
#include "s3io/store_private.h"

struct pl_shard pl_channel_shard(const struct pl_channel *channel, struct pl_shard world, struct pl_shard local)
{
    switch (channel->distribution) {
    case PL_CHANNEL_FULLY_REPLICATED:
        return world;
    case PL_CHANNEL_SHARDED_BY_KEY:
        return local;
    }
    return world;
}

enum pl_status pl_channel_open_store(const struct pl_channel *channel, struct pl_store **ret_store,
                                     struct pl_error *reterr)
{
    if (channel->mode == PL_CHANNEL_PIPE) {
        return pl_error_set(reterr, PL_INVALID, "channel '%s' is in Pipe Mode and has no files", channel->name);
    }
    return pl_store_open_directory(channel->path, false, ret_store, reterr);
}

enum pl_status pl_channel_open_epoch(const struct pl_channel *channel, uint64_t epoch, struct pl_source **ret_source,
                                     struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    if (channel->mode != PL_CHANNEL_PIPE) {
        return pl_error_set(reterr, PL_INVALID, "channel '%s' is not in Pipe Mode", channel->name);
    }
    pl_text_printf(&path, "%s_%llu", channel->path, (unsigned long long)epoch);
    PL_TRY(pl_text_check(&path, reterr));
    PL_TRY(pl_source_open_fifo(pl_text_string(&path), ret_source, reterr));
    if (channel->stop_fd > 0) {
        pl_source_stop_fifo(*ret_source, channel->stop_fd);
    }
    return PL_OK;
}
