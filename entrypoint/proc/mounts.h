/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Mounts and namespaces, with or without privileges.
 *
 * Source  mount_namespaces(7), user_namespaces(7), mount_setattr(2)
 * Test    tests/integration/local.sh
 */
#ifndef PL_ENTRYPOINT_PROC_MOUNTS_H
#define PL_ENTRYPOINT_PROC_MOUNTS_H

#include "base/status.h"

/** Enters a new user namespace with only this user in it, where this process has the rights to mount. */
enum pl_status pl_mounts_enter_users(struct pl_error *reterr) PL_MUST_CHECK;

/** Shows `from` at `to`, with all mounts below it. */
enum pl_status pl_mounts_bind(const char *from, const char *to, struct pl_error *reterr) PL_MUST_CHECK;

/** Makes a mount read-only. Since Linux 5.12 the mounts below it become read-only too. */
enum pl_status pl_mounts_make_read_only(const char *path, struct pl_error *reterr) PL_MUST_CHECK;

/** Mounts an empty file system in memory; `mode` is "mode=0755". */
enum pl_status pl_mounts_memory(const char *path, const char *mode, struct pl_error *reterr) PL_MUST_CHECK;

#endif
