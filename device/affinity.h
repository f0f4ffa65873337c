/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Where a device sits in its host: NUMA node, the CPUs near it, the nearest network interface, from the kernel's
 * /sys.
 *
 * Test  tests/unit/device/test_affinity.c
 */
#ifndef PL_DEVICE_AFFINITY_H
#define PL_DEVICE_AFFINITY_H

#include "base/cpus.h"
#include "base/status.h"

struct pl_device_affinity {
    int numa_node;      /* -1: unknown to the system */
    char cpu_list[256]; /* "0-23,48-71"; empty: unknown to the system */
    struct pl_cpus cpus;
    /* "eth0": the interface with which the device shares most of its way to the CPU; empty: none found */
    char nic[32];
    bool nic_by_node; /* only the NUMA node is shared */
};

/**
 * Of the device at PCI address `pci` ("0000:3b:00.0"), below `root` ("" for this machine). What cannot be read is left
 * unknown.
 */
void pl_device_affinity_read(const char *root, const char *pci, struct pl_device_affinity *ret_affinity);

/** "0-3,8" as a set; false when it is none, or names no CPU. */
bool pl_device_affinity_parse_cpus(const char *list, struct pl_cpus *ret_cpus);

enum pl_device_binding {
    PL_DEVICE_BOUND,       /* by this call */
    PL_DEVICE_BOUND_LOCAL, /* ran near the device already */
    PL_DEVICE_BOUND_OTHER, /* the CPUs were chosen before: left as they are */
    PL_DEVICE_UNBOUND,     /* the system does not know which CPUs are near the device */
};

/**
 * Let this thread, and those that it starts from now on, run on the CPUs near the device, unless the launcher or the
 * container chose CPUs.
 * Errors  PL_SYSTEM
 */
enum pl_status pl_device_affinity_bind(const struct pl_device_affinity *affinity, enum pl_device_binding *ret_binding,
                                       struct pl_error *reterr) PL_MUST_CHECK;

/** "bound to the CPUs beside the device" and so on. */
const char *pl_device_binding_text(enum pl_device_binding binding);

#endif
