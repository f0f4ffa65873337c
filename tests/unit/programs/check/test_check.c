/* SPDX-License-Identifier: Apache-2.0 */
/* Covers programs/check/check_host.c, programs/check/check_evaluate.c. */
#include "base/file.h"
#include "programs/check/check.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"

#define MIB (INT64_C(1) << 20)

/* ---- evaluating ---- */

struct world {
    struct pl_check_needs needs;
    struct pl_check_host hosts[3];
    struct pl_check_link links[6];
    struct pl_text silent;
    struct pl_check_report report;
};

/* Makes three hosts that meet all needs. */
static void make_world(struct world *world)
{
    *world = (struct world){.needs = {.ranks = 2, .transport = "any", .hosts = "algo-1,algo-2,algo-3"}};
    for (int i = 0; i < 3; i++) {
        world->hosts[i] = (struct pl_check_host){.interface_exists = true,
                                                 .memory_bytes = 1024 * MIB,
                                                 .memory_free_bytes = 1000 * MIB,
                                                 .shm_bytes = 512 * MIB,
                                                 .shm_free_bytes = 512 * MIB,
                                                 .files = 1024,
                                                 .locked_bytes = CHECK_UNLIMITED,
                                                 .processes = CHECK_UNLIMITED,
                                                 .disk_bytes = 4096 * MIB};
        snprintf(world->hosts[i].name, sizeof(world->hosts[i].name), "algo-%d", i + 1);
        snprintf(world->hosts[i].wanted, sizeof(world->hosts[i].wanted), "eth0");
    }
    for (int i = 0; i < 6; i++) {
        world->links[i] = (struct pl_check_link){
            .from = i / 2, .to = (i / 2 + 1 + i % 2) % 3, .mbit = 9000 + i, .transport = "tcp eth0"};
    }
    world->report = (struct pl_check_report){.needs = &world->needs,
                                             .hosts = world->hosts,
                                             .hosts_count = 3,
                                             .links = world->links,
                                             .links_count = 6,
                                             .values = {.known = true},
                                             .silent = &world->silent};
}

/* Returns the number of missed needs, and prints the table and the reasons. */
static size_t evaluate(const struct world *world, struct pl_text *table, struct pl_text *reasons)
{
    struct pl_check_rows rows;
    size_t missed;

    pl_check_evaluate(&world->report, &rows);
    ck_assert(!rows.failed);
    missed = pl_check_print(&rows, table, reasons);
    pl_check_rows_done(&rows);
    return missed;
}

/* Checks that the world misses `count` needs, and that `reason` is among the reasons. */
static void expect_missed(const struct world *world, size_t count, const char *reason)
{
    PL_AUTO_TEXT struct pl_text table = PL_TEXT_NONE, reasons = PL_TEXT_NONE;

    ck_assert_uint_eq(evaluate(world, &table, &reasons), count);
    ck_assert_msg(strstr(pl_text_string(&reasons), reason), "'%s' is not in:\n%s", reason, pl_text_string(&reasons));
}

static void expect_in_table(const struct world *world, const char *text)
{
    PL_AUTO_TEXT struct pl_text table = PL_TEXT_NONE, reasons = PL_TEXT_NONE;

    evaluate(world, &table, &reasons);
    ck_assert_msg(strstr(pl_text_string(&table), text), "'%s' is not in:\n%s", text, pl_text_string(&table));
}

TEST(hosts_in_order_miss_nothing)
{
    struct world world;

    make_world(&world);
    expect_missed(&world, 0, "");
    expect_in_table(&world, "speed          algo-1 > algo-2  9000 Mbit/s");
}

TEST(a_link_at_a_tenth_is_missed_in_both_directions)
{
    struct world world;

    make_world(&world);
    world.links[1].mbit = 900;
    world.links[4].mbit = 900;
    expect_missed(&world, 2,
                  "check: speed of algo-1 > algo-3: 900 Mbit/s; needed: 3002 Mbit/s, a third of the fastest");
}

TEST(a_speed_that_is_asked_for_is_missed)
{
    struct world world;

    make_world(&world);
    world.needs.mbit = 9005;
    expect_missed(&world, 5, "check: speed of algo-1 > algo-2: 9000 Mbit/s; needed: 9005 Mbit/s");
    world.needs.mbit = 100; /* a third of the fastest link is needed nevertheless */
    world.links[0].mbit = 500;
    expect_missed(&world, 1, "a third of the fastest");
}

