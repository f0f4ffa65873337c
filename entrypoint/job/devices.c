/* SPDX-License-Identifier: Apache-2.0 */
/* Counts CPUs, GPUs, Neuron cores and Elastic Fabric Adapters from /sys, /dev and /proc, without starting a tool. */
#include "entrypoint/job/devices.h"

#include "base/file.h"
#include "base/memory.h"

#include <dirent.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TRN2_48XLARGE_CORES = 64, PATH_BYTES = 512, PREFIX_BYTES = 6 };

int pl_devices_cpus(void)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);

    return cpus > 0 ? (int)cpus : 1;
}

/* Returns the whole number at the beginning of the file, and sets `*ret_next` to the next number; -1 if there is
 * none. */
static int64_t number_in(const char *root, const char *name, int64_t *ret_next)
{
    char path[PATH_BYTES];
    PL_AUTO_FREE char *text = NULL;
    char *end;
    int64_t number;

    snprintf(path, sizeof(path), "%s/sys/fs/cgroup/%s", root, name);
    if (pl_file_read(path, 64, &text, NULL, NULL) != PL_OK) {
        return -1;
    }
    number = strtoll(text, &end, 10);
    *ret_next = strtoll(end, NULL, 10);
    return end == text ? -1 : number; /* "max" */
}

int pl_devices_cpu_limit(const char *root)
{
    int64_t none, period_us = 0, quota_us = number_in(root, "cpu.max", &period_us); /* version 2 */

    if (quota_us < 0) {
        quota_us = number_in(root, "cpu/cpu.cfs_quota_us", &none);
        period_us = number_in(root, "cpu/cpu.cfs_period_us", &none);
    }
    return quota_us > 0 && period_us > 0 && quota_us / period_us < INT32_MAX
               ? (int)((quota_us + period_us - 1) / period_us)
               : 0;
}

/* Opens the directory `name` below `root`; NULL if there is none. */
static DIR *open_below(const char *root, const char *name)
{
    char path[PATH_BYTES];

    snprintf(path, sizeof(path), "%s/%s", root, name);
    return opendir(path);
}

/* The driver reports how many cores a device has. With older drivers the instance family determines the number. */
static int neuron_cores_of(const char *root, int device, const char *instance_type)
{
    char path[PATH_BYTES];
    PL_AUTO_FREE char *text = NULL;

    snprintf(path, sizeof(path), "%s/sys/devices/virtual/neuron_device/neuron%d/core_count", root, device);
    if (pl_file_read(path, 64, &text, NULL, NULL) == PL_OK && atoi(text) > 0) {
        return atoi(text);
    }
    if (strstr(instance_type, "inf1.")) {
        return 4;
    }
    return strstr(instance_type, "trn2") ? 8 : 2;
}

/* Returns how many GPUs the driver lists. */
static int listed_gpus(const char *root)
{
    PL_AUTO_DIRECTORY DIR *listed = open_below(root, "proc/driver/nvidia/gpus");
    const struct dirent *entry;
    int count = 0;

    while (listed && (entry = readdir(listed))) {
        count += entry->d_name[0] != '.';
    }
    return count;
}

struct pl_devices pl_devices_count(const char *root, const char *instance_type)
{
    PL_AUTO_DIRECTORY DIR *dev = open_below(root, "dev");
    bool control = false; /* the driver's control node exists; without it, a container cannot use the listed devices */
    struct pl_devices devices = {.gpus = 0};
    const struct dirent *entry;

    while (dev && (entry = readdir(dev))) {
        const bool is_nvidia = strncmp(entry->d_name, "nvidia", PREFIX_BYTES) == 0;
        const char *number =
            is_nvidia || strncmp(entry->d_name, "neuron", PREFIX_BYTES) == 0 ? entry->d_name + PREFIX_BYTES : "";

        if (*number != '\0' && number[strspn(number, "0123456789")] == '\0') {
            devices.gpus += is_nvidia;
            devices.neuron_cores += is_nvidia ? 0 : neuron_cores_of(root, atoi(number), instance_type);
        }
        control = control || (is_nvidia && strcmp(number, "ctl") == 0);
    }
    if (devices.gpus == 0 && control) {
        devices.gpus = listed_gpus(root);
    }
    if (strstr(instance_type, "trn2.48xlarge")) {
        devices.neuron_cores = TRN2_48XLARGE_CORES;
    }
    return devices;
}

/* Returns the number in a file of the device, decimal, octal or hexadecimal as in C; 0 if there is none. */
static uint64_t counter_of(const char *device, const char *file)
{
    char path[2 * PATH_BYTES];
    PL_AUTO_FREE char *text = NULL;

    snprintf(path, sizeof(path), "%s/%s", device, file);
    return pl_file_read(path, 64, &text, NULL, NULL) == PL_OK ? strtoull(text, NULL, 0) : 0;
}

/* Whether Amazon made the device. EFA is Amazon's only such device. */
static bool is_efa(const char *device)
{
    enum { AMAZON = 0x1d0f };

    return counter_of(device, "device/vendor") == AMAZON;
}

static void add_efa(const char *device, struct pl_devices_efa *efa)
{
    if (efa->count++ == 0) {
        snprintf(efa->name, sizeof(efa->name), "%.31s", basename(device));
    }
    efa->sent_bytes += counter_of(device, "ports/1/hw_counters/tx_bytes");
}

void pl_devices_efa(const char *root, struct pl_devices_efa *ret_efa)
{
    char pattern[PATH_BYTES];
    glob_t found = {.gl_pathc = 0};

    *ret_efa = (struct pl_devices_efa){.count = 0};
    snprintf(pattern, sizeof(pattern), "%s/sys/class/infiniband/*", root);
    glob(pattern, 0, NULL, &found); /* glob() sorts alphabetically */
    for (size_t i = 0; i < found.gl_pathc; i++) {
        if (is_efa(found.gl_pathv[i])) {
            add_efa(found.gl_pathv[i], ret_efa);
        }
    }
    globfree(&found);
    snprintf(pattern, sizeof(pattern), "%s/dev/infiniband/uverbs*", root);
    ret_efa->usable = ret_efa->count > 0 && glob(pattern, 0, NULL, &found) == 0;
    globfree(&found);
}
