/* SPDX-License-Identifier: Apache-2.0 */
/** Tells which files there are in place of one that is not at the expected path. */
#ifndef PL_ENTRYPOINT_LAUNCH_NEARBY_H
#define PL_ENTRYPOINT_LAUNCH_NEARBY_H

#include "base/text.h"

/**
 * Append "the code directory has 'src/train.py': use that path" if one file in the folders below `directory` has the
 * last name of `wanted`; otherwise the five files whose names are nearest to it, the nearest first; nothing if there is
 * no file. The search has a limit of levels and entries. Folders and files with a leading dot are left out, links are
 * not followed, and folders that cannot be read are skipped: the result is only for a message.
 *
 * Test  tests/unit/entrypoint/launch/test_needs.c
 */
void pl_nearby_describe(const char *directory, const char *wanted, struct pl_text *text);

#endif
