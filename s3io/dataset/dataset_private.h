/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The inside of a dataset: batch.c, loader.c (its threads), dataset.c (the program's side) and place.c (places that are
 * saved and restored).
 */
#ifndef PL_S3IO_DATASET_DATASET_PRIVATE_H
#define PL_S3IO_DATASET_DATASET_PRIVATE_H

#include "s3io/dataset.h"
#include "s3io/store_private.h"

#include <pthread.h>

/* A chunk: small enough that its records stay in a core's cache, large enough that turns are rare. */
enum { PL_CHUNK_RECORDS = 256, PL_CHUNK_BYTES = 256 << 10 };

struct pl_window_buffer;

/* The inside of a stream, for stream.c and place.c. */
struct pl_stream {
    struct pl_stream_options options;
    struct pl_channel channel; /* its strings belong to the stream; the mode is FILE if there is a `store` */
    char *name;
    char *path;

    struct pl_store *store;
    struct pl_object_list list;
    bool listed;
    uint64_t digest; /* of the list, from the first place that is saved or restored on */
    bool has_digest;

    uint64_t epoch;
    bool started;
    struct pl_store_reader objects;  /* the objects of the epoch, in its order */
    struct pl_record_reader *outer;  /* in Pipe Mode with RecordIO wrapping: reads the objects */
    struct pl_record_reader *reader; /* reads the records of the current object or FIFO */
    struct pl_record_reader *spare;  /* the memory of the reader before it */
    uint64_t object;                 /* number of the objects before that of `reader` */
    uint64_t first_number;           /* of the first record that `reader` is going to find, if it is the first one */
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
    uint64_t object;       /* number of its object in the epoch's order */
    uint64_t number;       /* number of the record in its object */
    uint64_t offset_bytes; /* where its framing begins in the object, after decompression */
};

/* Where an epoch is, behind one of its batches. */
struct pl_position {
    uint64_t epoch, first_epoch;               /* `first_epoch`: of those that follow one another */
    uint64_t batches, samples, bytes, skipped; /* of the epoch so far */
    bool is_end;                               /* the epoch has no batch after it */
    uint64_t random;                           /* state of the random numbers */
    struct pl_stream_place next;               /* where the stream goes on */
    /* Records before `index` are passed over there, and those before `origin` were dealt to another number of ranks. */
    uint64_t index, origin;
};

/* A change of the shuffle buffer: the record at `place` comes into the slot, or the last one if there is none. */
struct pl_change {
    size_t slot;
    bool is_last;
    struct pl_stream_place place;
};

/* What a batch does: changes of the shuffle buffer, and where the epoch is after it. */
struct pl_step {
    struct pl_change *changes;
    size_t count, capacity;
    struct pl_position after;
};

/* Where the program is in the epoch. A dataset's threads are ahead of it. */
struct pl_trail {
    struct pl_position position;    /* before the kept steps */
    struct pl_stream_place *buffer; /* [shuffle_samples]: the content of the shuffle buffer there */
    size_t count;
    struct pl_step *steps; /* [most]: those of the last batches that the program took, a ring */
    size_t most;
    uint64_t taken; /* batches since the epoch's start, or since the place that was restored */
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
    struct pl_step step;
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
    struct pl_step *step; /* of the batch that is read */
};

struct pl_dataset {
    struct pl_dataset_options options; /* without its strings */
    struct pl_stream *stream;
    struct pl_decoder *decoder;
    size_t fields;
    size_t *row_bytes; /* [field]; 0 if it is varying */
    bool is_varying;   /* any field */
    struct pl_shuffle shuffle;
    /* The epoch begins at a place of the stream, with the buffer and the position of `trail`. Set while the threads are
     * at rest, and then used by the thread whose turn it is. */
    bool restores;
    struct pl_stream_place from;
    uint64_t skipped_before; /* damaged pieces that were left out before that place; wraps around */
    struct pl_worker *workers;
    unsigned running; /* threads that were started */

    /* the program's side */
    int64_t start_ns; /* 0 before the first epoch */
    uint64_t first;   /* the epoch that the program has started, from which options.epochs counts */
    struct pl_dataset_progress progress;
    struct pl_trail trail;
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
        size_t decoding;                      /* threads that decode a chunk or join a batch */
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

/* place.c */

enum pl_status pl_trail_init(struct pl_trail *trail, size_t shuffle_samples, size_t most_steps,
                             struct pl_error *reterr) PL_MUST_CHECK;
void pl_trail_done(struct pl_trail *trail);

/** Begins an epoch. */
void pl_trail_start(struct pl_trail *trail, uint64_t epoch, uint64_t first_epoch);

/** Notes a change of the shuffle buffer. */
enum pl_status pl_step_add(struct pl_step *step, size_t slot, const struct pl_record *record,
                           struct pl_error *reterr) PL_MUST_CHECK;

/** The program takes a batch: exchanges its step for one that may be used again. */
void pl_trail_take(struct pl_trail *trail, struct pl_step *step);

/**
 * Writes the place after the batch that was taken `back` batches before the last one.
 *
 * Errors  PL_LIMIT: so many steps are not kept.
 */
enum pl_status pl_trail_save(const struct pl_trail *trail, const struct pl_dataset *dataset, uint64_t back,
                             char **ret_text, struct pl_error *reterr) PL_MUST_CHECK;

/** Sets the trail to the place in `text`, and `*ret_from` to where its stream begins. Lists the stream's objects. */
enum pl_status pl_trail_restore(struct pl_trail *trail, const struct pl_dataset *dataset, const char *text,
                                struct pl_stream_place *ret_from, struct pl_error *reterr) PL_MUST_CHECK;

/* stream.c, store_many.c */

/** Lists the objects of a stream that is not in Pipe Mode, unless that is done. PL_NOT_FOUND if there are none. */
enum pl_status pl_stream_list(struct pl_stream *stream, int64_t deadline_ns, struct pl_error *reterr) PL_MUST_CHECK;

/** Returns where the stream is: behind the last record that it has returned. */
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
 * Holds the memory that `record`, the last one, is in, as pl_window_hold(): false if that is not a window of the
 * stream's. Both functions, and those that read, are called by one thread at a time.
 */
bool pl_stream_hold(const struct pl_stream *stream, const struct pl_record *record, struct pl_window_buffer **held);
void pl_stream_let_go(struct pl_stream *stream, struct pl_window_buffer *held);

/** Opens the objects of several places as one store: those of one place after those of the other. */
enum pl_status pl_store_open_many(const char *const *paths, size_t count, struct pl_store **ret_store,
                                  struct pl_error *reterr) PL_MUST_CHECK;

#endif
