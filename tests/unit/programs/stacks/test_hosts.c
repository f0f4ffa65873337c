/* SPDX-License-Identifier: Apache-2.0 */
/* Covers programs/stacks/hosts.c. A script replaces ssh to the other hosts. */
#include "programs/stacks/hosts.h"

#include "base/clock.h"
#include "base/memory.h"
#include "entrypoint/ssh/rundir.h"
#include "entrypoint/ssh/sshd.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"

#include <string.h>

#define MOST_NS (60 * PL_NS_PER_S)

/* The files that process 1 of `host` keeps for the job on algo-1, algo-2 and algo-3, and `script` in place of ssh. */
struct rig {
    struct scratch scratch;
    struct pl_rundir rundir;
    struct pl_environment *environment;
    struct pl_hosts hosts;
    struct pl_error error;
};

static void set_up(struct rig *rig, const char *host, const char *script)
{
    char user[] = "user", *names[] = {(char[]){"algo-1"}, (char[]){"algo-2"}, (char[]){"algo-3"}}, path[PATH_MAX + 16];
    const struct pl_strv job = {.items = names, .count = PL_ARRAY_ITEMS(names)};
    const struct pl_sshd sshd = {.port = 7777, .user_name = user};

    *rig = (struct rig){.scratch = scratch_new(), .rundir = PL_RUNDIR_NONE, .hosts = PL_HOSTS_NONE};
    ck_assert_ok(pl_rundir_open(&rig->rundir, &rig->error), &rig->error);
    ck_assert_ok(pl_sshd_save_hosts(&sshd, &rig->rundir, host, &job, &rig->error), &rig->error);
    scratch_write(&rig->scratch, "ssh", script, strlen(script));
    ck_assert_int_eq(chmod(scratch_path(&rig->scratch, "ssh", path), 0755), 0);
    ck_assert_ok(pl_environment_new(&rig->environment, &rig->error), &rig->error);
    snprintf(path, sizeof(path), "%s:/usr/bin:/bin", rig->scratch.path);
    ck_assert_ok(pl_environment_set(rig->environment, "PATH", path, &rig->error), &rig->error);
    ck_assert_ok(pl_hosts_start(&rig->hosts, rig->rundir.path, rig->environment, &rig->error), &rig->error);
}

static void tear_down(struct rig *rig)
{
    pl_hosts_close(&rig->hosts);
    pl_environment_free(rig->environment);
    pl_rundir_close(&rig->rundir);
    scratch_done(&rig->scratch);
}

START_TEST(the_answers_of_all_hosts_are_taken)
{
    struct rig rig;

    set_up(
        &rig, "algo-1",
        "#!/bin/sh\ncase \"$*\" in\n"
        "*'-- algo-2 exec stdio '*\"'--local' 'algo-2'\") printf '%s\\0' 4 77 'R\nmain (t)\nS ' 'rank 4\n' main '' ;;\n"
        "*'-- algo-3 exec stdio '*) printf '%s\\0' -1 77 'R\nS ' 'a program\n' sleeping 2 8 k r p text ;;\n"
        "esac\n");
    ck_assert_str_eq(rig.hosts.host_name, "algo-1");
    ck_assert_uint_eq(rig.hosts.host_count, 2);
    ck_assert_ok(pl_hosts_await(&rig.hosts, pl_deadline_after_ns(MOST_NS), &rig.error), &rig.error);
    ck_assert_uint_eq(rig.hosts.count, 3);
    ck_assert_str_eq(rig.hosts.programs[0].host, "algo-2");
    ck_assert_int_eq(rig.hosts.programs[0].rank, 4);
    ck_assert_int_eq(rig.hosts.programs[0].pid, 77);
    ck_assert_str_eq(rig.hosts.programs[0].key, "R\nmain (t)\nS ");
    ck_assert_str_eq(rig.hosts.programs[0].report, "rank 4\n");
    ck_assert_str_eq(rig.hosts.programs[1].place, "sleeping");
    ck_assert_int_eq(rig.hosts.programs[1].rank, -1);
    ck_assert_str_eq(rig.hosts.programs[2].host, "algo-3");
    ck_assert_str_eq(rig.hosts.programs[2].place, "p");
    tear_down(&rig);
}
END_TEST

START_TEST(a_host_that_does_not_answer_is_given_up)
{
    struct rig rig;

    set_up(&rig, "algo-1",
           "#!/bin/sh\ncase \"$*\" in\n*algo-2*) exec sleep 3600 ;;\n*) printf '%s\\0' 1 5 k r p '' ;;\nesac\n");
    /* on a fast machine algo-3's answer arrives; the deadline ends the wait for algo-2 */
    ck_assert_ok(pl_hosts_await(&rig.hosts, pl_deadline_after_ns(300 * PL_NS_PER_MS), &rig.error), &rig.error);
    ck_assert_int_ge(rig.hosts.hosts[0].fd, 0);
    ck_assert_uint_le(rig.hosts.count, 1);
    tear_down(&rig);
}
END_TEST

