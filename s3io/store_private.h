/* SPDX-License-Identifier: Apache-2.0 */
/** The internals of stores: the functions of each kind of store, how objects are read, channels. Internal to s3io/. */
#ifndef PL_S3IO_STORE_PRIVATE_H
#define PL_S3IO_STORE_PRIVATE_H

#include "s3io/channel.h"
#include "s3io/sampler.h"
#include "s3io/source.h"
#include "s3io/store.h"

struct pl_text;

/** Appends an object with a copy of `key`. */
enum pl_status pl_object_list_add(struct pl_object_list *list, const char *key, size_t key_bytes, uint64_t size_bytes,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/** A plan: the objects that will be read, and their order. If only `list` is set: all of them, in the list's order. */
struct pl_object_order {
    const struct pl_object_list *list; /* must outlive the order */
    bool shuffle;                      /* read the objects in an order that depends on `seed` and `epoch` */
    uint64_t seed, epoch;
    struct pl_shard deal; /* if its size is not 0: object i of the order is read if i mod `size` is `rank` */
    /* the first `first` of these objects are left out, and of the next one the bytes before `first_byte` */
    uint64_t first, first_byte;
};

/** Return the number of objects that are read, and the object at `position` among them. */
uint64_t pl_object_order_count(const struct pl_object_order *order);
const struct pl_object *pl_object_order_at(const struct pl_object_order *order, uint64_t position);

struct pl_store_ops {
    /* Appends all objects to `list`, which the caller sorts. */
    enum pl_status (*list)(struct pl_store *store, int64_t deadline_ns, struct pl_object_list *list,
                           struct pl_error *reterr);
    /* Opens one object at `first_byte`. NULL if objects are fetched ahead. */
    enum pl_status (*open)(struct pl_store *store, const struct pl_object *object, uint64_t first_byte,
                           struct pl_source **ret_source, struct pl_error *reterr);
    /* `fetch` begins to fetch the objects of `order`, as far ahead as memory allows. `open_fetched` opens one of them,
     * after those before it. `fetch_close` releases `fetch`. All three are NULL if there is `open`. */
    enum pl_status (*fetch)(struct pl_store *store, const struct pl_object_order *order, void **ret_fetch,
                            struct pl_error *reterr);
    enum pl_status (*open_fetched)(void *fetch, uint64_t position, struct pl_source **ret_source,
                                   struct pl_error *reterr);
    void (*fetch_close)(void *fetch);
    /* Sets `name` to the name of the object's source. NULL: this name is the store's name, '/' and the key. */
    enum pl_status (*name_object)(struct pl_store *store, const struct pl_object *object, struct pl_text *name,
                                  struct pl_error *reterr);
    /* Returns the object's ETag, or NULL if it has none. May be NULL if no object of this kind has one. */
    const char *(*etag)(struct pl_store *store, const struct pl_object *object);
    void (*close)(struct pl_store *store); /* releases `store` itself; pl_store_close() releases `name` */
};

enum pl_status pl_store_init(struct pl_store *store, const struct pl_store_ops *ops, const char *name,
                             struct pl_error *reterr) PL_MUST_CHECK;

/** Sets `name` to the name of the object's source, for messages. */
enum pl_status pl_store_name_object(struct pl_store *store, const struct pl_object *object, struct pl_text *name,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/** Returns the object's ETag, NULL if it has none. */
const char *pl_store_etag(struct pl_store *store, const struct pl_object *object);

/** Reads objects in an order that is known in advance, so that the store can fetch the next ones. Zero-initialise. */
struct pl_store_reader {
    struct pl_store *store;
    struct pl_object_order order;
    uint64_t position; /* position of the next object */
    void *fetch;       /* NULL if each object is opened alone */
};

/**
 * Begins with the first object of `order`, whose list is the last one of `store`. Both must outlive the reader.
 */
enum pl_status pl_store_reader_open(struct pl_store_reader *reader, struct pl_store *store,
                                    const struct pl_object_order *order, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Opens the next object. PL_END after the last one. The source of the previous object must be closed before the call,
 * and each source before the reader. After an error the call may be repeated.
 */
enum pl_status pl_store_reader_next(struct pl_store_reader *reader, struct pl_source **ret_source,
                                    const struct pl_object **ret_object, struct pl_error *reterr) PL_MUST_CHECK;

/** Closes a reader. Does nothing if it was never opened. */
void pl_store_reader_close(struct pl_store_reader *reader);

#define PL_AUTO_STORE_READER __attribute__((cleanup(pl_store_reader_close)))

/**
 * Opens the regular files below `path` as a store, with the keys that S3 would have: relative paths. Directories are
 * followed. Names that begin with a dot are left out unless `dotted`. The listing costs one stat per file; opening
 * costs none (File and FastFile mode).
 */
enum pl_status pl_store_open_directory(const char *path, bool dotted, struct pl_store **ret_store,
                                       struct pl_error *reterr) PL_MUST_CHECK;

/** Opens the objects of a File or FastFile channel. PL_INVALID for a channel in Pipe Mode, which has no objects. */
enum pl_status pl_channel_open_store(const struct pl_channel *channel, struct pl_store **ret_store,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/** Opens the FIFO for `epoch`, as pl_source_open_fifo(). PL_INVALID for channels that are not in Pipe Mode. */
enum pl_status pl_channel_open_epoch(const struct pl_channel *channel, uint64_t epoch, struct pl_source **ret_source,
                                     struct pl_error *reterr) PL_MUST_CHECK;

#endif