TEST(adapters_that_nobody_uses_are_noted_and_missed_where_asked_for)
{
    struct world world;

    make_world(&world);
    for (int i = 0; i < 3; i++) {
        snprintf(world.hosts[i].efa, sizeof(world.hosts[i].efa), "efa_0");
        world.hosts[i].efa_usable = true;
    }
    expect_missed(&world, 0, "");
    expect_in_table(&world, "EFA is present but not used");
    world.needs.transport = "efa";
    expect_missed(&world, 6, "check: transport of algo-1 > algo-2: tcp eth0; needed: efa");
    for (int i = 0; i < 6; i++) {
        snprintf(world.links[i].transport, sizeof(world.links[i].transport), "efa");
    }
    expect_missed(&world, 0, "");
    world.hosts[1].efa_usable = false;
    expect_missed(&world, 1, "check: EFA of algo-2: efa_0, no /dev/infiniband/uverbs* here; needed: an adapter");
    world.hosts[1].efa_usable = true;
    world.hosts[2].locked_bytes = 8 * MIB;
    expect_missed(&world, 1, "check: locked memory of algo-3: 8 MiB; needed: unlimited, for EFA");
}

TEST(an_instance_type_with_adapters_expects_them)
{
    struct world world;

    make_world(&world);
    world.needs.listed_efa = true;
    expect_missed(&world, 0, "");
    expect_in_table(&world, "EFA            algo-1           none");
}

TEST(small_hosts_are_missed)
{
    struct world world;

    make_world(&world);
    world.hosts[1].shm_bytes = 64 * MIB;
    world.hosts[2].files = 200;
    world.hosts[0].disk_bytes = 10 * MIB;
    world.hosts[2].clock_s = -61;
    expect_missed(&world, 4, "check: shared memory of algo-2: 64 MiB, 512 MiB free; needed: 128 MiB");
    expect_missed(&world, 4, "check: open files of algo-3: 200; needed: 290");
    expect_missed(&world, 4, "check: clock of algo-3: -61.0000 s; needed: within 10 s");
    world.needs.ranks = 8;
    world.hosts[1].shm_bytes = 511 * MIB;
    expect_missed(&world, 4, "shared memory of algo-2: 511 MiB, 512 MiB free; needed: 512 MiB");
    world.needs.shm_bytes = 16 * MIB;
    world.needs.files = 100;
    expect_missed(&world, 2, "check: disk of algo-1: 10 MiB; needed: 256 MiB");
}

TEST(unlimited_and_unknown_are_enough)
{
    struct world world;

    make_world(&world);
    world.hosts[0].files = CHECK_UNLIMITED;
    world.hosts[1].files = CHECK_UNKNOWN;
    world.hosts[2].shm_bytes = CHECK_UNKNOWN;
    world.hosts[2].disk_bytes = CHECK_UNKNOWN;
    expect_missed(&world, 0, "");
    expect_in_table(&world, "unlimited");
}

TEST(wrong_values_and_silent_hosts_are_missed)
{
    struct world world;

    make_world(&world);
    world.report.values.wrong_broadcast = 3;
    expect_missed(&world, 1, "check: broadcast of all ranks: 3 wrong values; needed: right");
    world.report.values = (struct pl_check_values){.known = false};
    world.report.links_count = 0;
    world.report.hosts_count = 2;
    expect_missed(&world, 1, "check: hosts of all ranks: ranks on 2 hosts; needed: ranks on all 3 hosts");
    world.report.hosts_count = 3;
    world.hosts[2].name[0] = '\0'; /* the host has not answered */
    pl_text_append(&world.silent, "algo-3 > algo-1\nalgo-3 > algo-2\n");
    expect_missed(&world, 2, "check: messages of algo-3 > algo-2: no message arrives");
    pl_text_done(&world.silent);
}

TEST(an_interface_that_is_not_here_is_noted)
{
    struct world world;

    make_world(&world);
    world.hosts[0].interface_exists = false;
    expect_missed(&world, 0, "");
    expect_in_table(&world, "eth0 does not exist here; another one is used");
}

/* ---- looking ---- */

