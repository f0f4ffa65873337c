/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The internals of a dataset: batch.c, loader.c (its threads), dataset.c (the program's side) and place.c (saved and
 * restored places).
 */
#ifndef PL_S3IO_DATASET_DATASET_PRIVATE_H
#define PL_S3IO_DATASET_DATASET_PRIVATE_H

#include "s3io/dataset.h"
#include "s3io/store_private.h"

#include <pthread.h>

/* A chunk: small enough that its records stay in a core's cache, large enough that turns are rare. */
enum { PL_CHUNK_RECORDS = 256, PL_CHUNK_BYTES = 256 << 10 };

struct pl_window_buffer;

/* The internals of a stream, for stream.c and place.c. */
struct pl_stream {
    struct pl_stream_options options;
    struct pl_channel channel; /* its strings belong to the stream; the mode is FILE if there is a `store` */
    char *name;
    char *path;
    char *begun_path;

    struct pl_store *store;
    struct pl_object_list list;
    bool listed;
    uint64_t digest; /* digest of `list`, set when a place is first saved or restored */
    bool has_digest;

    uint64_t epoch;
    bool started;
    struct pl_store_reader objects;  /* the objects of the epoch, in its order */
    struct pl_record_reader *outer;  /* in Pipe Mode with RecordIO wrapping: reads the objects */
    struct pl_record_reader *reader; /* reads the records of the current object or FIFO */
    struct pl_record_reader *spare;  /* the closed reader, whose memory is used again */
    uint64_t object;                 /* number of objects before the one that `reader` reads */
    uint64_t first_number;           /* record number where the first `reader` begins */
    uint64_t base;                   /* number of the epoch's records before those of `reader` */
    struct pl_record_counts counts;  /* sum over the closed readers */

    pthread_mutex_t mutex;
    struct {
        bool cancelled;
        struct pl_source *reading; /* the source that a call may wait for */
    } synced;                      /* guarded by `mutex` */
};

/* Where a record begins, or where a stream goes on. */
struct pl_stream_place {
    uint64_t index;        /* number of the record in the whole epoch */
    uint64_t object;       /* number of the record's object in the epoch's order */
    uint64_t number;       /* number of the record in its object */
    uint64_t offset_bytes; /* where the record's framing begins in the object, after decompression */
};

/* The position of an epoch after one of its batches. */
struct pl_position {
    uint64_t epoch, first_epoch;               /* `first_epoch`: first of epochs in a row */
    uint64_t batches, samples, bytes, skipped; /* counts of the epoch so far */
    bool is_end;                               /* the epoch has no batch after it */
    uint64_t random;                           /* state of the random numbers */
    struct pl_stream_place next;               /* where the stream goes on */
    /* Records before `index` are passed over; records before `origin` were dealt to another number of ranks. */
    uint64_t index, origin;
};

/* A change of the shuffle buffer: the slot gets the record at `place` or, if `is_last`, the buffer's last record. */
struct pl_change {
    size_t slot;
    bool is_last;
    struct pl_stream_place place;
};

/* The effect of a batch: changes of the shuffle buffer, and where the epoch is after the batch. */
struct pl_step {
    struct pl_change *changes;
    size_t count, capacity;
    struct pl_position after;
};

/* Where the program is in the epoch. A dataset's threads are ahead of it. */
struct pl_trail {
    struct pl_position position;    /* position before the kept steps */
    struct pl_stream_place *buffer; /* [shuffle_samples]: content of the shuffle buffer at `position` */
    size_t count;
    struct pl_step *steps; /* [most]: ring with the steps of the last batches that the program took */
    size_t most;
    uint64_t taken; /* number of batches since the epoch's start or the restored place */
};

/* A record that was read, in memory of its own or, in a chunk, in the window that the thread holds. */
struct pl_held {
    unsigned char *data;
    size_t capacity;
    struct pl_record record;
};

/* The elements of varying fields that chunks of records have, one chunk after the other. */
struct pl_piece {
    size_t rows;
    struct pl_varying *varying; /* [field]: elements of each varying field */
};

