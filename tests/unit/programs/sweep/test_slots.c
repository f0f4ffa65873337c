/* SPDX-License-Identifier: Apache-2.0 */
/* Covers programs/sweep/slots.c. */
#include "programs/sweep/slots.h"

#include "base/memory.h"
#include "tests/support/unit.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct pl_slots cut(int cpus, int gpus, const char *visible, int processes, int wanted)
{
    const struct pl_slots_machine machine = {.host = "algo-1", .cpus = cpus, .gpus = gpus, .visible = visible};
    struct pl_error error = PL_ERROR_NONE;
    struct pl_slots slots;

    ck_assert_ok(pl_slots_cut(&machine, processes, wanted, &slots, &error), &error);
    return slots;
}

static void check_visible(const struct pl_slots *slots, int slot, const char *expected)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    pl_slots_visible(slots, slot, &text);
    ck_assert_str_eq(pl_text_string(&text), expected);
}

START_TEST(cpus_are_cut_where_there_are_no_gpus)
{
    struct pl_slots slots = cut(9, 0, NULL, 4, 0);

    ck_assert_int_eq(slots.count, 2);
    ck_assert_int_eq(slots.cpus, 4);
    ck_assert_int_eq(slots.gpus, 0);
    check_visible(&slots, 1, "");
}
END_TEST

START_TEST(each_slot_has_gpus_of_its_own)
{
    struct pl_slots slots = cut(32, 8, NULL, 2, 0);

    ck_assert_int_eq(slots.count, 4);
    ck_assert_int_eq(slots.cpus, 8);
    ck_assert_int_eq(slots.gpus, 2);
    check_visible(&slots, 0, "0,1");
    check_visible(&slots, 3, "6,7");
    slots = cut(32, 8, NULL, 1, 2); /* fewer slots, with more devices each */
    check_visible(&slots, 1, "4,5,6,7");
}
END_TEST

START_TEST(more_slots_than_gpus_share_them)
{
    struct pl_slots slots = cut(4, 2, NULL, 1, 6);

    ck_assert_int_eq(slots.count, 6);
    ck_assert_int_eq(slots.cpus, 1);
    ck_assert_int_eq(slots.gpus, 1);
    check_visible(&slots, 0, "0");
    check_visible(&slots, 5, "1");
}
END_TEST

START_TEST(slots_take_the_gpus_that_the_job_may_use)
{
    const struct pl_slots slots = cut(8, 2, "5,GPU-ab", 1, 0);

    ck_assert_int_eq(slots.count, 2);
    check_visible(&slots, 0, "5");
    check_visible(&slots, 1, "GPU-ab");
    ck_assert_int_eq(pl_slots_look("algo-1", 8, "5,GPU-ab").gpus, 2);
    ck_assert_int_eq(pl_slots_look("algo-1", 8, NULL).gpus, 8);
    ck_assert_int_ge(pl_slots_look("algo-1", 8, NULL).cpus, 1);
}
END_TEST

START_TEST(more_processes_than_devices_are_refused_unless_slots_are_named)
{
    const struct pl_slots_machine cpus = {.host = "algo-7", .cpus = 4},
                                  gpus = {.host = "algo-7", .cpus = 64, .gpus = 2};
    struct pl_error error = PL_ERROR_NONE;
    struct pl_slots slots;

    ck_assert_int_eq(pl_slots_cut(&cpus, 5, 0, &slots, &error), PL_INVALID);
    ck_assert_str_eq(error.cause, "the sweep has 5 processes per trial, and host algo-7 has 4 CPUs: expected at most 4 "
                                  "processes, or the number of slots in \"slots\"");
    ck_assert_int_eq(pl_slots_cut(&gpus, 3, 0, &slots, &error), PL_INVALID);
    ck_assert_ptr_nonnull(strstr(error.cause, "has 2 GPUs"));
    ck_assert_ok(pl_slots_cut(&gpus, 3, 1, &slots, &error), &error);
    check_visible(&slots, 0, "0,1");
}
END_TEST

START_TEST(each_slot_has_a_port_that_nobody_has)
{
    const struct sockaddr_in any = {.sin_family = AF_INET};
    struct pl_error error = PL_ERROR_NONE;
    PL_AUTO_FREE int *ports = NULL;
    PL_AUTO_FREE int *others = NULL;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = any;

    ck_assert_ok(pl_slots_find_ports(3, &ports, &error), &error);
    ck_assert_int_ne(ports[0], ports[1]);
    ck_assert_int_ne(ports[1], ports[2]);
    address.sin_port = htons((uint16_t)ports[0]);
    ck_assert_int_eq(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_ok(pl_slots_find_ports(3, &others, &error), &error);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_ne(others[i], ports[0]);
    }
    ck_assert_int_eq(close(fd), 0);
    ck_assert_int_eq(pl_slots_find_ports(1000000, &others, &error), PL_LIMIT);
}
END_TEST

UNIT_MAIN("programs/sweep/slots", cpus_are_cut_where_there_are_no_gpus, each_slot_has_gpus_of_its_own,
          more_slots_than_gpus_share_them, slots_take_the_gpus_that_the_job_may_use,
          more_processes_than_devices_are_refused_unless_slots_are_named, each_slot_has_a_port_that_nobody_has)
