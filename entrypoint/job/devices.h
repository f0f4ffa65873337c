/* SPDX-License-Identifier: Apache-2.0 */
/** Counts the processors of each kind that this container has. It reads the kernel's files and runs no tool. */
#ifndef PL_ENTRYPOINT_JOB_DEVICES_H
#define PL_ENTRYPOINT_JOB_DEVICES_H

#include <stdbool.h>
#include <stdint.h>

/** Returns the number of online logical CPUs, as os.cpu_count() does. */
int pl_devices_cpus(void);

/**
 * Returns how many CPUs the processes of this container may keep busy, by the limit of its control group (docker run
 * --cpus), rounded up; 0 without a limit. Libraries that count CPUs for their threads do not know this limit.
 */
int pl_devices_cpu_limit(const char *root);

struct pl_devices {
    int gpus, neuron_cores;
};

/**
 * Count the devices below `root` ("" for this machine). GPUs are counted as `nvidia-smi --list-gpus` counts: whole
 * devices, even if they are cut into MIG instances, whatever CUDA_VISIBLE_DEVICES says. These are the files
 * /dev/nvidiaN that the container runtime makes. If there is only the driver's control node, because other files are
 * made at first use, the driver's list counts. Neuron cores: 64 for a trn2.48xlarge, else the sum of the devices
 * /dev/neuronN.
 */
struct pl_devices pl_devices_count(const char *root, const char *instance_type);

/** Elastic Fabric Adapters (EFA): EC2's network devices for RDMA. */
struct pl_devices_efa {
    int count;           /* adapters that the kernel has */
    char name[32];       /* name of the first adapter in alphabetical order, "" if there is none */
    bool usable;         /* whether this container has the device file that every program needs to use them */
    uint64_t sent_bytes; /* bytes sent by all adapters since they were started */
};

/** Looks for adapters of Linux's driver `efa`, in /sys/class/infiniband below `root`. All is zero if there is none. */
void pl_devices_efa(const char *root, struct pl_devices_efa *ret_efa);

#endif
