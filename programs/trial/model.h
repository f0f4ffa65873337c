/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Whether the model of a trial can be copied to another place.
 *
 * Test  tests/unit/programs/trial/test_model.c
 */
#ifndef PL_PROGRAMS_TRIAL_MODEL_H
#define PL_PROGRAMS_TRIAL_MODEL_H

#include "base/status.h"

/**
 * Checks the model in the folder `path`. `*ret_empty` tells whether there is none. Symbolic links may lead to files of
 * the model, also by absolute paths below `seen_as`, the path of the model inside its trial.
 *
 * Errors  PL_INVALID with the name of a socket, a FIFO, a device, or a link that leads out of the folder.
 */
enum pl_status pl_trial_model_check(const char *path, const char *seen_as, bool *ret_empty,
                                    struct pl_error *reterr) PL_MUST_CHECK;

#endif
