/* SPDX-License-Identifier: Apache-2.0 */
/*
 * paceline-world: shows topology, backends and why each is off, devices, algorithms by size, and the settings in force.
 * It is what `paceline info` runs for the runtime's part.
 */
#include "collectives/world.h"
#include "base/cpus.h"
#include "base/knob.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "collectives/bootstrap.h"
#include "collectives/reduce/kernel.h"
#include "collectives/world_private.h"
#include "device/choose.h"
#include "device/device.h"
#include "device/device_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *source_text(enum pl_knob_source source)
{
    return source == PL_KNOB_FROM_PACELINE ? "PACELINE_*" : source == PL_KNOB_FROM_HOROVOD ? "HOROVOD_*" : "default";
}

static void print_knobs(const struct pl_knobs *knobs)
{
    puts("settings (PACELINE_NAME in the environment, paceline_name as a hyperparameter):");
    for (unsigned i = 0; i < PL_KNOB_COUNT; i++) {
        const struct pl_knob_info *info = pl_knob_info((enum pl_knob)i);
        const struct pl_knob_value *value = &knobs->values[i];

        printf("  %-18s %s%s%s (%s): %s\n", info->name, value->text[0] ? value->text : "empty", *info->unit ? " " : "",
               info->unit, source_text(value->source), info->help);
    }
}

static void print_device(int ordinal)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_device *device;
    const struct pl_device_info *info;
    struct pl_device_affinity affinity;
    char text[1200];

    if (pl_device_open(ordinal, &device, &error) != PL_OK) {
        printf("  %d: %s\n", ordinal, pl_error_text(&error, text, sizeof(text)));
        return;
    }
    info = pl_device_info(device);
    pl_device_affinity_read("", info->pci, &affinity);
    printf("  %d: %s, %s, %s, sm_%d%d, %d multiprocessors, %.1f GiB, driver for CUDA %d.%d\n", ordinal, info->name,
           info->uuid, info->pci, info->compute_major, info->compute_minor, info->multiprocessors,
           (double)info->memory_bytes / 1073741824.0, info->driver_version / 1000, info->driver_version % 1000 / 10);
    if (affinity.numa_node >= 0 || affinity.cpu_list[0] || affinity.nic[0]) {
        printf("     NUMA node %d, beside CPUs %s, nearest network interface %s%s\n", affinity.numa_node,
               affinity.cpu_list[0] ? affinity.cpu_list : "unknown", affinity.nic[0] ? affinity.nic : "unknown",
               affinity.nic_by_node ? " (same node)" : "");
    }
    pl_device_close(device);
}

static void print_devices(void)
{
    struct pl_error error = PL_ERROR_NONE;
    char text[1200];
    int count = 0;

    if (pl_device_count(&count, &error) != PL_OK) {
        printf("devices: %s\n", pl_error_text(&error, text, sizeof(text)));
        return;
    }
    printf("devices: %d\n", count);
    for (int i = 0; i < count; i++) {
        print_device(i);
    }
}

/*
 * Makes the world as a training program would: with a GPU for each rank if there are GPUs. If a GPU cannot be used,
 * `ret_reason` tells why, and the world has no GPUs.
 */
static enum pl_status make_world(struct pl_bootstrap *bootstrap, struct pl_device **ret_device,
                                 struct pl_world **ret_world, struct pl_error *ret_reason, struct pl_error *reterr)
{
    if (pl_world_new_on_device(bootstrap, NULL, NULL, ret_device, ret_world, ret_reason) == PL_OK) {
        return PL_OK;
    }
    return pl_world_new(bootstrap, NULL, ret_world, reterr);
}

/* Prints the CPUs of the ranks; each rank knows only its own. Collective; rank 0 prints one line per host. */
static enum pl_status print_placement(struct pl_world *world, struct pl_error *reterr)
{
    const size_t size = (size_t)pl_world_size(world);
    PL_AUTO_FREE struct pl_cpus *all = pl_memory_new(size, sizeof(*all), reterr);
    PL_AUTO_FREE struct pl_cpus_of *ranks = pl_memory_new(size, sizeof(*ranks), reterr);
    PL_AUTO_TEXT struct pl_text line = PL_TEXT_NONE;
    struct pl_cpus own;
    struct pl_collective gather = {
        .kind = PL_ALLGATHER, .dtype = PL_UINT8, .count = sizeof(own), .send = &own, .recv = all, .name = "cpus"};
    enum pl_status status = PL_OK;

    if (!all || !ranks) {
        return PL_MEMORY;
    }
    memset(&own, 0, sizeof(own));
    if (sched_getaffinity(0, sizeof(own), own.sets) != 0) {
        return pl_error_errno(reterr, "read the CPU affinity");
    }
    PL_TRY(pl_collective_run(world, &gather, reterr));
    for (int host = 0; host < pl_world_cross_size(world) && pl_world_rank(world) == 0 && status == PL_OK; host++) {
        size_t count = 0;

        for (int rank = 0; rank < (int)size && status == PL_OK; rank++) {
            PL_AUTO_TEXT struct pl_text cpus = PL_TEXT_NONE;

            if (pl_world_host_of(world, rank) == host) {
                pl_cpus_print(&all[rank], &cpus);
                ranks[count].rank = rank;
                status = pl_text_take(&cpus, &ranks[count].cpus, reterr);
                count += status == PL_OK;
            }
        }
        pl_text_clear(&line);
        pl_cpus_describe(ranks, count, &line);
        printf("CPUs on host %d: %s\n", host, pl_text_string(&line));
        while (count > 0) {
            free(ranks[--count].cpus);
        }
    }
    return status;
}

int main(void)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_bootstrap *bootstrap = NULL;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    struct pl_error reason = PL_ERROR_NONE;
    struct pl_device *device = NULL;
    struct pl_world *world = NULL;
    enum pl_status status;
    bool printed = true;
    char why[1200];

    pl_log_open("paceline info");
    status = pl_bootstrap_under_mpi() ? pl_bootstrap_new_mpi(NULL, &bootstrap, &error)
                                      : pl_bootstrap_new_self(&bootstrap, &error);
    if (status == PL_OK) {
        status = make_world(bootstrap, &device, &world, &reason, &error);
    }
    if (status != PL_OK) {
        pl_log_error(&error, "cannot make a world");
        return 1;
    }
    if (pl_world_rank(world) == 0) {
        pl_world_describe(world, &text);
        fputs(pl_text_string(&text), stdout);
        printf("reductions by %s code\n", pl_kernel_best()->name);
        if (reason.status != PL_OK) {
            printf("no device is used: %s\n", pl_error_text(&reason, why, sizeof(why)));
        }
    }
    if (print_placement(world, &error) != PL_OK) {
        pl_log_error(&error, "cannot ask the ranks for their CPUs");
        return 1;
    }
    if (pl_world_rank(world) == 0) {
        print_devices();
        print_knobs(pl_world_knobs(world));
        printed = fflush(stdout) == 0 && !ferror(stdout);
        if (!printed) {
            pl_log(PL_LOG_ERROR, "standard output cannot be written");
        }
    }
    status = pl_bootstrap_leave(bootstrap, pl_world_deadline_ns(world), &error);
    if (status != PL_OK) {
        pl_log_error(&error, "cannot leave the world");
    }
    pl_world_free(world);
    pl_device_close(device);
    pl_bootstrap_free(bootstrap);
    return status == PL_OK && printed ? 0 : 1;
}
