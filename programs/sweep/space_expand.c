/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the trials of a specification. The same text and seed give the same trials on every machine and C library: only
 * +, -, *, / and the square root make the numbers, which IEEE 754 rounds in one way, and the numbers have at most
 * 12 digits.
 */
#include "programs/sweep/space_draft.h"

#include "base/memory.h"
#include "base/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DIGITS = 12, FRACTION_BITS = 53 };

void pl_sweep_draft_done(struct pl_sweep_draft *draft)
{
    for (size_t i = 0; i < draft->dimensions_count; i++) {
        free(draft->dimensions[i].choices);
    }
    free(draft->dimensions);
    free(draft->seeds);
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
    double value = dimension->kind == PL_SWEEP_DIMENSION_LOG
                       ? between_in_logarithm(dimension->low, dimension->high, fraction)
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

static void append_int(const struct pl_sweep_dimension *dimension, uint64_t at, struct pl_text *text)
{
    pl_text_printf(text, "%lld", (long long)dimension->low + (long long)at);
}

/* Appends value number `at` of a grid's dimension. */
static void append_value(const struct pl_sweep_dimension *dimension, uint64_t at, struct pl_text *text)
{
    switch (dimension->kind) {
    case PL_SWEEP_DIMENSION_CHOICE:
        pl_sweep_value_print(dimension->choices[at], text);
        break;
    case PL_SWEEP_DIMENSION_INT:
        append_int(dimension, at, text);
        break;
    case PL_SWEEP_DIMENSION_FLOAT:
    case PL_SWEEP_DIMENSION_LOG:
        append_between(dimension, (double)at / (double)(dimension->count - 1), text);
        break;
    }
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

static void append_draw(const struct pl_sweep_dimension *dimension, uint64_t *state, struct pl_text *text)
{
    switch (dimension->kind) {
    case PL_SWEEP_DIMENSION_CHOICE:
    case PL_SWEEP_DIMENSION_INT:
        append_value(dimension, draw_below(dimension->count, state), text);
        break;
    case PL_SWEEP_DIMENSION_FLOAT:
    case PL_SWEEP_DIMENSION_LOG:
        append_between(dimension, (double)(pl_random_next(state) >> (64 - FRACTION_BITS)) * 0x1p-53, text);
        break;
    }
}

static void begin_member(const char *name, struct pl_text *text)
{
    pl_text_append(text, text->length > 0 ? ", " : "");
    pl_python_json_print_string(name, text);
    pl_text_append(text, ": ");
}

/* Appends the members of a grid's point. The last dimension changes first. */
static void append_grid_point(const struct pl_sweep_draft *draft, size_t point, size_t points, struct pl_text *text)
{
    size_t below = points;

    for (size_t i = 0; i < draft->dimensions_count; i++) {
        const struct pl_sweep_dimension *dimension = &draft->dimensions[i];

        below /= (size_t)dimension->count;
        begin_member(dimension->name, text);
        append_value(dimension, point / below % dimension->count, text);
    }
}

static void append_random_point(const struct pl_sweep_draft *draft, uint64_t *state, struct pl_text *text)
{
    for (size_t i = 0; i < draft->dimensions_count; i++) {
        begin_member(draft->dimensions[i].name, text);
        append_draw(&draft->dimensions[i], state, text);
    }
}

static void append_listed_point(const struct pl_python_json *point, struct pl_text *text)
{
    for (const struct pl_python_json *member = pl_python_json_first(point); member;
         member = pl_python_json_next(member)) {
        begin_member(pl_python_json_name(member), text);
        pl_sweep_value_print(member, text);
    }
}

static enum pl_status too_many(const char *source, struct pl_error *reterr)
{
    return pl_error_set(reterr, PL_LIMIT, "%s: expected at most %d trials, found more", source, PL_SWEEP_TRIALS_MAX);
}

static enum pl_status count_points(const struct pl_sweep_draft *draft, const char *source, size_t *ret_points,
                                   struct pl_error *reterr)
{
    size_t points = draft->search == PL_SWEEP_SEARCH_LIST     ? pl_python_json_count(draft->list)
                    : draft->search == PL_SWEEP_SEARCH_RANDOM ? draft->trials
                                                              : 1;

    for (size_t i = 0; draft->search == PL_SWEEP_SEARCH_GRID && i < draft->dimensions_count; i++) {
        if (draft->dimensions[i].count > PL_SWEEP_TRIALS_MAX / points) {
            return too_many(source, reterr);
        }
        points *= (size_t)draft->dimensions[i].count;
    }
    if (points > PL_SWEEP_TRIALS_MAX / (draft->seed_name ? draft->seeds_count : 1)) {
        return too_many(source, reterr);
    }
    *ret_points = points;
    return PL_OK;
}

/* Adds the trials of one point, one per seed. In space->trials all trials of the first seed come first. */
static enum pl_status add_point(const struct pl_sweep_draft *draft, size_t point, const struct pl_text *members,
                                struct pl_sweep_space *space, struct pl_error *reterr)
{
    size_t seeds = draft->seed_name ? draft->seeds_count : 1;

    for (size_t i = 0; i < seeds; i++) {
        PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
        struct pl_sweep_trial *trial = &space->trials[i * space->points_count + point];

        pl_text_append_n(&text, members->data, members->length);
        if (draft->seed_name) {
            begin_member(draft->seed_name, &text);
            pl_text_printf(&text, "%lld", (long long)draft->seeds[i]);
        }
        PL_TRY(pl_text_check(&text, reterr));
        trial->hyperparameters = pl_memory_new(text.length + 3, 1, reterr);
        if (!trial->hyperparameters) {
            return PL_MEMORY;
        }
        trial->hyperparameters[0] = '{';
        memcpy(trial->hyperparameters + 1, pl_text_string(&text), text.length);
        trial->hyperparameters[text.length + 1] = '}';
        trial->point = point;
    }
    return PL_OK;
}

enum pl_status pl_sweep_draft_expand(const struct pl_sweep_draft *draft, const char *source,
                                     struct pl_sweep_space *space, struct pl_error *reterr)
{
    size_t seeds = draft->seed_name ? draft->seeds_count : 1;
    const struct pl_python_json *listed = draft->list ? pl_python_json_first(draft->list) : NULL;
    PL_AUTO_TEXT struct pl_text members = PL_TEXT_NONE;
    uint64_t state = draft->seed;
    size_t points = 0, bytes = 0;

    PL_TRY(count_points(draft, source, &points, reterr));
    space->trials = pl_memory_new(points * seeds, sizeof(*space->trials), reterr);
    if (!space->trials) {
        return PL_MEMORY;
    }
    space->trials_count = points * seeds;
    space->points_count = points;
    for (size_t point = 0; point < points; point++) {
        pl_text_clear(&members);
        if (draft->search == PL_SWEEP_SEARCH_GRID) {
            append_grid_point(draft, point, points, &members);
        } else if (draft->search == PL_SWEEP_SEARCH_RANDOM) {
            append_random_point(draft, &state, &members);
        } else {
            append_listed_point(listed, &members);
            listed = pl_python_json_next(listed);
        }
        PL_TRY(pl_text_check(&members, reterr));
        bytes += members.length * seeds;
        if (bytes > PL_SWEEP_TRIALS_BYTES_MAX) {
            return pl_error_set(reterr, PL_LIMIT,
                                "%s: expected at most %d bytes of hyperparameters in all trials, "
                                "found more",
                                source, PL_SWEEP_TRIALS_BYTES_MAX);
        }
        PL_TRY(add_point(draft, point, &members, space, reterr));
    }
    return PL_OK;
}
