/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the trials of a specification. The same text and seed give the same trials on every machine and C library: only
 * +, -, *, / and the square root make the numbers, which IEEE 754 rounds in one way, and the numbers have at most
 * 12 digits.
 */
#include "programs/sweep/space.h"

#include "base/json/python_json.h"
#include "base/memory.h"
#include "base/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DIGITS = 12, FRACTION_BITS = 53 };

void pl_sweep_space_print_value(const struct pl_python_json *node, struct pl_text *text)
{
    const enum pl_python_json_kind kind = pl_python_json_kind(node);

    if (kind == PL_PYTHON_JSON_INT || kind == PL_PYTHON_JSON_FLOAT) {
        pl_text_append(text, pl_python_json_text(node));
    } else {
        pl_python_json_print(node, PL_PYTHON_JSON_SPACED, text);
    }
}

void pl_sweep_space_print(const struct pl_sweep_space *space, size_t trial, struct pl_text *text)
{
    const struct pl_strv *words = &space->trials[trial];

    pl_text_append(text, "{");
    for (size_t i = 0; i < words->count; i++) {
        PL_AUTO_TEXT struct pl_text name = PL_TEXT_NONE;
        const char *equals = strchr(words->items[i], '=');

        pl_text_append_n(&name, words->items[i], (size_t)(equals - words->items[i]));
        pl_text_append(text, i == 0 ? "" : ", ");
        pl_python_json_print_string(pl_text_string(&name), text);
        pl_text_printf(text, ": %s", equals + 1);
    }
    pl_text_append(text, "}");
}

enum pl_status pl_sweep_space_too_many(const char *source, struct pl_error *reterr)
{
    return pl_error_set(reterr, PL_LIMIT, "%s: expected at most %d trials, found more", source, PL_SWEEP_TRIALS_MAX);
}

/*
 * Returns low * (high / low)^fraction for a fraction from 0 to below 1, as a product of square roots, one for each
 * binary digit of the fraction that is 1. exp() and log() differ between C libraries and processors in the last bit;
 * sqrt() does not: IEEE 754 rounds it.
 */
static double between_in_logarithm(double low, double high, double fraction)
{
    double value = low;
    double root = high / low;

    for (int bit = 0; bit < FRACTION_BITS && fraction > 0; bit++) {
        root = sqrt(root);
        fraction *= 2;
        if (fraction >= 1) {
            fraction -= 1;
            value *= root;
        }
    }
    return value;
}

/* Appends the value at `fraction`, from 0 to 1, of a range. */
static void append_between(const struct pl_sweep_dimension *dimension, double fraction, struct pl_text *text)
{
    PL_AUTO_TEXT struct pl_text rounded = PL_TEXT_NONE;
    /* a separate statement, so that no compiler fuses * and + */
    double part = (dimension->high - dimension->low) * fraction;
    double value = dimension->kind == PL_SWEEP_LOG ? between_in_logarithm(dimension->low, dimension->high, fraction)
                                                   : dimension->low + part;

    if (fraction <= 0 || fraction >= 1) {
        value = fraction <= 0 ? dimension->low : dimension->high;
    } else {
        pl_text_printf(&rounded, "%.*g", DIGITS, value);
        pl_text_number(pl_text_string(&rounded), &value);
        value = value < dimension->low ? dimension->low : value > dimension->high ? dimension->high : value;
    }
    pl_python_json_print_double(value, text);
}

/* Draws a number below `count`, all with the same probability. */
static uint64_t draw_below(uint64_t count, uint64_t *state)
{
    uint64_t most = UINT64_MAX - UINT64_MAX % count;
    uint64_t drawn;

    do {
        drawn = pl_random_next(state);
    } while (drawn >= most);
    return drawn % count;
}

/* Adds one value of the dimension to a point: the one with index `at`, or a random one if it is `drawn`. */
static enum pl_status add_value(const struct pl_sweep_dimension *dimension, bool drawn, uint64_t at, uint64_t *state,
                                struct pl_strv *point, struct pl_error *reterr)
{
    const bool listed = dimension->kind == PL_SWEEP_CHOICE || dimension->kind == PL_SWEEP_INT;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    at = drawn && listed ? draw_below(dimension->count, state) : at;
    if (dimension->kind == PL_SWEEP_CHOICE) {
        pl_sweep_space_print_value(dimension->choices[at], &text);
    } else if (dimension->kind == PL_SWEEP_INT) {
        pl_text_printf(&text, "%lld", (long long)dimension->low + (long long)at);
    } else if (drawn) {
        append_between(dimension, (double)(pl_random_next(state) >> (64 - FRACTION_BITS)) * 0x1p-53, &text);
    } else {
        append_between(dimension, (double)at / (double)(dimension->count - 1), &text);
    }
    PL_TRY(pl_text_check(&text, reterr));
    pl_strv_printf(point, "%s=%s", dimension->name, text.data);
    return pl_strv_check(point, reterr);
}

