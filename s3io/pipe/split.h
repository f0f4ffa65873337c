/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Divides a Pipe Mode channel among the ranks of a host: cuts the FIFOs PATH_0, PATH_1, ... into records and deals
 * these into FIFOs of the ranks. Any program reads its rank's FIFO as if it were the platform's. `paceline split` runs
 * it, one process per channel.
 *
 *   PATH_0 ──► split ──► DIRECTORY/0/NAME_0 ──► local rank 0
 *                  └───► DIRECTORY/1/NAME_0 ──► local rank 1
 *
 * DIRECTORY/L.place is a symbolic link to "RANK/SIZE/LOCAL_SIZE", which local rank L makes after DIRECTORY/L/NAME_0.
 * The rank has ended when DIRECTORY/L is gone. DIRECTORY/NAME.report says in words, after the name of a status, why the
 * ranks wait (TIMEOUT) or which error has ended the data; readers are told of it by pl_source_follow_report().
 *
 * An epoch begins when all ranks have opened its FIFO; the platform's is not opened before. Record i belongs to rank i
 * mod size of the job, or of the host if the channel is sharded by key. A rank that closes its FIFO gets no more of
 * the epoch, and the others go on; when all have closed, the platform's FIFO is closed. A slow rank holds the others up
 * as soon as its pipe and 256 KiB are full.
 *
 * Test  tests/unit/s3io/pipe/test_split.c, tests/integration/pipe_ranks.py
 */
#ifndef PL_S3IO_PIPE_SPLIT_H
#define PL_S3IO_PIPE_SPLIT_H

#include "s3io/channel.h"

struct pl_split_options {
    const struct pl_channel *channel; /* the channel; its path is that of the platform's FIFOs */
    const char *directory;
    /* Path of a file with the number of the platform's FIFOs opened so far. The ranks' epoch 0 reads the FIFO of this
     * number, so that a program that starts again goes on with the next one. NULL: no file. */
    const char *opened_path;
    bool is_csv;     /* text data is CSV: a line end inside quotes belongs to the record */
    int cancel_fd;   /* stop when this descriptor is readable; it must be set */
    int64_t hold_ns; /* see pl_split_hold(); 0: ten seconds */
};

struct pl_split;

/** The options and their strings must outlive the split. */
enum pl_status pl_split_new(const struct pl_split_options *options, struct pl_split **ret_split,
                            struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Waits for the ranks, and divides epoch after epoch. PL_OK: all ranks have ended. After an error other than
 * PL_CANCELLED the ranks' FIFOs stay open, so that no rank takes their end for the end of the data: report the error,
 * then call pl_split_hold().
 *
 * Errors  PL_CANCELLED. PL_UNSUPPORTED: the data is in no format that can be cut into records. Errors of the records'
 *         framing, with FIFO, record and byte. The data of a TFRecord is checked by its rank.
 */
enum pl_status pl_split_run(struct pl_split *split, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Call it after an error of pl_split_run(): gives the ranks the records from before the error, and the error itself.
 * Returns true if all ranks then leave their FIFOs; false if one has read everything and still waits after `hold_ns`,
 * like a program that knows nothing of the report.
 */
bool pl_split_hold(struct pl_split *split, const struct pl_error *error);

void pl_split_free(struct pl_split *split);

#endif
