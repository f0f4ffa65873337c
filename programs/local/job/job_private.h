/* SPDX-License-Identifier: Apache-2.0 */
/** What the files of a job's description share. Internal to programs/local/job*.c. */
#ifndef PL_PROGRAMS_LOCAL_JOB_PRIVATE_H
#define PL_PROGRAMS_LOCAL_JOB_PRIVATE_H

#include "base/json/json.h"
#include "programs/local/job/job.h"
#include "programs/local/job/limits.h"

struct pl_local_text {
    struct pl_local_text *next;
    char bytes[];
};

/* What a channel has beside its view. */
struct pl_local_channel_data {
    const char *groups[PL_LOCAL_MOST_GROUPS];
    bool by_option;
};

/* The sizes of the lists are the limits of the API, which are checked before anything is added. */
struct pl_local_job {
    struct pl_local_view view;
    struct pl_json *document; /* NULL without a file */
    char *text;               /* of the document, for places in errors */
    const char *source;
    struct pl_local_text *texts;
    struct pl_local_pair hyperparameters[PL_LOCAL_MOST_HYPERPARAMETERS], environment[PL_LOCAL_MOST_VARIABLES];
    struct pl_local_pair metrics[PL_LOCAL_MOST_METRICS];
    struct pl_local_channel channels[PL_LOCAL_MOST_CHANNELS];
    struct pl_local_channel_data channel_data[PL_LOCAL_MOST_CHANNELS];
    struct pl_local_group groups[PL_LOCAL_MOST_GROUPS];
    const char *entrypoint[PL_LOCAL_MOST_WORDS], *arguments[PL_LOCAL_MOST_WORDS];
    const char *ignored[64];
};

#endif
