/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The run directory: a private directory of this host for the job's time, with the socket on which process 1 accepts
 * its helpers, the host's own variables for its ranks, and what Open MPI 5 keeps while it runs.
 */
#ifndef PL_ENTRYPOINT_SSH_RUNDIR_H
#define PL_ENTRYPOINT_SSH_RUNDIR_H

#include "base/environment.h"
#include "base/status.h"
#include "entrypoint/ssh/link.h"

/** Names the directory for everything that runs below process 1 on the same host. */
#define PL_RUNDIR_VARIABLE "PACELINE_RUN_DIR"

/**
 * The link in the directory to this binary that torchrun starts for a rank, as PYTHON_EXEC names it; and the variable
 * that keeps a PYTHON_EXEC that was set before.
 */
#define PL_RUNDIR_PYTHON "paceline-python"
#define PL_RUNDIR_PYTHON_VARIABLE "PACELINE_PYTHON_EXEC"

/**
 * Told to mpirun and its daemons by `1`, and not to ranks: hostname_preload.c lets them make no terminal for a rank's
 * stdout, so that it is a pipe, of which its shim knows what has been read.
 */
#define PL_RUNDIR_PIPES_VARIABLE "PACELINE_RANK_PIPES"

enum { PL_RUNDIR_PATH_BYTES = 80 }; /* a socket's whole path must fit into 107 bytes */

struct pl_rundir {
    char path[PL_RUNDIR_PATH_BYTES]; /* "" when there is none */
    int listen_fd;
};

#define PL_RUNDIR_NONE ((struct pl_rundir){.listen_fd = -1})

/** Make the directory below /run (else /tmp), mode 0700, and listen on its socket. */
enum pl_status pl_rundir_open(struct pl_rundir *rundir, struct pl_error *reterr) PL_MUST_CHECK;

/** Write the file `name` in it, mode 0600. */
enum pl_status pl_rundir_write(const struct pl_rundir *rundir, const char *name, const void *data, size_t bytes,
                               struct pl_error *reterr) PL_MUST_CHECK;

/** Keep for the ranks of this host what in `environment` describes it: SM_*, CURRENT_HOST, PACELINE_HOST_NAME. */
enum pl_status pl_rundir_save_environment(const struct pl_rundir *rundir, const struct pl_environment *environment,
                                          struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Put what process 1 of this host saved in place of what describes another host; all else in `environment` stays, as
 * mpirun and its -x options made it.
 */
enum pl_status pl_rundir_load_environment(const char *path, struct pl_environment *environment,
                                          struct pl_error *reterr) PL_MUST_CHECK;

/** Keep for shells on this host what Paceline adds to the container's environment. */
enum pl_status pl_rundir_save_additions(const struct pl_rundir *rundir, const struct pl_environment *additions,
                                        struct pl_error *reterr) PL_MUST_CHECK;

/** The environment that a program of this host has: that of its process 1, with what was saved as additions. */
enum pl_status pl_rundir_new_environment(const char *path, struct pl_environment **ret_environment,
                                         struct pl_error *reterr) PL_MUST_CHECK;

/**
 * The run directory of the job that runs on this host: the one that `environment` names, as below process 1, else the
 * only one of this user's in whose process 1 listens.
 *
 * Errors  PL_NOT_FOUND: none; PL_INVALID: several; PL_SYSTEM: another user's.
 */
enum pl_status pl_rundir_find(const struct pl_environment *environment, char ret_path[PL_RUNDIR_PATH_BYTES],
                              struct pl_error *reterr) PL_MUST_CHECK;

/** Connect to process 1 of this host, which is this user's. */
enum pl_status pl_rundir_connect(const char *path, struct pl_link *link, struct pl_error *reterr) PL_MUST_CHECK;

/** Remove the directory with all that is in it. */
void pl_rundir_close(struct pl_rundir *rundir);

#endif