/* A batch: in the making, made, or kept by the program. */
struct pl_batch_memory {
    struct pl_dataset *dataset;
    struct pl_batch_memory *next; /* next in the list of made batches, or in the list of spare ones */
    struct pl_batch_field *fields;
    struct pl_varying *varying; /* [field]: elements of the whole batch */
    struct pl_piece *pieces;    /* [batch_samples]: `piece_count` pieces, until the batch is whole */
    size_t piece_count;
    uint64_t sequence; /* number of the batch in all epochs */
    uint64_t epoch;
    uint64_t index; /* number of the batch in its epoch */
    size_t samples;
    uint64_t bytes;
    uint64_t skipped;
    size_t unfinished; /* number of chunks that are being decoded */
    bool is_closed;    /* no more chunks begin in this batch */
    bool is_ready;     /* the program can have it */
    bool ends_epoch;   /* the epoch ends behind this batch, which may be empty */
    struct pl_step step;
};

/* A thread of a dataset. */
struct pl_worker {
    struct pl_dataset *dataset;
    pthread_t thread;
    struct pl_held *held;            /* [PL_CHUNK_RECORDS]: records of the chunk */
    struct pl_window_buffer *window; /* with the chunk's records until the next turn; NULL: all were copied */
    void **rows;                     /* [field]: where each row is written */
};

/* The shuffle buffer: one of its records, chosen at random, comes next. Used by the thread whose turn it is. */
struct pl_shuffle {
    struct pl_held *held;
    size_t count;
    bool filled; /* the first fill of the epoch is done */
    uint64_t random;
    struct pl_step *step; /* step of the batch that is being read */
};

struct pl_dataset {
    struct pl_dataset_options options; /* the options without their strings */
    struct pl_stream *stream;
    struct pl_decoder *decoder;
    size_t fields;
    size_t *row_bytes; /* [field]; 0 if the field is varying */
    bool is_varying;   /* whether a field is varying */
    struct pl_shuffle shuffle;
    /* Whether the epoch begins at `from`, with the buffer and the position of `trail`. Set while the threads are at
     * rest, and then used by the thread whose turn it is. */
    bool restores;
    struct pl_stream_place from;
    uint64_t skipped_before; /* number of damaged pieces left out before `from`; wraps around */
    struct pl_worker *workers;
    unsigned running; /* number of threads that were started */

    /* the state of the program's side */
    int64_t start_ns; /* 0 before the first epoch */
    uint64_t first;   /* the epoch that the program has started, from which options.epochs counts */
    struct pl_dataset_progress progress;
    struct pl_trail trail;
    bool at_end;    /* the program has the last batch of the epoch */
    bool over;      /* the program has received PL_END for the epoch */
    bool cancelled; /* set from any thread by __atomic calls */

