/* SPDX-License-Identifier: Apache-2.0 */
/* Covers programs/stacks/hosts.c. The other side of the link, process 1, is this test. */
#include "programs/stacks/hosts.h"

#include "base/clock.h"
#include "entrypoint/ssh/rundir.h"
#include "tests/support/unit.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_NS (60 * PL_NS_PER_S)

static struct pl_rundir rundir;
static struct pl_link process_1;
static struct pl_error error;

/* Connect an asker, and take what it says first. */
static void set_up(struct pl_hosts *hosts)
{
    struct pl_frame frame;

    rundir = PL_RUNDIR_NONE;
    *hosts = PL_HOSTS_NONE;
    ck_assert_ok(pl_rundir_open(&rundir, &error), &error);
    ck_assert_ok(pl_hosts_open(hosts, rundir.path, &error), &error);
    ck_assert_ok(pl_link_open(&process_1, accept(rundir.listen_fd, NULL, NULL), &error), &error);
    ck_assert_ok(pl_link_read(&process_1, &error), &error);
    ck_assert_ok(pl_link_next(&process_1, &frame, &error), &error);
    ck_assert_int_eq(frame.type, PL_FRAME_HELLO);
    ck_assert_str_eq(frame.fields[0], "stacks");
}

static void tear_down(struct pl_hosts *hosts)
{
    pl_hosts_close(hosts);
    pl_link_close(&process_1);
    pl_rundir_close(&rundir);
}

static void say(enum pl_frame_type type, const char *const *fields)
{
    size_t count = 0;

    while (fields[count] != NULL) {
        count++;
    }
    ck_assert_ok(pl_link_send(&process_1, type, fields, count, &error), &error);
}

#define SAY(type, ...) say(PL_FRAME_##type, (const char *const[]){__VA_ARGS__, NULL})

START_TEST(the_answers_of_all_hosts_are_taken)
{
    struct pl_hosts hosts;

    set_up(&hosts);
    SAY(LOOKING, "algo-1", "algo-2\nalgo-3\n", "");
    ck_assert_ok(pl_hosts_ask(&hosts, pl_deadline_after_ns(MOST_NS), &error), &error);
    ck_assert_str_eq(hosts.host_name, "algo-1");
    ck_assert_uint_eq(hosts.host_count, 2);
    SAY(STANDS, "algo-3", "4", "77", "R\nmain (t)\nS ", "rank 4\n", "main");
    SAY(STANDS, "algo-3", "4", "77", "R\nmain (t)\nS ", "rank 4\n", "main"); /* for another request */
    SAY(LOOKED, "algo-3", "");
    SAY(STANDS, "algo-2", "-1", "77", "R\nS ", "a program\n", "sleeping");
    SAY(LOOKED, "algo-2", "");
    ck_assert_ok(pl_hosts_await(&hosts, pl_deadline_after_ns(MOST_NS), &error), &error);
    ck_assert_uint_eq(hosts.count, 2);
    ck_assert_str_eq(hosts.programs[0].host, "algo-3");
    ck_assert_int_eq(hosts.programs[0].rank, 4);
    ck_assert_int_eq(hosts.programs[0].pid, 77);
    ck_assert_str_eq(hosts.programs[0].key, "R\nmain (t)\nS ");
    ck_assert_str_eq(hosts.programs[0].report, "rank 4\n");
    ck_assert_str_eq(hosts.programs[1].place, "sleeping");
    ck_assert_int_eq(hosts.programs[1].rank, -1);
    tear_down(&hosts);
}
END_TEST

START_TEST(a_host_that_does_not_answer_is_given_up)
{
    struct pl_hosts hosts;

    set_up(&hosts);
    ck_assert_int_eq(pl_hosts_ask(&hosts, pl_clock_now_ns(), &error), PL_TIMEOUT);
    SAY(LOOKING, "algo-1", "algo-2\nalgo-3\n", "");
    ck_assert_ok(pl_hosts_ask(&hosts, pl_deadline_after_ns(MOST_NS), &error), &error);
    SAY(LOOKED, "algo-3", "no training program runs on this host");
    ck_assert_ok(pl_hosts_await(&hosts, pl_deadline_after_ns(100 * PL_NS_PER_MS), &error), &error);
    ck_assert(!hosts.hosts[0].answered && hosts.hosts[1].answered);
    pl_link_close(&process_1);
    ck_assert_int_eq(pl_hosts_await(&hosts, pl_deadline_after_ns(MOST_NS), &error), PL_PEER);
    tear_down(&hosts);
}
END_TEST

