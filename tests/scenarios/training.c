/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step submits jobs, single operations or groups, to any of the sets, each rank in an order of its own. Then each
 * rank waits in its own way and order. Names are reused, mostly with the same shape, so that ranks know them by number
 * after a while. Between steps, sets are added and removed, ranks join with uneven numbers of steps, and plans take
 * steps. All ranks draw the same from `common`.
 */
#include "tests/scenarios/mixed.h"
#include "tests/scenarios/training_private.h"

#include "base/clock.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_JOBS = 8, MOST_JOIN_STEPS = 4 };

bool training_fail(const struct training *t, const char *what, const struct pl_error *error)
{
    char text[MIXED_TEXT_BYTES - 100];

    if (!t->failure[0]) {
        snprintf(t->failure, TRAINING_TEXT_BYTES, "%.80s: %s", what, pl_error_text(error, text, sizeof(text)));
    }
    return false;
}

bool training_wrong(const struct training *t, const char *what, uint64_t i, double found, double expected)
{
    if (!t->failure[0]) {
        snprintf(t->failure, TRAINING_TEXT_BYTES, "%s: element %" PRIu64 " is %g, not %g", what, i, found, expected);
    }
    return false;
}

int training_value(uint64_t salt, int rank, uint64_t i)
{
    uint64_t seed = salt * 1000003 + (uint64_t)rank * 8191 + i;

    return (int)mixed_draw(&seed, 5) - 2;
}

void training_stumble(struct training *t)
{
    uint64_t way = mixed_draw(&t->own, 24);

    if (way == 0) {
        pl_clock_nap((int64_t)mixed_draw(&t->own, 400) * PL_NS_PER_US, PL_DEADLINE_NEVER);
    } else if (way < 4) {
        sched_yield();
    }
}

static void shuffle(uint64_t *seed, int *list, int count)
{
    for (int i = 0; i < count; i++) {
        int other = (int)mixed_draw(seed, (uint64_t)i + 1);

        list[i] = list[other];
        list[other] = i;
    }
}

/* ---- ranks that run out of data ---- */

/* Combined input of the ranks that still have step `step`. */
struct left {
    int count, sum, least, most, first;
};

static struct left left_in(const struct place *place, const int *steps, int step, uint64_t salt, uint64_t i)
{
    struct left left = {.least = 100, .most = -100, .first = -1};

    for (int r = 0; r < place->size; r++) {
        if (steps[r] > step) {
            int value = training_value(salt, r, i);

            left.count++;
            left.sum += value;
            left.least = value < left.least ? value : left.least;
            left.most = value > left.most ? value : left.most;
            left.first = left.first < 0 ? r : left.first;
        }
    }
    return left;
}

