/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What stays of a job for people and programs: job.json, which has the members of DescribeTrainingJob that have a
 * meaning here, and report.html, which `paceline report` makes of it, the logs and the trees.
 *
 * Test  tests/integration/report.py
 */
#ifndef PL_PROGRAMS_LOCAL_PAGE_H
#define PL_PROGRAMS_LOCAL_PAGE_H

#include "programs/local/local.h"

/** Writes both while the trees are there. A failure is a warning. */
void pl_local_page_write(struct pl_local *local);

#endif
