/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A host's slots: its devices in equal parts. Each part runs one trial at a time. The devices are GPUs if the host has
 * any, else CPUs.
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
    const char *visible; /* CUDA_VISIBLE_DEVICES, the devices that `gpus` counts; NULL if all are visible */
};

struct pl_slots {
    struct pl_slots_machine machine;
    int count;
    int processes;
    int cpus, gpus; /* devices of one slot; if there are more slots than GPUs, several slots share a GPU */
};

/** Returns the devices of this host: the CPUs that this process may use, and those of `gpus` that `visible` leaves. */
struct pl_slots_machine pl_slots_look(const char *host, int gpus, const char *visible);

/**
 * Makes slots for trials of `processes` each. If `wanted` is 0, their number follows from the devices.
 *
 * Errors  PL_INVALID: there are fewer devices than `processes`.
 */
enum pl_status pl_slots_cut(const struct pl_slots_machine *machine, int processes, int wanted,
                            struct pl_slots *ret_slots, struct pl_error *reterr) PL_MUST_CHECK;

/** Makes the slots of this host for a job's sweep, by pl_slots_look() and pl_slots_cut(). */
enum pl_status pl_slots_of_job(const struct pl_job *job, const struct pl_sweep_space *space, struct pl_slots *ret_slots,
                               struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Finds a port for each of `count` slots, for the rendezvous of torchrun's ranks on one host. The ports are free now,
 * and the system gives them to no connection by itself.
 *
 * Ownership  the caller frees `*ret_ports`.
 * Errors     PL_LIMIT: there are not enough free ports.
 */
enum pl_status pl_slots_find_ports(int count, int **ret_ports, struct pl_error *reterr) PL_MUST_CHECK;

/** Appends CUDA_VISIBLE_DEVICES of slot number `slot`; nothing if there are no GPUs. */
void pl_slots_visible(const struct pl_slots *slots, int slot, struct pl_text *text);

#endif
