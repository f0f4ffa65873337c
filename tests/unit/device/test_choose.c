/* SPDX-License-Identifier: Apache-2.0 */
/* Covers device/choose.c. */
#include "device/choose.h"

#include "base/memory.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <string.h>

/* Makes a list: "AB" sees the devices A and B in this order; "" sees none. */
static struct pl_device_list list_of(const char *devices)
{
    struct pl_device_list made = {.status = *devices ? PL_OK : PL_UNSUPPORTED};

    for (; *devices; devices++) {
        snprintf(made.uuid[made.count++], PL_DEVICE_UUID_BYTES, "GPU-%c", *devices);
    }
    if (made.count == 0) {
        snprintf(made.reason, sizeof(made.reason), "no GPU is used: no NVIDIA driver");
    }
    return made;
}

/* Returns the choice of each rank by name: "AB" if rank 0 takes A and rank 1 takes B; "-" for a rank without a
 * device. */
static const char *choose(const char *const *devices, int ranks, enum pl_device_use use, bool share,
                          enum pl_status *ret_status, struct pl_error *error)
{
    static char taken[33];
    struct pl_device_request wanted_device = {.use = use, .ordinal = 1};
    struct pl_device_list lists[32];

    memset(taken, 0, sizeof(taken));
    for (int r = 0; r < ranks; r++) {
        lists[r] = list_of(devices[r]);
    }
    for (int r = 0; r < ranks; r++) {
        int ordinal = -2;

        *ret_status = pl_device_choose(lists, ranks, r, wanted_device, share, &ordinal, error);
        if (*ret_status != PL_OK) {
            ck_assert_int_eq(ordinal, -2);
            return "";
        }
        taken[r] = ordinal < 0 ? '-' : devices[r][ordinal];
    }
    return taken;
}

static void check(const char *const *devices, int ranks, bool share, const char *wanted)
{
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;
    const char *taken = choose(devices, ranks, PL_DEVICE_AUTO, share, &status, &error);

    ck_assert_msg(status == PL_OK, "%s", error.cause);
    ck_assert_str_eq(taken, wanted);
}

TEST(ranks_that_see_all_devices_take_them_in_order)
{
    const char *const all[] = {"ABCD", "ABCD", "ABCD", "ABCD"};

    check(all, 4, false, "ABCD");
    check(all, 2, false, "AB");
    check(all, 1, false, "A");
}

TEST(a_launcher_that_gave_each_rank_its_own_is_understood)
{
    const char *const own[] = {"A", "B", "C"};
    const char *const turned[] = {"BA", "BA"};
    const char *const mixed[] = {"AB", "A", "CAB"}; /* the first rank must leave A to the second */
    const char *const chain[] = {"ABC", "AB", "A"};

    check(own, 3, false, "ABC");
    check(turned, 2, false, "BA");
    check(mixed, 3, false, "BAC");
    check(chain, 3, false, "CBA");
}

TEST(fewer_devices_than_ranks_are_an_error_unless_they_may_be_shared)
{
    const char *const two[] = {"AB", "AB", "AB", "AB"};
    const char *const one[] = {"A", "A", "A", "A"};
    const char *const five[] = {"AB", "AB", "AB", "AB", "AB"};
    const char *const same[] = {"A", "A", "B"}; /* there are enough devices, but two ranks see only one of them */
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;

    choose(two, 4, PL_DEVICE_AUTO, false, &status, &error);
    ck_assert_int_eq(status, PL_INVALID);
    ck_assert_str_eq(error.cause, "4 ranks of this host would share 2 GPUs: start 2 of them, let ranks share GPUs with "
                                  "PACELINE_SHARE_DEVICE=1, or "
                                  "train on the CPU with PACELINE_DEVICE=off");
    choose(one, 4, PL_DEVICE_ON, false, &status, &error);
    ck_assert_str_eq(error.cause, "4 ranks of this host would share 1 GPU: start 1 of them, let ranks share GPUs with "
                                  "PACELINE_SHARE_DEVICE=1, or "
                                  "train on the CPU with PACELINE_DEVICE=off");
    check(two, 4, true, "AABB");
    check(one, 4, true, "AAAA");
    check(five, 5, true, "AAABB");
    choose(same, 3, PL_DEVICE_AUTO, false, &status, &error);
    ck_assert_int_eq(status, PL_INVALID);
    check(same, 3, true, "AAB");
}