/* Adds the values of point number `at` of `points`. In a grid the last dimension changes first. */
static enum pl_status add_values(const struct pl_sweep_draft *draft, size_t at, size_t points, uint64_t *state,
                                 struct pl_strv *point, struct pl_error *reterr)
{
    size_t below = points;

    for (size_t i = 0; i < draft->dimensions_count; i++) {
        const struct pl_sweep_dimension *dimension = &draft->dimensions[i];

        below /= draft->search == PL_SWEEP_GRID ? (size_t)dimension->count : 1;
        PL_TRY(add_value(dimension, draft->search == PL_SWEEP_RANDOM,
                         draft->search == PL_SWEEP_GRID ? at / below % dimension->count : 0, state, point, reterr));
    }
    return PL_OK;
}

static enum pl_status add_listed(const struct pl_python_json *listed, struct pl_strv *point, struct pl_error *reterr)
{
    for (const struct pl_python_json *node = pl_python_json_first(listed); node; node = pl_python_json_next(node)) {
        PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

        pl_sweep_space_print_value(node, &text);
        PL_TRY(pl_text_check(&text, reterr));
        pl_strv_printf(point, "%s=%s", pl_python_json_name(node), text.data);
    }
    return pl_strv_check(point, reterr);
}

static enum pl_status count_points(const struct pl_sweep_draft *draft, const char *source, size_t *ret_points,
                                   struct pl_error *reterr)
{
    double points = draft->search == PL_SWEEP_LIST     ? (double)pl_python_json_count(draft->list)
                    : draft->search == PL_SWEEP_RANDOM ? draft->trials
                                                       : 1;

    for (size_t i = 0; draft->search == PL_SWEEP_GRID && i < draft->dimensions_count; i++) {
        points *= (double)draft->dimensions[i].count;
    }
    PL_TRY(points * (double)draft->seeds_count <= PL_SWEEP_TRIALS_MAX ? PL_OK
                                                                      : pl_sweep_space_too_many(source, reterr));
    *ret_points = (size_t)points;
    return PL_OK;
}

/* Adds the trials of a point, one per seed. All trials of the first seed come first. */
static enum pl_status add_trials(const struct pl_sweep_draft *draft, size_t at, const struct pl_strv *point,
                                 struct pl_sweep_space *space, struct pl_error *reterr)
{
    const struct pl_python_json *seed = draft->seeds ? pl_python_json_first(draft->seeds) : NULL;

    for (size_t i = at; i < space->trials_count; i += space->points_count) {
        pl_strv_add_all(&space->trials[i], point);
        if (seed) {
            pl_strv_printf(&space->trials[i], "%s=%.0f", space->seed_name, pl_python_json_double(seed));
            seed = pl_python_json_next(seed);
        }
        PL_TRY(pl_strv_check(&space->trials[i], reterr));
    }
    return PL_OK;
}

enum pl_status pl_sweep_space_expand(const struct pl_sweep_draft *draft, const char *source,
                                     struct pl_sweep_space *space, struct pl_error *reterr)
{
    const struct pl_python_json *listed = draft->list ? pl_python_json_first(draft->list) : NULL;
    uint64_t state = (uint64_t)draft->seed;
    size_t points = 0, bytes = 0;

    PL_TRY(count_points(draft, source, &points, reterr));
    PL_TRY(pl_memory_alloc(&space->trials, points * draft->seeds_count, sizeof(*space->trials), reterr));
    space->trials_count = points * draft->seeds_count;
    space->points_count = points;
    for (size_t i = 0; i < points; i++) {
        PL_AUTO_STRV struct pl_strv point = PL_STRV_NONE;

        if (draft->search == PL_SWEEP_LIST) {
            PL_TRY(add_listed(listed, &point, reterr));
            listed = pl_python_json_next(listed);
        } else {
            PL_TRY(add_values(draft, i, points, &state, &point, reterr));
        }
        for (size_t j = 0; j < point.count; j++) {
            bytes += strlen(point.items[j]) * draft->seeds_count;
        }
        if (bytes > PL_SWEEP_TRIALS_BYTES_MAX) {
            return pl_error_set(reterr, PL_LIMIT,
                                "%s: expected at most %d bytes of hyperparameters in all trials, found more", source,
                                PL_SWEEP_TRIALS_BYTES_MAX);
        }
        PL_TRY(add_trials(draft, i, &point, space, reterr));
    }
    return PL_OK;
}

void pl_sweep_draft_done(struct pl_sweep_draft *draft)
{
    for (size_t i = 0; i < draft->dimensions_count; i++) {
        free(draft->dimensions[i].choices);
    }
    free(draft->dimensions);
}
