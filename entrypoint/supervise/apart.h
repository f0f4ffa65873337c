/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Finds out whether ranks that were started together have never been connected with each other: then N programs ran,
 * and N models were trained. MPI_Init() connects each rank with mpirun's server on its host, and a process group of
 * torch's the ranks themselves, all by TCP. The kernel counts the connections that a host accepts: as long as the count
 * is what it was before a host's first rank began, no rank of it was connected with anything, however short its life.
 * Where the count has grown, ranks count as connected unless every new connection has both ends in the same rank. What
 * is not certain counts as a connection, and nothing is said.
 */
#ifndef PL_ENTRYPOINT_SUPERVISE_APART_H
#define PL_ENTRYPOINT_SUPERVISE_APART_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct pl_frame;
struct pl_job;
struct pl_sessions;
struct pl_supervisor;

/** What is known of the ranks of a host; sent as a number. */
enum pl_apart_state {
    PL_APART_UNKNOWN,
    PL_APART_FOR_A_MINUTE, /* in the first minute of all of them none was connected with another, or with mpirun */
    PL_APART_CONNECTED,    /* one was, or may have been */
};

struct pl_apart {
    int64_t minute_ns; /* the first minute */
    bool begun;        /* a rank has */
    bool connected;
    int ranks;         /* that run */
    uint64_t accepted; /* of the connections that this host has accepted so many are none between ranks */
    size_t inside;     /* and so many of these were open within one rank when that was found */
    int looks;         /* since then without such a finding */
    int64_t begun_ns;  /* when the last rank began */
    int64_t next_look_ns;
    enum pl_apart_state told; /* to the master */
    bool minute_logged;
};

/** Nothing is looked for where the job does not want it. */
void pl_apart_open(struct pl_apart *apart, const struct pl_job *job);

/** A rank of this host has begun: its HELLO frame. */
void pl_apart_begin(struct pl_apart *apart, const struct pl_frame *frame);

/** A rank of this host has ended. */
void pl_apart_end(struct pl_apart *apart);

/** While ranks run: look when it is time; `*next_ns` becomes the time of the next look where that is earlier. */
void pl_apart_look(struct pl_apart *apart, int64_t *next_ns);

enum pl_apart_state pl_apart_state(const struct pl_apart *apart);

/** The master, of the first minute on several hosts, once. */
void pl_apart_log_minute(struct pl_supervisor *supervisor, const struct pl_sessions *sessions);

/** The master, when all ranks have ended well: whether that is worth waiting for, and what follows from it. */
bool pl_apart_is_possible(const struct pl_supervisor *supervisor, const struct pl_sessions *sessions);
void pl_apart_log_end(const struct pl_supervisor *supervisor);

#endif
