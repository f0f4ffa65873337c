/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Orders hosts by the capacity units in the `topology` of resourceconfig.json. The hosts of one unit have the fast
 * links of an UltraServer between them, and ranks send most data to their neighbours.
 *
 * Test  tests/unit/entrypoint/job/test_job.c
 */
#ifndef PL_ENTRYPOINT_JOB_CAPACITY_H
#define PL_ENTRYPOINT_JOB_CAPACITY_H

#include "base/json/python_json.h"
#include "entrypoint/job/strv.h"

/**
 * Put hosts of the same unit next to each other, at the place of the first of them. Otherwise the order stays, and the
 * first host remains the first. `topology` is a list of {"hostName": TEXT, "capacityUnitId": TEXT}, or NULL. If an
 * entry has another form, or a host has no entry, its unit is not known, and the host stays where it is.
 */
enum pl_status pl_capacity_order(const struct pl_python_json *topology, struct pl_strv *hosts,
                                 struct pl_error *reterr) PL_MUST_CHECK;

#endif
