/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/ssh/relay.c. */
#include "entrypoint/ssh/relay.h"

#include "tests/support/unit.h"

static void expect(const char *text, const char *const *words)
{
    PL_AUTO_STRV struct pl_strv command = PL_STRV_NONE;
    size_t count = 0;

    ck_ok(pl_command_split_daemon, text, &command);
    for (; words[count]; count++) {
        ck_assert_uint_lt(count, command.count);
        ck_assert_str_eq(command.items[count], words[count]);
    }
    ck_assert_uint_eq(command.count, count);
    ck_assert_ptr_null(command.items[count]);
}

static void refuse(const char *text)
{
    PL_AUTO_STRV struct pl_strv command = PL_STRV_NONE;
    struct pl_error error = PL_ERROR_NONE;

    ck_assert_msg(pl_command_split_daemon(text, &command, &error) == PL_INVALID, "accepted: %s", text);
    ck_assert_uint_eq(command.count, 0);
}

TEST(mpirun_4_1_command_is_split)
{
    expect("     orted -mca ess \"env\" -mca ess_base_jobid \"2718564352\" -mca orte_hnp_uri "
           "\"2718564352.0;tcp://10.0.0.1:49153\" --daemonize --tree-spawn",
           (const char *const[]){"orted", "-mca", "ess", "env", "-mca", "ess_base_jobid", "2718564352", "-mca",
                                 "orte_hnp_uri", "2718564352.0;tcp://10.0.0.1:49153", "--tree-spawn", NULL});
}

TEST(assignments_and_exports_in_front_are_dropped)
{
    expect("PATH=/opt/mpi/bin:$PATH ; export PATH ; LD_LIBRARY_PATH=/opt/mpi/lib:${LD_LIBRARY_PATH:-} ; export "
           "LD_LIBRARY_PATH ; "
           "/opt/mpi/bin/prted --prtemca ess 'env'",
           (const char *const[]){"/opt/mpi/bin/prted", "--prtemca", "ess", "env", NULL});
}

TEST(what_mpirun_adds_for_users_of_sh_is_dropped)
{
    expect("( test ! -r ./.profile || . ./.profile; orted -mca ess \"env\" )",
           (const char *const[]){"orted", "-mca", "ess", "env", NULL});
    expect("     ( test ! -r ./.profile || . ./.profile; PATH=/opt/mpi/bin:$PATH ; export PATH ; prted -mca ess env)",
           (const char *const[]){"prted", "-mca", "ess", "env", NULL});
    refuse("( orted )");
    refuse("orted )");
    refuse("( test ! -r ./.profile || . ./.profile; orted ) ; reboot");
    refuse("( test ! -r ./.profile || . ./.profile; orted ) )");
    refuse("( test ! -r ./.profile || . ./.profile; reboot )");
    refuse("( test ! -r ./.profile || . ./.profile; )");
    refuse("( test ! -r ./.profile || . /tmp/evil; orted )");
}

TEST(quotes_and_backslashes_are_a_shells)
{
    expect("orted 'a \"b' \"c 'd \\\" \\$x \\n\" e\\ f \"\" g'h'\"i\"",
           (const char *const[]){"orted", "a \"b", "c 'd \" $x \\n", "e f", "", "ghi", NULL});
}

TEST(other_programs_and_shell_syntax_are_refused)
{
    refuse("");
    refuse("   ; ;");
    refuse("/bin/sh -c 'rm -rf /'");
    refuse("orted; rm -rf /");
    refuse("orted && reboot");
    refuse("orted | tee x");
    refuse("orted > /etc/passwd");
    refuse("orted `reboot`");
    refuse("orted $(reboot)");
    refuse("orted 'open");
    refuse("orted \\");
    refuse("notorted");
    refuse("/usr/bin/orted-evil");
    refuse("export orted");
}

UNIT_MAIN("entrypoint/command")
