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

/** What is read from the pipe of ended processes. */
struct pl_server_ended {
    int worker; /* on its host */
    int status; /* as of waitpid(); 0 too where a stop has ended it */
};

enum { PL_SERVER_AGES = 12 };

/** What a server has done. */
struct pl_server_serve_counts {
    uint64_t pushes;         /* pieces that its host's workers have pushed */
    uint64_t pulls;          /* requests of its host's workers for the newest values of all pieces */
    uint64_t updates;        /* steps of the optimizer over a piece of its own */
    uint64_t gradient_bytes; /* sent to other servers */
    uint64_t value_bytes;
    /* Updates by how many others a piece had since the worker knew it: none, 1, 2 to 3, 4 to 7, ...; with staleness 0
     * there are none to count. */
    uint64_t ages[PL_SERVER_AGES];
};

struct pl_server_serve_options {
    const char *socket_path;        /* made by it, and removed at the end */
    int workers;                    /* on each host; the job's workers are counted host by host */
    struct pl_bootstrap *bootstrap; /* the servers of the job, a rank on each host */
    int ended_fd;                   /* above 0: a pipe of struct pl_server_ended, of its host's workers' processes */
    /*
     * So many workers of the job may not be lost: by a connection that closes without a word, or a process that fails.
     * With fewer the job ends, named after the last. 0: any may, as far as this function is concerned.
     */
    int min_workers;
    struct pl_server_serve_counts *counts; /* filled at the end; NULL: nobody asks */
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
