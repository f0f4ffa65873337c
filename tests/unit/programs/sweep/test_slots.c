/* SPDX-License-Identifier: Apache-2.0 */
/* Covers programs/sweep/slots.c. */
#include "programs/sweep/slots.h"

#include "tests/support/unit.h"

#include <string.h>

static struct pl_slots cut(int cpus, int gpus, int processes, int wanted)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_slots slots;

    ck_assert_ok(pl_slots_cut("algo-1", cpus, gpus, processes, wanted, &slots, &error), &error);
    return slots;
}

START_TEST(cpus_are_cut_where_there_are_no_gpus)
{
    struct pl_slots slots = cut(9, 0, 4, 0);

    ck_assert_int_eq(slots.count, 2);
    ck_assert_int_eq(slots.cpus, 4);
    ck_assert_int_eq(slots.gpus, 0);
}
END_TEST

START_TEST(each_slot_has_gpus_of_its_own)
{
    struct pl_slots slots = cut(32, 8, 2, 0);

    ck_assert_int_eq(slots.count, 4);
    ck_assert_int_eq(slots.cpus, 8);
    ck_assert_int_eq(slots.gpus, 2);
    slots = cut(32, 8, 1, 2); /* fewer slots, with more devices each */
}
END_TEST

START_TEST(more_slots_than_gpus_share_them)
{
    struct pl_slots slots = cut(4, 2, 1, 6);

    ck_assert_int_eq(slots.count, 6);
    ck_assert_int_eq(slots.cpus, 1);
    ck_assert_int_eq(slots.gpus, 1);
}
END_TEST

START_TEST(more_processes_than_devices_are_refused_unless_slots_are_named)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_slots slots;

    ck_assert_int_eq(pl_slots_cut("algo-7", 4, 0, 5, 0, &slots, &error), PL_INVALID);
    ck_assert_str_eq(error.cause, "the sweep has 5 processes per trial, and host algo-7 has 4 CPUs: expected at most 4 "
                                  "processes, or the number of slots in \"slots\"");
    ck_assert_int_eq(pl_slots_cut("algo-7", 64, 2, 3, 0, &slots, &error), PL_INVALID);
    ck_assert_ptr_nonnull(strstr(error.cause, "has 2 GPUs"));
    ck_assert_ok(pl_slots_cut("algo-7", 64, 2, 3, 1, &slots, &error), &error);
    ck_assert_int_eq(slots.gpus, 2);
}
END_TEST

UNIT_MAIN("programs/sweep/slots", cpus_are_cut_where_there_are_no_gpus, each_slot_has_gpus_of_its_own,
          more_slots_than_gpus_share_them, more_processes_than_devices_are_refused_unless_slots_are_named)
