/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Elastic Fabric Adapters, EC2's network devices for RDMA, as the kernel lists them. The device tells whether it is
 * one; the name of the instance type is not used.
 *
 * Source  /sys/class/infiniband of Linux's driver `efa`; its counters are in ports/1/hw_counters
 * Test    tests/unit/base/test_efa.c
 */
#ifndef PL_BASE_EFA_H
#define PL_BASE_EFA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pl_efa {
    int count;     /* adapters that the kernel has */
    char name[32]; /* name of the first adapter in alphabetical order, "" if there is none */
    bool usable;   /* whether this container has the device file that every program needs to use them */
    uint64_t sent_bytes, received_bytes; /* bytes of all adapters since they were started */
};

/** Looks for adapters below `root` ("" for this machine). Without an adapter all fields are zero. */
void pl_efa_read(const char *root, struct pl_efa *ret_efa);

#endif
