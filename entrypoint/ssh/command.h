/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Parses the launch daemon's command line as mpirun gives it to its remote agent: text for a shell. It is split here by
 * our own rules and never reaches a shell. Only Open MPI's own daemons are accepted.
 */
#ifndef PL_ENTRYPOINT_SSH_COMMAND_H
#define PL_ENTRYPOINT_SSH_COMMAND_H

#include "entrypoint/job/strv.h"

enum { PL_COMMAND_MAX_WORDS = 4096 };

/**
 * Split `text` by the rules of pl_strv_split() into `words`, an empty list. Assignments and `export` commands before
 * the command, separated by ';', are dropped, because this host's own environment is the right one. Code that runs
 * ~/.profile first is dropped too. The rest must be one command named orted or prted. `--daemonize` is dropped, so that
 * the daemon stays a child of process 1.
 *
 * Errors  PL_INVALID: quotes that do not end, an operator or expansion other than $PATH-like ones in dropped
 *         assignments, another program, nothing. PL_LIMIT: more than PL_COMMAND_MAX_WORDS words.
 */
enum pl_status pl_command_split_daemon(const char *text, struct pl_strv *words, struct pl_error *reterr) PL_MUST_CHECK;

#endif
