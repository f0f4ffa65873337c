/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the place of a device in its host from /sys: NUMA node, near CPUs and network interface. Binds threads to those
 * CPUs. */
#include "device/choose.h"

#include "base/file.h"
#include "base/memory.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Reads one line of a file of the device at `pci`, without its newline. The line is empty if there is no such file. */
static void read_line(const char *root, const char *pci, const char *name, char *line, size_t line_bytes)
{
    PL_AUTO_FREE char *text = NULL;
    char path[PATH_MAX];

    line[0] = '\0';
    snprintf(path, sizeof(path), "%s/sys/bus/pci/devices/%s/%s", root, pci, name);
    if (pl_file_read(path, 4096, &text, NULL, NULL) == PL_OK) {
        text[strcspn(text, "\n")] = '\0';
        if (strlen(text) < line_bytes) {
            memcpy(line, text, strlen(text) + 1);
        }
    }
}

bool pl_device_affinity_parse_cpus(const char *list, struct pl_cpus *ret_cpus)
{
    memset(ret_cpus, 0, sizeof(*ret_cpus));
    while (isdigit((unsigned char)*list)) {
        char *end;
        unsigned long first = strtoul(list, &end, 10);
        unsigned long last = first;

        if (*end == '-' && isdigit((unsigned char)end[1])) {
            last = strtoul(end + 1, &end, 10);
        }
        if (last < first || last >= PL_CPUS_MOST) {
            return false;
        }
        for (unsigned long cpu = first; cpu <= last; cpu++) {
            CPU_SET_S(cpu, sizeof(*ret_cpus), ret_cpus->sets);
        }
        if (*end == '\0') {
            return true;
        }
        list = *end == ',' ? end + 1 : end;
    }
    return false;
}

/* Returns how many bridges two devices share on their paths from the CPU: the number of equal directories below
 * /sys/devices, for example in /sys/devices/pci0000:37/0000:37:01.0/0000:38:00.0. */
static int shared_way(const char *one, const char *other)
{
    int shared = 0;

    for (size_t i = 0; one[i] && one[i] == other[i]; i++) {
        shared += one[i + 1] == '/' && (other[i + 1] == '/' || other[i + 1] == '\0');
    }
    return shared;
}

/* Finds the nearest network interface; among equally near ones, the first by name. The kernel has a link from each
 * physical interface's name to its PCI device. */
static void find_nic(const char *root, const char *pci, struct pl_device_affinity *affinity)
{
    char path[PATH_MAX];
    char way[PATH_MAX];
    char base[PATH_MAX];
    int best = 0;
    DIR *dir;
    const struct dirent *entry;

    snprintf(path, sizeof(path), "%s/sys/bus/pci/devices/%s", root, pci);
    if (!realpath(path, way)) {
        return;
    }
    snprintf(path, sizeof(path), "%s/sys/devices", root);
    best = realpath(path, base) ? shared_way(way, base) : 0;
    snprintf(path, sizeof(path), "%s/sys/class/net", root);
    dir = opendir(path);
    while (dir && (entry = readdir(dir))) {
        char nic_way[PATH_MAX];
        const char *nic_pci;
        char node[16];
        int shared;

        if (entry->d_name[0] == '.' || strlen(entry->d_name) >= sizeof(affinity->nic)) {
            continue;
        }
        snprintf(path, sizeof(path), "%s/sys/class/net/%s/device", root, entry->d_name);
        if (!realpath(path, nic_way)) {
            continue;
        }
        nic_pci = strrchr(nic_way, '/') + 1;
        read_line(root, nic_pci, "numa_node", node, sizeof(node));
        shared = shared_way(way, nic_way);
        if (shared > best || (shared == best && affinity->nic[0] && !affinity->nic_by_node &&
                              strcmp(entry->d_name, affinity->nic) < 0)) {
            best = shared;
            affinity->nic_by_node = false;
        } else if (affinity->numa_node >= 0 && node[0] && atoi(node) == affinity->numa_node &&
                   (!affinity->nic[0] || (affinity->nic_by_node && strcmp(entry->d_name, affinity->nic) < 0))) {
            affinity->nic_by_node = true;
        } else {
            continue;
        }
        memcpy(affinity->nic, entry->d_name, strlen(entry->d_name) + 1);
    }
    if (dir) {
        closedir(dir);
    }
}

void pl_device_affinity_read(const char *root, const char *pci, struct pl_device_affinity *ret_affinity)
{
    char line[256];

    memset(ret_affinity, 0, sizeof(*ret_affinity));
    read_line(root, pci, "numa_node", line, sizeof(line));
    ret_affinity->numa_node = isdigit((unsigned char)line[0]) ? atoi(line) : -1;
    read_line(root, pci, "local_cpulist", line, sizeof(line));
    if (pl_device_affinity_parse_cpus(line, &ret_affinity->cpus)) {
        memcpy(ret_affinity->cpu_list, line, sizeof(line));
    } else {
        memset(&ret_affinity->cpus, 0, sizeof(ret_affinity->cpus));
    }
    find_nic(root, pci, ret_affinity);
}

enum pl_status pl_device_affinity_bind(const struct pl_device_affinity *affinity, enum pl_device_binding *ret_binding,
                                       struct pl_error *reterr)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    const size_t bytes = sizeof(struct pl_cpus);
    struct pl_cpus now;
    struct pl_cpus both;

    if (sched_getaffinity(0, bytes, now.sets) != 0) {
        return pl_error_errno(reterr, "read the CPU affinity");
    }
    CPU_AND_S(bytes, both.sets, now.sets, affinity->cpus.sets);
    if (CPU_COUNT_S(bytes, affinity->cpus.sets) == 0) {
        *ret_binding = PL_DEVICE_UNBOUND;
    } else if (CPU_EQUAL_S(bytes, both.sets, now.sets)) {
        *ret_binding = PL_DEVICE_BOUND_LOCAL;
    } else if (CPU_COUNT_S(bytes, now.sets) < online || CPU_COUNT_S(bytes, both.sets) == 0) {
        *ret_binding = PL_DEVICE_BOUND_OTHER;
    } else if (sched_setaffinity(0, bytes, both.sets) != 0) {
        return pl_error_errno(reterr, "bind to the CPUs %s of the device", affinity->cpu_list);
    } else {
        *ret_binding = PL_DEVICE_BOUND;
    }
    return PL_OK;
}

const char *pl_device_binding_text(enum pl_device_binding binding)
{
    switch (binding) {
    case PL_DEVICE_BOUND:
        return "bound to the CPUs beside the device";
    case PL_DEVICE_BOUND_LOCAL:
        return "all usable CPUs are beside the device";
    case PL_DEVICE_BOUND_OTHER:
        return "the CPUs were chosen before: left as they are";
    case PL_DEVICE_UNBOUND:
        return "the system does not tell which CPUs are beside the device";
    }
    return "";
}
