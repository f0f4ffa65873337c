/* SPDX-License-Identifier: Apache-2.0 */
/** How many processors of each kind this container has, read from the kernel's files: no tool is run. */
#ifndef PL_ENTRYPOINT_JOB_DEVICES_H
#define PL_ENTRYPOINT_JOB_DEVICES_H

/** Online logical CPUs, as os.cpu_count() has it. */
int pl_devices_cpus(void);

/**
 * CPUs that the processes of this container may keep busy together, by its control group's limit (docker run --cpus),
 * rounded up; 0: no limit. No library that counts CPUs for its threads sees it.
 */
int pl_devices_cpu_limit(const char *root);

/**
 * NVIDIA devices below `root` ("" for this machine), as `nvidia-smi --list-gpus` counts them: whole devices, also where
 * they are cut into MIG instances, whatever CUDA_VISIBLE_DEVICES says. /dev/nvidiaN, which the container runtime makes
 * for the devices that it was asked for; where only the driver's control node is there (the others are made at first
 * use), the driver's list.
 */
int pl_devices_gpus(const char *root);

/** Neuron cores below `root`: 64 for a trn2.48xlarge, else the sum over the devices that /dev/neuronN names. */
int pl_devices_neuron_cores(const char *root, const char *instance_type);

#endif
