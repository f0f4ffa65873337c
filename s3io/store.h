/* SPDX-License-Identifier: Apache-2.0 */
/**
 * An object store: a list of keys with sizes. Each object can be opened as a byte source. A directory and an S3 prefix
 * have the same interface.
 *
 * Test  tests/unit/s3io/dataset/test_stream.c, test_idx_pairs.c
 */
#ifndef PL_S3IO_STORE_H
#define PL_S3IO_STORE_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct pl_object {
    char *key;           /* relative to the store */
    uint64_t size_bytes; /* size in the store, before decompression */
};

/** Objects in the byte order of their keys. Zero-initialise; release with pl_object_list_done(). */
struct pl_object_list {
    struct pl_object *items;
    size_t count;
    size_t capacity;
};

void pl_object_list_done(struct pl_object_list *list);

#define PL_AUTO_OBJECT_LIST __attribute__((cleanup(pl_object_list_done)))

struct pl_store;

/** The head of every store: the first member of each kind's struct. */
struct pl_store {
    const struct pl_store_ops *ops;
    char *name; /* directory or S3 URL, for messages */
};

/** Lists all objects in key order. An empty store gives an empty list. */
enum pl_status pl_store_list(struct pl_store *store, int64_t deadline_ns, struct pl_object_list *list,
                             struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Opens the store at `uri`: either an S3 prefix, "s3://BUCKET/PREFIX" (s3io/s3/s3_get.h), with the credentials,
 * region and endpoint of the environment, or the path of a directory.
 *
 * Cost    S3: a thread of its own; at most 64 MiB for the objects that are being read and fetched ahead.
 * Errors  S3: PL_NOT_FOUND if there are no credentials, PL_INVALID for wrong settings or another kind of URL. Missing
 *         objects are noticed only by the listing. A directory: the errors of opening it.
 */
enum pl_status pl_store_open(const char *uri, struct pl_store **ret_store, struct pl_error *reterr) PL_MUST_CHECK;

void pl_store_close(struct pl_store *store);

PL_CLEANUP(pl_store_close_at, struct pl_store, pl_store_close)
#define PL_AUTO_STORE __attribute__((cleanup(pl_store_close_at)))

#endif
