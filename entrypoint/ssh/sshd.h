/* SPDX-License-Identifier: Apache-2.0 */
/**
 * ssh between the hosts of one job: a private sshd on each worker that does nothing but join the master's session to
 * process 1, and the client's argument vector on the master. All their files lie in the run directory.
 */
#ifndef PL_ENTRYPOINT_SSH_SSHD_H
#define PL_ENTRYPOINT_SSH_SSHD_H

#include "entrypoint/job/job.h"
#include "entrypoint/launch/plan.h"
#include "entrypoint/ssh/rundir.h"

struct pl_sshd {
    char *user_key;  /* private key that the master shows; the public one is next to it, with ".pub" */
    char *host_key;  /* private key that the workers show, likewise */
    char *user_name; /* login name of this process's user */
    int port;
};

#define PL_SSHD_NONE ((struct pl_sshd){.user_key = NULL})

/**
 * The step that makes the keys from the job's secret, when PACELINE_SSH_SECRET names one; `ret_step->what` is NULL
 * otherwise.
 */
enum pl_status pl_sshd_plan_keys(const struct pl_job *job, const struct pl_rundir *rundir,
                                 struct pl_launch_plan_step *ret_step, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Find keys, user and port. PL_NOT_FOUND says which file is missing and how it is made, PL_SYSTEM which may not be read
 * and whose it is.
 */
enum pl_status pl_sshd_open(struct pl_sshd *sshd, const struct pl_job *job, const struct pl_rundir *rundir,
                            struct pl_error *reterr) PL_MUST_CHECK;
void pl_sshd_close(struct pl_sshd *sshd);

/**
 * Write the server's files and its argument vector; an address that is taken and capabilities that are missing are
 * found here, with a clear text.
 */
enum pl_status pl_sshd_server(const struct pl_sshd *sshd, const struct pl_job *job, const struct pl_rundir *rundir,
                              struct pl_strv *argv, struct pl_error *reterr) PL_MUST_CHECK;

/** Write the client's files. */
enum pl_status pl_sshd_prepare_client(const struct pl_sshd *sshd, const struct pl_rundir *rundir,
                                      struct pl_error *reterr) PL_MUST_CHECK;

/** What a session asks for to become the control link. */
#define PL_SSHD_LINK_COMMAND "relay"

/** The client's argument vector for `host`; the worker's `paceline relay` finds `command` in SSH_ORIGINAL_COMMAND. */
enum pl_status pl_sshd_client(const struct pl_sshd *sshd, const char *run_dir, const char *host, const char *command,
                              struct pl_strv *argv, struct pl_error *reterr) PL_MUST_CHECK;

/** Keep in the run directory what other programs of this host need for pl_sshd_client(); the first host is the master.
 */
enum pl_status pl_sshd_save_hosts(const struct pl_sshd *sshd, const struct pl_rundir *rundir, const char *current_host,
                                  const struct pl_strv *hosts, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Read it again: the port and the user into `sshd`, the names of this host and of all hosts. PL_NOT_FOUND where the job
 * has no link. The caller frees `*ret_current_host`.
 */
enum pl_status pl_sshd_load_hosts(const char *run_dir, struct pl_sshd *sshd, char **ret_current_host,
                                  struct pl_strv *hosts, struct pl_error *reterr) PL_MUST_CHECK;

#endif
