/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The parameter server of one host. It takes its workers' pushes from shared memory. It applies a push to a piece that
 * it owns, and sends the others to their owners. The server of host h owns the pieces p with p modulo hosts = h.
 * Internal to runtime/.
 *
 * Threads  one, which must also be the bootstrap's.
 * Test     tests/unit/runtime/server/test_server.c, tests/integration/native_server.sh
 */
#ifndef PL_RUNTIME_SERVER_SERVE_H
#define PL_RUNTIME_SERVER_SERVE_H

#include "collectives/bootstrap.h"

#include <stdatomic.h>

/** A record in the pipe of ended processes. */
struct pl_server_ended {
    int worker; /* number of the worker on this host */
    int status; /* status from waitpid(); 0 if a stop request has ended the process */
};

enum { PL_SERVER_AGES = 12 };

/** The counts of one server. */
struct pl_server_serve_counts {
    uint64_t pushes;         /* number of pieces pushed by workers of this host */
    uint64_t pulls;          /* number of requests for the newest values of all pieces, by workers of this host */
    uint64_t updates;        /* number of optimizer steps over this server's pieces */
    uint64_t gradient_bytes; /* bytes of gradients sent to other servers */
    uint64_t value_bytes;
    /*
     * Number of pushes, by the number of updates of other workers between the worker's last read of the piece and its
     * push: 0, 1, 2 to 3, 4 to 7, ... Not counted with staleness 0.
     */
    uint64_t ages[PL_SERVER_AGES];
};

struct pl_server_serve_options {
    const char *socket_path;        /* pl_server_serve() creates the socket, and removes it at the end */
    int workers;                    /* number of workers per host; the job's workers are numbered host by host */
    struct pl_bootstrap *bootstrap; /* transport between the servers of the job, one rank per host */
    /* if above 0, a pipe that has a struct pl_server_ended for each ended worker process of this host */
    int ended_fd;
    /*
     * Number of workers that must remain. A worker is lost if its connection closes without LEAVE, or if its process
     * fails. If fewer remain, the job ends, and the error names the worker lost last. 0: any loss is accepted.
     */
    int min_workers;
    const atomic_bool *stopping; /* once it is true, the job ends by a stop: any loss is accepted. NULL: never */
    struct pl_server_serve_counts *counts; /* filled at the end, unless NULL */
};

/**
 * Serves until all workers of the job have left. A worker that closes its socket without LEAVE is lost: this is logged,
 * and the worker counts as one that has left.
 *
 * Collective  yes, over the servers.
 * Errors      PL_PEER: too few workers are left; PL_MISMATCH: the workers of two hosts have different layouts; those of
 *             a transport, PL_SYSTEM, PL_MEMORY. The remaining workers get the failure.
 */
enum pl_status pl_server_serve(const struct pl_server_serve_options *options, struct pl_error *reterr) PL_MUST_CHECK;

#endif
