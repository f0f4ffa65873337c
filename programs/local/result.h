/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The end of a job as SageMaker shows it: packs the models and outputs of all hosts, and prints the status, the
 * failure's reason, times, metrics and files.
 *
 * Test  tests/integration/local.sh, tests/integration/report.py
 */
#ifndef PL_PROGRAMS_LOCAL_RESULT_H
#define PL_PROGRAMS_LOCAL_RESULT_H

#include "programs/local/local.h"

enum { PL_LOCAL_REASON_CHARACTERS = 1024 }; /* SageMaker's limit of FailureReason */

/** Packs model.tar.gz and output.tar.gz. A name that two hosts wrote is a warning; the first host's file is packed. */
enum pl_status pl_local_result_pack(struct pl_local *local, struct pl_error *reterr) PL_MUST_CHECK;

/** Tells in one sentence what the hosts made of a stop; nothing if there was none. */
void pl_local_result_say_stop(const struct pl_local *local);

void pl_local_result_print(const struct pl_local *local);

/**
 * Writes job.json, which has the members of DescribeTrainingJob that have a meaning here, and lets `paceline report`
 * make report.html of it, the logs and the trees, which are still there. A failure is a warning.
 */
void pl_local_result_write(struct pl_local *local);

#endif
