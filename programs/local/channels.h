/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The channels of a job: what hosts see below input/data. A folder of this machine is seen as it is, read-only in
 * namespaces and by a link on a plain host; a sharded one as links to every n-th file; a manifest as links to the files
 * that it names; one in Pipe mode is written by `paceline feed`.
 *
 * Test  tests/integration/local.sh
 */
#ifndef PL_PROGRAMS_LOCAL_CHANNELS_H
#define PL_PROGRAMS_LOCAL_CHANNELS_H

#include "programs/local/local.h"

/** Where hosts in namespaces see the folders to which the links of sharded channels lead. */
#define PL_LOCAL_SHARDED "/run/paceline-channels"

/** Whether hosts see the channel as links to some of its files: a shard, or those that a manifest names. */
bool pl_local_channel_is_linked(const struct pl_local_channel *channel);

/** Whether the channel is a copy of what lies on S3. It is the job's own then, and may be changed, as on SageMaker. */
bool pl_local_channel_is_fetched(const struct pl_local_channel *channel);

/** Checks, before the first host starts, that every channel's data is there, and fills `local->sources`. */
enum pl_status pl_local_channels_check(struct pl_local *local, struct pl_error *reterr) PL_MUST_CHECK;

/** Fetches what lies on S3 into FOLDER/NAME/input, once for all hosts; links what Pipe mode reads by a manifest. */
enum pl_status pl_local_channels_fetch(struct pl_local *local, struct pl_error *reterr) PL_MUST_CHECK;

/** Makes the channels in the trees. */
enum pl_status pl_local_channels_lay_out(const struct pl_local *local, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Starts `paceline feed` for each host and channel in Pipe mode. After a failure a feeder keeps its FIFO open, so that
 * the program does not take the data that came for all of it; so the feeders tell of a failure through
 * `local->reasons_fd`.
 */
enum pl_status pl_local_channels_feed(struct pl_local *local, struct pl_error *reterr) PL_MUST_CHECK;

/** Returns true if a feeder has told of a failure, and fills `local->unfed`. Does not wait. */
bool pl_local_channels_failed(struct pl_local *local);

/** The feeder number `index` of `local->feeds` has ended with `wait_status`: the same, and forgets the feeder. */
bool pl_local_channels_ended(struct pl_local *local, size_t index, int wait_status);

#endif
