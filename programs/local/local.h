/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What the parts of `paceline local` share: the run of a job on hosts of this machine.
 *
 * The folder FOLDER/NAME holds the lock of the run, `algo-N`, which is /opt/ml of host N while the job runs,
 * `algo-N.log`, and at the end model.tar.gz and output.tar.gz.
 */
#ifndef PL_PROGRAMS_LOCAL_LOCAL_H
#define PL_PROGRAMS_LOCAL_LOCAL_H

#include "base/environment.h"
#include "base/text.h"
#include "entrypoint/supervise/signals.h"
#include "programs/local/job.h"
#include "programs/local/metric.h"

#include <limits.h>
#include <stdio.h>
#include <sys/types.h>
#include <time.h>

/** Where a host finds the secret of the ssh keys. */
#define PL_LOCAL_SECRET_PATH "/run/paceline-secret"

enum {
    PL_LOCAL_LINE_BYTES = 64 * 1024,
    PL_LOCAL_MOST_ENGINE_OPTIONS = 64,
    PL_LOCAL_SECRET_BYTES = 32,
};

enum pl_local_kind { PL_LOCAL_AUTO, PL_LOCAL_PLAIN, PL_LOCAL_NAMESPACES, PL_LOCAL_CONTAINERS };

enum pl_local_end {
    PL_LOCAL_RUNS,
    PL_LOCAL_ENDS,  /* every host ended by itself */
    PL_LOCAL_STOP,  /* Control-C, SIGTERM or --stop */
    PL_LOCAL_LIMIT, /* MaxRuntimeInSeconds */
    PL_LOCAL_SPOT,  /* --spot */
    PL_LOCAL_FAILS, /* a host failed, and the others were stopped */
    PL_LOCAL_UNFED, /* the feeder of a channel in Pipe mode failed, and the hosts were stopped */
};

/* A host without power, or for some time without its network. */
struct pl_local_outage {
    unsigned number;          /* N of algo-N; 0: none */
    uint64_t after_ns;        /* the start of the job */
    uint64_t length_ns;       /* of a cut */
    int64_t due_ns;           /* of its begin, then of its end */
    int64_t begin_ns, end_ns; /* when it was done; 0 before */
};

/* What is known of a rehearsed spot stop. */
struct pl_local_spot {
    struct timespec begin; /* SIGTERM, on the clock of files */
    bool is_second;        /* the second run */
    bool was_killed;
    size_t files;   /* that the first run wrote into the checkpoints after SIGTERM */
    double taken_s; /* from SIGTERM to the last of them */
    bool has_saved; /* a checkpoint of the runtime's is among them */
    bool knows_last, has_resumed;
    uint64_t saved_step, last_step, resumed_step;
};

struct pl_local_fed {
    const char *channel; /* borrowed */
    size_t host;
};

struct pl_local_host {
    char name[16];        /* algo-N */
    char tree[PATH_MAX];  /* its /opt/ml, seen from this machine */
    char group[72];       /* of the instance */
    const char *instance; /* its type; borrowed */
    pid_t pid;            /* its first process; 0 before it starts and after its end */
    int output_fd;        /* -1 after the end of the output */
    FILE *log;
    size_t ready; /* bytes of an unfinished line */
    char line[PL_LOCAL_LINE_BYTES];
    int code; /* the exit code, or 128 + the signal's number */
    bool started, killed;
    bool lost; /* switched off by --lose */
};

struct pl_local {
    const struct pl_local_job *job;
    enum pl_local_kind kind;
    bool keep, colour;
    bool has_made_folder;    /* there was no folder of this name */
    bool has_code;           /* the job names a program, whose code is the caller's directory */
    char folder[PATH_MAX];   /* FOLDER/NAME, absolute */
    char cwd[PATH_MAX];      /* the caller's directory, which is the code of the job */
    char *paceline;          /* the front binary */
    const char *engine_name; /* as an option has it; NULL: podman or docker, whichever is there */
    char *engine;
    const char *engine_options[PL_LOCAL_MOST_ENGINE_OPTIONS];
    size_t engine_option_count;
    char **sources; /* of each channel: the folder with its data, as this machine sees it, or the address on S3 */
    struct pl_environment *environment;
    struct pl_signals signals;
    unsigned stops, stops_allowed; /* see stop.h; with how many the ending goes on */
    int lock_fd, network_fd;
    unsigned char secret[PL_LOCAL_SECRET_BYTES]; /* of several hosts */
    struct pl_local_host *hosts;
    pid_t *feeds;
    struct pl_local_fed *fed; /* what each of them feeds */
    size_t feed_count;
    int reasons_fd; /* where feeders that fail write why; -1: there are none */
    struct pl_local_metrics *metrics;
    uint64_t stop_ns, spot_ns, stop_time_ns; /* of the options; 0: none. stop_time_ns: from SIGTERM to SIGKILL */
    struct pl_local_outage lose, cut;
    struct pl_local_spot spot;
    enum pl_local_end end;
    char unfed[PL_ERROR_CAUSE_BYTES];                          /* of PL_LOCAL_UNFED: the channel, and why */
    size_t unfed_host;                                         /* whose channel it is */
    char unpacked[PL_ERROR_CAUSE_BYTES];                       /* why the results could not be packed; "" */
    int64_t begin_ns, run_ns, stopped_ns, ended_ns, packed_ns; /* stopped_ns: of SIGTERM */
};

/** Appends FOLDER/NAME/`format`. */
enum pl_status pl_local_path(const struct pl_local *local, struct pl_text *path, struct pl_error *reterr,
                             const char *format, ...) PL_PRINTF(4, 5) PL_MUST_CHECK;

#endif
