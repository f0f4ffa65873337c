/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What stands behind a tf.data.Dataset of paceline.data: the datasets of s3io that its iterators read. Python makes a
 * struct pl_tensorflow_data; the operations of tensorflow_data_ops.c open an iterator over it, for each epoch one, and
 * take its batches.
 *
 * Threads  any thread may call the functions on a struct pl_tensorflow_data; one thread at a time uses an iterator.
 * Test     tests/integration/data_tensorflow.py
 */
#ifndef PL_RUNTIME_TENSORFLOW_TENSORFLOW_DATA_H
#define PL_RUNTIME_TENSORFLOW_TENSORFLOW_DATA_H

#include "base/status.h"
#include "s3io/dataset.h"

#include <pthread.h>

#define PL_TENSORFLOW_EXPORT __attribute__((visibility("default")))

/** Zero-initialise, then set what differs. All that it points to must stay as long as the process. */
struct pl_tensorflow_data_options {
    struct pl_dataset_options dataset;
    /* A FIFO of Pipe Mode, instead of a source in `dataset`: the channel's name, the path before "_" and the number of
     * the epoch, and whether it has the records of this rank alone (s3io/channel.h). */
    const char *pipe_channel, *pipe_path;
    bool pipe_is_dealt;
    /* Files with the number of the next epoch, and with a lock for it, which several processes may use; NULL: epochs
     * are counted from 0 in this process. */
    const char *epoch_path, *lock_path;
    /* Of a FIFO: so many damaged pieces may lie between two batches; one more is an error. */
    uint64_t max_skipped;
    bool reports_totals;     /* print time and bytes when an iterator is closed */
    uint64_t report_samples; /* print them each so many samples too, a multiple of batch_samples; 0: never */
};

struct pl_tensorflow_data;

/** An iterator: one epoch. It is the memory of the tensor that the operations pass. */
struct pl_tensorflow_iterator {
    const struct pl_tensorflow_iterator *self; /* differs in a copy, which is refused */
    struct pl_tensorflow_data *data;
    struct pl_dataset *dataset; /* NULL after the end */
    bool is_known;              /* `status` is that of the next batch */
    enum pl_status status;
    struct pl_batch batch;
    struct pl_error error;
    uint64_t skipped;
    uint64_t samples, bytes;
    int64_t read_ns;
};

/** Batches that TensorFlow's tensors use, and how many there may be; more are copied. */
struct pl_tensorflow_leases {
    size_t limit;
    size_t count; /* changed by __atomic calls */
};

/**
 * Returns what iterators share; it lives as long as the process. NULL without memory, or if `options_bytes` is not the
 * size of the struct.
 */
PL_TENSORFLOW_EXPORT struct pl_tensorflow_data *pl_tensorflow_data_new(const struct pl_tensorflow_data_options *options,
                                                                       size_t options_bytes);

/** Sets the epoch that the next iterator reads. */
PL_TENSORFLOW_EXPORT void pl_tensorflow_data_set_epoch(struct pl_tensorflow_data *data, uint64_t epoch);

/** Returns the progress of the iterator that has got the last batch. */
PL_TENSORFLOW_EXPORT struct pl_dataset_progress pl_tensorflow_data_progress(struct pl_tensorflow_data *data);

/** Closes the dataset that waits for the next epoch, and each one from now on when its epoch ends. */
PL_TENSORFLOW_EXPORT void pl_tensorflow_data_close(struct pl_tensorflow_data *data);

/**
 * Returns a number that differs from process to process. It goes with the address of a struct pl_tensorflow_data, so
 * that a graph that another process has stored is refused.
 */
PL_TENSORFLOW_EXPORT uint64_t pl_tensorflow_data_mark(void);

const struct pl_tensorflow_data_options *pl_tensorflow_data_options(const struct pl_tensorflow_data *data);
struct pl_tensorflow_leases *pl_tensorflow_data_leases(struct pl_tensorflow_data *data);

/**
 * Opens an iterator over the next epoch. Errors: those of pl_dataset_open() and pl_dataset_start(); PL_SYSTEM or
 * PL_INVALID for the file with the number of the epoch.
 */
enum pl_status pl_tensorflow_iterator_open(struct pl_tensorflow_data *data,
                                           struct pl_tensorflow_iterator **ret_iterator,
                                           struct pl_error *reterr) PL_MUST_CHECK;

/** Waits until `deadline_ns` for the next batch, the end or an error; false if there is none of these yet. */
bool pl_tensorflow_iterator_wait(struct pl_tensorflow_iterator *iterator, int64_t deadline_ns) PL_MUST_CHECK;

/**
 * Gives the batch that has come; it is the caller's then. PL_END after the last one and after an error. PL_TIMEOUT if
 * none has come, which pl_tensorflow_iterator_wait() tells. Errors are those of pl_dataset_next(), once; PL_CORRUPT:
 * more than max_skipped pieces are damaged.
 */
enum pl_status pl_tensorflow_iterator_take(struct pl_tensorflow_iterator *iterator, struct pl_batch *ret_batch,
                                           struct pl_error *reterr) PL_MUST_CHECK;

/** Closes the iterator, and releases a batch that nobody took. */
void pl_tensorflow_iterator_close(struct pl_tensorflow_iterator *iterator);

#endif
