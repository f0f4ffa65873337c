/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The C side of a tf.data.Dataset of paceline.data: its iterators read datasets of s3io. Python makes a struct
 * pl_tensorflow_data. The operations in tensorflow_data_ops.c open an iterator over it for each epoch, and take its
 * batches.
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

/** Zero-initialise, then set fields. All memory that they point to must exist until the process ends. */
struct pl_tensorflow_data_options {
    struct pl_dataset_options dataset;
    /* A FIFO of Pipe Mode instead of a source in `dataset`: the channel's name, the path without "_" and the epoch's
     * number, and whether it has only this rank's records (s3io/channel.h). */
    const char *pipe_channel, *pipe_path;
    bool pipe_is_dealt;
    /* Files with the number of the next epoch, and with a lock for it; several processes may use them. NULL: epochs are
     * counted from 0 in this process. */
    const char *epoch_path, *lock_path;
    /* for a FIFO: most damaged pieces between two batches; one more is an error */
    uint64_t max_skipped;
    bool reports_totals;     /* print time and bytes when an iterator is closed */
    uint64_t report_samples; /* also print them after this number of samples, a multiple of batch_samples; 0: no */
};

struct pl_tensorflow_data;

/** An iterator over one epoch. It is stored in the memory of the tensor that the operations pass. */
struct pl_tensorflow_iterator {
    const struct pl_tensorflow_iterator *self; /* its own address: differs in a copy, which is refused */
    struct pl_tensorflow_data *data;
    struct pl_dataset *dataset; /* NULL after the end */
    bool is_known;              /* `status` is the status of the next batch */
    enum pl_status status;
    struct pl_batch batch;
    struct pl_error error;
    uint64_t skipped;
    uint64_t samples, bytes;
    int64_t read_ns;
};

/** Number of batches that TensorFlow's tensors use, and the most; further batches are copied. */
struct pl_tensorflow_leases {
    size_t limit;
    size_t count; /* number of leased batches; accessed by __atomic functions */
};

/**
 * Returns the state that iterators share. It exists until the process ends. NULL if memory is out, or if
 * `options_bytes` is not the size of the struct.
 */
PL_TENSORFLOW_EXPORT struct pl_tensorflow_data *pl_tensorflow_data_new(const struct pl_tensorflow_data_options *options,
                                                                       size_t options_bytes);

/** Sets the epoch that the next iterator reads. */
PL_TENSORFLOW_EXPORT void pl_tensorflow_data_set_epoch(struct pl_tensorflow_data *data, uint64_t epoch);

/** Returns the progress of the iterator that got a batch last. */
PL_TENSORFLOW_EXPORT struct pl_dataset_progress pl_tensorflow_data_progress(struct pl_tensorflow_data *data);

/** Closes the dataset that waits for the next epoch. From now on closes each dataset when its epoch ends. */
PL_TENSORFLOW_EXPORT void pl_tensorflow_data_close(struct pl_tensorflow_data *data);

/**
 * Returns a number that differs between processes. It is passed with the address of a struct pl_tensorflow_data, so
 * that a graph stored by another process is refused.
 */
PL_TENSORFLOW_EXPORT uint64_t pl_tensorflow_data_mark(void);

const struct pl_tensorflow_data_options *pl_tensorflow_data_options(const struct pl_tensorflow_data *data);
struct pl_tensorflow_leases *pl_tensorflow_data_leases(struct pl_tensorflow_data *data);

/**
 * Opens an iterator over the next epoch. Errors: those of pl_dataset_open() and pl_dataset_start(); PL_SYSTEM or
 * PL_INVALID: the file with the epoch's number.
 */
enum pl_status pl_tensorflow_iterator_open(struct pl_tensorflow_data *data,
                                           struct pl_tensorflow_iterator **ret_iterator,
                                           struct pl_error *reterr) PL_MUST_CHECK;

/** Waits until `deadline_ns` for the next batch, the end or an error. Returns false if none has come. */
bool pl_tensorflow_iterator_wait(struct pl_tensorflow_iterator *iterator, int64_t deadline_ns) PL_MUST_CHECK;

/**
 * Gives the caller the next batch, if pl_tensorflow_iterator_wait() has returned true; else PL_TIMEOUT. PL_END after
 * the last batch and after an error. Errors: those of pl_dataset_next(), once; PL_CORRUPT: more than max_skipped pieces
 * are damaged.
 */
enum pl_status pl_tensorflow_iterator_take(struct pl_tensorflow_iterator *iterator, struct pl_batch *ret_batch,
                                           struct pl_error *reterr) PL_MUST_CHECK;

/** Closes the iterator, and releases its next batch if nobody took it. */
void pl_tensorflow_iterator_close(struct pl_tensorflow_iterator *iterator);

#endif
