/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Batches of decoded fields from a channel, directories or S3, made ahead of time. One of `decode_threads` threads
 * reads and finds records while the others check, decode and write them into the rows of batches. A record's row is
 * fixed when the record is found, so order, batches and shuffle are the same for any number of threads.
 *
 *   pl_dataset_open(); for each epoch { pl_dataset_start(); while (pl_dataset_next() == PL_OK) { ...;
 *   pl_batch_release(); } } pl_dataset_close();
 *
 * A binding for another language needs this header, s3io/fields.h, s3io/record.h, s3io/sampler.h, s3io/stream.h and
 * base/status.h. It compares the sizes of its structs with the library's: pl_dataset_struct_bytes().
 *
 * Threads  one thread calls start, next, save, restore and close; any thread may call pl_batch_release() and
 *          pl_dataset_cancel(). The dataset's own threads begin with the first pl_dataset_start() or _restore(), and
 *          have all signals blocked. A child of fork() must leave the dataset and its batches alone.
 * Test     tests/unit/s3io/dataset/test_loader.c, test_place.c
 */
#ifndef PL_S3IO_DATASET_H
#define PL_S3IO_DATASET_H

#include "s3io/channel.h"
#include "s3io/fields.h"
#include "s3io/record.h"
#include "s3io/sampler.h"
#include "s3io/stream.h"

/**
 * Zero-initialise, then set the options that differ from the defaults. Exactly one of `channel`, `channel_name` and
 * `paths` says where the records are. Strings and arrays are copied.
 */
struct pl_dataset_options {
    /* A channel of the platform by its name: SM_CHANNEL_<NAME> and SM_INPUT_DATA_CONFIG of this process's environment
     * say where it is, and whether it is in File, FastFile or Pipe Mode. */
    const char *channel_name;
    const struct pl_channel *channel;
    /* Files, directories and "s3://BUCKET/PREFIX". The objects of each path follow those of the path before it. A
     * directory or prefix without objects is PL_NOT_FOUND. */
    const char *const *paths;
    size_t path_count;

    struct pl_record_options records; /* format, skip_corrupt, delimiter, ... */
    enum pl_compression compression;  /* compression of every object, or of the FIFO's stream */

    enum pl_field_source source;
    const struct pl_field *fields;
    size_t field_count;

    size_t batch_samples;
    bool drop_last; /* leave out the last batch of an epoch if it is not full */
    /* 0: samples keep their order; above 0: each is chosen at random from a buffer of this many undecoded records */
    size_t shuffle_samples;
    bool shuffle_objects; /* read the objects in an order that depends on `seed` and the epoch; not in Pipe Mode */
    uint64_t seed;        /* seed of all random choices, which also depend on the epoch */

    struct pl_shard deal;  /* this rank among all ranks; a size of 0: it is the only rank */
    struct pl_shard local; /* this rank among the ranks of its host; needed for a channel that is sharded by key */
    enum pl_stream_split split;

    /* Number of epochs in a row, from the first one that pl_dataset_start() names. Each begins by itself as soon as the
     * epoch before it has been read. 0 and 1: no epoch begins by itself. */
    uint64_t epochs;
    unsigned decode_threads; /* at most 64; 0: one for each CPU that this process may use, at most 4 */
    size_t prefetch_batches; /* number of batches that are made ahead; 0 means 4 */
    /* Most batches that exist at a time: those made ahead and those that the program keeps; 0 means 64. If the program
     * keeps this many, pl_dataset_next() returns PL_LIMIT. */
    size_t max_batches;
    int64_t timeout_ns; /* longest wait for one record, then PL_TIMEOUT; 0 means 5 minutes */

    /* Memory for rows of fixed shape, for example pinned memory for a GPU; NULL for pageable memory. Both may be called
     * by any thread, also after pl_dataset_close() for batches that were kept. */
    void *(*allocate)(void *allocator, size_t bytes);
    void (*release)(void *allocator, void *memory, size_t bytes);
    void *allocator;
};

/** One field of a batch. */
struct pl_batch_field {
    void *data; /* [samples][shape...]; for a varying field [offsets[samples]] elements */
    /* [samples + 1]: sample i has the elements from offsets[i] to offsets[i + 1]; NULL for a field of fixed shape */
    const int64_t *offsets;
};

struct pl_batch_memory;

/** A batch. It belongs to the program until pl_batch_release(), also after pl_dataset_close(). */
struct pl_batch {
    uint64_t epoch;
    uint64_t index; /* number of the batch in the epoch, from 0 */
    size_t samples; /* number of samples; below batch_samples only in the last batch */
    size_t field_count;
    const struct pl_batch_field *fields; /* in the order of the options */
    struct pl_batch_memory *memory;      /* only for the library */
};

