/* SPDX-License-Identifier: Apache-2.0 */
/** The objects under an S3 prefix as a store. */
#ifndef PL_S3IO_S3_STORE_S3_H
#define PL_S3IO_S3_STORE_S3_H

#include "s3io/s3/s3_client.h"
#include "s3io/store.h"

/**
 * All objects whose URL begins with `uri`, "s3://BUCKET/PREFIX"; a key is what follows the prefix up to its last '/',
 * as if that were the directory. Markers of empty directories (no bytes, a '/' at the end) are left out. An open object
 * is pinned to the version that was listed. `client` must outlive the store and its sources.
 *
 * Cost    at most 64 MiB for the objects being read and fetched ahead, however many they are.
 * Errors  PL_INVALID for another kind of URL; the rest comes from listing and reading.
 * Test    tests/integration/cifar10.py
 */
enum pl_status pl_store_s3_open(struct pl_s3_client *client, const char *uri, struct pl_store **ret_store,
                                struct pl_error *reterr) PL_MUST_CHECK;

/**
 * The objects that the ManifestFile at `uri` names, each as often as it is named; a key is what follows the manifest's
 * prefix. Sizes and versions come from listing what the keys have in common.
 *
 * Errors  as pl_store_s3_open(), pl_manifest_parse(); listing is PL_NOT_FOUND for a named object that is not there.
 */
enum pl_status pl_store_s3_open_manifest(struct pl_s3_client *client, const char *uri, int64_t deadline_ns,
                                         struct pl_store **ret_store, struct pl_error *reterr) PL_MUST_CHECK;

#endif
