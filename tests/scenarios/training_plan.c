/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans of random tensors and options. Gradients have few bits and are multiples of all numbers that divide them, so
 * that compression does not change them; a model in double computes the expected gradients and values.
 */
#include "tests/scenarios/mixed.h"
#include "tests/scenarios/training_private.h"

#include "runtime/checkpoint.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_TENSORS = 6, MOST_ELEMS = 1500, MOST_PASSES = 2 };

struct arrays {
    double value[MOST_TENSORS][MOST_ELEMS];
    double velocity[MOST_TENSORS][MOST_ELEMS];
};

struct model {
    struct pl_plan *plan;
    struct pl_optimizer *optimizer;
    struct pl_checkpoints *checkpoints;
    struct pl_plan_options options;
    struct pl_optimizer_options rule;
    unsigned all_passes; /* backward passes per step */
    char directory[64];  /* on rank 0; other ranks do not use it */
    size_t tensors;
    uint64_t elems[MOST_TENSORS];
    uint64_t steps;
    uint64_t saved_at; /* 0: never saved */
    struct arrays now, saved;
    double gradient[MOST_TENSORS][MOST_ELEMS];
};

static bool differs(const struct training *t, const struct model *m, const char *what, size_t tensor, uint64_t i,
                    double found, double expected)
{
    if (fabs(found - expected) <= 1e-3 * fmax(1.0, fabs(expected))) {
        return false;
    }
    if (!t->failure[0]) {
        snprintf(t->failure, TRAINING_TEXT_BYTES,
                 "%s of tensor %zu in step %" PRIu64 ": element %" PRIu64 " is %g, not %g", what, tensor, m->steps, i,
                 found, expected);
    }
    return true;
}

static void close_plan(struct model *m)
{
    pl_checkpoints_close(m->checkpoints);
    pl_optimizer_free(m->optimizer);
    pl_plan_free(m->plan);
    m->checkpoints = NULL;
    m->optimizer = NULL;
    m->plan = NULL;
}

void training_plan_free(struct place *place)
{
    struct model *m = place->model;
    char path[128];

    if (!m) {
        return;
    }
    close_plan(m);
    for (uint64_t step = 1; m->directory[0] && step <= m->saved_at; step++) {
        snprintf(path, sizeof(path), "%s/checkpoint-%012" PRIu64 ".json", m->directory, step);
        unlink(path);
        snprintf(path, sizeof(path), "%s/checkpoint-%012" PRIu64 ".safetensors", m->directory, step);
        unlink(path);
    }
    if (m->directory[0]) {
        rmdir(m->directory);
    }
    free(m);
    place->model = NULL;
}

/* Opens the plan as drawn: the first time, and when the program starts again. */
static bool open_plan(struct training *t, struct place *place)
{
    struct pl_checkpoints_options where = {.directory = "/nonexistent", .keep = 2};
    struct model *m = place->model;
    struct pl_error error = PL_ERROR_NONE;
    char name[24];
    size_t index;

    if (pl_plan_new(place->world, &m->options, &m->plan, &error) != PL_OK) {
        return training_fail(t, "plan", &error);
    }
    for (size_t i = 0; i < m->tensors; i++) {
        snprintf(name, sizeof(name), "t%zu", i);
        if (pl_plan_add(m->plan, name, 1, &m->elems[i], &index, &error) != PL_OK) {
            return training_fail(t, "tensor", &error);
        }
    }
    where.directory = m->directory[0] ? m->directory : where.directory;
    return (pl_plan_seal(m->plan, &error) == PL_OK &&
            pl_optimizer_new(m->plan, &m->rule, &m->optimizer, &error) == PL_OK &&
            pl_checkpoints_open(m->plan, m->optimizer, &where, &m->checkpoints, &error) == PL_OK) ||
           training_fail(t, "opening a plan", &error);
}

static bool draw_plan(struct training *t, struct place *place)
{
    struct model *m = calloc(1, sizeof(*m));
    struct pl_plan_options *options = &m->options;
    uint64_t wire = mixed_draw(&t->common, 4);

    options->local = mixed_draw(&t->common, 12) == 0;
    options->bucket_bytes = mixed_draw(&t->common, 3) ? 64 + mixed_draw(&t->common, 4000) : 0;
    options->sum = mixed_draw(&t->common, 4) == 0 && !options->local;
    m->all_passes = 1 + (unsigned)mixed_draw(&t->common, MOST_PASSES);
    options->wire_flags = options->local ? 0 : wire == 0 ? PL_WIRE_FLOAT16 : wire == 1 ? PL_WIRE_BFLOAT16 : 0;
    m->rule.momentum = mixed_draw(&t->common, 2) ? 0.5 : 0.0;
    m->rule.nesterov = mixed_draw(&t->common, 2);
    m->rule.clip_norm = mixed_draw(&t->common, 2) ? 100.0 : 0.0;
    m->tensors = 1 + (size_t)mixed_draw(&t->common, MOST_TENSORS);
    for (size_t i = 0; i < m->tensors; i++) {
        m->elems[i] = 1 + mixed_draw(&t->common, mixed_draw(&t->common, 4) ? 90 : MOST_ELEMS);
    }
    if (place->own < 0) {
        free(m);
        return true;
    }
    if (place->own == 0) {
        const char *base = getenv("TMPDIR");

        snprintf(m->directory, sizeof(m->directory), "%.30s/paceline-training-XXXXXX", base && *base ? base : "/tmp");
        PL_BUG_IF(!mkdtemp(m->directory));
    }
    place->model = m;
    return open_plan(t, place);
}

