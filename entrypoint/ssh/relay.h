/* SPDX-License-Identifier: Apache-2.0 */
/**
 * `paceline relay`: sshd and mpirun start it to reach a host's process 1.
 *
 * A caller runs a program on another host of the job as with ssh: its child process is this relay, whose standard
 * descriptors are those of the program. The relay's exit code is the program's exit code, 128 + the number of a signal
 * that ended the program, or 255 if there is no connection. ssh connects to that host's sshd with the job's key, and
 * the relay there has process 1 run the program (run_for_client() of frames.c). Each program has its own session, so
 * that its bytes delay neither another program nor heartbeats.
 *
 * The relay also listens instead of an sshd that cannot run on this host. It gives each client the reason by SSH's own
 * disconnection message, which ssh prints, and ends after the first client that has read it. The sender of the message
 * is not authenticated: an attacker who can answer in the host's place could prevent the job's start anyway.
 *
 * Source  RFC 4253, 4.2 (greeting), 6 (packet), 11.1 (disconnection)
 * Test    tests/integration/exec.sh, tests/integration/faults.py
 */
#ifndef PL_ENTRYPOINT_SSH_RELAY_H
#define PL_ENTRYPOINT_SSH_RELAY_H

#include "base/environment.h"
#include "entrypoint/job/strv.h"
#include "entrypoint/ssh/sshd.h"

/** The variable in which sshd passes the client's request. */
#define PL_RELAY_REQUEST_VARIABLE "SSH_ORIGINAL_COMMAND"

/** The disconnection message begins with this text. The reason follows. */
#define PL_DISCONNECT_BEGIN "Paceline has no sshd here: "

enum pl_exec_kind {
    PL_EXEC_STDIO, /* standard input, output and error are those of the session */
    /* standard input is a socket, the input and output of the session; what the program prints goes to the log of its
     * host */
    PL_EXEC_CHANNEL,
};

/**
 * Append the words of the command that runs `program` on `host`. `run_dir` is the run directory of the calling host.
 *
 * Errors  PL_LIMIT: more words than a frame has fields.
 */
enum pl_status pl_exec_words(const struct pl_sshd *sshd, const char *run_dir, const char *host, enum pl_exec_kind kind,
                             const struct pl_strv *program, struct pl_strv *argv,
                             struct pl_error *reterr) PL_MUST_CHECK;

/** Make the argument vector of a relay that listens on `port` instead of sshd. */
enum pl_status pl_disconnect_words(const char *self_path, int port, const char *reason, struct pl_strv *argv,
                                   struct pl_error *reterr) PL_MUST_CHECK;

enum { PL_COMMAND_MAX_WORDS = 4096 };

/**
 * Parses the launch daemon's command line as mpirun gives it to its remote agent: text for a shell. It is split here by
 * our own rules and never reaches a shell. Only Open MPI's own daemons are accepted.
 *
 * Splits `text` by the rules of pl_strv_split() into `words`, an empty list. Assignments and `export` commands before
 * the command, separated by ';', are dropped, because this host's own environment is the right one. Code that runs
 * ~/.profile first is dropped too. The rest must be one command named orted or prted. `--daemonize` is dropped, so that
 * the daemon stays a child of process 1.
 *
 * Errors  PL_INVALID: a quote that does not end, an operator of a shell (;&|<>()`) in another place, another program,
 *         nothing. A $ is kept as it is and not expanded. PL_LIMIT: more than PL_COMMAND_MAX_WORDS words.
 */
enum pl_status pl_command_split_daemon(const char *text, struct pl_strv *words, struct pl_error *reterr) PL_MUST_CHECK;

/** Run the relay with the words after `relay`. The result is the exit code. */
int pl_relay_run(const struct pl_strv *words, const struct pl_environment *environment);

#endif
