/* SPDX-License-Identifier: Apache-2.0 */
/** What the code directory asks to be installed before the program starts. */
#ifndef PL_ENTRYPOINT_LAUNCH_REQUIREMENTS_H
#define PL_ENTRYPOINT_LAUNCH_REQUIREMENTS_H

#include "entrypoint/launch/program.h"

/**
 * Add the steps that install requirements.txt and the package in the code directory, whatever the kind of the program,
 * and set `program->may_install`. `pending`: the code has yet to be fetched.
 *
 * Errors  PL_NOT_FOUND, PL_UNSUPPORTED where the image lacks what a step needs.
 * Test    tests/integration/contract.py, tests/integration/codeartifact.py
 */
enum pl_status pl_requirements_add(const struct pl_job *job, struct pl_program *program, bool pending,
                                   struct pl_launch_plan *plan, struct pl_error *reterr) PL_MUST_CHECK;

#endif