/* One step of a rank that has not joined: an operation of each kind that is possible without the other ranks. */
static bool uneven_step(struct training *t, struct place *place, const int *steps, int step, uint64_t salt)
{
    enum { ELEMS = 5, OPS = 7 };
    float mean[ELEMS], sum[ELEMS], least[ELEMS], spread[ELEMS];
    int32_t most[ELEMS];
    int64_t rows[ELEMS];
    bool by_size = t->options.join_divisor == PL_NAMED_DIVIDE_BY_SIZE, good = true;
    struct left left = left_in(place, steps, step, salt, 0);
    struct pl_error error = PL_ERROR_NONE;
    struct pl_named_result results[OPS];
    struct pl_completion completions[OPS];
    int order[OPS];
    struct pl_named_op ops[OPS] = {
        {.name = "mean", .kind = PL_ALLREDUCE, .dtype = PL_FLOAT32, .op = PL_AVERAGE, .send = mean, .recv = mean},
        {.name = "sum", .kind = PL_ALLREDUCE, .dtype = PL_FLOAT32, .op = PL_SUM, .send = sum, .recv = sum},
        {.name = "least", .kind = PL_ALLREDUCE, .dtype = PL_FLOAT32, .op = PL_MIN, .send = least, .recv = least},
        {.name = "most", .kind = PL_ALLREDUCE, .dtype = PL_INT32, .op = PL_MAX, .send = most, .recv = most},
        {.name = "spread", .kind = PL_BROADCAST, .dtype = PL_FLOAT32, .root = left.first, .recv = spread},
        {.kind = PL_ALLGATHER, .dtype = PL_INT64, .send = rows},
        {.kind = PL_BARRIER},
    };

    memset(results, 0, sizeof(results));
    memset(completions, 0, sizeof(completions));
    for (uint64_t i = 0; i < ELEMS; i++) {
        most[i] = training_value(salt, place->own, i);
        rows[i] = most[i];
        mean[i] = sum[i] = least[i] = spread[i] = (float)most[i];
    }
    shuffle(&t->own, order, OPS);
    for (int i = 0; i < OPS; i++) {
        ops[order[i]].dims = 1;
        ops[order[i]].shape[0] = ELEMS;
        completions[order[i]].results = &results[order[i]];
        if (pl_service_submit(t->service, 0, &ops[order[i]], &completions[order[i]], &error) != PL_OK) {
            return training_fail(t, "submit in an uneven step", &error);
        }
        training_stumble(t);
    }
    for (int i = 0; i < OPS; i++) {
        if (pl_service_wait(t->service, &completions[i], &error) != PL_OK) {
            good = training_fail(t, "wait in an uneven step", &error);
        }
    }
    for (uint64_t i = 0; good && i < ELEMS; i++) {
        double average;

        left = left_in(place, steps, step, salt, i);
        average = (double)left.sum / (by_size ? place->size : left.count);
        good = ((double)mean[i] > average - 1e-5 && (double)mean[i] < average + 1e-5) ||
               training_wrong(t, "mean while ranks have joined", i, (double)mean[i], average);
        good = good && ((int)sum[i] == left.sum ||
                        training_wrong(t, "sum while ranks have joined", i, (double)sum[i], left.sum));
        good = good && ((int)least[i] == left.least ||
                        training_wrong(t, "min while ranks have joined", i, (double)least[i], left.least));
        good =
            good && (most[i] == left.most || training_wrong(t, "max while ranks have joined", i, most[i], left.most));
        good = good && ((int)spread[i] == training_value(salt, left.first, i) ||
                        training_wrong(t, "broadcast while ranks have joined", i, (double)spread[i],
                                       training_value(salt, left.first, i)));
    }
    good = good && (results[5].rows == (uint64_t)left.count * ELEMS ||
                    training_wrong(t, "rows while ranks have joined", 0, (double)results[5].rows, left.count * ELEMS));
    for (int r = 0, at = 0; good && r < place->size; r++) {
        for (int i = 0; good && steps[r] > step && i < ELEMS; i++, at++) {
            int expected = training_value(salt, r, (uint64_t)i);

            good = ((int64_t *)results[5].data)[at] == expected ||
                   training_wrong(t, "gathered rows while ranks have joined", (uint64_t)at,
                                  (double)((int64_t *)results[5].data)[at], expected);
        }
    }
    pl_named_result_done(&results[5]);
    return good;
}

/* In the set of all ranks. */
static bool join(struct training *t)
{
    struct place *place = &t->places[0];
    struct pl_completion joined = {0};
    struct pl_error error = PL_ERROR_NONE;
    uint64_t salt = t->salt;
    int steps[TRAINING_MOST_RANKS], lasts[TRAINING_MOST_RANKS], last = -1;

    for (int r = 0; r < place->size; r++) {
        steps[r] = (int)mixed_draw(&t->common, MOST_JOIN_STEPS);
    }
    t->salt += MOST_JOIN_STEPS;
    for (int step = 0; step < steps[place->own]; step++) {
        if (!uneven_step(t, place, steps, step, salt + (uint64_t)step)) {
            return false;
        }
    }
    if (pl_service_submit_join(t->service, &joined, &error) != PL_OK ||
        pl_service_wait(t->service, &joined, &error) != PL_OK) {
        return training_fail(t, "join", &error);
    }
    last = joined.last_joined_rank;
    if (pl_allgather(place->world, &last, lasts, 1, PL_INT32, &error) != PL_OK) {
        return training_fail(t, "ask who joined last", &error);
    }
    for (int r = 0; r < place->size; r++) {
        if (lasts[r] != last || last < 0 || last >= place->size) {
            return training_wrong(t, "the last to join, on rank", (uint64_t)r, lasts[r], last);
        }
    }
    return true;
}

/* ---- sets that are added and removed ---- */

