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

#define PROGRAM(rank, process, key)                                                                                    \
    "{\"rank\": " rank ", \"process\": " process ", \"key\": " key ", \"report\": \"r\", \"place\": \"p\"}"
#define FOUR PROGRAM("4", "77", "\"R\\nmain (t)\\nS \"")
#define NO_RANK PROGRAM("null", "78", "\"R\\nS \"")
#define SAY(problem, programs) "printf '%s\\n' '{\"problem\": \"" problem "\", \"programs\": [" programs "]}'\n"
#define ANSWER(program) "#!/bin/sh\n" SAY("", program)

/* The files that process 1 of `host` keeps for the job on algo-1, algo-2 and algo-3, and `script` instead of ssh. */
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
    ck_ok(pl_rundir_open, &rig->rundir);
    ck_ok(pl_sshd_save_hosts, &sshd, &rig->rundir, host, &job);
    scratch_write(&rig->scratch, "ssh", script, strlen(script));
    ck_assert_int_eq(chmod(scratch_path(&rig->scratch, "ssh", path), 0755), 0);
    ck_ok(pl_environment_new, &rig->environment);
    snprintf(path, sizeof(path), "%s:/usr/bin:/bin", rig->scratch.path);
    ck_ok(pl_environment_set, rig->environment, "PATH", path);
    ck_ok(pl_hosts_start, &rig->hosts, rig->rundir.path, rig->environment);
}

static void tear_down(struct rig *rig)
{
    pl_hosts_close(&rig->hosts);
    pl_environment_free(rig->environment);
    pl_rundir_close(&rig->rundir);
    scratch_done(&rig->scratch);
}

TEST(the_answers_of_all_hosts_are_taken)
{
    struct rig rig;

    set_up(&rig, "algo-1",
           "#!/bin/sh\ncase \"$*\" in\n"
           "*'-- algo-2 exec stdio '*\"'--local' 'algo-2'\")\n" SAY(
               "", FOUR) ";;\n"
                         "*'-- algo-3 exec stdio '*)\n" SAY("text", NO_RANK ", " FOUR) ";;\nesac\n");
    ck_assert_str_eq(rig.hosts.host_name, "algo-1");
    ck_assert_uint_eq(rig.hosts.host_count, 2);
    pl_hosts_await(&rig.hosts, pl_deadline_after_ns(MOST_NS));
    ck_assert_uint_eq(rig.hosts.count, 3);
    ck_assert_str_eq(rig.hosts.programs[0].host, "algo-2");
    ck_assert_int_eq(rig.hosts.programs[0].rank, 4);
    ck_assert_int_eq(rig.hosts.programs[0].pid, 77);
    ck_assert_str_eq(pl_text_string(&rig.hosts.programs[0].key), "R\nmain (t)\nS ");
    ck_assert_str_eq(pl_text_string(&rig.hosts.programs[0].report), "r");
    ck_assert_str_eq(pl_text_string(&rig.hosts.programs[1].place), "p");
    ck_assert_int_eq(rig.hosts.programs[1].rank, -1);
    ck_assert_str_eq(rig.hosts.programs[2].host, "algo-3");
    ck_assert_int_eq(rig.hosts.programs[2].rank, 4);
    tear_down(&rig);
}

TEST(a_host_that_does_not_answer_is_given_up)
{
    struct rig rig;

    set_up(&rig, "algo-1", "#!/bin/sh\ncase \"$*\" in\n*algo-2*) exec sleep 3600 ;;\nesac\n" SAY("", FOUR));
    /* on a fast machine algo-3's answer arrives; the deadline ends the wait for algo-2 */
    pl_hosts_await(&rig.hosts, pl_deadline_after_ns(300 * PL_NS_PER_MS));
    ck_assert_int_gt(rig.hosts.hosts[0].pid, 0);
    ck_assert_uint_le(rig.hosts.count, 1);
    tear_down(&rig);
}

