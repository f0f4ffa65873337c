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

/**
 * The launch starts torchrun. Debian 12's own one, of torch 1.13, fails under Python 3.11: it is refused, or where pip
 * may bring another one it is a warning.
 *
 * Errors  PL_NOT_FOUND, PL_UNSUPPORTED.
 */
enum pl_status pl_needs_torchrun(const struct pl_job *job, const struct pl_program *program,
                                 struct pl_launch_plan *plan, struct pl_error *reterr) PL_MUST_CHECK;

/** Where sshd is looked for, which is on no user's PATH. */
#define PL_NEEDS_SSHD_PATH "/usr/sbin:/usr/local/sbin:/usr/bin:/sbin"

/** Where the plan needs the link between the hosts: ssh on the master, sshd on the others. Errors: PL_NOT_FOUND. */
enum pl_status pl_needs_link(const struct pl_job *job, const struct pl_launch_plan *plan,
                             struct pl_error *reterr) PL_MUST_CHECK;

/** Add a step that asks Python whether it has `module`; where it has not, the step ends with the words `sentence`. */
enum pl_status pl_needs_module(const struct pl_program *program, const char *module, const char *sentence,
                               struct pl_launch_plan *plan, struct pl_error *reterr) PL_MUST_CHECK;

#endif