    pthread_mutex_t mutex;
    pthread_cond_t work;  /* wakes the threads */
    pthread_cond_t ready; /* wakes the program, and calls that wait until the threads are at rest */
    struct {
        bool stop;                            /* asks the threads to end */
        bool abandon;                         /* asks the threads to leave the epoch */
        bool reading;                         /* a thread has its turn */
        size_t decoding;                      /* number of threads that decode a chunk or join a batch */
        bool producing;                       /* there may be more records in this epoch, or in one that follows */
        bool begins;                          /* the epoch must be started first */
        uint64_t epoch;                       /* epoch that is being read */
        uint64_t index;                       /* number of the next batch in this epoch */
        uint64_t sequence;                    /* number of the next batch in all epochs */
        struct pl_batch_memory *filling;      /* batch that takes the next rows: the last of the list */
        struct pl_batch_memory *first, *last; /* list of made batches, in order */
        size_t made;                          /* number of batches in the list */
        struct pl_batch_memory *spare;
        size_t kept;  /* number of batches that the program keeps */
        size_t total; /* number of made, spare and kept batches */
        bool closed;  /* the program has closed the dataset */
        /* The error after which nothing more is read. If several were found, it is the one of the first row. */
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

/** Free an array of held records, or of elements. NULL is fine. */
void pl_held_free(struct pl_held *held, size_t count);
void pl_varying_free(struct pl_varying *varying, size_t count);

/* loader.c */

/** Starts the threads that are not started yet. */
enum pl_status pl_loader_start(struct pl_dataset *dataset, struct pl_error *reterr) PL_MUST_CHECK;

/** Ends reading and drops the made batches. Called under the lock, which it releases in between. */
void pl_loader_abandon(struct pl_dataset *dataset);

/** Under the lock: take the first made batch out of the list; make a batch's memory spare. */
struct pl_batch_memory *pl_loader_take_first(struct pl_dataset *dataset);
void pl_loader_recycle(struct pl_batch_memory *memory);

/* place.c */

enum pl_status pl_trail_init(struct pl_trail *trail, size_t shuffle_samples, size_t most_steps,
                             struct pl_error *reterr) PL_MUST_CHECK;
void pl_trail_done(struct pl_trail *trail);

/** Begins an epoch. */
void pl_trail_start(struct pl_trail *trail, uint64_t epoch, uint64_t first_epoch);

/** Notes a change of the shuffle buffer. */
enum pl_status pl_step_add(struct pl_step *step, size_t slot, const struct pl_record *record,
                           struct pl_error *reterr) PL_MUST_CHECK;

/** The program takes a batch: `trail` keeps its step, and `*step` becomes one that may be used again. */
void pl_trail_take(struct pl_trail *trail, struct pl_step *step);

/**
 * Writes the place after the batch that was taken `back` batches before the last one.
 *
 * Errors  PL_LIMIT: `back` is larger than the number of kept steps.
 */
enum pl_status pl_trail_save(const struct pl_trail *trail, const struct pl_dataset *dataset, uint64_t back,
                             char **ret_text, struct pl_error *reterr) PL_MUST_CHECK;

/** Sets the trail to the place in `text`, and `*ret_from` to where reading begins. Lists the stream's objects. */
enum pl_status pl_trail_restore(struct pl_trail *trail, const struct pl_dataset *dataset, const char *text,
                                struct pl_stream_place *ret_from, struct pl_error *reterr) PL_MUST_CHECK;

/* stream.c, store_many.c */

/** Lists the objects of a stream that is not in Pipe Mode, if that was not done. PL_NOT_FOUND if there are none. */
enum pl_status pl_stream_list(struct pl_stream *stream, int64_t deadline_ns, struct pl_error *reterr) PL_MUST_CHECK;

/** Returns the position of the stream: after the last record that it has returned. */
struct pl_stream_place pl_stream_where(const struct pl_stream *stream);

/** As pl_stream_start(), but at a place: nothing before it is read, unless the bytes before are needed to find it. */
enum pl_status pl_stream_start_at(struct pl_stream *stream, uint64_t epoch, const struct pl_stream_place *from,
                                  int64_t deadline_ns, struct pl_error *reterr) PL_MUST_CHECK;

/** Passes over the records before `index`, without checking them. After PL_TIMEOUT the call may be repeated. */
enum pl_status pl_stream_pass(struct pl_stream *stream, uint64_t index, int64_t deadline_ns,
                              struct pl_error *reterr) PL_MUST_CHECK;

/** Returns the order of the stream's objects in `epoch`; they must be listed. */
struct pl_object_order pl_stream_order(const struct pl_stream *stream, uint64_t epoch);

/**
 * Holds the memory of `record`, the last one returned, like pl_window_hold(). False if this memory is not a window of
 * the stream. One thread at a time calls these two functions and those that read.
 */
bool pl_stream_hold(const struct pl_stream *stream, const struct pl_record *record, struct pl_window_buffer **held);
void pl_stream_let_go(struct pl_stream *stream, struct pl_window_buffer *held);

/** Opens the objects of several paths as one store: the objects of each path follow those of the path before it. */
enum pl_status pl_store_open_many(const char *const *paths, size_t count, struct pl_store **ret_store,
                                  struct pl_error *reterr) PL_MUST_CHECK;

#endif
