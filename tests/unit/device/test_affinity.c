/* SPDX-License-Identifier: Apache-2.0 */
/* Covers device/affinity.c. */
#include "device/choose.h"

#include "base/file.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Adds a device below the tree's /sys/devices, with its two files and the link that leads to it. */
static void add_device(const char *root, const char *way, const char *node, const char *cpus)
{
    char path[PATH_MAX];
    char link[PATH_MAX];

    snprintf(path, sizeof(path), "%s/sys/devices/%s", root, way);
    ck_ok(pl_file_make_dirs, path, 0755);
    snprintf(path, sizeof(path), "%s/sys/devices/%s/numa_node", root, way);
    ck_ok(pl_file_write_atomic, path, node, strlen(node), 0644);
    snprintf(path, sizeof(path), "%s/sys/devices/%s/local_cpulist", root, way);
    ck_ok(pl_file_write_atomic, path, cpus, strlen(cpus), 0644);
    snprintf(path, sizeof(path), "%s/sys/bus/pci/devices", root);
    ck_ok(pl_file_make_dirs, path, 0755);
    snprintf(path, sizeof(path), "%s/sys/devices/%s", root, way);
    snprintf(link, sizeof(link), "%s/sys/bus/pci/devices/%s", root, strrchr(way, '/') + 1);
    ck_assert_int_eq(symlink(path, link), 0);
}

static void add_nic(const char *root, const char *name, const char *way)
{
    char path[PATH_MAX];
    char link[PATH_MAX];

    snprintf(path, sizeof(path), "%s/sys/class/net/%s", root, name);
    ck_ok(pl_file_make_dirs, path, 0755);
    snprintf(path, sizeof(path), "%s/sys/devices/%s", root, way);
    snprintf(link, sizeof(link), "%s/sys/class/net/%s/device", root, name);
    ck_assert_int_eq(symlink(path, link), 0);
}

TEST(node_cpus_and_the_interface_behind_the_same_bridge_are_found)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    const char *root = scratch.path;
    struct pl_device_affinity affinity;

    add_device(root, "pci0000:37/0000:37:01.0/0000:38:00.0/0000:3b:00.0", "0\n", "0-23,48-71\n");
    add_device(root, "pci0000:37/0000:37:01.0/0000:38:00.0/0000:3c:00.0", "0\n", "0-23,48-71\n");
    add_device(root, "pci0000:80/0000:80:01.0/0000:81:00.0", "1\n", "24-47,72-95\n");
    add_device(root, "pci0000:00/0000:00:05.0", "0\n", "0-23,48-71\n");
    add_device(root, "pci0000:90/0000:90:05.0", "1\n", "24-47,72-95\n");
    add_device(root, "pci0000:a0/0000:a0:05.0", "-1\n", "\n");
    add_nic(root, "eth0", "pci0000:00/0000:00:05.0");
    add_nic(root, "rdma0", "pci0000:37/0000:37:01.0/0000:38:00.0/0000:3c:00.0");
    pl_device_affinity_read(root, "0000:3b:00.0", &affinity);
    ck_assert_int_eq(affinity.numa_node, 0);
    ck_assert_str_eq(affinity.cpu_list, "0-23,48-71");
    ck_assert_int_eq(CPU_COUNT_S(sizeof(affinity.cpus), affinity.cpus.sets), 48);
    ck_assert(CPU_ISSET(71, affinity.cpus.sets) && !CPU_ISSET(24, affinity.cpus.sets));
    ck_assert_str_eq(affinity.nic, "rdma0");
    ck_assert(!affinity.nic_by_node);

    pl_device_affinity_read(root, "0000:81:00.0", &affinity);
    ck_assert_int_eq(affinity.numa_node, 1);
    ck_assert_str_eq(affinity.nic, "");
    add_nic(root, "eth1", "pci0000:90/0000:90:05.0"); /* the same node, behind another bridge */
    pl_device_affinity_read(root, "0000:81:00.0", &affinity);
    ck_assert_str_eq(affinity.nic, "eth1");
    ck_assert(affinity.nic_by_node);

    pl_device_affinity_read(root, "0000:a0:05.0", &affinity);
    ck_assert_int_eq(affinity.numa_node, -1);
    ck_assert_str_eq(affinity.cpu_list, "");
    ck_assert_str_eq(affinity.nic, "");
    pl_device_affinity_read(root, "0000:ff:00.0", &affinity);
    ck_assert_int_eq(affinity.numa_node, -1);
}

