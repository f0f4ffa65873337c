/* SPDX-License-Identifier: Apache-2.0 */
/* Divides a host's devices into slots. */
#include "programs/sweep/slots.h"

#include "base/cpus.h"
#include "entrypoint/job/devices.h"

#include <string.h>

enum pl_status pl_slots_cut(const char *host, int cpus, int gpus, int processes, int wanted, struct pl_slots *ret_slots,
                            struct pl_error *reterr)
{
    const int devices = gpus > 0 ? gpus : cpus;
    struct pl_slots slots = {.count = wanted > 0 ? wanted : devices / processes};

    if (slots.count == 0) {
        return pl_error_set(reterr, PL_INVALID,
                            "the sweep has %d processes per trial, and host %.200s has %d %s: expected at most %d "
                            "processes, or the number of slots in \"slots\"",
                            processes, host, devices, gpus > 0 ? "GPUs" : "CPUs", devices);
    }
    slots.cpus = cpus / slots.count > 0 ? cpus / slots.count : 1;
    slots.gpus = gpus / slots.count > 0 ? gpus / slots.count : gpus > 0;
    if (slots.gpus > 0 && slots.gpus < processes) {
        slots.gpus = processes < gpus ? processes : gpus; /* slots share these GPUs */
    }
    *ret_slots = slots;
    return PL_OK;
}

enum pl_status pl_slots_of_job(const struct pl_job *job, const struct pl_sweep_space *space, struct pl_slots *ret_slots,
                               struct pl_error *reterr)
{
    const char *visible = pl_environment_get(job->process, "CUDA_VISIBLE_DEVICES");
    const int limit = pl_devices_cpu_limit("");
    int gpus = job->gpus, cpus = pl_devices_cpus();
    struct pl_cpus allowed;

    if (sched_getaffinity(0, sizeof(allowed), allowed.sets) == 0) {
        cpus = CPU_COUNT_S(sizeof(allowed), allowed.sets);
    }
    cpus = limit > 0 && limit < cpus ? limit : cpus;
    if (gpus > 0 && visible) {
        gpus = 0;
        for (const char *at = visible; *at != '\0'; at += strcspn(at, ","), at += *at == ',') {
            gpus += strcspn(at, ",") > 0;
        }
    }
    return pl_slots_cut(job->current_host, cpus, gpus, space->processes, space->slots, ret_slots, reterr);
}
