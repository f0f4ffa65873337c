/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/ssh/rundir.c, entrypoint/ssh/sshd.c. */
#include "base/environment.h"
#include "base/memory.h"
#include "entrypoint/ssh/rundir.h"
#include "entrypoint/ssh/sshd.h"
#include "tests/support/unit.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct variable {
    const char *name;
    const char *value;
};

static struct pl_environment *environment_of(const struct variable *variables, size_t count)
{
    struct pl_environment *environment = NULL;

    ck_ok(pl_environment_new_empty, &environment);
    for (size_t i = 0; i < count; i++) {
        ck_ok(pl_environment_set, environment, variables[i].name, variables[i].value);
    }
    return environment;
}

TEST(a_rank_sees_its_own_host_and_all_else_as_mpirun_made_it)
{
    static const struct variable host[] = {{"SM_CURRENT_HOST", "algo-2"}, {"SM_IMAGE", "kept"},
                                           {"CURRENT_HOST", "algo-2"},    {"PACELINE_HOST_NAME", "algo-2"},
                                           {"LD_LIBRARY_PATH", ""},       {"LD_PRELOAD", "ours"},
                                           {"PYTHONPATH", "/code"},       {"PACELINE_TIMEOUT_S", "9"}};
    static const struct variable given[] = {
        {"SM_CURRENT_HOST", "algo-1"},       {"SM_CHANNEL_X", "/opt/ml/input/data/x"},
        {"LD_LIBRARY_PATH", "/opt/foo/lib"}, {"LD_PRELOAD", "ours:mine"},
        {"PACELINE_TIMEOUT_S", "5"},         {"PATH", "/bin"}};
    static const struct variable expected[] = {{"SM_CURRENT_HOST", "algo-2"},
                                               {"SM_IMAGE", "kept"},
                                               {"CURRENT_HOST", "algo-2"},
                                               {"PACELINE_HOST_NAME", "algo-2"},
                                               {"LD_LIBRARY_PATH", "/opt/foo/lib"},
                                               {"LD_PRELOAD", "ours:mine"},
                                               {"PACELINE_TIMEOUT_S", "5"},
                                               {"PATH", "/bin"},
                                               {"SM_CHANNEL_X", NULL},
                                               {"PYTHONPATH", NULL}};
    PL_AUTO_ENVIRONMENT struct pl_environment *own = environment_of(host, PL_ARRAY_ITEMS(host));
    PL_AUTO_ENVIRONMENT struct pl_environment *rank = environment_of(given, PL_ARRAY_ITEMS(given));
    struct pl_rundir rundir = PL_RUNDIR_NONE;

    ck_ok(pl_rundir_open, &rundir);
    ck_ok(pl_rundir_save_environment, &rundir, own);
    ck_ok(pl_rundir_load_environment, rundir.path, rank);
    for (size_t i = 0; i < PL_ARRAY_ITEMS(expected); i++) {
        ck_assert_pstr_eq(pl_environment_get(rank, expected[i].name), expected[i].value);
    }
    pl_rundir_close(&rundir);
}

/* Needs root, which can change its user for a while. */
TEST(another_users_directory_and_socket_are_not_trusted)
{
    enum { NOBODY = 65534 };
    struct pl_rundir foreign = PL_RUNDIR_NONE, own = PL_RUNDIR_NONE;
    struct pl_link link = PL_LINK_NONE;

    if (geteuid() != 0) {
        return;
    }
    ck_assert_int_eq(seteuid(NOBODY), 0); /* the user of a listening socket is the user at the time of listen(2) */
    ck_ok(pl_rundir_open, &foreign);
    ck_assert_int_eq(seteuid(0), 0);
    ck_fails(PL_SYSTEM, "belongs to another user: expected this host's process 1", pl_rundir_connect, foreign.path,
             &link);
    ck_ok(pl_rundir_open, &own);
    ck_ok(pl_rundir_connect, own.path, &link);
    pl_link_close(&link);
    pl_rundir_close(&own);
    pl_rundir_close(&foreign);
}

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

UNIT_MAIN("entrypoint/rundir")