TEST(lists_of_cpus_are_read_as_the_kernel_writes_them)
{
    struct pl_cpus cpus;

    ck_assert(pl_device_affinity_parse_cpus("0", &cpus) && CPU_COUNT_S(sizeof(cpus), cpus.sets) == 1);
    ck_assert(pl_device_affinity_parse_cpus("0-3,8,10-11", &cpus) && CPU_COUNT_S(sizeof(cpus), cpus.sets) == 7 &&
              CPU_ISSET(10, cpus.sets) && !CPU_ISSET(9, cpus.sets));
    ck_assert(pl_device_affinity_parse_cpus("8191", &cpus));
    ck_assert(!pl_device_affinity_parse_cpus("8192", &cpus));
    ck_assert(!pl_device_affinity_parse_cpus("", &cpus));
    ck_assert(!pl_device_affinity_parse_cpus("3-1", &cpus));
    ck_assert(!pl_device_affinity_parse_cpus("0,", &cpus));
    ck_assert(!pl_device_affinity_parse_cpus("0-3x", &cpus));
    ck_assert(!pl_device_affinity_parse_cpus("-3", &cpus));
}

/* A machine of 1,152 CPUs, where a process may run on all of them. */
static bool large_machine;
static struct pl_cpus bound;

int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *cpus)
{
    memset(cpus, 0, bytes);
    if (!large_machine) {
        return syscall(SYS_sched_getaffinity, pid, bytes, cpus) < 0 ? -1 : 0;
    }
    memset(cpus, 0xff, bytes < 1152 / 8 ? bytes : 1152 / 8);
    errno = EINVAL;
    return bytes < 1152 / 8 ? -1 : 0;
}

int sched_setaffinity(pid_t pid, size_t bytes, const cpu_set_t *cpus)
{
    if (!large_machine) {
        return (int)syscall(SYS_sched_setaffinity, pid, bytes, cpus);
    }
    memcpy(&bound, cpus, bytes);
    return 0;
}

TEST(a_rank_is_bound_on_the_largest_machines)
{
    struct pl_device_affinity affinity = {.numa_node = 0};
    enum pl_device_binding binding;
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;

    ck_assert(pl_device_affinity_parse_cpus("1020-1100", &affinity.cpus));
    large_machine = true;
    status = pl_device_affinity_bind(&affinity, &binding, &error);
    large_machine = false;
    ck_assert_ok(status, &error);
    ck_assert_int_eq(binding, PL_DEVICE_BOUND);
    ck_assert_int_eq(CPU_COUNT_S(sizeof(bound), bound.sets), 81);
    ck_assert(CPU_ISSET_S(1100, sizeof(bound), bound.sets));
}

/* Whether the process was bound: on at least two CPUs, one of which is next to the device. */
TEST(a_rank_is_bound_unless_somebody_did_it_before)
{
    struct pl_device_affinity affinity = {.numa_node = 0};
    enum pl_device_binding binding;
    const size_t bytes = sizeof(struct pl_cpus);
    struct pl_cpus before;
    struct pl_cpus after;
    size_t first = 0;

    ck_assert_int_eq(sched_getaffinity(0, bytes, before.sets), 0);
    while (!CPU_ISSET(first, before.sets)) {
        first++;
    }
    ck_ok(pl_device_affinity_bind, &affinity, &binding);
    ck_assert_int_eq(binding, PL_DEVICE_UNBOUND);
    affinity.cpus = before;
    ck_ok(pl_device_affinity_bind, &affinity, &binding);
    ck_assert_int_eq(binding, PL_DEVICE_BOUND_LOCAL);
    memset(&affinity.cpus, 0, bytes);
    CPU_SET(first, affinity.cpus.sets);
    ck_ok(pl_device_affinity_bind, &affinity, &binding);
    ck_assert_int_eq(sched_getaffinity(0, bytes, after.sets), 0);
    if (CPU_COUNT_S(bytes, before.sets) < sysconf(_SC_NPROCESSORS_ONLN)) {
        ck_assert_int_eq(binding, CPU_COUNT_S(bytes, before.sets) == 1 ? PL_DEVICE_BOUND_LOCAL : PL_DEVICE_BOUND_OTHER);
        ck_assert(CPU_EQUAL_S(bytes, before.sets, after.sets));
    } else if (CPU_COUNT_S(bytes, before.sets) > 1) {
        ck_assert_int_eq(binding, PL_DEVICE_BOUND);
        ck_assert(CPU_EQUAL_S(bytes, after.sets, affinity.cpus.sets));
        CPU_CLR(first, before.sets);
        affinity.cpus = before; /* the launcher has bound the rank to `first`, but the device is elsewhere */
        ck_ok(pl_device_affinity_bind, &affinity, &binding);
        ck_assert_int_eq(binding, PL_DEVICE_BOUND_OTHER);
        ck_assert_int_eq(sched_getaffinity(0, bytes, after.sets), 0);
        ck_assert(CPU_COUNT_S(bytes, after.sets) == 1 && CPU_ISSET(first, after.sets));
    }
}

UNIT_MAIN("device/affinity")
