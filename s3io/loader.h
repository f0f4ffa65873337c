/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Batches made ahead of time. A thread fills a small ring of batches while the program trains; each batch is one
 * buffer a field, [batch_samples][sample_bytes], in memory that the caller's allocator provides.
 *
 * Threads  one consumer thread; the input's functions run on the loader's own thread, which has all signals blocked,
 *          except `cancel`.
 * Test     tests/unit/s3io/dataset/test_loader.c
 */
#ifndef PL_S3IO_LOADER_H
#define PL_S3IO_LOADER_H

#include "s3io/record.h"
#include "s3io/sampler.h"

enum { PL_LOADER_MAX_FIELDS = 8 };

/**
 * Where samples come from. `next` writes one sample, row `fields[f]` of sample_bytes[f] each, and sets `*ret_bytes` to
 * what it read for it; PL_END ends the epoch.
 */
struct pl_loader_input {
    void *context;
    enum pl_status (*start)(void *context, uint64_t epoch, int64_t deadline_ns, struct pl_error *reterr);
    enum pl_status (*next)(void *context, void *const *fields, int64_t deadline_ns, uint64_t *ret_bytes,
                           struct pl_error *reterr);
    /* From another thread: with true, make a waiting start or next, and later ones, return PL_CANCELLED; with false,
     * end that. May be NULL when neither waits. */
    void (*cancel)(void *context, bool cancelled);
};

/** Zero-initialise, then set what differs. */
struct pl_loader_options {
    unsigned fields;
    size_t sample_bytes[PL_LOADER_MAX_FIELDS];
    size_t batch_samples;
    size_t prefetch_batches; /* 0: 4 */
    bool drop_last;          /* leave out a last batch that is not full */
    size_t shuffle_samples;  /* 0: none; else each sample goes out of a buffer of so many, chosen at random */
    uint64_t shuffle_seed;   /* together with the epoch decides that choice */
    int64_t timeout_ns;      /* 0: 5 minutes; longest wait for one sample before PL_TIMEOUT */
    /* Memory for batches (pinned for a GPU, say); NULL for ordinary memory. */
    void *(*allocate)(void *allocator, size_t bytes);
    void (*release)(void *allocator, void *memory, size_t bytes);
    void *allocator;
};

struct pl_batch {
    uint64_t index; /* of the epoch, from 0 */
    size_t samples; /* less than batch_samples in a last batch only */
    void *fields[PL_LOADER_MAX_FIELDS];
};

/** Of the current epoch. */
struct pl_loader_progress {
    uint64_t epoch;
    uint64_t samples;   /* handed to the program */
    uint64_t bytes;     /* read for them */
    int64_t elapsed_ns; /* since the start of the epoch; does not grow after its end */
    int64_t waited_ns;  /* of which the program waited for data */
};

struct pl_loader;

/** Start the thread. `input` is copied; its context stays the caller's and must outlive the loader. */
enum pl_status pl_loader_new(const struct pl_loader_options *options, const struct pl_loader_input *input,
                             struct pl_loader **ret_loader, struct pl_error *reterr) PL_MUST_CHECK;

/** Begin `epoch`; what was left of an earlier one is dropped. */
enum pl_status pl_loader_start(struct pl_loader *loader, uint64_t epoch, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * The next batch, or PL_END after the last of the epoch. Ranks that read a stream may differ by a batch, also with
 * drop_last: before a step they agree whether each has one, for example by a PL_MIN over 1 and 0. It stays valid until
 * the next call of pl_loader_next(), pl_loader_start() or pl_loader_free().
 *
 * Errors  what the input returned, PL_TIMEOUT when no batch was ready at the deadline (call again), PL_INVALID before
 *         the first pl_loader_start().
 */
enum pl_status pl_loader_next(struct pl_loader *loader, int64_t deadline_ns, struct pl_batch *ret_batch,
                              struct pl_error *reterr) PL_MUST_CHECK;

struct pl_loader_progress pl_loader_progress(const struct pl_loader *loader);

void pl_loader_free(struct pl_loader *loader);

/** Samples out of memory: field f of sample i is the sample_bytes[f] bytes at data[f] + i * sample_bytes[f]. */
struct pl_loader_memory {
    struct pl_sampler *sampler; /* the loader moves it while an epoch runs */
    unsigned fields;
    size_t sample_bytes[PL_LOADER_MAX_FIELDS];
    const unsigned char *data[PL_LOADER_MAX_FIELDS];
};

/** An input over arrays in memory in the sampler's order; `memory` must outlive the loader. */
struct pl_loader_input pl_loader_input_memory(struct pl_loader_memory *memory);

#endif