TEST(a_containers_limit_counts_where_it_is_below_the_machines_memory)
{
    static const char info[] = "MemTotal: 8192 kB\nMemFree: 10 kB\nMemAvailable: 4096 kB\n";
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    struct pl_check_host host;
    char path[PATH_MAX];

    ck_ok(pl_file_make_dirs, scratch_path(&scratch, "sys/fs/cgroup", path), 0755);
    ck_ok(pl_file_make_dirs, scratch_path(&scratch, "proc", path), 0755);
    scratch_write(&scratch, "proc/meminfo", info, strlen(info));
    scratch_write(&scratch, "sys/fs/cgroup/memory.max", "max\n", 4);
    scratch_write(&scratch, "sys/fs/cgroup/pids.max", "77\n", 3);
    pl_check_host_read(scratch.path, "/", "no-such-interface", &host);
    ck_assert_int_eq(host.memory_bytes, 8 * MIB);
    ck_assert_int_eq(host.memory_free_bytes, 4 * MIB);
    ck_assert_int_eq(host.processes, 77);
    ck_assert(!host.interface_exists);
    ck_assert_int_eq(host.shm_bytes, CHECK_UNKNOWN);
    scratch_write(&scratch, "sys/fs/cgroup/memory.max", "3145728\n", 8);
    scratch_write(&scratch, "sys/fs/cgroup/memory.current", "1048576\n", 8);
    pl_check_host_read(scratch.path, "/", "lo", &host);
    ck_assert_int_eq(host.memory_bytes, 3 * MIB);
    ck_assert_int_eq(host.memory_free_bytes, 2 * MIB);
}

static void count_of(const char *lines, struct pl_check_counters *counters)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    char path[PATH_MAX];

    ck_ok(pl_file_make_dirs, scratch_path(&scratch, "proc/self/net", path), 0755);
    scratch_write(&scratch, "proc/self/net/dev", lines, strlen(lines));
    pl_check_host_count(scratch.path, counters);
}

TEST(what_moved_the_bytes_is_told_by_counters)
{
    struct pl_check_counters before, after;
    char name[24];

    count_of("Inter-|   Receive\n face |bytes\n    lo: 1 2 3 4 5 6 7 8 100 1 0 0 0 0 0 0\n"
             "  eth0: 9 0 0 0 0 0 0 0 500 1 0 0 0 0 0 0\n",
             &before);
    ck_assert_int_eq(before.count, 2);
    count_of("  eth0: 9 0 0 0 0 0 0 0 1600 1 0 0 0 0 0 0\n  eth1: 9 0 0 0 0 0 0 0 700 1 0 0 0 0 0 0\n"
             "    lo: 1 2 3 4 5 6 7 8 100 1 0 0 0 0 0 0\n",
             &after);
    pl_check_host_transport(&before, &after, 1000, name, sizeof(name));
    ck_assert_str_eq(name, "tcp eth0");
    pl_check_host_transport(&before, &after, 10000, name, sizeof(name));
    ck_assert_str_eq(name, "");
    after.efa_bytes = before.efa_bytes + 900;
    pl_check_host_transport(&before, &after, 1000, name, sizeof(name));
    ck_assert_str_eq(name, "efa");
}

/* ---- options ---- */

static enum pl_status read_words(char **words, struct pl_check_needs *needs, struct pl_error *error)
{
    int count = 0;

    while (words[count]) {
        count++;
    }
    return pl_check_read_needs(count, words, needs, error);
}

TEST(options_are_read_and_wrong_ones_refused)
{
    char *good[] = {"check", "--ranks", "8", "--expect", "efa", "--expect-mbit", "5000", "--expect-shm", "64", NULL};
    char *transport[] = {"check", "--expect", "infiniband", NULL}, *word[] = {"check", "efa", NULL};
    struct pl_check_needs needs;

    ck_ok(read_words, good, &needs);
    ck_assert_int_eq(needs.ranks, 8);
    ck_assert_str_eq(needs.transport, "efa");
    ck_assert(needs.mbit > 4999 && needs.mbit < 5001);
    ck_assert_int_eq(needs.shm_bytes, 64 * MIB);
    ck_fails_as(PL_INVALID, "--expect is 'infiniband', expected efa, tcp or any", read_words, transport, &needs);
    ck_fails_as(PL_INVALID, "expected options, found 'efa'", read_words, word, &needs);
}

UNIT_MAIN("programs/check/check")
