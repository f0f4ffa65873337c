/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A program on another host of the job, as ssh has it: a child of the caller whose standard descriptors are the
 * program's and whose exit code is the program's, 128 + the number of a signal that ended it, and 255 if there is no
 * connection. The way is ssh to that host's sshd by the job's key, whose relay has process 1 there run the program (see
 * supervise/exec.h). Each program has a session of its own, so that bytes of one hold up no other and no heartbeat.
 *
 * Test  tests/integration/exec.sh
 */
#ifndef PL_ENTRYPOINT_SSH_EXEC_H
#define PL_ENTRYPOINT_SSH_EXEC_H

#include "entrypoint/ssh/sshd.h"

/** The first word of what such a session asks for, and the space after it. */
#define PL_EXEC_PREFIX "exec "

enum pl_exec_kind {
    PL_EXEC_STDIO, /* standard input, output and error are those of the session */
    /* standard input is a socket that is both input and output of the session; what the program prints is in its
     * host's log */
    PL_EXEC_CHANNEL,
};

/**
 * Append the words that run `program`, from the master's run directory `run_dir`, on `host`.
 *
 * Errors  PL_LIMIT: more words than a frame has fields.
 */
enum pl_status pl_exec_words(const struct pl_sshd *sshd, const char *run_dir, const char *host, enum pl_exec_kind kind,
                             const struct pl_strv *program, struct pl_strv *argv,
                             struct pl_error *reterr) PL_MUST_CHECK;

/** The relay's part on that host: have `request` done, and wait for its end. Returns the exit code. */
int pl_exec_relay(const char *run_dir, const char *request);

#endif
