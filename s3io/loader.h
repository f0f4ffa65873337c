/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Prepares batches ahead of time. A thread fills a small ring of batches while the program trains. Each batch has one
 * buffer per field, [batch_samples][sample_bytes], in memory from the caller's allocator.
 *
 * Threads  one consumer thread. The input's functions, except `cancel`, run on the loader's own thread, which has all
 *          signals blocked.
 * Test     tests/unit/s3io/dataset/test_loader.c
 */
#ifndef PL_S3IO_LOADER_H
#define PL_S3IO_LOADER_H

#include "s3io/record.h"
#include "s3io/sampler.h"

enum { PL_LOADER_MAX_FIELDS = 8 };

/**
 * The origin of samples. `next` writes one sample: a row `fields[f]` of sample_bytes[f] bytes for each field f. It sets
 * `*ret_bytes` to the number of bytes that it read for the sample. It returns PL_END at the end of the epoch.
 */
struct pl_loader_input {
    void *context;
    enum pl_status (*start)(void *context, uint64_t epoch, int64_t deadline_ns, struct pl_error *reterr);
    enum pl_status (*next)(void *context, void *const *fields, int64_t deadline_ns, uint64_t *ret_bytes,
                           struct pl_error *reterr);
    /* Called from another thread. With true, a waiting `start` or `next`, and later calls, return PL_CANCELLED; with
     * false, later calls work again. May be NULL if neither of them waits. */
    void (*cancel)(void *context, bool cancelled);
};

/** Zero-initialise, then set the options that differ from the defaults. */
struct pl_loader_options {
    unsigned fields;
    size_t sample_bytes[PL_LOADER_MAX_FIELDS];
    size_t batch_samples;
    size_t prefetch_batches; /* 0 means 4 */
    bool drop_last;          /* leave out the last batch if it is not full */
    /* 0: samples keep their order; else each sample is chosen at random from a buffer of this many */
    size_t shuffle_samples;
    uint64_t shuffle_seed; /* the random choice depends on the seed and the epoch */
    int64_t timeout_ns;    /* 0 means 5 minutes; longest wait for one sample before PL_TIMEOUT */
    /* Memory for batches, for example pinned memory for a GPU; NULL for ordinary memory. */
    void *(*allocate)(void *allocator, size_t bytes);
    void (*release)(void *allocator, void *memory, size_t bytes);
    void *allocator;
};

struct pl_batch {
    uint64_t index; /* number in the epoch, from 0 */
    size_t samples; /* below batch_samples only in the last batch */
    void *fields[PL_LOADER_MAX_FIELDS];
};

/** The progress of the current epoch. */
struct pl_loader_progress {
    uint64_t epoch;
    uint64_t samples;   /* samples given to the program */
    uint64_t bytes;     /* bytes read for these samples */
    int64_t elapsed_ns; /* time since the start of the epoch; constant after its end */
    int64_t waited_ns;  /* part of this time in which the program waited for data */
};

struct pl_loader;

/** Starts the thread. `input` is copied. The input's context stays the caller's and must outlive the loader. */
enum pl_status pl_loader_new(const struct pl_loader_options *options, const struct pl_loader_input *input,
                             struct pl_loader **ret_loader, struct pl_error *reterr) PL_MUST_CHECK;

/** Begins `epoch`. The rest of an earlier epoch is dropped. */
enum pl_status pl_loader_start(struct pl_loader *loader, uint64_t epoch, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Returns the next batch, or PL_END after the last one of the epoch. The batch stays valid until the next call of
 * pl_loader_next(), pl_loader_start() or pl_loader_free().
 *
 * Ranks that read a stream may differ by a batch, also with drop_last. Before a step they must agree whether each of
 * them has a batch, for example by a PL_MIN over 1 and 0.
 *
 * Errors  the input's error. PL_TIMEOUT: no batch was ready at the deadline; call again. PL_INVALID: pl_loader_start()
 *         was never called.
 */
enum pl_status pl_loader_next(struct pl_loader *loader, int64_t deadline_ns, struct pl_batch *ret_batch,
                              struct pl_error *reterr) PL_MUST_CHECK;

struct pl_loader_progress pl_loader_progress(const struct pl_loader *loader);

void pl_loader_free(struct pl_loader *loader);

#endif
