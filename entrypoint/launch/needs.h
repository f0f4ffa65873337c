/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What a launch needs of the image: programs on PATH, and modules of Python. What is missing fails `train` before
 * anything is started or waited for, and `plan` with the same words.
 *
 * Test  tests/unit/entrypoint/launch/test_needs.c, tests/integration/contract.py
 */
#ifndef PL_ENTRYPOINT_LAUNCH_NEEDS_H
#define PL_ENTRYPOINT_LAUNCH_NEEDS_H

#include "entrypoint/launch/plan.h"
#include "entrypoint/launch/program.h"

/**
 * The launch starts the program `name` of PATH; `remedy` says how an image gets it. Where pip may still bring it a
 * missing one is a warning.
 *
 * Errors  PL_NOT_FOUND.
 */
enum pl_status pl_needs_tool(const struct pl_job *job, const struct pl_program *program, const char *name,
                             const char *remedy, struct pl_launch_plan *plan, struct pl_error *reterr) PL_MUST_CHECK;

/** Where sshd is looked for, which is on no user's PATH. */
#define PL_NEEDS_SSHD_PATH "/usr/sbin:/usr/local/sbin:/usr/bin:/sbin"

/** Where the keys come from unless PACELINE_SSH_DIR says otherwise: made when the image is built. */
#define PL_NEEDS_KEYS_DIR "/etc/paceline/ssh"

/** Says that the key file `path` is missing, and what to do. Returns PL_NOT_FOUND. */
enum pl_status pl_needs_keys_missing(const char *path, struct pl_error *reterr);

/**
 * Where the plan needs the link between the hosts: ssh on the master, sshd on the others, and keys or a secret. Errors:
 * PL_NOT_FOUND.
 */
enum pl_status pl_needs_link(const struct pl_job *job, const struct pl_launch_plan *plan,
                             struct pl_error *reterr) PL_MUST_CHECK;

/** Add a step that asks Python whether it has `module`; where it has not, the step ends with the words `sentence`. */
enum pl_status pl_needs_module(const struct pl_program *program, const char *module, const char *sentence,
                               struct pl_launch_plan *plan, struct pl_error *reterr) PL_MUST_CHECK;

#endif