START_TEST(answers_that_are_none_are_refused)
{
    static const char *const scripts[] = {"#!/bin/sh\nprintf '%s\\0' x 77 k r p ''\n",
                                          "#!/bin/sh\nprintf '%s\\0' 1 0 k r p ''\n",
                                          "#!/bin/sh\nprintf '%s\\0' 1 99999999999 k r p ''\n",
                                          "#!/bin/sh\nprintf '%s\\0' 1 7 k\n",
                                          "#!/bin/sh\nprintf text\n",
                                          "#!/bin/sh\nexit 255\n"};
    struct rig rig;

    for (size_t i = 0; i < PL_ARRAY_ITEMS(scripts); i++) {
        set_up(&rig, "algo-1", scripts[i]);
        ck_assert_ok(pl_hosts_await(&rig.hosts, pl_deadline_after_ns(MOST_NS), &rig.error), &rig.error);
        ck_assert_uint_eq(rig.hosts.count, 0);
        tear_down(&rig);
    }
}
END_TEST

START_TEST(a_worker_and_a_job_without_a_link_ask_nobody)
{
    struct rig rig;
    struct pl_hosts hosts = PL_HOSTS_NONE;

    set_up(&rig, "algo-2", "#!/bin/sh\nprintf '%s\\0' 1 5 k r p ''\n");
    ck_assert_str_eq(rig.hosts.host_name, "algo-2");
    ck_assert_uint_eq(rig.hosts.host_count, 0);
    ck_assert_ok(pl_hosts_await(&rig.hosts, pl_deadline_after_ns(MOST_NS), &rig.error), &rig.error);
    ck_assert_uint_eq(rig.hosts.count, 0);
    ck_assert_ok(pl_hosts_start(&hosts, rig.scratch.path, rig.environment, &rig.error), &rig.error);
    ck_assert_ptr_null(hosts.host_name);
    pl_hosts_close(&hosts);
    tear_down(&rig);
}
END_TEST

START_TEST(an_answer_has_what_was_added)
{
    static const char expected[] = "3\00012\000R\nmain ()\nstuck_here ()\nS \000host algo-2, rank 3, process 12: ";
    static const char end[] = "stuck_here, called by main\000text";
    struct pl_hosts hosts = PL_HOSTS_NONE;
    struct pl_stacks_program *program = calloc(1, sizeof(*program));
    struct pl_error error = PL_ERROR_NONE;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    ck_assert_ptr_nonnull(program);
    program->pid = 12;
    program->rank = 3;
    program->state = program->threads[0].state = 'S';
    program->thread_count = 1;
    program->threads[0].frame_count = 2;
    strcpy(program->threads[0].frames[0].function, "stuck_here");
    strcpy(program->threads[0].frames[1].function, "main");
    ck_assert_ok(pl_hosts_add(&hosts, "algo-2", program, &error), &error);
    pl_hosts_print(&hosts, "text", &text);
    ck_assert_ok(pl_text_check(&text, &error), &error);
    ck_assert_uint_gt(text.length, sizeof(expected) + sizeof(end));
    ck_assert_mem_eq(text.data, expected, sizeof(expected) - 1);
    ck_assert_mem_eq(text.data + text.length - sizeof(end), end, sizeof(end));
    free(program);
    pl_hosts_close(&hosts);
}
END_TEST

START_TEST(one_sentence_says_who_stands_elsewhere)
{
    struct pl_hosts hosts = PL_HOSTS_NONE;
    char elsewhere[] = "read";
    char host[] = "algo-2", key[] = "R\na", other_key[] = "R\nb", place[] = "queue", name[] = "algo-1", here[] = "";
    struct pl_order_program programs[2] = {{.host = host, .rank = 2, .key = key, .place = place},
                                           {.host = here, .rank = 0, .key = other_key, .place = elsewhere}};
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    hosts.programs = programs;
    hosts.host_name = name;
    hosts.count = 2;
    pl_hosts_describe(&hosts, &text);
    ck_assert_str_eq(pl_text_string(&text),
                     "rank 2 on host algo-2 does something else than the others: queue; the other: read");
    pl_text_clear(&text);
    programs[0].host = here;
    programs[1].key = key;
    pl_hosts_describe(&hosts, &text);
    ck_assert_str_eq(pl_text_string(&text), "rank 2 on host algo-1 stands where others do: queue");
    pl_text_clear(&text);
    programs[0].rank = programs[1].rank = -1;
    programs[0].pid = 7;
    programs[1].key = other_key;
    pl_hosts_describe(&hosts, &text);
    ck_assert_str_eq(pl_text_string(&text),
                     "process 7 on host algo-1 does something else than the others: queue; the other: read");
    pl_text_clear(&text);
    hosts.count = 1;
    pl_hosts_describe(&hosts, &text);
    ck_assert_str_eq(pl_text_string(&text), "the program on host algo-1 stands still: queue");
}
END_TEST

UNIT_MAIN("programs/stacks/hosts", the_answers_of_all_hosts_are_taken, a_host_that_does_not_answer_is_given_up,
          answers_that_are_none_are_refused, a_worker_and_a_job_without_a_link_ask_nobody, an_answer_has_what_was_added,
          one_sentence_says_who_stands_elsewhere)
