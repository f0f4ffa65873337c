/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The run directory: a private directory of this host during the job. It holds the socket on which process 1 accepts
 * its helpers, the host's own variables for its ranks, FIFOs of its ranks, and Open MPI 5's files.
 */
#ifndef PL_ENTRYPOINT_SSH_RUNDIR_H
#define PL_ENTRYPOINT_SSH_RUNDIR_H

#include "base/environment.h"
#include "base/status.h"
#include "entrypoint/ssh/link.h"

/** Names the directory for every program below process 1 on the same host. */
#define PL_RUNDIR_VARIABLE "PACELINE_RUN_DIR"

/**
 * A link in the directory to this binary. PYTHON_EXEC names it, so that torchrun starts it for a rank. The variable
 * keeps an earlier value of PYTHON_EXEC.
 */
#define PL_RUNDIR_PYTHON "paceline-python"
#define PL_RUNDIR_PYTHON_VARIABLE "PACELINE_PYTHON_EXEC"

/**
 * Set to `1` for mpirun and its daemons, but not for ranks. With it hostname_preload.c lets them make no terminal for a
 * rank's stdout, so that it is a pipe: the rank's shim can see what was read from a pipe.
 */
#define PL_RUNDIR_PIPES_VARIABLE "PACELINE_RANK_PIPES"

/**
 * The folder in the directory with each rank's FIFOs of the channels in Pipe Mode (s3io/pipe/split.h). The variable
 * names the channels, with commas between them.
 */
#define PL_RUNDIR_FIFOS "fifos"
#define PL_RUNDIR_FIFOS_VARIABLE "PACELINE_FIFOS"

/* A file in the directory: how many of the channel's FIFOs are used up. Also in s3io/dataset/channel.c. */
#define PL_RUNDIR_OPENED_BEGIN "opened-"
#define PL_RUNDIR_OPENED PL_RUNDIR_OPENED_BEGIN "%s"

/**
 * Open MPI 4's parameters for the folder of its files. mpirun takes the first, and passes it on to its daemons on other
 * hosts. The second is for all processes; daemons and ranks must not find the first beside it.
 */
#define PL_RUNDIR_MPIRUN_FILES "orte_local_tmpdir_base"
#define PL_RUNDIR_ALL_FILES "orte_tmpdir_base"

/** The end of the names of Open MPI's parameters that say where its shared memory lies. */
#define PL_RUNDIR_MEMORY_END "_backing_directory"

enum { PL_RUNDIR_PATH_BYTES = 80 }; /* the path of a socket may have at most 107 bytes */

struct pl_rundir {
    char path[PL_RUNDIR_PATH_BYTES];   /* "" if there is none */
    char memory[PL_RUNDIR_PATH_BYTES]; /* path of a private directory in /dev/shm, which is removed too; mostly "" */
    int listen_fd;
};

#define PL_RUNDIR_NONE ((struct pl_rundir){.listen_fd = -1})

/** Whether `path` is the path of a run directory, of this or of another host. */
bool pl_rundir_is_one(const char *path);

/** Make the directory below /run (else /tmp), mode 0700, and listen on its socket. */
enum pl_status pl_rundir_open(struct pl_rundir *rundir, struct pl_error *reterr) PL_MUST_CHECK;

/** Write the file `name` in the directory, with mode 0600. */
enum pl_status pl_rundir_write(const struct pl_rundir *rundir, const char *name, const void *data, size_t bytes,
                               struct pl_error *reterr) PL_MUST_CHECK;

/** Make a private directory in /dev/shm for files that killed programs leave. If that fails, there is none. */
void pl_rundir_open_memory(struct pl_rundir *rundir);

/* Save the variables in `environment` that describe this host for its ranks: SM_*, CURRENT_HOST, PACELINE_HOST_NAME,
 * and the directories for the shared memory of Open MPI. */
enum pl_status pl_rundir_save_environment(const struct pl_rundir *rundir, const struct pl_environment *environment,
                                          struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Replace variables that describe another host by those that process 1 of this host has saved. All other variables in
 * `environment` stay as mpirun and its -x options made them.
 */
enum pl_status pl_rundir_load_environment(const char *path, struct pl_environment *environment,
                                          struct pl_error *reterr) PL_MUST_CHECK;

/** Connect to process 1 of this host, which must belong to this user. */
enum pl_status pl_rundir_connect(const char *path, struct pl_link *link, struct pl_error *reterr) PL_MUST_CHECK;

/** The place of a process: its rank in the job and on its host. */
struct pl_rundir_place {
    int rank, size, local_rank, local_size;
};

/**
 * Give a rank FIFOs of its own for the channels that `environment` names in PACELINE_FIFOS: SM_CHANNEL_<NAME> becomes
 * their path. If the rank is the only one of its host, or `path` is NULL, the channels stay the platform's, and the
 * variable is removed. pl_rundir_leave_fifos() tells that the rank has ended, so that the others do not wait for it.
 */
enum pl_status pl_rundir_take_fifos(const char *path, const struct pl_rundir_place *place,
                                    struct pl_environment *environment, struct pl_error *reterr) PL_MUST_CHECK;
void pl_rundir_leave_fifos(const char *path, int local_rank);

/** Remove the directories and all files in them. */
void pl_rundir_close(struct pl_rundir *rundir);

#endif
