/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The place of a device in its host: NUMA node, the CPUs near it, and the nearest network interface, from the kernel's
 * /sys.
 *
 * Test  tests/unit/device/test_affinity.c
 */
#ifndef PL_DEVICE_AFFINITY_H
#define PL_DEVICE_AFFINITY_H

#include "base/cpus.h"
#include "base/status.h"

struct pl_device_affinity {
    int numa_node;      /* -1 if the system does not know it */
    char cpu_list[256]; /* "0-23,48-71"; empty if the system does not know it */
    struct pl_cpus cpus;
    /* "eth0": the interface that shares most of the device's PCI path to the CPU; empty if none was found */
    char nic[32];
    bool nic_by_node; /* the interface shares only the NUMA node */
};

/**
 * Reads the place of the device at PCI address `pci` ("0000:3b:00.0"), below `root` ("" for this machine). Values that
 * cannot be read stay unknown.
 */
void pl_device_affinity_read(const char *root, const char *pci, struct pl_device_affinity *ret_affinity);

/** Parses a list like "0-3,8". Returns false if it is not such a list or has no CPU. */
bool pl_device_affinity_parse_cpus(const char *list, struct pl_cpus *ret_cpus);

enum pl_device_binding {
    PL_DEVICE_BOUND,       /* bound by this call */
    PL_DEVICE_BOUND_LOCAL, /* all usable CPUs were near the device already */
    PL_DEVICE_BOUND_OTHER, /* the CPUs were chosen before, and are not changed */
    PL_DEVICE_UNBOUND,     /* the system does not know which CPUs are near the device */
};

/**
 * Binds this thread, and the threads that it starts from now on, to the CPUs near the device, unless the launcher or
 * the container has chosen CPUs.
 *
 * Errors  PL_SYSTEM
 */
enum pl_status pl_device_affinity_bind(const struct pl_device_affinity *affinity, enum pl_device_binding *ret_binding,
                                       struct pl_error *reterr) PL_MUST_CHECK;

/** Returns "bound to the CPUs beside the device" and so on. */
const char *pl_device_binding_text(enum pl_device_binding binding);

#endif
