/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Decides which device of its host each rank uses. Every rank makes the same decision from the lists of all ranks.
 *
 *   1. each rank lists its devices: pl_device_list_read()
 *   2. the ranks of a host gather their lists (the caller's allgather)
 *   3. each rank chooses:           pl_device_choose()
 *
 * Devices are distinguished by UUID. So it does not matter whether the launcher gave every rank its own
 * CUDA_VISIBLE_DEVICES, the same one, or none. A MIG instance counts as a device.
 *
 * Test  tests/unit/device/test_choose.c
 */
#ifndef PL_DEVICE_CHOOSE_H
#define PL_DEVICE_CHOOSE_H

#include "base/cpus.h"
#include "base/status.h"

enum { PL_DEVICE_LIST_MAX = 32, PL_DEVICE_UUID_BYTES = 48 };

/** The devices that one process sees. It has no pointers, so it can be sent byte by byte. */
struct pl_device_list {
    int32_t status; /* enum pl_status: PL_OK, PL_UNSUPPORTED (there are no devices), or an error */
    int32_t count;
    char uuid[PL_DEVICE_LIST_MAX][PL_DEVICE_UUID_BYTES];
    char reason[256]; /* why there are no devices */
};

/** Lists the devices without using one: no context is made. */
void pl_device_list_read(struct pl_device_list *ret_device_list);

enum pl_device_use {
    PL_DEVICE_AUTO, /* use devices if there are any */
    PL_DEVICE_OFF,
    PL_DEVICE_ON,       /* it is an error if there are no devices */
    PL_DEVICE_NUMBERED, /* every rank uses its device `ordinal`; several ranks may share it */
};

/** The value of the setting `device`. */
struct pl_device_request {
    enum pl_device_use use;
    int ordinal; /* number of the device, for PL_DEVICE_NUMBERED */
};

/** Parses "auto", "off", "on" or "cuda:N". PL_INVALID for any other text. */
enum pl_status pl_device_request_parse(const char *text, struct pl_device_request *ret_wanted,
                                       struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Stores the ordinal, in rank `rank`'s own numbering, of the device that the rank must use. It is -1 if no device is
 * used: `wanted_device` is off, or no rank of the host has one. Each device gets as few ranks as possible. Among equal
 * choices, ranks take devices in their order, and neighbours share.
 *
 * Shapes  lists: [ranks], of the ranks of one host in the order of their local ranks; the same on all of them.
 * Errors  PL_INVALID: there are fewer devices than ranks and `share` is off, or there is no device of the wanted
 *         number. PL_MISMATCH: some ranks see devices and others do not. PL_UNSUPPORTED: devices are wanted, and there
 *         are none. A driver's error is returned, also with PL_DEVICE_AUTO: it would be wrong to train on the CPU
 *         without a message.
 */
enum pl_status pl_device_choose(const struct pl_device_list *lists, int ranks, int rank,
                                struct pl_device_request wanted_device, bool share, int *ret_ordinal,
                                struct pl_error *reterr) PL_MUST_CHECK;

/*
 * The place of a device in its host: NUMA node, the CPUs near it, and the nearest network interface, from the kernel's
 * /sys.
 *
 * Test  tests/unit/device/test_affinity.c
 */

struct pl_device_affinity {
    int numa_node;      /* -1 if the system does not know it */
    char cpu_list[256]; /* "0-23,48-71"; empty if the system does not know it */
    struct pl_cpus cpus;
    /* "eth0": the interface that shares most of the device's PCI path to the CPU; empty if none was found */
    char nic[32];
    bool nic_by_node; /* whether the interface shares only the NUMA node with the device */
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
