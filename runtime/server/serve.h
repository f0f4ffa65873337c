/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The parameter server of one host: takes its workers' pushes from shared memory, passes those of pieces that other
 * hosts' servers own on to them, and applies those of its own pieces, which are piece number p modulo hosts. Internal
 * to runtime/.
 *
 * Threads  one, which is the bootstrap's too.
 * Test     tests/unit/runtime/server/test_server.c, tests/integration/native_server.sh
 */
#ifndef PL_RUNTIME_SERVER_SERVE_H
#define PL_RUNTIME_SERVER_SERVE_H

#include "collectives/bootstrap.h"

/** The record that is read from the pipe of ended processes. */
struct pl_server_ended {
    int worker; /* its number on this host */
    int status; /* status of waitpid(); also 0 if a stop has ended the process */
};

enum { PL_SERVER_AGES = 12 };

/** The counts of one server. */
struct pl_server_serve_counts {
    uint64_t pushes;         /* number of pieces that the workers of this host have pushed */
    uint64_t pulls;          /* number of requests by the workers of this host for the newest values of all pieces */
    uint64_t updates;        /* number of optimizer steps over pieces that this server owns */
    uint64_t gradient_bytes; /* bytes sent to other servers */
    uint64_t value_bytes;
    /*
     * Number of pushes by how many updates of other workers the piece had received since the worker last read it: 0, 1,
     * 2 to 3, 4 to 7, ... With staleness 0 nothing is counted.
     */
    uint64_t ages[PL_SERVER_AGES];
};

struct pl_server_serve_options {
    const char *socket_path;        /* created by pl_server_serve(), and removed at its end */
    int workers;                    /* per host; the workers of the job are numbered host by host */
    struct pl_bootstrap *bootstrap; /* the servers of the job, one rank per host */
    /* if above 0, a pipe of struct pl_server_ended for the worker processes of this host */
    int ended_fd;
    /*
     * How many workers must remain. A worker is lost if its connection closes without LEAVE, or if its process fails.
     * If fewer remain the job ends, and the error names the last one that was lost. 0: this function accepts the loss
     * of any worker.
     */
    int min_workers;
    struct pl_server_serve_counts *counts; /* filled at the end, unless NULL */
};

/**
 * Serve until all workers of the job have left. A worker that is lost, that is, which closes its socket without a
 * word, is said and counts as one that has left.
 *
 * Collective  yes, over the servers.
 * Errors      PL_PEER: too few workers are left; PL_MISMATCH: the workers of two hosts have different layouts; those of
 *             a transport, PL_SYSTEM, PL_MEMORY. Workers that are still there learn the failure.
 */
enum pl_status pl_server_serve(const struct pl_server_serve_options *options, struct pl_error *reterr) PL_MUST_CHECK;

#endif
