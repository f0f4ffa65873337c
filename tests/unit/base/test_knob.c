/* SPDX-License-Identifier: Apache-2.0 */
/* Covers base/knob.c. */
#include "base/clock.h"
#include "base/knob.h"
#include "base/memory.h"

#include "base/environment.h"
#include "tests/support/unit.h"

#include <ctype.h>
#include <string.h>

static struct pl_environment *environment_of(const char *name, const char *value)
{
    struct pl_environment *environment;

    ck_ok(pl_environment_new_empty, &environment);
    if (name) {
        ck_ok(pl_environment_set, environment, name, value);
    }
    return environment;
}

TEST(defaults_hold_when_nothing_is_set)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = environment_of(NULL, NULL);
    struct pl_knobs knobs;

    ck_ok(pl_knobs_resolve, environment, &knobs);
    ck_assert_double_eq(pl_knob_real(&knobs, PL_KNOB_TIMEOUT_S), 600.0);
    ck_assert(!pl_knob_bool(&knobs, PL_KNOB_REPRODUCIBLE));
    ck_assert_str_eq(pl_knob_text(&knobs, PL_KNOB_ALGORITHM), "");
    ck_assert_int_eq(knobs.values[PL_KNOB_TIMEOUT_S].source, PL_KNOB_FROM_DEFAULT);
}

TEST(every_knob_is_named_as_its_variable_and_has_help)
{
    for (unsigned i = 0; i < PL_KNOB_COUNT; i++) {
        const struct pl_knob_info *info = pl_knob_info((enum pl_knob)i);
        char variable[100] = "PACELINE_";

        for (size_t k = 0; info->name[k]; k++) {
            variable[9 + k] = (char)toupper((unsigned char)info->name[k]);
        }
        ck_assert_str_eq(variable, info->variable);
        ck_assert(info->help[0]);
    }
}

TEST(former_names_of_backends_are_understood)
{
    static const char *const names[][2] = {{"exchange", "p2p"}, {"hierarchy", "hier"}, {"p2p", "p2p"}};

    for (size_t i = 0; i < PL_ARRAY_ITEMS(names); i++) {
        PL_AUTO_ENVIRONMENT struct pl_environment *environment = environment_of("PACELINE_BACKEND", names[i][0]);
        struct pl_knobs knobs;

        ck_ok(pl_knobs_resolve, environment, &knobs);
        ck_assert_str_eq(pl_knob_text(&knobs, PL_KNOB_BACKEND), names[i][1]);
    }
}

TEST(sizes_take_units)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = environment_of("PACELINE_SEGMENT_BYTES", "3MiB");
    struct pl_knobs knobs;

    ck_ok(pl_knobs_resolve, environment, &knobs);
    ck_assert_int_eq(pl_knob_int(&knobs, PL_KNOB_SEGMENT_BYTES), 3 << 20);
    ck_assert_int_eq(knobs.values[PL_KNOB_SEGMENT_BYTES].source, PL_KNOB_FROM_PACELINE);
}

TEST(words_for_booleans_are_understood)
{
    static const char *const yes[] = {"1", "true", "Yes", "ON"};
    struct pl_knobs knobs;

    for (size_t i = 0; i < 4; i++) {
        PL_AUTO_ENVIRONMENT struct pl_environment *environment = environment_of("PACELINE_REPRODUCIBLE", yes[i]);

        ck_ok(pl_knobs_resolve, environment, &knobs);
        ck_assert(pl_knob_bool(&knobs, PL_KNOB_REPRODUCIBLE));
    }
}

TEST(a_bad_value_is_refused_with_its_name_and_what_was_expected)
{
    static const char *const bad[][2] = {{"PACELINE_TIMEOUT_S", "soon"},
                                         {"PACELINE_TIMEOUT_S", "-1"},
                                         {"PACELINE_TIMEOUT_S", "nan"},
                                         {"PACELINE_TIMEOUT_S", "5 min"},
                                         {"PACELINE_SPIN_US", "1e999"},
                                         {"PACELINE_REPRODUCIBLE", "2"},
                                         {"PACELINE_SEGMENT_BYTES", "1MB"},
                                         {"PACELINE_SEGMENT_BYTES", ""},
                                         {"PACELINE_SEGMENT_BYTES", "9223372036854775807KiB"}};
    struct pl_knobs knobs;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        PL_AUTO_ENVIRONMENT struct pl_environment *environment = environment_of(bad[i][0], bad[i][1]);
        struct pl_error error = PL_ERROR_NONE;

        if (!bad[i][1][0]) {
            ck_assert_int_eq(pl_knobs_resolve(environment, &knobs, &error), PL_OK);
            continue;
        }
        ck_assert_int_eq(pl_knobs_resolve(environment, &knobs, &error), PL_INVALID);
        ck_has(error.cause, bad[i][0]);
        ck_has(error.cause, bad[i][1]);
        ck_has(error.cause, "expected");
    }
}

