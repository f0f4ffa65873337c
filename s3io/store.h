/* SPDX-License-Identifier: Apache-2.0 */
/**
 * An object store: a list of keys with sizes, each of which opens as a byte source. A directory and an S3 prefix look
 * the same from here.
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
    uint64_t size_bytes; /* stored size, before any decompression */
};

/** Objects in key order (compared byte by byte); zero-initialise, release with pl_object_list_done(). */
struct pl_object_list {
    struct pl_object *items;
    size_t count;
    size_t capacity;
};

void pl_object_list_done(struct pl_object_list *list);

#define PL_AUTO_OBJECT_LIST __attribute__((cleanup(pl_object_list_done)))

struct pl_store;

/** The head of every store; a kind embeds it as its first member. */
struct pl_store {
    const struct pl_store_ops *ops;
    char *name; /* for messages: a directory, an S3 URL */
};

/** All objects in key order. An empty store is an empty list. */
enum pl_status pl_store_list(struct pl_store *store, int64_t deadline_ns, struct pl_object_list *list,
                             struct pl_error *reterr) PL_MUST_CHECK;

/**
 * The objects at `uri`: an S3 prefix, "s3://BUCKET/PREFIX" (s3io/s3/store_s3.h), with the credentials, region and
 * endpoint of the environment; anything else is the path of a directory.
 *
 * Cost    S3: a thread of its own; at most 64 MiB for the objects being read and fetched ahead.
 * Errors  S3: PL_NOT_FOUND when there are no credentials, PL_INVALID for settings and for another kind of URL; whether
 *         there are objects shows in listing. A directory: those of opening it.
 */
enum pl_status pl_store_open(const char *uri, struct pl_store **ret_store, struct pl_error *reterr) PL_MUST_CHECK;

void pl_store_close(struct pl_store *store);
void pl_store_close_at(struct pl_store **store_at);

#define PL_AUTO_STORE __attribute__((cleanup(pl_store_close_at)))

#endif