START_TEST(frames_that_are_none_are_refused)
{
    struct pl_hosts hosts;

    set_up(&hosts);
    SAY(LOOKING, "algo-1", "algo-2\n", "");
    ck_assert_ok(pl_hosts_ask(&hosts, pl_deadline_after_ns(MOST_NS), &error), &error);
    SAY(STANDS, "algo-2", "x", "77", "R\nS ", "a program\n", "sleeping");
    ck_assert_int_eq(pl_hosts_await(&hosts, pl_deadline_after_ns(MOST_NS), &error), PL_CORRUPT);
    tear_down(&hosts);
}
END_TEST

START_TEST(what_is_sent_is_what_was_added_and_texts_fit_into_frames)
{
    struct pl_hosts hosts;
    struct pl_stacks_program *program = calloc(1, sizeof(*program));
    struct pl_frame frame;
    size_t received = 0;
    enum pl_status status;

    ck_assert_ptr_nonnull(program);
    set_up(&hosts);
    program->pid = 12;
    program->rank = 3;
    program->state = program->threads[0].state = 'S';
    program->thread_count = 1;
    program->threads[0].frame_count = 2;
    strcpy(program->threads[0].frames[0].function, "stuck_here");
    strcpy(program->threads[0].frames[1].function, "main");
    memset(program->python, 'x', sizeof(program->python) - 1); /* one line, longer than any */
    ck_assert_ok(pl_hosts_add(&hosts, "algo-2", program, &error), &error);
    ck_assert_ok(pl_hosts_send(&hosts, "algo-2", "text", pl_deadline_after_ns(MOST_NS), &error), &error);
    while (received < 2) {
        ck_assert_ok(pl_link_read(&process_1, &error), &error);
        while ((status = pl_link_next(&process_1, &frame, &error)) == PL_OK) {
            received++;
            ck_assert_str_eq(frame.fields[0], "algo-2");
            if (received == 1) {
                ck_assert_int_eq(frame.type, PL_FRAME_STANDS);
                ck_assert_str_eq(frame.fields[1], "3");
                ck_assert_str_eq(frame.fields[2], "12");
                ck_assert_str_eq(frame.fields[3], "R\nmain ()\nstuck_here ()\nS ");
                ck_assert_int_eq(strncmp(frame.fields[4], "host algo-2, rank 3, process 12: ", 33), 0);
                ck_assert_str_eq(frame.fields[5], "stuck_here in main");
            } else {
                ck_assert_int_eq(frame.type, PL_FRAME_LOOKED);
                ck_assert_str_eq(frame.fields[1], "text");
            }
        }
        ck_assert_int_eq(status, PL_END);
    }
    free(program);
    tear_down(&hosts);
}
END_TEST

START_TEST(one_sentence_says_who_stands_elsewhere)
{
    struct pl_hosts hosts = PL_HOSTS_NONE;
    char host[] = "algo-2", key[] = "R\na", other_key[] = "R\nb", place[] = "queue", name[] = "algo-1", here[] = "";
    struct pl_order_program programs[2] = {{.host = host, .rank = 2, .key = key, .place = place},
                                           {.host = here, .rank = 0, .key = other_key, .place = place}};
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    pl_hosts_describe(&hosts, &text);
    ck_assert_str_eq(pl_text_string(&text), "");
    hosts.programs = programs;
    hosts.host_name = name;
    hosts.count = 2;
    pl_hosts_describe(&hosts, &text);
    ck_assert_str_eq(pl_text_string(&text), "rank 2 on host algo-2 stands elsewhere than the others: queue");
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
    ck_assert_str_eq(pl_text_string(&text), "process 7 on host algo-1 stands elsewhere than the others: queue");
    pl_text_clear(&text);
    hosts.count = 1;
    pl_hosts_describe(&hosts, &text);
    ck_assert_str_eq(pl_text_string(&text), "the program on host algo-1 stands still: queue");
}
END_TEST

UNIT_MAIN("programs/stacks/hosts", the_answers_of_all_hosts_are_taken, a_host_that_does_not_answer_is_given_up,
          frames_that_are_none_are_refused, what_is_sent_is_what_was_added_and_texts_fit_into_frames,
          one_sentence_says_who_stands_elsewhere)
