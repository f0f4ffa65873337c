/* SPDX-License-Identifier: Apache-2.0 */
/**
 * EXEC: process 1 runs a program for another program of this host, under a shim of its own. By it one program of the
 * job starts another on another host: `ssh HOST` leads to a relay there (ssh/exec.h), which asks the process 1 of that
 * host.
 *
 * The client sends HELLO "exec" and then one EXEC frame: the program's words, and with them one to three descriptors,
 * which become the program's first standard descriptors. The missing ones are those of process 1, so that the program
 * prints to this host's log. From then on the connection leads to the shim, which sends BEGUN and ENDED. STOP forwards
 * a signal, and the end of the connection kills the program. Process 1 carries none of the program's bytes, and never
 * waits for it. A stop of the job is sent to the program of the plan and not to these programs: their clients must end
 * them, and those that are left at the end of the job are killed.
 *
 * The socket lies in the run directory. Only this user and root can use it, and programs of another host that have the
 * job's key.
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
