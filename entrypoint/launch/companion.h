/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Companions: the programs and libraries of libexec that the front binary starts, directly or through another program.
 */
#ifndef PL_ENTRYPOINT_LAUNCH_COMPANION_H
#define PL_ENTRYPOINT_LAUNCH_COMPANION_H

#include "base/status.h"

/**
 * Find the companion `name` ("paceline-unpack", "mnist") of the binary at `self_path`: in ../libexec/paceline, relative
 * to its folder, else in its folder. The caller frees `*ret_path`. PL_NOT_FOUND names both places.
 */
enum pl_status pl_companion_find(const char *self_path, const char *name, char **ret_path,
                                 struct pl_error *reterr) PL_MUST_CHECK;

/** Find the front binary, relative to the folder of the running program. The caller frees `*ret_path`. */
enum pl_status pl_companion_find_paceline(char **ret_path, struct pl_error *reterr) PL_MUST_CHECK;

#endif
