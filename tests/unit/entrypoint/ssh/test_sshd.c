/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/ssh/sshd.c. */
#include "base/memory.h"
#include "entrypoint/ssh/sshd.h"
#include "tests/support/unit.h"

#include <string.h>

TEST(a_programs_client_is_the_masters)
{
    static char user[] = "trainer";
    const struct pl_sshd master = {.user_name = user, .port = 2222};
    struct pl_sshd program = PL_SSHD_NONE;
    PL_AUTO_STRV struct pl_strv hosts = PL_STRV_NONE;
    PL_AUTO_STRV struct pl_strv found = PL_STRV_NONE;
    PL_AUTO_STRV struct pl_strv expected_argv = PL_STRV_NONE;
    PL_AUTO_STRV struct pl_strv argv = PL_STRV_NONE;
    PL_AUTO_FREE char *current = NULL;
    struct pl_rundir rundir = PL_RUNDIR_NONE;

    ck_ok(pl_rundir_open, &rundir);
    ck_fails(PL_NOT_FOUND, "", pl_sshd_load_hosts, rundir.path, &program, &current, &found);
    pl_strv_add(&hosts, "algo-1", "algo-2");
    ck_ok(pl_sshd_save_hosts, &master, &rundir, "algo-2", &hosts);
    ck_ok(pl_sshd_load_hosts, rundir.path, &program, &current, &found);
    ck_assert_str_eq(current, "algo-2");
    ck_assert_uint_eq(found.count, 2);
    ck_assert_str_eq(found.items[0], "algo-1");
    ck_assert_str_eq(found.items[1], "algo-2");
    ck_ok(pl_sshd_client, &master, rundir.path, "algo-1", "relay", &expected_argv);
    ck_ok(pl_sshd_client, &program, rundir.path, "algo-1", "shell 'ls'", &argv);
    ck_assert_uint_eq(argv.count, expected_argv.count);
    for (size_t i = 0; i + 1 < argv.count; i++) {
        ck_assert_str_eq(argv.items[i], expected_argv.items[i]);
    }
    ck_assert_str_eq(argv.items[argv.count - 1], "shell 'ls'");
    pl_sshd_close(&program);
    pl_rundir_close(&rundir);
}

TEST(a_file_that_is_cut_is_refused)
{
    struct pl_sshd sshd = PL_SSHD_NONE;
    PL_AUTO_STRV struct pl_strv found = PL_STRV_NONE;
    PL_AUTO_FREE char *current = NULL;
    struct pl_rundir rundir = PL_RUNDIR_NONE;

    ck_ok(pl_rundir_open, &rundir);
    ck_ok(pl_rundir_write, &rundir, "hosts", "22\0root\0algo-1", 15);
    ck_fails(PL_CORRUPT, "expected port, user, host and hosts", pl_sshd_load_hosts, rundir.path, &sshd, &current,
             &found);
    pl_rundir_close(&rundir);
}

UNIT_MAIN("entrypoint/sshd")