/* Computes the model's gradients after a step in which rank r was ready with tensor i in `passes[r][i]` passes. */
static void reduce_model(struct model *m, const struct place *place, unsigned (*passes)[MOST_TENSORS], uint64_t salt)
{
    double divisor = m->options.local || m->options.sum ? 1.0 : place->size;

    memset(m->gradient, 0, sizeof(m->gradient));
    for (int r = m->options.local ? place->own : 0; r <= (m->options.local ? place->own : place->size - 1); r++) {
        for (size_t i = 0; i < m->tensors; i++) {
            for (uint64_t e = 0; e < m->elems[i] * passes[r][i]; e++) {
                uint64_t pass = e / m->elems[i], at = e % m->elems[i];

                m->gradient[i][at] += training_value(salt + pass, r, i * MOST_ELEMS + at) * place->size / divisor;
            }
        }
    }
}

static void apply_model(struct model *m, double rate)
{
    double squares = 0.0, factor = 1.0;

    for (size_t i = 0; i < m->tensors; i++) {
        for (uint64_t e = 0; e < m->elems[i]; e++) {
            squares += m->gradient[i][e] * m->gradient[i][e];
        }
    }
    if (m->rule.clip_norm > 0.0 && sqrt(squares) > m->rule.clip_norm) {
        factor = m->rule.clip_norm / sqrt(squares);
    }
    for (size_t i = 0; i < m->tensors; i++) {
        for (uint64_t e = 0; e < m->elems[i]; e++) {
            double gradient = m->gradient[i][e] * factor, *velocity = &m->now.velocity[i][e];

            *velocity = m->rule.momentum * *velocity + gradient;
            m->now.value[i][e] -=
                rate *
                (m->rule.momentum > 0.0 && m->rule.nesterov ? gradient + m->rule.momentum * *velocity : *velocity);
        }
    }
}

static bool check_plan(const struct training *t, const struct model *m, bool gradients)
{
    for (size_t i = 0; i < m->tensors; i++) {
        const struct pl_plan_tensor *tensor = pl_plan_tensor(m->plan, i);

        for (uint64_t e = 0; e < m->elems[i]; e++) {
            if ((gradients && differs(t, m, "gradient", i, e, (double)tensor->gradient[e], m->gradient[i][e])) ||
                differs(t, m, "value", i, e, (double)tensor->value[e], m->now.value[i][e])) {
                return false;
            }
        }
    }
    return true;
}

/* Runs this rank's passes, each with its tensors in a random order. */
static bool go_backward(struct training *t, struct place *place, const unsigned *passes, uint64_t salt)
{
    struct model *m = place->model;
    struct pl_error error = PL_ERROR_NONE;

    for (unsigned pass = 0; pass < m->all_passes; pass++) {
        size_t first = (size_t)mixed_draw(&t->own, m->tensors);

        for (size_t k = 0; k < m->tensors; k++) {
            size_t i = (first + k) % m->tensors;
            float *gradient = pl_plan_tensor(m->plan, i)->gradient;

            if (passes[i] <= pass) {
                continue;
            }
            for (uint64_t e = 0; e < m->elems[i]; e++) {
                float own = (float)(training_value(salt + pass, place->own, i * MOST_ELEMS + e) * place->size);

                gradient[e] = pass > 0 ? gradient[e] + own : own;
            }
            training_stumble(t);
            if ((pass == passes[i] - 1 && pl_plan_ready(m->plan, i, &error) != PL_OK) ||
                (mixed_draw(&t->own, 4) == 0 && pl_plan_progress(m->plan, &error) != PL_OK)) {
                return training_fail(t, "ready", &error);
            }
        }
    }
    return true;
}

