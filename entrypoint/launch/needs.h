/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Checks what a launch needs of the image: programs on PATH, and modules of Python. If something is missing, `train`
 * fails before it starts or waits for anything, and `plan` fails with the same message.
 *
 * Test  tests/unit/entrypoint/test_jobs.c, tests/integration/contract.py
 */
#ifndef PL_ENTRYPOINT_LAUNCH_NEEDS_H
#define PL_ENTRYPOINT_LAUNCH_NEEDS_H

#include "entrypoint/launch/plan.h"
#include "entrypoint/launch/program.h"

/**
 * Checks that PATH has the program `name`, which the launch starts; `remedy` says how an image gets it. If it is
 * missing but pip may still install it, this is only a warning.
 *
 * Errors  PL_NOT_FOUND.
 */
enum pl_status pl_needs_tool(const struct pl_job *job, const struct pl_program *program, const char *name,
                             const char *remedy, struct pl_launch_plan *plan, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Checks that there is a torchrun for the launch. The torchrun of Debian 12, which belongs to torch 1.13, fails under
 * Python 3.11. That is an error, or a warning if pip may install another one.
 *
 * Errors  PL_NOT_FOUND, PL_UNSUPPORTED.
 */
enum pl_status pl_needs_torchrun(const struct pl_job *job, const struct pl_program *program,
                                 struct pl_launch_plan *plan, struct pl_error *reterr) PL_MUST_CHECK;

/** The folders in which sshd is looked for; most of them are on no user's PATH. */
#define PL_NEEDS_SSHD_PATH "/usr/sbin:/usr/local/sbin:/usr/bin:/sbin"

/** The folder of the keys unless PACELINE_SSH_DIR names one. They are made when the image is built. */
#define PL_NEEDS_KEYS_DIR "/etc/paceline/ssh"

/** Says that the key file `path` is missing, and what to do. Returns PL_NOT_FOUND. */
enum pl_status pl_needs_keys_missing(const char *path, struct pl_error *reterr);

/**
 * If the plan needs the link between the hosts: check for ssh on the master, for sshd on the others, and for keys or a
 * secret. Errors: PL_NOT_FOUND.
 */
enum pl_status pl_needs_link(const struct pl_job *job, const struct pl_launch_plan *plan,
                             struct pl_error *reterr) PL_MUST_CHECK;

/** Add a step that asks Python whether it has `module`. If not, the step ends with the message `sentence`. */
void pl_needs_module(const struct pl_program *program, const char *module, const char *sentence,
                     struct pl_launch_plan *plan);

#endif