TEST(answers_that_are_none_are_refused)
{
    static const char *const scripts[] = {ANSWER(PROGRAM("\"x\"", "77", "\"k\"")),
                                          ANSWER(PROGRAM("1", "0", "\"k\"")),
                                          ANSWER(PROGRAM("1", "99999999999", "\"k\"")),
                                          ANSWER(PROGRAM("1", "7", "null")),
                                          "#!/bin/sh\nprintf '{\"problem\": \"\", \"programs\": ['\n",
                                          "#!/bin/sh\nprintf text\n",
                                          "#!/bin/sh\nexit 255\n"};
    struct rig rig;

    for (size_t i = 0; i < PL_ARRAY_ITEMS(scripts); i++) {
        set_up(&rig, "algo-1", scripts[i]);
        pl_hosts_await(&rig.hosts, pl_deadline_after_ns(MOST_NS));
        ck_assert_uint_eq(rig.hosts.count, 0);
        tear_down(&rig);
    }
}

TEST(a_worker_and_a_job_without_a_link_ask_nobody)
{
    struct rig rig;
    struct pl_hosts hosts = PL_HOSTS_NONE;

    set_up(&rig, "algo-2", ANSWER(FOUR));
    ck_assert_str_eq(rig.hosts.host_name, "algo-2");
    ck_assert_uint_eq(rig.hosts.host_count, 0);
    pl_hosts_await(&rig.hosts, pl_deadline_after_ns(MOST_NS));
    ck_assert_uint_eq(rig.hosts.count, 0);
    ck_ok(pl_hosts_start, &hosts, rig.scratch.path, rig.environment);
    ck_assert_ptr_null(hosts.host_name);
    pl_hosts_close(&hosts);
    tear_down(&rig);
}

TEST(an_answer_has_what_was_added)
{
    static const char expected[] =
        "{\"version\":1,\"problem\":\"text\",\"programs\":[{\"host\":\"algo-2\",\"rank\":3,\"process\":12,"
        "\"key\":\"R\\nmain ()\\nstuck_here ()\\nS \",\"place\":\"stuck_here, called by main\","
        "\"report\":\"host algo-2, rank 3, process 12: ";
    struct pl_hosts hosts = PL_HOSTS_NONE;
    struct pl_stacks_program *program = calloc(1, sizeof(*program));
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    ck_assert_ptr_nonnull(program);
    program->pid = 12;
    program->rank = 3;
    program->state = program->threads[0].state = 'S';
    program->thread_count = 1;
    program->threads[0].frame_count = 2;
    strcpy(program->threads[0].frames[0].function, "stuck_here");
    strcpy(program->threads[0].frames[1].function, "main");
    ck_ok(pl_hosts_add, &hosts, "algo-2", program);
    ck_ok(pl_hosts_print_json, &hosts, "text", &text);
    ck_assert_msg(strncmp(text.data, expected, sizeof(expected) - 1) == 0, "%s", text.data);
    pl_text_clear(&text);
    ck_ok(pl_hosts_print_json, &hosts, NULL, &text);
    ck_lacks(text.data, "problem");
    ck_lacks(text.data, "key");
    free(program);
    pl_hosts_close(&hosts);
}

TEST(one_sentence_says_who_stands_elsewhere)
{
    struct pl_hosts hosts = PL_HOSTS_NONE;
    char elsewhere[] = "read", key[] = "R\na", other_key[] = "R\nb", place[] = "queue", name[] = "algo-1";
    struct pl_hosts_program programs[2] = {{.host = "algo-2", .rank = 2, .key.data = key, .place.data = place},
                                           {.host = "", .rank = 0, .key.data = other_key, .place.data = elsewhere}};
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    hosts.programs = programs;
    hosts.host_name = name;
    hosts.count = 2;
    pl_hosts_describe(&hosts, &text);
    ck_assert_str_eq(pl_text_string(&text),
                     "rank 2 on host algo-2 does something else than the others: queue; the other: read");
    pl_text_clear(&text);
    programs[0].host = "";
    programs[1].key.data = key;
    pl_hosts_describe(&hosts, &text);
    ck_assert_str_eq(pl_text_string(&text), "rank 2 on host algo-1 stands where others do: queue");
    pl_text_clear(&text);
    programs[0].rank = programs[1].rank = -1;
    programs[0].pid = 7;
    programs[1].key.data = other_key;
    pl_hosts_describe(&hosts, &text);
    ck_assert_str_eq(pl_text_string(&text),
                     "process 7 on host algo-1 does something else than the others: queue; the other: read");
    pl_text_clear(&text);
    hosts.count = 1;
    pl_hosts_describe(&hosts, &text);
    ck_assert_str_eq(pl_text_string(&text), "the program on host algo-1 stands still: queue");
}

UNIT_MAIN("programs/stacks/hosts")
