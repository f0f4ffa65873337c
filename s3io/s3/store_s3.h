/* SPDX-License-Identifier: Apache-2.0 */
/** The objects under an S3 prefix as a store. */
#ifndef PL_S3IO_S3_STORE_S3_H
#define PL_S3IO_S3_STORE_S3_H

#include "s3io/s3/s3_client.h"
#include "s3io/store.h"

/**
 * Opens all objects whose URL begins with `uri`, "s3://BUCKET/PREFIX". A key in the store is the part after the
 * prefix's last '/', as if that were the directory. Markers of empty directories (no bytes, a '/' at the end) are left
 * out. An open object is pinned to the version that was listed. `client` must outlive the store and its sources.
 *
 * Cost    at most 64 MiB for the objects that are being read and fetched ahead, for any number of objects.
 * Errors  PL_INVALID: another kind of URL. Other errors come from listing and reading.
 * Test    tests/integration/cifar10.py
 */
enum pl_status pl_store_s3_open(struct pl_s3_client *client, const char *uri, struct pl_store **ret_store,
                                struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Opens the objects in the ManifestFile at `uri`, each as often as it is there. A key in the store is the part after
 * the manifest's prefix. Sizes and versions come from a listing of the keys' common prefix.
 *
 * Errors  those of pl_store_s3_open() and pl_manifest_parse(). Listing gives PL_NOT_FOUND if an object in the manifest
 *         does not exist.
 */
enum pl_status pl_store_s3_open_manifest(struct pl_s3_client *client, const char *uri, int64_t deadline_ns,
                                         struct pl_store **ret_store, struct pl_error *reterr) PL_MUST_CHECK;

#endif
