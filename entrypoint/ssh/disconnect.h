/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Listens in place of an sshd that cannot run on this host. It gives each client the reason by SSH's own disconnection
 * message, which ssh prints, and ends after the first client that has read it. The sender of the message is not
 * authenticated: an attacker who can answer in the host's place could prevent the job's start anyway.
 *
 * Source  RFC 4253, 4.2 (greeting), 6 (packet), 11.1 (disconnection)
 * Test    tests/integration/prepares.sh
 */
#ifndef PL_ENTRYPOINT_SSH_DISCONNECT_H
#define PL_ENTRYPOINT_SSH_DISCONNECT_H

#include "entrypoint/job/strv.h"

/** The text before the reason. */
#define PL_DISCONNECT_BEGIN "Paceline has no sshd here: "

/** The option of `paceline relay` that starts the listener. */
#define PL_DISCONNECT_OPTION "--disconnect"

/** Make the argument vector of such a listener on `port`. */
enum pl_status pl_disconnect_words(const char *self_path, int port, const char *reason, struct pl_strv *argv,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/** Listen, and send `reason` to clients. Returns the exit code. */
int pl_disconnect_say(int port, const char *reason);

#endif
