/* SPDX-License-Identifier: Apache-2.0 */
/* Covers programs/stacks/order.c. */
#include "base/memory.h"
#include "programs/stacks/hosts.h"
#include "tests/support/unit.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MOST_PROGRAMS = 5 };

/* Zeroed memory; only the parts that are written take space. */
static struct pl_stacks_program *programs[MOST_PROGRAMS];
static struct pl_hosts_program order[MOST_PROGRAMS];

/* Sets a program whose main thread's functions are the words of `stack`, the outermost first. */
static void set(size_t index, char state, const char *stack)
{
    char words[256], *rest = words, *word;
    size_t count = 0;

    programs[index] = calloc(1, sizeof(*programs[index]));
    ck_assert_ptr_nonnull(programs[index]);
    programs[index]->rank = (int)index;
    programs[index]->pid = 1000 - (pid_t)index;
    programs[index]->state = programs[index]->threads[0].state = state;
    for (const char *at = stack; *at != '\0'; at += strcspn(at, " ")) {
        at += strspn(at, " ");
        count++;
    }
    programs[index]->threads[0].frame_count = count;
    snprintf(words, sizeof(words), "%s", stack);
    while ((word = strsep(&rest, " ")) && count > 0) {
        struct pl_stacks_frame *frame = &programs[index]->threads[0].frames[--count];

        snprintf(frame->function, sizeof(frame->function), "%s", word);
    }
}

/* Returns the ranks in their sorted order. */
static const char *ranks(size_t count)
{
    static char text[MOST_PROGRAMS * 4];

    for (size_t i = 0; i < count; i++) {
        order[i] = (struct pl_hosts_program){.host = "", .rank = programs[i]->rank, .pid = programs[i]->pid};
        pl_order_key(programs[i], &order[i].key);
    }
    ck_ok(pl_order_programs, order, count);
    text[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%d ", order[i].rank);
    }
    for (size_t i = 0; i < count; i++) {
        free(programs[i]);
        pl_text_done(&order[i].key);
    }
    return text;
}

TEST(the_one_that_differs_comes_first)
{
    static const struct {
        const char *expected;
        struct {
            char state;
            const char *stack;
        } programs[MOST_PROGRAMS];
    } cases[] = {
        /* the rank that departs first, with the fewest others */
        {"2 3 0 1 ",
         {{'R', "main step MPI_Allreduce poll"},
          {'S', "main step MPI_Allreduce poll"},
          {'R', "main step stuck_here"},
          {'R', "main step MPI_Allreduce yield"}}},
        /* a rank that waits for the others */
        {"2 0 1 3 ",
         {{'S', "main load read"},
          {'S', "main load decode inflate"},
          {'S', "main MPI_Allreduce poll progress vader"},
          {'S', "main load decode crc"}}},
        /* stopped ranks are before all others */
        {"0 1 2 ",
         {{'T', "main step MPI_Allreduce poll"}, {'T', "main step MPI_Allreduce poll"}, {'R', "main step stuck_here"}}},
        /* a state that few share counts before stacks */
        {"3 0 1 2 4 ", {{'S', "main a"}, {'R', "main b"}, {'S', "main b"}, {'D', "main b"}, {'S', "main b"}}},
        {"0 ", {{'S', "main"}}},
        {"", {{0, NULL}}},
    };

    for (size_t i = 0; i < PL_ARRAY_ITEMS(cases); i++) {
        size_t count = 0;

        for (; count < MOST_PROGRAMS && cases[i].programs[count].stack; count++) {
            set(count, cases[i].programs[count].state, cases[i].programs[count].stack);
        }
        ck_assert_str_eq(ranks(count), cases[i].expected);
    }
}

TEST(a_page_fault_at_the_first_look_is_no_state_of_its_own)
{
    set(0, 'S', "main b");
    set(1, 'S', "main a");
    set(2, 'D', "main b");
    programs[2]->threads[0].state = 'S';
    ck_assert_str_eq(ranks(3), "1 0 2 ");
}

TEST(without_stacks_states_and_waits_tell)
{
    for (size_t i = 0; i < 3; i++) {
        set(i, 'S', "");
        strcpy(programs[i]->threads[0].wait, i == 1 ? "pipe_read" : "futex_do_wait");
    }
    ck_assert_str_eq(ranks(3), "1 0 2 ");
}

TEST(functions_without_names_are_told_apart_by_their_places)
{
    for (size_t i = 0; i < 3; i++) {
        set(i, 'S', "main x");
        programs[i]->threads[0].frames[0].function[0] = '\0';
        programs[i]->threads[0].frames[0].offset = i == 2 ? 16 : 32;
    }
    ck_assert_str_eq(ranks(3), "2 0 1 ");
}

TEST(equals_are_in_the_order_of_ranks_and_processes)
{
    set(0, 'S', "main wait");
    set(1, 'S', "main wait");
    set(2, 'S', "main wait");
    ck_assert_str_eq(ranks(3), "0 1 2 ");
    set(0, 'S', "main wait");
    set(1, 'S', "main wait");
    programs[0]->rank = programs[1]->rank = -1;
    ck_assert_str_eq(ranks(2), "-1 -1 ");
    ck_assert_int_eq(order[0].pid, 999); /* before 1000 */
}

TEST(python_s_own_functions_count_before_native_ones)
{
    static const char at_work[] = "Current thread 0x1 (most recent call first):\n  File \"t.py\", line 9 in step\n"
                                  "  File \"t.py\", line 20 in <module>\n";
    static const char stuck[] = "Current thread 0x1 (most recent call first):\n  File \"queue.py\", line 171 in get\n"
                                "  File \"t.py\", line 20 in <module>\n";

    set(0, 'S', "main eval poll");
    set(1, 'S', "main eval recv"); /* a difference in native functions counts less */
    set(2, 'S', "main eval wait");
    set(3, 'S', "main eval wait");
    for (int i = 0; i < 4; i++) {
        strcpy(programs[i]->python, i == 2 ? stuck : at_work);
    }
    ck_assert_str_eq(ranks(4), "2 0 1 3 ");
}

UNIT_MAIN("programs/stacks/order")
