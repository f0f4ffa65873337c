/* SPDX-License-Identifier: Apache-2.0 */
/** Opening of channels. Internal to s3io/. */
#ifndef PL_S3IO_CHANNEL_PRIVATE_H
#define PL_S3IO_CHANNEL_PRIVATE_H

#include "s3io/channel.h"
#include "s3io/source.h"
#include "s3io/store.h"

/** Opens the objects of a File or FastFile channel. PL_INVALID for a channel in Pipe Mode, which has no objects. */
enum pl_status pl_channel_open_store(const struct pl_channel *channel, struct pl_store **ret_store,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/** Opens the FIFO of `epoch`, as pl_source_open_fifo(). PL_INVALID for channels that are not in Pipe Mode. */
enum pl_status pl_channel_open_epoch(const struct pl_channel *channel, uint64_t epoch, struct pl_source **ret_source,
                                     struct pl_error *reterr) PL_MUST_CHECK;

#endif
