/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/job/devices.c. */
#include "entrypoint/job/devices.h"

#include "base/file.h"
#include "tests/unit/entrypoint/tree.h"

/* Add a device as the kernel lists it below the folder. */
static void add_device(const struct scratch *scratch, const char *name, const char *vendor, const char *sent)
{
    char folder[256], path[PATH_MAX];

    snprintf(folder, sizeof(folder), "sys/class/infiniband/%s/device", name);
    ck_ok(pl_file_make_dirs, scratch_path(scratch, folder, path), 0755);
    snprintf(folder, sizeof(folder), "sys/class/infiniband/%s/ports/1/hw_counters", name);
    ck_ok(pl_file_make_dirs, scratch_path(scratch, folder, path), 0755);
    snprintf(folder, sizeof(folder), "sys/class/infiniband/%s/device/vendor", name);
    scratch_write(scratch, folder, vendor, strlen(vendor));
    snprintf(folder, sizeof(folder), "sys/class/infiniband/%s/ports/1/hw_counters/tx_bytes", name);
    scratch_write(scratch, folder, sent, strlen(sent));
}

TEST(a_machine_without_adapters_has_none)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    struct pl_devices_efa efa;

    pl_devices_efa(scratch.path, &efa);
    ck_assert_int_eq(efa.count, 0);
    ck_assert_str_eq(efa.name, "");
    ck_assert(!efa.usable);
}

TEST(adapters_are_known_by_their_vendor_whatever_they_are_called)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    struct pl_devices_efa efa;

    add_device(&scratch, "rdmap85s0", "0x1d0f\n", "30\n");
    add_device(&scratch, "rdmap0s31", "0x1d0f\n", "12\n");
    add_device(&scratch, "mlx5_0", "0x15b3\n", "500\n");
    pl_devices_efa(scratch.path, &efa);
    ck_assert_int_eq(efa.count, 2);
    ck_assert_str_eq(efa.name, "rdmap0s31");
    ck_assert_uint_eq(efa.sent_bytes, 42);
}

TEST(an_adapter_is_usable_with_its_device_file)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    struct pl_devices_efa efa;
    char path[PATH_MAX];

    add_device(&scratch, "efa_0", "0x1d0f\n", "0\n");
    pl_devices_efa(scratch.path, &efa);
    ck_assert(!efa.usable);
    ck_ok(pl_file_make_dirs, scratch_path(&scratch, "dev/infiniband", path), 0755);
    scratch_write(&scratch, "dev/infiniband/uverbs0", "", 0);
    pl_devices_efa(scratch.path, &efa);
    ck_assert(efa.usable);
}

TEST(devices_are_counted_from_the_kernels_files)
{
    AUTO_TREE struct tree tree = tree_new();

    ck_assert_int_eq(pl_devices_count(tree.base, "").gpus, 0);
    tree_write(&tree, "proc/driver/nvidia/gpus/0000:00:1e.0/information", "");
    /* devices of the host, which this container may not use */
    ck_assert_int_eq(pl_devices_count(tree.base, "").gpus, 0);
    tree_write(&tree, "dev/nvidiactl", "");
    ck_assert_int_eq(pl_devices_count(tree.base, "").gpus, 1);
    tree_write(&tree, "dev/nvidia0", "");
    tree_write(&tree, "dev/nvidia1", "");
    tree_write(&tree, "dev/nvidia-uvm", "");
    ck_assert_int_eq(pl_devices_count(tree.base, "").gpus, 2);
    ck_assert_int_eq(pl_devices_count(tree.base, "ml.trn1.32xlarge").neuron_cores, 0);
    tree_write(&tree, "dev/neuron0", "");
    tree_write(&tree, "dev/neuron1", "");
    ck_assert_int_eq(pl_devices_count(tree.base, "ml.trn1.32xlarge").neuron_cores, 4);
    ck_assert_int_eq(pl_devices_count(tree.base, "ml.inf1.2xlarge").neuron_cores, 8);
    tree_write(&tree, "sys/devices/virtual/neuron_device/neuron1/core_count", "8\n");
    ck_assert_int_eq(pl_devices_count(tree.base, "ml.trn1.32xlarge").neuron_cores, 10);
    ck_assert_int_eq(pl_devices_count(tree.base, "ml.trn2.48xlarge").neuron_cores, 64);
    ck_assert_int_eq(pl_devices_cpu_limit(tree.base), 0);
    tree_write(&tree, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    tree_write(&tree, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "50000\n");
    ck_assert_int_eq(pl_devices_cpu_limit(tree.base), 0);
    tree_write(&tree, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "120000\n");
    ck_assert_int_eq(pl_devices_cpu_limit(tree.base), 3);
    tree_write(&tree, "sys/fs/cgroup/cpu.max", "400000 100000\n");
    ck_assert_int_eq(pl_devices_cpu_limit(tree.base), 4);
    tree_write(&tree, "sys/fs/cgroup/cpu.max", "max 100000\n");
    tree_write(&tree, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "0\n"); /* a value that no kernel writes */
    ck_assert_int_eq(pl_devices_cpu_limit(tree.base), 0);
}

UNIT_MAIN("entrypoint/job/devices")
