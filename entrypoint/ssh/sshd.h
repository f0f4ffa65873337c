/* SPDX-License-Identifier: Apache-2.0 */
/**
 * ssh between the hosts of one job: on each worker a private sshd that only connects the master's session to process 1,
 * and on the master the client's argument vector. All files of both lie in the run directory.
 */
#ifndef PL_ENTRYPOINT_SSH_SSHD_H
#define PL_ENTRYPOINT_SSH_SSHD_H

#include "entrypoint/job/job.h"
#include "entrypoint/launch/plan.h"
#include "entrypoint/ssh/rundir.h"

struct pl_sshd {
    char *user_key;  /* the master's private key; the public key is next to it, with ".pub" */
    char *host_key;  /* the workers' private key; the public key is next to it */
    char *user_name; /* login name of this process's user */
    int port;
};

#define PL_SSHD_NONE ((struct pl_sshd){.user_key = NULL})

/**
 * Plan the step that makes the keys from the job's secret, if PACELINE_SSH_SECRET names one; otherwise `ret_step->what`
 * is NULL.
 */
enum pl_status pl_sshd_plan_keys(const struct pl_job *job, const struct pl_rundir *rundir,
                                 struct pl_launch_plan_step *ret_step, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Check that ssh can log in as this process's user: the user has a name and a login shell, and the password is not
 * locked. Without these the hosts cannot connect. PL_INVALID tells what is missing.
 */
enum pl_status pl_sshd_check_user(struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Find the keys, the user and the port. PL_NOT_FOUND names a missing file and how to make it. PL_SYSTEM names a file
 * that this user may not read, and the file's owner.
 */
enum pl_status pl_sshd_open(struct pl_sshd *sshd, const struct pl_job *job, const struct pl_rundir *rundir,
                            struct pl_error *reterr) PL_MUST_CHECK;
void pl_sshd_close(struct pl_sshd *sshd);

/** Listen for clients of IPv4 and IPv6, as sshd does. Returns the descriptor, or -1 with errno. */
int pl_sshd_listen(int port);

/**
 * Write the server's files and make its argument vector. An address that is in use and missing capabilities are errors
 * with a clear text.
 */
enum pl_status pl_sshd_server(const struct pl_sshd *sshd, const struct pl_job *job, const struct pl_rundir *rundir,
                              struct pl_strv *argv, struct pl_error *reterr) PL_MUST_CHECK;

/** Write the client's files. */
enum pl_status pl_sshd_prepare_client(const struct pl_sshd *sshd, const struct pl_rundir *rundir,
                                      struct pl_error *reterr) PL_MUST_CHECK;

/** The request of a session that becomes the control link. */
#define PL_SSHD_LINK_COMMAND "relay"

/* Make the client's argument vector for `host`. The worker's `paceline relay` gets `command` in
 * SSH_ORIGINAL_COMMAND. */
enum pl_status pl_sshd_client(const struct pl_sshd *sshd, const char *run_dir, const char *host, const char *command,
                              struct pl_strv *argv, struct pl_error *reterr) PL_MUST_CHECK;

/* Save in the run directory what other programs of this host need for pl_sshd_client(). The first host is the
 * master. */
enum pl_status pl_sshd_save_hosts(const struct pl_sshd *sshd, const struct pl_rundir *rundir, const char *current_host,
                                  const struct pl_strv *hosts, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Load what pl_sshd_save_hosts() has saved: the port and the user into `sshd`, the names of this host and of all hosts.
 * PL_NOT_FOUND if the job has no link. The caller frees `*ret_current_host`.
 */
enum pl_status pl_sshd_load_hosts(const char *run_dir, struct pl_sshd *sshd, char **ret_current_host,
                                  struct pl_strv *hosts, struct pl_error *reterr) PL_MUST_CHECK;

#endif
