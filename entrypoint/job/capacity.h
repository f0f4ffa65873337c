/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The order of hosts by the capacity units of resourceconfig.json's `topology`: those of one unit have the fast links
 * of an UltraServer between them, and ranks send most to their neighbours.
 *
 * Test  tests/unit/entrypoint/job/test_job.c
 */
#ifndef PL_ENTRYPOINT_JOB_CAPACITY_H
#define PL_ENTRYPOINT_JOB_CAPACITY_H

#include "base/json/python_json.h"
#include "entrypoint/job/strv.h"

/**
 * Put hosts of the same unit next to each other, where the first of them is; else the order stays, and the first host
 * is the first. `topology` is a list of {"hostName": TEXT, "capacityUnitId": TEXT}, or NULL; of entries of another
 * form, and of hosts without one, the unit is not known, and they stay alone.
 */
enum pl_status pl_capacity_order(const struct pl_python_json *topology, struct pl_strv *hosts,
                                 struct pl_error *reterr) PL_MUST_CHECK;

#endif