/** The progress of the epoch that the program reads. */
struct pl_dataset_progress {
    uint64_t epoch;
    uint64_t samples;   /* number of samples given to the program */
    uint64_t bytes;     /* number of bytes of these samples' records */
    uint64_t skipped;   /* number of corrupt pieces left out so far, with skip_corrupt */
    int64_t elapsed_ns; /* time since the start of the epoch; constant after its end */
    int64_t waited_ns;  /* part of this time in which the program waited for data */
};

struct pl_dataset;

/**
 * Opens a dataset. Lists `paths`, but not a channel. No record is read and no thread runs before pl_dataset_start();
 * only S3 has a thread of its own.
 *
 * Errors  PL_INVALID and PL_NOT_FOUND name the option, the channel or the path. Those of pl_decoder_new() and
 *         pl_stream_open().
 */
enum pl_status pl_dataset_open(const struct pl_dataset_options *options, struct pl_dataset **ret_dataset,
                               struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Begins `epoch`. Drops what is left of an earlier epoch. If `epoch` has begun by itself (pl_dataset_options.epochs),
 * it continues.
 *
 * Errors  PL_SYSTEM: a thread cannot be started. The error that ended the dataset.
 */
enum pl_status pl_dataset_start(struct pl_dataset *dataset, uint64_t epoch, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Returns the next batch, or PL_END after the last one of the epoch.
 *
 * Ranks that read a stream may differ by a batch, also with drop_last. Before a step they must agree whether each of
 * them has a batch, for example by a PL_MIN over 1 and 0.
 *
 * Errors  nothing is lost if `reterr->retryable`: PL_TIMEOUT, there is no batch at `deadline_ns`; PL_LIMIT, the program
 *         keeps max_batches batches and must release some. PL_CANCELLED. PL_INVALID: pl_dataset_start() was never
 *         called. All other errors end the dataset. They come after the whole batches before them, and again in every
 *         later call: damaged data, a missing or different field, with object, record, byte and field; PL_TIMEOUT if
 *         the source gave no record for timeout_ns; errors of stores and FIFOs.
 */
enum pl_status pl_dataset_next(struct pl_dataset *dataset, int64_t deadline_ns, struct pl_batch *ret_batch,
                               struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Returns the place after the batch that pl_dataset_next() returned last, or `back` batches before it (at most
 * max_batches). Data that was read ahead does not count. After PL_END, `back` 0 is the end of the epoch. The text is
 * that of pl_stream_save(), with the object and byte of each record in the shuffle buffer and the state of the random
 * numbers. The caller frees it.
 *
 * Cost    no waiting; time and text grow with shuffle_samples.
 * Errors  PL_INVALID: no epoch has begun. PL_LIMIT: `back` is too large.
 */
enum pl_status pl_dataset_save(const struct pl_dataset *dataset, uint64_t back, char **ret_text,
                               struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Call instead of pl_dataset_start(): goes to the place in `text`. pl_dataset_next() then returns the batches after it,
 * bit for bit those of a run without a stop. pl_dataset_progress() tells the epoch. Reading begins with the oldest
 * record of the shuffle buffer. Other numbers of ranks need a dataset without a shuffle buffer, see
 * pl_stream_restore(). Threads, prefetch_batches, fields and drop_last may differ.
 *
 * Errors  those of pl_stream_restore(); PL_MISMATCH also for another batch_samples or shuffle_samples. An epoch must
 *         then be started. If the records are not those that were saved, pl_dataset_next() is PL_MISMATCH.
 */
enum pl_status pl_dataset_restore(struct pl_dataset *dataset, const char *text, struct pl_error *reterr) PL_MUST_CHECK;

/** Gives a batch back. Does nothing for a zeroed batch; zeroes `batch`. */
void pl_batch_release(struct pl_batch *batch);

struct pl_dataset_progress pl_dataset_progress(const struct pl_dataset *dataset);

/**
 * Ends the dataset: a running pl_dataset_next() returns PL_CANCELLED within 50 ms, and later calls return it at once.
 * May be called from any thread and from a signal handler.
 */
void pl_dataset_cancel(struct pl_dataset *dataset);

/** Ends the threads and closes the source. Batches that were not released stay valid. Does nothing for NULL. */
void pl_dataset_close(struct pl_dataset *dataset);

/**
 * Returns the bytes of `struct NAME`: "pl_batch", "pl_batch_field", "pl_dataset_options", "pl_dataset_progress",
 * "pl_error" or "pl_field"; 0 for another name.
 */
size_t pl_dataset_struct_bytes(const char *name);

#endif
