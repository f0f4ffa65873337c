/* SPDX-License-Identifier: Apache-2.0 */
/** Companions: the programs and libraries of libexec that the front binary starts, or has started. */
#ifndef PL_ENTRYPOINT_LAUNCH_COMPANION_H
#define PL_ENTRYPOINT_LAUNCH_COMPANION_H

#include "base/status.h"

/**
 * Find the companion `name` ("paceline-unpack", "mnist") of the binary at `self_path`: in ../libexec/paceline, seen
 * from its folder, else beside it. The caller frees `*ret_path`; PL_NOT_FOUND names the places looked at.
 */
enum pl_status pl_companion_find(const char *self_path, const char *name, char **ret_path,
                                 struct pl_error *reterr) PL_MUST_CHECK;

/** The other way: finds the front binary, seen from the folder of this program. The caller frees `*ret_path`. */
enum pl_status pl_companion_find_paceline(char **ret_path, struct pl_error *reterr) PL_MUST_CHECK;

#endif
