/* SPDX-License-Identifier: Apache-2.0 */
/** The objects under an S3 prefix as a store. */
#ifndef PL_S3IO_S3_STORE_S3_H
#define PL_S3IO_S3_STORE_S3_H

#include "s3io/s3/manifest.h"
#include "s3io/s3/s3_client.h"
#include "s3io/s3/s3_get.h"
#include "s3io/sampler.h"
#include "s3io/source.h"
#include "s3io/store.h"

/**
 * Opens all objects whose URL begins with `uri`, "s3://BUCKET/PREFIX". A key in the store is the part after the
 * prefix's last '/', as if that were the directory. Markers of empty directories (no bytes, a '/' at the end) are left
 * out. An open object is pinned to the version that was listed. `client` must outlive the store and its sources.
 *
 * If it `is_manifest`, opens the objects in the ManifestFile at `uri`, each as often as it is there; a key is the part
 * after the manifest's prefix. The manifest is fetched until `deadline_ns`. Sizes and versions come from a listing of
 * the keys' common prefix.
 *
 * Cost    at most 64 MiB for the objects that are being read and fetched ahead, for any number of objects.
 * Errors  PL_INVALID: another kind of URL; those of pl_manifest_parse(). Other errors come from listing and reading:
 *         PL_NOT_FOUND if an object in the manifest does not exist.
 * Test    tests/integration/cifar10.py
 */
enum pl_status pl_store_s3_open(struct pl_s3_client *client, const char *uri, bool is_manifest, int64_t deadline_ns,
                                struct pl_store **ret_store, struct pl_error *reterr) PL_MUST_CHECK;

/*
 * An augmented manifest as the stream that Pipe Mode makes of it: one RecordIO record for each attribute of each line.
 * The record is the object that a "-ref" attribute refers to, or the attribute's value. Objects of later lines are
 * fetched ahead in parallel.
 *
 * Test  tests/unit/s3io/test_sampler.c (order and shares), tests/integration/s3_server.py
 */

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
