/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The version of Paceline. Only programs that print it are linked with it, because it differs with each commit.
 *
 * Test  tests/unit/entrypoint/test_version.sh, tests/integration/command_line.py
 */
#ifndef PL_ENTRYPOINT_VERSION_H
#define PL_ENTRYPOINT_VERSION_H

/** The version and the commit that was built: "0.2.0 (commit abcdef0)". */
extern const char pl_version[];

#endif
