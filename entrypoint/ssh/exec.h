/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Runs a program on another host of the job in the way of ssh: as a child of the caller. The standard descriptors of
 * the child are those of the program. Its exit code is the program's exit code, 128 + the number of a signal that ended
 * the program, or 255 if there is no connection. ssh connects to that host's sshd with the job's key, and the relay
 * there has process 1 run the program (see supervise/exec.h). Each program has its own session, so that its bytes delay
 * neither another program nor heartbeats.
 *
 * Test  tests/integration/exec.sh
 */
#ifndef PL_ENTRYPOINT_SSH_EXEC_H
#define PL_ENTRYPOINT_SSH_EXEC_H

#include "entrypoint/ssh/sshd.h"

/** The first word of the request for such a session, and the space after it. */
#define PL_EXEC_PREFIX "exec "

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

/** The relay's part on that host: have process 1 run `request`, and wait for its end. Returns the exit code. */
int pl_exec_relay(const char *run_dir, const char *request);

#endif