TEST(a_time_that_no_clock_can_tell_is_a_century)
{
    const int64_t century_ns = PL_NS_PER_S * 86400 * 36500;
    struct pl_knobs knobs;

    pl_knobs_default(&knobs);
    ck_assert_int_eq(pl_knob_ns(&knobs, PL_KNOB_STALL_S, PL_NS_PER_S), 60 * PL_NS_PER_S);
    ck_ok(pl_knob_set, &knobs, PL_KNOB_STALL_S, "0.5", "stall_s");
    ck_assert_int_eq(pl_knob_ns(&knobs, PL_KNOB_STALL_S, PL_NS_PER_S), PL_NS_PER_S / 2);
    ck_ok(pl_knob_set, &knobs, PL_KNOB_STALL_S, "1e300", "stall_s");
    ck_assert_int_eq(pl_knob_ns(&knobs, PL_KNOB_STALL_S, PL_NS_PER_S), century_ns);
}

TEST(horovods_variable_counts_where_ours_is_not_set)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = environment_of("HOROVOD_STALL_CHECK_TIME_SECONDS", "7");
    struct pl_knobs knobs;

    ck_ok(pl_knobs_resolve, environment, &knobs);
    ck_assert_double_eq(pl_knob_real(&knobs, PL_KNOB_STALL_S), 7.0);
    ck_assert_int_eq(knobs.values[PL_KNOB_STALL_S].source, PL_KNOB_FROM_HOROVOD);
    ck_ok(pl_environment_set, environment, "PACELINE_STALL_S", "5");
    ck_ok(pl_knobs_resolve, environment, &knobs);
    ck_assert_double_eq(pl_knob_real(&knobs, PL_KNOB_STALL_S), 5.0);
    ck_assert_int_eq(knobs.values[PL_KNOB_STALL_S].source, PL_KNOB_FROM_PACELINE);

    ck_ok(pl_environment_set, environment, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "120");
    /* DYNAMIC is a word, not a file */
    ck_ok(pl_environment_set, environment, "HOROVOD_TIMELINE", "DYNAMIC");
    ck_ok(pl_knobs_resolve, environment, &knobs);
    ck_assert_double_eq(pl_knob_real(&knobs, PL_KNOB_TIMEOUT_S), 120.0);
    ck_assert_str_eq(pl_knob_text(&knobs, PL_KNOB_TRACE), "");
    ck_assert_int_eq(knobs.values[PL_KNOB_TRACE].source, PL_KNOB_FROM_DEFAULT);
    ck_ok(pl_environment_set, environment, "HOROVOD_TIMELINE", "timeline.json");
    ck_ok(pl_knobs_resolve, environment, &knobs);
    ck_assert_str_eq(pl_knob_text(&knobs, PL_KNOB_TRACE), "timeline.json");
}

TEST(a_word_is_one_of_the_knobs_words)
{
    static const struct {
        const char *variable, *value, *told; /* `told` NULL: the variable is a setting */
    } cases[] = {
        {"PACELINE_ALGORITHM", "rings",
         "PACELINE_ALGORITHM is 'rings': expected one of ring halving doubling tree direct"},
        {"PACELINE_ALGORITHM", "rin", "PACELINE_ALGORITHM is 'rin': expected one of ring halving doubling tree direct"},
        {"PACELINE_ALGORITHM", "ring halving",
         "PACELINE_ALGORITHM is 'ring halving': expected one of ring halving doubling tree direct"},
        {"PACELINE_WIRE_TYPE", "float", "PACELINE_WIRE_TYPE is 'float': expected one of float16 bfloat16"},
        {"PACELINE_KERNEL", "avx", "PACELINE_KERNEL is 'avx': expected one of auto avx512 avx2 neon plain"},
        {"PACELINE_PROGRESS", "yes", "PACELINE_PROGRESS is 'yes': expected one of auto on off"},
        {"PACELINE_DEVICE", "1", "PACELINE_DEVICE is '1': expected one of auto on off cuda:N"},
        {"PACELINE_DEVICE", "cuda:", "PACELINE_DEVICE is 'cuda:': expected one of auto on off cuda:N"},
        {"PACELINE_DEVICE", "cuda:N", "PACELINE_DEVICE is 'cuda:N': expected one of auto on off cuda:N"},
        {"PACELINE_DEVICE", "cuda:123", "PACELINE_DEVICE is 'cuda:123': expected one of auto on off cuda:N"},
        {"PACELINE_DEVICE", "cuda:12", NULL},
        {"PACELINE_ALGORITHM", "direct", NULL},
        {"PACELINE_WIRE_TYPE", "float16", NULL},
    };

    for (size_t i = 0; i < PL_ARRAY_ITEMS(cases); i++) {
        PL_AUTO_ENVIRONMENT struct pl_environment *environment = environment_of(cases[i].variable, cases[i].value);
        struct pl_error error = PL_ERROR_NONE;
        struct pl_knobs knobs;

        ck_assert_int_eq(pl_knobs_resolve(environment, &knobs, &error), cases[i].told ? PL_INVALID : PL_OK);
        ck_assert_str_eq(error.cause, cases[i].told ? cases[i].told : "");
    }
}

TEST(a_setting_that_is_gone_may_be_set_to_anything)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = environment_of("PACELINE_SHM_STORE", "what it was");
    struct pl_knobs knobs;

    ck_ok(pl_knobs_resolve, environment, &knobs);
    ck_assert(pl_knob_is_gone("PACELINE_SHM_STORE=what it was", strlen("PACELINE_SHM_STORE")));
    ck_assert(!pl_knob_is_gone("PACELINE_SHM_STORES", strlen("PACELINE_SHM_STORES")));
    ck_assert(!pl_knob_is_gone("PACELINE_ALGORITHM", strlen("PACELINE_ALGORITHM")));
}

UNIT_MAIN("base/knob")
