/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A host's slots: its devices in equal parts. Each part runs one trial at a time. The devices are GPUs if the host has
 * any, else CPUs. All hosts have as many slots as the master.
 *
 * Test  tests/unit/programs/sweep/test_slots.c
 */
#ifndef PL_PROGRAMS_SWEEP_SLOTS_H
#define PL_PROGRAMS_SWEEP_SLOTS_H

#include "entrypoint/job/job.h"
#include "programs/sweep/space.h"

struct pl_slots {
    int count;
    int cpus, gpus; /* devices of one slot; if there are more slots than GPUs, several slots share a GPU */
};

/**
 * Divides `cpus` and `gpus` of `host` among trials of `processes` each. If `wanted` is 0, the number of slots follows.
 *
 * Errors  PL_INVALID: there are fewer devices than `processes`.
 */
enum pl_status pl_slots_cut(const char *host, int cpus, int gpus, int processes, int wanted, struct pl_slots *ret_slots,
                            struct pl_error *reterr) PL_MUST_CHECK;

/** The same for the CPUs that this process may use and the GPUs that it may see. */
enum pl_status pl_slots_of_job(const struct pl_job *job, const struct pl_sweep_space *space, struct pl_slots *ret_slots,
                               struct pl_error *reterr) PL_MUST_CHECK;

#endif
