/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A ManifestFile on this machine: the names of files below a folder. The folder stands for the manifest's prefix, which
 * is not looked at.
 *
 * Test  tests/integration/local.sh
 */
#ifndef PL_PROGRAMS_LOCAL_MANIFEST_H
#define PL_PROGRAMS_LOCAL_MANIFEST_H

#include "programs/local/files.h"

/** Adds the names, sorted, each once. PL_NOT_FOUND if the folder lacks one. */
enum pl_status pl_local_manifest_read(const char *path, const char *folder, struct pl_local_files *files,
                                      struct pl_error *reterr) PL_MUST_CHECK;

#endif