TEST(without_devices_the_request_decides)
{
    const char *const none[] = {"", ""};
    const char *const some[] = {"A", ""};
    const char *const all[] = {"A", "B"};
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;

    ck_assert_str_eq(choose(none, 2, PL_DEVICE_AUTO, false, &status, &error), "--");
    ck_assert_str_eq(choose(all, 2, PL_DEVICE_OFF, false, &status, &error), "--");
    choose(none, 2, PL_DEVICE_ON, false, &status, &error);
    ck_assert_int_eq(status, PL_UNSUPPORTED);
    ck_assert_str_eq(error.cause, "the setting device asks for GPUs: no GPU is used: no NVIDIA driver");
    choose(some, 2, PL_DEVICE_AUTO, false, &status, &error);
    ck_assert_int_eq(status, PL_MISMATCH);
    ck_assert_str_eq(error.cause, "local rank 0 sees 1 GPU, and local rank 1 none (no GPU is used: no NVIDIA driver): "
                                  "give all ranks of a host GPUs");
}

TEST(a_driver_that_fails_is_no_reason_to_train_on_the_cpu)
{
    struct pl_device_list lists[2] = {{.status = PL_OK},
                                      {.status = PL_LIBRARY, .reason = "the CUDA driver does not start"}};
    int ordinal = -2;

    lists[0] = list_of("A");
    ck_fails_as(PL_LIBRARY, "local rank 1: the CUDA driver does not start", pl_device_choose, lists, 2, 0,
                (struct pl_device_request){.use = PL_DEVICE_AUTO}, false, &ordinal);
    ck_ok(pl_device_choose, lists, 2, 0, (struct pl_device_request){.use = PL_DEVICE_OFF}, false, &ordinal);
    ck_assert_int_eq(ordinal, -1);
}

TEST(a_number_counts_as_each_rank_counts)
{
    const char *const same[] = {"AB", "AB", "AB"};
    const char *const turned[] = {"AB", "BA"};
    const char *const short_one[] = {"AB", "A"};
    const char *const none[] = {"", ""};
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;

    ck_assert_str_eq(choose(same, 3, PL_DEVICE_NUMBERED, false, &status, &error), "BBB");
    ck_assert_str_eq(choose(turned, 2, PL_DEVICE_NUMBERED, false, &status, &error), "BA");
    choose(short_one, 2, PL_DEVICE_NUMBERED, false, &status, &error);
    ck_assert_int_eq(status, PL_INVALID);
    ck_assert_str_eq(error.cause, "the setting device asks for GPU 1, and local rank 1 sees 1");
    choose(none, 2, PL_DEVICE_NUMBERED, false, &status, &error);
    ck_assert_int_eq(status, PL_UNSUPPORTED);
}

TEST(the_setting_is_one_of_three_words_or_a_number)
{
    const char *const wrong[] = {"1", "cuda", "cuda:", "cuda:-1", "cuda:1x", "cuda:100", ""};
    struct pl_device_request wanted_device = {.use = PL_DEVICE_AUTO};

    ck_ok(pl_device_request_parse, "off", &wanted_device);
    ck_assert_int_eq(wanted_device.use, PL_DEVICE_OFF);
    ck_ok(pl_device_request_parse, "on", &wanted_device);
    ck_assert_int_eq(wanted_device.use, PL_DEVICE_ON);
    ck_ok(pl_device_request_parse, "auto", &wanted_device);
    ck_assert_int_eq(wanted_device.use, PL_DEVICE_AUTO);
    ck_ok(pl_device_request_parse, "cuda:0", &wanted_device);
    ck_assert_int_eq(wanted_device.use, PL_DEVICE_NUMBERED);
    ck_assert_int_eq(wanted_device.ordinal, 0);
    ck_ok(pl_device_request_parse, "cuda:12", &wanted_device);
    ck_assert_int_eq(wanted_device.ordinal, 12);
    for (size_t i = 0; i < PL_ARRAY_ITEMS(wrong); i++) {
        ck_fails(PL_INVALID, "", pl_device_request_parse, wrong[i], &wanted_device);
    }
    ck_fails_as(PL_INVALID, "the setting device is '1': expected auto, on, off or cuda:N", pl_device_request_parse, "1",
                &wanted_device);
}

UNIT_MAIN("device/choose")
