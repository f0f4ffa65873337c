/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Finds out on which CPUs a host's ranks run, which is logged once all of them have connected, and whether they are
 * connected with each other.
 *
 * If ranks that were started together have never been connected with each other, N programs ran, and N models were
 * trained. MPI_Init() connects each rank with mpirun's server on its host, and torch's process groups
 * connect the ranks with each other; both use TCP. The kernel counts the TCP connections that a host accepts. As long
 * as the count is the same as before the host's first rank began, none of its ranks was connected with anything,
 * however short the rank's life was. If the count has grown, ranks count as connected, unless both ends of every new
 * connection are in the same rank. In doubt ranks count as connected, and nothing is logged.
 */
#ifndef PL_ENTRYPOINT_SUPERVISE_RANKS_H
#define PL_ENTRYPOINT_SUPERVISE_RANKS_H

#include "base/cpus.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct pl_frame;
struct pl_job;
struct pl_supervisor;

struct pl_placement {
    struct pl_cpus_of *ranks; /* ranks in ascending order; owns the texts */
    size_t count;
    bool done; /* the line is logged, or it cannot be logged */
};

/** Takes a rank's HELLO frame: its number, the number of ranks on its host, and the CPUs on which it was started. */
void pl_placement_add(struct pl_placement *placement, const struct pl_frame *frame);

void pl_placement_done(struct pl_placement *placement);

/** A host's knowledge about its ranks, which is sent as a number. */
enum pl_apart_state {
    PL_APART_UNKNOWN,
    PL_APART_FOR_A_MINUTE, /* in their first minute no rank was connected with another rank or with mpirun */
    PL_APART_CONNECTED,    /* a rank was connected, or may have been */
};

struct pl_apart {
    int64_t minute_ns; /* end of the first minute */
    bool begun;        /* a rank has begun */
    bool connected;
    int ranks; /* number of running ranks */
    /* number of connections that this host had accepted when the last look found no connection between ranks */
    uint64_t accepted;
    size_t inside;    /* number of connections within one rank that were open at that look */
    int looks;        /* number of looks since then that found out nothing */
    int64_t begun_ns; /* time at which the last rank began */
    int64_t next_look_ns;
    enum pl_apart_state told; /* the state that was sent to the master */
    bool minute_logged;
};

/** Prepares the search. It is off if the job's settings turn it off. */
void pl_apart_open(struct pl_apart *apart, const struct pl_job *job);

/** Takes the HELLO frame of a rank of this host, which has begun. */
void pl_apart_begin(struct pl_apart *apart, const struct pl_frame *frame);

/** Call when a rank of this host has ended. */
void pl_apart_end(struct pl_apart *apart);

/** Looks at the connections when it is time, while ranks run. `*next_ns` is lowered to the time of the next look. */
void pl_apart_look(struct pl_apart *apart, int64_t *next_ns);

enum pl_apart_state pl_apart_state(const struct pl_apart *apart);

/** On the master of several hosts: logs the finding of the first minute, once. */
void pl_apart_log_minute(struct pl_supervisor *supervisor);

/** On the master, when all ranks have succeeded: returns whether to wait for more findings, and logs the warning. */
bool pl_apart_is_possible(const struct pl_supervisor *supervisor);
void pl_apart_log_end(const struct pl_supervisor *supervisor);

#endif