static bool open_place(struct training *t, struct place *place, int set)
{
    struct pl_service_set found;
    struct pl_error error = PL_ERROR_NONE;

    place->used = true;
    place->set = set;
    for (int i = 0; i < place->size; i++) {
        if (place->ranks[i] == pl_world_rank(t->world)) {
            place->own = i;
        }
    }
    if (pl_service_get_set(t->service, set, &found, NULL, 0, &error) != PL_OK) {
        return training_fail(t, "a set's world", &error);
    }
    place->world = found.world;
    return (found.world && found.rank == place->own) == (place->own >= 0) ||
           training_wrong(t, "membership of set", (uint64_t)set, place->own < 0, place->own >= 0);
}

static bool change_sets(struct training *t)
{
    struct place *place = &t->places[1 + mixed_draw(&t->common, TRAINING_PLACES - 1)];
    struct pl_error error = PL_ERROR_NONE;
    int set, same = 0;

    if (place->used) {
        training_plan_free(place);
        set = place->set;
        memset(place, 0, sizeof(*place));
        return pl_service_remove_set(t->service, set, &error) == PL_OK || training_fail(t, "remove a set", &error);
    }
    memset(place, 0, sizeof(*place));
    place->own = -1;
    place->size = 1 + (int)mixed_draw(&t->common, (uint64_t)t->places[0].size);
    shuffle(&t->common, place->ranks, t->places[0].size);
    for (int i = 0; i < TRAINING_PLACES; i++) {
        const struct place *other = &t->places[i];

        same += other->used && other->size == place->size &&
                memcmp(other->ranks, place->ranks, (size_t)place->size * sizeof(int)) == 0;
    }
    if (pl_service_add_set(t->service, place->ranks, place->size, &set, &error) != PL_OK) {
        return (same && error.status == PL_INVALID) || training_fail(t, "add a set", &error);
    }
    return open_place(t, place, set);
}

/* Opens set 0 and its named tensors; the other sets are added later. */
static bool begin(struct training *t)
{
    struct pl_error error = PL_ERROR_NONE;
    struct place *all = &t->places[0];

    memset(t->places, 0, sizeof(t->places));
    t->options =
        (struct pl_named_options){.start_bytes = mixed_draw(&t->common, 2) ? 0 : 1 + mixed_draw(&t->common, 5000),
                                  .join_divisor = (enum pl_named_divisor)mixed_draw(&t->common, 2)};
    all->size = pl_world_size(t->world);
    for (int r = 0; r < all->size; r++) {
        all->ranks[r] = r;
    }
    if (pl_service_new(t->world, &t->options, &t->service, &error) != PL_OK) {
        return training_fail(t, "a service", &error);
    }
    return open_place(t, all, 0);
}

static void end(struct training *t)
{
    for (int i = 0; i < TRAINING_PLACES; i++) {
        training_plan_free(&t->places[i]);
    }
    pl_service_free(t->service);
    t->service = NULL;
}

/* All ranks leave their named tensors, one after the other or at once, and start again on the same world. */
static bool start_again(struct training *t)
{
    struct pl_error error = PL_ERROR_NONE;

    training_stumble(t);
    if (pl_service_shutdown(t->service, &error) != PL_OK) {
        return training_fail(t, "shutdown", &error);
    }
    end(t);
    return begin(t);
}

/* ---- steps ---- */

/* Exchanges numbers and bytes that every rank needs, by plain collectives. */
static bool exchange_plainly(struct training *t)
{
    struct pl_error error = PL_ERROR_NONE;
    int size = t->places[0].size, rank = t->places[0].own, root = (int)mixed_draw(&t->common, (uint64_t)size), sum = 0;
    uint64_t salt = t->salt++;
    double metric = training_value(salt, rank, 0);
    unsigned char bytes[100];

    for (int r = 0; r < size; r++) {
        sum += training_value(salt, r, 0);
    }
    for (uint64_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (unsigned char)training_value(salt, rank, i);
    }
    if (pl_allreduce(t->world, &metric, &metric, 1, PL_FLOAT64, PL_AVERAGE, &error) != PL_OK ||
        pl_broadcast(t->world, bytes, sizeof(bytes), PL_UINT8, root, &error) != PL_OK) {
        return training_fail(t, "a metric's average and bytes", &error);
    }
    for (uint64_t i = 0; i < sizeof(bytes); i++) {
        if (bytes[i] != (unsigned char)training_value(salt, root, i)) {
            return training_wrong(t, "broadcast bytes", i, bytes[i], training_value(salt, root, i));
        }
    }
    return (metric > (double)sum / size - 1e-9 && metric < (double)sum / size + 1e-9) ||
           training_wrong(t, "average", 0, metric, (double)sum / size);
}

