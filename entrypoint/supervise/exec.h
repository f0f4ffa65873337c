/* SPDX-License-Identifier: Apache-2.0 */
/**
 * EXEC: process 1 runs a program for somebody else of this host, under a shim of its own. It is how one program of the
 * job starts another on another host: `ssh HOST` leads to a relay there (ssh/exec.h), which asks its process 1.
 *
 * The client sends HELLO "exec" and then one EXEC frame: the program's words, and with them from one to three
 * descriptors, which become its first standard ones. The others are process 1's own, so that what it prints there is in
 * this host's log. From then on the connection leads to the shim: BEGUN, ENDED; STOP passes a signal on, and the
 * connection's end kills the program. Process 1 carries none of its bytes, and waits for nothing. A stop of the job is
 * sent to the program of the plan and not to those: who started them has to end them, and what is left at the end of
 * the job is killed.
 *
 * The socket lies in the run directory: only this user and root reach it, and another host's programs by the job's key.
 *
 * Test  tests/integration/exec.sh
 */
#ifndef PL_ENTRYPOINT_SUPERVISE_EXEC_H
#define PL_ENTRYPOINT_SUPERVISE_EXEC_H

#include "entrypoint/supervise/supervise.h"

/**
 * Runs the program that the frame names, and takes ownership of the connection. A connection whose EXEC frame is not
 * complete is dropped.
 */
void pl_exec_run(struct pl_supervisor *supervisor, struct pl_connection *connection, const struct pl_frame *frame);

#endif
