/* SPDX-License-Identifier: Apache-2.0 */
/** Finds a file that is not at the expected path but in a folder below. */
#ifndef PL_ENTRYPOINT_LAUNCH_NEARBY_H
#define PL_ENTRYPOINT_LAUNCH_NEARBY_H

#include <limits.h>
#include <stdbool.h>

/**
 * Find the path, relative to `directory`, of the only file in the folders below that has the last name of `wanted`.
 * Returns false if there is no such file or several, within a limit of levels and entries. Folders with a leading dot
 * are left out, links are not followed, and folders that cannot be read are skipped: the result is only for a message.
 *
 * Test  tests/unit/entrypoint/launch/test_needs.c
 */
bool pl_nearby_find(const char *directory, const char *wanted, char ret_path[PATH_MAX]);

#endif
