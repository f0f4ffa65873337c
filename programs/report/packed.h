/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The files of output.tar.gz that a report is made of.
 *
 * Test  tests/integration/report.py
 */
#ifndef PL_PROGRAMS_REPORT_PACKED_H
#define PL_PROGRAMS_REPORT_PACKED_H

#include "base/status.h"

/**
 * Unpacks metrics.jsonl, trials.jsonl and all rings of the archive `path` into `folder`, where a '/' of a name becomes
 * '-': an archive of anybody writes nothing outside of it.
 *
 * Errors  PL_LIBRARY (not such an archive), PL_SYSTEM.
 */
enum pl_status pl_packed_take(const char *path, const char *folder, struct pl_error *reterr) PL_MUST_CHECK;

#endif
