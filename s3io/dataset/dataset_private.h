/* SPDX-License-Identifier: Apache-2.0 */
/** The inside of a dataset, for its three files: batch.c, loader.c (its threads) and dataset.c (the program's side). */
#ifndef PL_S3IO_DATASET_DATASET_PRIVATE_H
#define PL_S3IO_DATASET_DATASET_PRIVATE_H

#include "s3io/dataset.h"

#include <pthread.h>

/* A chunk: small enough that its records stay in a core's cache, large enough that turns are rare. */
enum { PL_CHUNK_RECORDS = 256, PL_CHUNK_BYTES = 256 << 10 };

struct pl_window_buffer;

/* A record that was read, in memory of its own or, in a chunk, in the window that the thread holds. */
struct pl_held {
    unsigned char *data;
    size_t capacity;
    struct pl_record record;
};

/* The elements of varying fields that chunks of records have, one chunk after the other. */
struct pl_piece {
    size_t rows;
    struct pl_varying *varying; /* [field] */
};

/* A batch in the making, made, or kept by the program. */
struct pl_batch_memory {
    struct pl_dataset *dataset;
    struct pl_batch_memory *next; /* in the list of made batches, or of spare ones */
    struct pl_batch_field *fields;
    struct pl_varying *varying; /* [field]: elements of the whole batch */
    struct pl_piece *pieces;    /* [batch_samples], of which `piece_count` count, until the batch is whole */
    size_t piece_count;
    uint64_t sequence; /* number of the batch in all epochs */
    uint64_t epoch;
    uint64_t index; /* number of the batch in its epoch */
    size_t samples;
    uint64_t bytes;
    uint64_t skipped;
    size_t unfinished; /* chunks that are being decoded */
    bool is_closed;    /* no more chunks begin */
    bool is_ready;     /* the program can have it */
    bool ends_epoch;   /* the epoch ends behind this batch, which may be empty */
};

/* One of the threads. */
struct pl_worker {
    struct pl_dataset *dataset;
    pthread_t thread;
    struct pl_held *held;            /* [PL_CHUNK_RECORDS]: the chunk */
    struct pl_window_buffer *window; /* with its records, until the thread's next turn; NULL if all were copied */
    void **rows;                     /* [field] */
};

/* Records of which the next one is chosen at random. Used by the thread whose turn it is. */
struct pl_shuffle {
    struct pl_held *held;
    size_t count;
    bool filled; /* the first fill of the epoch is done */
    uint64_t random;
};

struct pl_dataset {
    struct pl_dataset_options options; /* without its strings */
    struct pl_stream *stream;
    struct pl_decoder *decoder;
    size_t fields;
    size_t *row_bytes; /* [field]; 0 if it is varying */
    bool is_varying;   /* any field */
    struct pl_shuffle shuffle;
    struct pl_worker *workers;
    unsigned running; /* threads that were started */

    /* the program's side */
    int64_t start_ns; /* 0 before the first epoch */
    uint64_t first;   /* the epoch that the program has started, from which options.epochs counts */
    struct pl_dataset_progress progress;
    bool at_end;    /* the program has the last batch of the epoch */
    bool over;      /* the program has received PL_END for the epoch */
    bool cancelled; /* set from any thread by __atomic calls */

    pthread_mutex_t mutex;
    pthread_cond_t work;  /* for the threads */
    pthread_cond_t ready; /* for the program, and for who waits until the threads are at rest */
    struct {
        bool stop;                            /* asks the threads to end */
        bool abandon;                         /* asks them to leave the epoch */
        bool reading;                         /* a thread has its turn */
        size_t decoding;                      /* chunks that are being decoded */
        bool producing;                       /* there may be more records in this epoch, or in one that follows */
        bool begins;                          /* the epoch must be started first */
        uint64_t epoch;                       /* that is read */
        uint64_t index;                       /* number of the next batch in it */
        uint64_t sequence;                    /* number of the next batch in all epochs */
        struct pl_batch_memory *filling;      /* takes the next rows; the last of the made ones */
        struct pl_batch_memory *first, *last; /* the made ones in their order */
        size_t made;                          /* number of these */
        struct pl_batch_memory *spare;
        size_t kept;  /* by the program */
        size_t total; /* made, spare and kept */
        bool closed;  /* the program has closed the dataset */
        /* An error, after which nothing more is read: of all that were found, that of the first row. */
        bool failed;
        uint64_t failed_sequence;
        size_t failed_row;
        struct pl_error error;
    } synced; /* guarded by `mutex` */
};

/* batch.c */

/** Makes the memory of a batch of `dataset`. */
enum pl_status pl_batch_memory_new(struct pl_dataset *dataset, struct pl_batch_memory **ret_memory,
                                   struct pl_error *reterr) PL_MUST_CHECK;
void pl_batch_memory_free(struct pl_batch_memory *memory);

/** Joins the pieces of all varying fields, and turns their ends of rows into offsets. */
enum pl_status pl_batch_join(struct pl_batch_memory *memory, struct pl_error *reterr) PL_MUST_CHECK;

/** Free an array of records that are held, or of elements; NULL too. */
void pl_held_free(struct pl_held *held, size_t count);
void pl_varying_free(struct pl_varying *varying, size_t count);

/* loader.c */

/** Starts the threads that are not started yet. */
enum pl_status pl_loader_start(struct pl_dataset *dataset, struct pl_error *reterr) PL_MUST_CHECK;

/** Ends reading and drops what was made. Called under the lock, which it releases in between. */
void pl_loader_abandon(struct pl_dataset *dataset);

/** Under the lock: take the first made batch out of the list; make a batch's memory spare. */
struct pl_batch_memory *pl_loader_take_first(struct pl_dataset *dataset);
void pl_loader_recycle(struct pl_batch_memory *memory);

/* stream.c, store_many.c */

/** Lists the objects of a stream that is not in Pipe Mode, unless that is done. PL_NOT_FOUND if there are none. */
enum pl_status pl_stream_list(struct pl_stream *stream, int64_t deadline_ns, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Holds the memory that `record`, the last one, is in, as pl_window_hold(): false if that is not a window of the
 * stream's. Both functions, and those that read, are called by one thread at a time.
 */
bool pl_stream_hold(const struct pl_stream *stream, const struct pl_record *record, struct pl_window_buffer **held);
void pl_stream_let_go(struct pl_stream *stream, struct pl_window_buffer *held);

/** Opens the objects of several places as one store: those of one place after those of the other. */
enum pl_status pl_store_open_many(const char *const *paths, size_t count, struct pl_store **ret_store,
                                  struct pl_error *reterr) PL_MUST_CHECK;

#endif
