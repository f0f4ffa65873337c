/* SPDX-License-Identifier: Apache-2.0 */
/** A store from inside: what a kind of store provides, and how objects are read. Internal to s3io/. */
#ifndef PL_S3IO_STORE_PRIVATE_H
#define PL_S3IO_STORE_PRIVATE_H

#include "s3io/source.h"
#include "s3io/store.h"

/** Append a copy of `key`. */
enum pl_status pl_object_list_add(struct pl_object_list *list, const char *key, size_t key_bytes, uint64_t size_bytes,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/** Objects in the order in which they will be read. `at` gives the same each time, on any thread. */
struct pl_object_order {
    const void *context;
    uint64_t count;
    const struct pl_object *(*at)(const void *context, uint64_t position);
};

struct pl_store_ops {
    /* Append all objects to `list`; the caller sorts. */
    enum pl_status (*list)(struct pl_store *store, int64_t deadline_ns, struct pl_object_list *list,
                           struct pl_error *reterr);
    enum pl_status (*open)(struct pl_store *store, const struct pl_object *object, int64_t deadline_ns,
                           struct pl_source **ret_source, struct pl_error *reterr);
    /* Begin to fetch the objects of `order`, as far ahead as memory allows; open one, after those before it; and
     * release that. NULL where nothing is gained over `open`. */
    enum pl_status (*fetch)(struct pl_store *store, const struct pl_object_order *order, void **ret_fetch,
                            struct pl_error *reterr);
    enum pl_status (*open_fetched)(void *fetch, uint64_t position, struct pl_source **ret_source,
                                   struct pl_error *reterr);
    void (*fetch_close)(void *fetch);
    void (*close)(struct pl_store *store); /* releases `store` itself; `name` is released by pl_store_close() */
};

enum pl_status pl_store_init(struct pl_store *store, const struct pl_store_ops *ops, const char *name,
                             struct pl_error *reterr) PL_MUST_CHECK;

/** Open one object from its beginning; the bytes are the stored ones. */
enum pl_status pl_store_open_object(struct pl_store *store, const struct pl_object *object, int64_t deadline_ns,
                                    struct pl_source **ret_source, struct pl_error *reterr) PL_MUST_CHECK;

/** Reads objects in an order that is known beforehand: a store may fetch those that come next. Zero-initialise. */
struct pl_store_reader {
    struct pl_store *store;
    struct pl_object_order order;
    uint64_t position; /* of the next object */
    void *fetch;       /* NULL: each object is opened by itself */
};

/** Begin with the first object of `order`, which is out of the last list of `store`; both outlive the reader. */
enum pl_status pl_store_reader_open(struct pl_store_reader *reader, struct pl_store *store,
                                    const struct pl_object_order *order, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Open the next object; PL_END after the last. The source before it must be closed by then, and each of them before the
 * reader. After an error the call may be repeated.
 */
enum pl_status pl_store_reader_next(struct pl_store_reader *reader, int64_t deadline_ns, struct pl_source **ret_source,
                                    const struct pl_object **ret_object, struct pl_error *reterr) PL_MUST_CHECK;

/** One that was never opened is fine. */
void pl_store_reader_close(struct pl_store_reader *reader);

#define PL_AUTO_STORE_READER __attribute__((cleanup(pl_store_reader_close)))

/**
 * The regular files below `path`, as S3 would list them: keys are relative paths, directories are followed, names that
 * begin with a dot are left out unless `dotted`. One stat a file, once, in listing; none in opening (File and FastFile
 * mode).
 */
enum pl_status pl_store_open_directory(const char *path, bool dotted, struct pl_store **ret_store,
                                       struct pl_error *reterr) PL_MUST_CHECK;

#endif