static bool take_step(struct training *t, struct place *place)
{
    struct model *m = place->model;
    struct pl_error error = PL_ERROR_NONE;
    unsigned passes[TRAINING_MOST_RANKS][MOST_TENSORS];
    bool optimizes = mixed_draw(&t->common, 2);
    uint64_t salt = t->salt, own = t->common;

    t->salt += MOST_PASSES;
    mixed_draw(&t->common, 1); /* ranks without a model, which do not know its size, must draw as often */
    if (place->own < 0) {
        return true;
    }
    for (int r = 0; r < place->size; r++) {
        for (size_t i = 0; i < m->tensors; i++) {
            passes[r][i] = mixed_draw(&own, 8) ? m->all_passes : (unsigned)mixed_draw(&own, m->all_passes + 1);
        }
    }
    if (!go_backward(t, place, passes[place->own], salt)) {
        return false;
    }
    if (mixed_draw(&t->own, 3) == 0 &&
        pl_plan_wait_bucket(m->plan, (size_t)mixed_draw(&t->own, pl_plan_bucket_count(m->plan)), &error) != PL_OK) {
        return training_fail(t, "a bucket", &error);
    }
    if ((optimizes ? pl_optimizer_step(m->optimizer, 0.25, &error) : pl_plan_wait(m->plan, &error)) != PL_OK) {
        return training_fail(t, "a plan's step", &error);
    }
    reduce_model(m, place, passes, salt);
    if (optimizes) {
        apply_model(m, 0.25);
    }
    m->steps++;
    return check_plan(t, m, true);
}

static bool save(struct training *t, struct model *m)
{
    struct pl_checkpoint_state state = {.step = m->saved_at + 1, .extra_bytes = 1, .extra = {(unsigned char)m->steps}};
    struct pl_error error = PL_ERROR_NONE;

    if (pl_checkpoints_save(m->checkpoints, &state, &error) != PL_OK) {
        return training_fail(t, "save", &error);
    }
    m->saved = m->now;
    m->saved_at++;
    return true;
}

static bool load(struct training *t, struct model *m)
{
    struct pl_checkpoint_state state = {.step = 0};
    struct pl_error error = PL_ERROR_NONE;
    bool found;

    if (pl_checkpoints_load(m->checkpoints, &found, &state, &error) != PL_OK) {
        return training_fail(t, "load", &error);
    }
    if (found != (m->saved_at > 0) || state.step != m->saved_at) {
        pl_error_set(&error, PL_NOT_FOUND, "found step %" PRIu64 ", saved was step %" PRIu64, state.step, m->saved_at);
        return training_fail(t, "load", &error);
    }
    if (found) {
        m->now = m->saved;
    }
    return check_plan(t, m, false);
}

/* Sets different values on each rank, then broadcasts those of one rank. */
static bool broadcast(struct training *t, struct place *place, int root)
{
    struct model *m = place->model;
    struct pl_error error = PL_ERROR_NONE;
    uint64_t salt = t->salt;

    for (size_t i = 0; i < m->tensors; i++) {
        for (uint64_t e = 0; e < m->elems[i]; e++) {
            pl_plan_tensor(m->plan, i)->value[e] = (float)training_value(salt, place->own, i * MOST_ELEMS + e);
            m->now.value[i][e] = training_value(salt, root, i * MOST_ELEMS + e);
        }
    }
    return (pl_plan_broadcast(m->plan, root, &error) == PL_OK &&
            pl_optimizer_broadcast(m->optimizer, root, &error) == PL_OK) ||
           training_fail(t, "broadcast of a plan", &error);
}

/* Restarts the program, which goes on from a checkpoint, or from the beginning. */
static bool restart(struct training *t, struct place *place)
{
    struct model *m = place->model;

    if (pl_checkpoints_flush(m->checkpoints, NULL) != PL_OK) {
        return false;
    }
    close_plan(m);
    memset(&m->now, 0, sizeof(m->now));
    return open_plan(t, place) && load(t, m);
}

bool training_plan_step(struct training *t, struct place *place)
{
    uint64_t way = mixed_draw(&t->common, 16), again = mixed_draw(&t->common, 8);
    int root = (int)mixed_draw(&t->common, (uint64_t)place->size);
    bool local;

    if (!place->planned || again == 0) {
        training_plan_free(place);
        place->planned = true;
        if (!draw_plan(t, place)) {
            return false;
        }
    }
    /* ranks have values of their own, which the others do not know */
    local = place->model && place->model->options.local;
    if (way < 10) {
        for (int i = 0; i < 3; i++) {
            if (!take_step(t, place)) {
                return false;
            }
        }
    }
    if (place->own < 0 || local || way < 10) {
        return true;
    }
    if (way < 12) {
        return broadcast(t, place, root);
    }
    return way < 14 ? save(t, place->model) : way < 15 ? load(t, place->model) : restart(t, place);
}
