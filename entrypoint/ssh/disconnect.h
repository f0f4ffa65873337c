/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What listens in the place of an sshd that cannot run on this host: it gives each client the reason by SSH's own
 * message of disconnection, which ssh prints, and ends when one has it. Nothing proves who speaks: who can answer in
 * the host's place could keep the job from starting anyway.
 *
 * Source  RFC 4253, 4.2 (greeting), 6 (packet), 11.1 (disconnection)
 * Test    tests/integration/prepares.sh
 */
#ifndef PL_ENTRYPOINT_SSH_DISCONNECT_H
#define PL_ENTRYPOINT_SSH_DISCONNECT_H

#include "entrypoint/job/strv.h"

/** What stands in front of the reason. */
#define PL_DISCONNECT_BEGIN "Paceline has no sshd here: "

/** The option of `paceline relay` that does it. */
#define PL_DISCONNECT_OPTION "--disconnect"

/** The argument vector of such a listener on `port`. */
enum pl_status pl_disconnect_words(const char *self_path, int port, const char *reason, struct pl_strv *argv,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/** Listen, and give `reason`. Returns the exit code. */
int pl_disconnect_say(int port, const char *reason);

#endif