static struct place *any_place(struct training *t)
{
    struct place *place = &t->places[mixed_draw(&t->common, TRAINING_PLACES)];

    return place->used ? place : &t->places[0];
}

/* Operations without a name are numbered: keeps those of one set in the same order on every rank. */
static void keep_numbered_in_order(const struct job *jobs, int *order, int count)
{
    for (int i = 0; i < count; i++) {
        for (int k = i + 1; k < count; k++) {
            if (jobs[order[i]].type == JOB_NUMBERED && jobs[order[k]].type == JOB_NUMBERED && order[i] > order[k]) {
                int swapped = order[i];

                order[i] = order[k];
                order[k] = swapped;
            }
        }
    }
}

static bool submit_all(struct training *t, struct job *jobs, int count)
{
    int order[MOST_JOBS];

    shuffle(&t->own, order, count);
    keep_numbered_in_order(jobs, order, count);
    for (int i = 0; i < count; i++) {
        struct job *job = &jobs[order[i]];
        uint64_t way = mixed_draw(&t->own, 8);

        if (job->place->own < 0) {
            continue;
        }
        training_stumble(t);
        if (!training_submit_job(t, job)) {
            return false;
        }
        if (way < 2) {
            pl_service_poll(t->service, &job->completion);
        }
    }
    return true;
}

/* Submits named tensors in several sets. Between submitting and waiting it sometimes does something in a set without
 * requests under way. */
static bool step(struct training *t)
{
    struct job *jobs = calloc(MOST_JOBS, sizeof(struct job));
    int count = 1 + (int)mixed_draw(&t->common, MOST_JOBS), order[MOST_JOBS];
    bool taken[TRAINING_PLACES][TRAINING_NAMES] = {{false}}, busy[TRAINING_PLACES] = {false}, good;
    struct place *other = any_place(t);
    uint64_t between = mixed_draw(&t->common, 4);

    for (int i = 0; i < count; i++) {
        struct place *place = any_place(t);
        int name = (int)mixed_draw(&t->common, TRAINING_NAMES);

        while (taken[place - t->places][name]) {
            name = (name + 1) % TRAINING_NAMES;
            place = name == 0 ? &t->places[0] : place;
        }
        taken[place - t->places][name] = true;
        busy[place - t->places] = true;
        training_draw_job(t, place, name, &jobs[i]);
    }
    good = submit_all(t, jobs, count);
    if (good && between == 0 && !busy[0]) {
        good = join(t);
    } else if (good && between == 1 && !busy[other - t->places]) {
        good = training_plan_step(t, other);
    }
    shuffle(&t->own, order, count);
    for (int i = 0; i < count && good; i++) {
        good = jobs[order[i]].place->own < 0 || training_finish_job(t, &jobs[order[i]]);
    }
    if (!good) {
        end(t); /* nothing may access the buffers any more */
    }
    for (int i = 0; i < count; i++) {
        training_release_job(&jobs[i]);
    }
    free(jobs);
    return good;
}

void training_run(struct pl_world *world, uint64_t seed, int steps, char failure[TRAINING_TEXT_BYTES])
{
    struct training *t = calloc(1, sizeof(*t));
    bool good;

    failure[0] = '\0';
    *t = (struct training){
        .world = world, .common = seed, .own = seed * 64 + (uint64_t)pl_world_rank(world) + 1, .failure = failure};
    good = begin(t);
    for (int i = 0; good && i < steps; i++) {
        uint64_t way = mixed_draw(&t->common, 16);

        if (way < 3) {
            good = change_sets(t);
        } else if (way < 5) {
            good = training_plan_step(t, any_place(t));
        } else if (way < 6) {
            good = join(t);
        } else if (way < 7) {
            good = exchange_plainly(t);
        } else if (way < 8) {
            good = mixed_draw(&t->common, 3) || start_again(t);
        } else {
            good = step(t);
        }
    }
    end(t);
    free(t);
}
