/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A host's slots: its devices cut into equal parts, in each of which a trial runs. GPUs are cut if there are any,
 * else CPUs.
 *
 * Test  tests/unit/programs/sweep/test_slots.c
 */
#ifndef PL_PROGRAMS_SWEEP_SLOTS_H
#define PL_PROGRAMS_SWEEP_SLOTS_H

#include "base/text.h"
#include "entrypoint/job/job.h"
#include "programs/sweep/space/space.h"

struct pl_slots_machine {
    const char *host;
    int cpus, gpus;
    const char *visible; /* CUDA_VISIBLE_DEVICES, which the GPUs are counted by; NULL: all */
};

struct pl_slots {
    struct pl_slots_machine machine;
    int count;
    int processes;
    int cpus, gpus; /* of a slot; with more slots than GPUs several slots share one */
};

/** What this host has: CPUs that this process may keep busy, and of `gpus` those that `visible` leaves. */
struct pl_slots_machine pl_slots_look(const char *host, int gpus, const char *visible);

/**
 * Slots for trials of `processes`; `wanted` 0: as many as the devices make.
 *
 * Errors  PL_INVALID: there are less devices than `processes`.
 */
enum pl_status pl_slots_cut(const struct pl_slots_machine *machine, int processes, int wanted,
                            struct pl_slots *ret_slots, struct pl_error *reterr) PL_MUST_CHECK;

/** What pl_slots_look() and pl_slots_cut() make of this host for a job's sweep. */
enum pl_status pl_slots_of_job(const struct pl_job *job, const struct pl_sweep_space *space, struct pl_slots *ret_slots,
                               struct pl_error *reterr) PL_MUST_CHECK;

/**
 * A port for each of `count` slots, at which torchrun's ranks of one host meet: none of them is in use now, and no
 * connection gets one by itself.
 *
 * Errors  PL_LIMIT: so many are not free. Ownership: the caller frees `*ret_ports`.
 */
enum pl_status pl_slots_find_ports(int count, int **ret_ports, struct pl_error *reterr) PL_MUST_CHECK;

/** Append CUDA_VISIBLE_DEVICES of slot number `slot`; nothing without GPUs. */
void pl_slots_visible(const struct pl_slots *slots, int slot, struct pl_text *text);

#endif
