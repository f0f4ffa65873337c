/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Elastic Fabric Adapters, EC2's network devices for RDMA, as the kernel lists them: known by the device and not by the
 * name of the instance type.
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
    char name[32]; /* of the first one by name, "" where there is none */
    bool usable;   /* this container was given the device file without which no program can use them */
    uint64_t sent_bytes, received_bytes; /* by all adapters since they were started */
};

/** Look below `root` ("" for this machine). Without an adapter all is zero. */
void pl_efa_read(const char *root, struct pl_efa *ret_efa);

#endif
