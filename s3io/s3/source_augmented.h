/* SPDX-License-Identifier: Apache-2.0 */
/**
 * An augmented manifest as the stream that Pipe Mode makes of it: one RecordIO record for each attribute of each line.
 * The record is the object that a "-ref" attribute refers to, or the attribute's value. Objects of later lines are
 * fetched ahead in parallel.
 *
 * Test  tests/unit/s3io/test_sampler.c (order and shares), tests/integration/s3_server.py
 */
#ifndef PL_S3IO_S3_SOURCE_AUGMENTED_H
#define PL_S3IO_S3_SOURCE_AUGMENTED_H

#include "s3io/s3/manifest.h"
#include "s3io/s3/s3_get.h"
#include "s3io/sampler.h"
#include "s3io/source.h"

/** Zero-initialise, then set the options that differ from the defaults. `deal` must be set. */
struct pl_augmented_options {
    struct pl_shard deal; /* line i of the epoch's order belongs to rank i mod size */
    bool shuffle;         /* a different order in every epoch */
    uint64_t seed;
    uint64_t epoch;
    struct pl_s3_stream_options stream;
};

/**
 * Opens this rank's records of one epoch. `augmented` and `client` must outlive the source.
 *
 * Errors  while reading: PL_LIMIT: an object has 512 MiB or more, which no RecordIO record can hold. Those of
 *         pl_s3_stream_next().
 */
enum pl_status pl_source_augmented_open(struct pl_s3_client *client, const struct pl_augmented *augmented,
                                        const struct pl_augmented_options *options, struct pl_source **ret_source,
                                        struct pl_error *reterr) PL_MUST_CHECK;

#endif
