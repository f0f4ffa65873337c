/* SPDX-License-Identifier: Apache-2.0 */
/** A file that is not where its name says, and lies in a folder below. */
#ifndef PL_ENTRYPOINT_LAUNCH_NEARBY_H
#define PL_ENTRYPOINT_LAUNCH_NEARBY_H

#include <limits.h>
#include <stdbool.h>

/**
 * The path, relative to `directory`, of the only file with the last name of `wanted` in the folders below it. False
 * when there is none or several in the levels and entries that are searched, which are bounded. Folders with a leading
 * dot are left out and links are not followed. For a message: what cannot be read is not there.
 *
 * Test  tests/unit/entrypoint/launch/test_needs.c
 */
bool pl_nearby_find(const char *directory, const char *wanted, char ret_path[PATH_MAX]);

#endif
