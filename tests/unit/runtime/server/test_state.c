/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/server/remote.c, runtime/server/transfer.c, runtime/server/worker.c. */
#include "base/clock.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/knob.h"
#include "base/memory.h"
#include "collectives/world_private.h"
#include "runtime/checkpoint.h"
#include "runtime/gradient/optimizer_rule.h"
#include "runtime/server/remote.h"
#include "runtime/server/worker.h"
#include "tests/unit/runtime/server/job.h"

#include <fcntl.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum { COUNT_A = 150, COUNT_B = 37, ELEMS = 160 + 48, SAVED = 7, STEPS = 16 };

static double rate_of(int step)
{
    return 0.03125 / (1 + step);
}

/* ---- in step, servers have the bits of an allreduce, also when others resume a saved state ---- */

struct resumed {
    const struct pl_optimizer_options *optimizer;
    const char *folder; /* of checkpoints; NULL: none */
    int first, last;    /* steps; one is loaded where the first is not 0, and saved at the end where `saves` */
    bool saves;
    bool in_parts; /* messages between servers are shorter than pieces */
    float values[JOB_MOST_WORKERS][ELEMS];
};

static struct pl_checkpoints *open_checkpoints(const struct resumed *test, struct pl_plan *plan,
                                               struct pl_optimizer *optimizer)
{
    struct pl_checkpoints_options options = {.directory = test->folder};
    struct pl_checkpoints *checkpoints = NULL;

    ck_ok(pl_checkpoints_open, plan, optimizer, &options, &checkpoints);
    return checkpoints;
}

static void load(struct pl_checkpoints *checkpoints, int step)
{
    struct pl_checkpoint_state state;
    bool found = false;

    ck_ok(pl_checkpoints_load, checkpoints, &found, &state);
    ck_assert(found);
    ck_assert_uint_eq(state.step, (uint64_t)step);
}

static void save(struct pl_checkpoints *checkpoints, int step)
{
    struct pl_checkpoint_state state = {.step = (uint64_t)step};

    ck_ok(pl_checkpoints_save, checkpoints, &state);
    ck_ok(pl_checkpoints_flush, checkpoints);
}

static void train_ranks(struct pl_world *world, void *context)
{
    struct resumed *test = context;
    struct pl_plan_options options = {.bucket_bytes = 128};
    struct pl_optimizer *optimizer = NULL;
    struct pl_checkpoints *checkpoints;
    AUTO_PLAN struct pl_plan *plan = NULL;
    size_t index;

    ck_ok(pl_plan_new, world, &options, &plan);
    ck_ok(pl_plan_add, plan, "a", 1, &(uint64_t){COUNT_A}, &index);
    ck_ok(pl_plan_add, plan, "b", 1, &(uint64_t){COUNT_B}, &index);
    ck_ok(pl_plan_seal, plan);
    job_set_first_values(plan);
    ck_ok(pl_optimizer_new, plan, test->optimizer, &optimizer);
    checkpoints = open_checkpoints(test, plan, optimizer);
    if (test->first > 0) {
        load(checkpoints, test->first);
        ck_assert_uint_eq(pl_optimizer_state(optimizer).steps, (uint64_t)test->first);
    }
    for (int step = test->first; step < test->last; step++) {
        job_backward(plan, pl_world_rank(world), step);
        ck_ok(pl_optimizer_step, optimizer, rate_of(step));
    }
    if (test->saves) {
        save(checkpoints, test->last);
    }
    ck_assert_uint_eq(pl_plan_elems(plan), ELEMS);
    memcpy(test->values[pl_world_rank(world)], pl_plan_values(plan), sizeof(test->values[0]));
    pl_checkpoints_close(checkpoints);
    pl_optimizer_free(optimizer);
}

static void train_workers(struct job *job, int worker, struct pl_world *world)
{
    struct resumed *test = job->context;
    struct pl_server *server = job_new_server(job, worker, world, test->optimizer, COUNT_A, COUNT_B);
    struct pl_checkpoints *checkpoints = NULL;
    struct pl_optimizer *optimizer = NULL;

    ck_ok(pl_server_join, server);
    if (worker == 0) {
        job_set_first_values(pl_server_plan(server));
        ck_ok(pl_server_optimizer, server, &optimizer);
        checkpoints = open_checkpoints(test, pl_server_plan(server), optimizer);
        if (test->first > 0) {
            load(checkpoints, test->first);
            ck_ok(pl_server_assign_state, server);
        }
    }
    ck_ok(pl_server_start, server);
    for (int step = test->first; step < test->last; step++) {
        pl_server_set_rate(server, rate_of(step));
        job_backward(pl_server_plan(server), worker, step);
        ck_ok(pl_server_step, server);
    }
    memcpy(test->values[worker], pl_plan_values(pl_server_plan(server)), sizeof(test->values[0]));
    if (worker == 0 && test->saves) {
        ck_ok(pl_server_pull_state, server);
        ck_assert_uint_eq(pl_optimizer_state(optimizer).steps, (uint64_t)test->last);
        save(checkpoints, test->last);
    }
    pl_checkpoints_close(checkpoints);
    job_leave(server);
}

static void shorten_messages(struct pl_transport *transport, int host)
{
    transport->most_bytes = sizeof(struct pl_server_packet) + 1;
}

/* By `hosts` servers of `workers` workers each, or, without servers, as many ranks as workers. */
static void train(struct resumed *test, int hosts, int workers)
{
    struct job job = {.hosts = hosts,
                      .workers = workers,
                      .staleness = "0",
                      .bucket_bytes = test->in_parts ? "1KiB"
                                      : hosts == 1   ? "256"
                                                     : "128",
                      .prepare = test->in_parts ? shorten_messages : NULL,
                      .body = train_workers,
                      .context = test};
    struct pl_knobs knobs = ranks_knobs(PL_KNOB_REPRODUCIBLE, "1");

    if (hosts == 0) {
        ranks_run_with(workers, &(struct pl_world_options){.knobs = &knobs}, train_ranks, test);
    } else {
        job_run(&job);
    }
}

/* `way`: who saves, and who goes on: hosts, or 0 for ranks, and workers on each. */
static void go_on(const int way[2][2], const struct pl_optimizer_options *optimizer, bool in_parts)
{
    static struct resumed whole, test;
    const int total = (way[0][0] > 0 ? way[0][0] : 1) * way[0][1];
    struct scratch scratch = scratch_new(), other = scratch_new();

    whole = (struct resumed){.optimizer = optimizer, .folder = other.path, .last = STEPS};
    train(&whole, 0, total);
    test = (struct resumed){
        .optimizer = optimizer, .folder = scratch.path, .last = SAVED, .saves = true, .in_parts = in_parts};
    train(&test, way[0][0], way[0][1]);
    test = (struct resumed){
        .optimizer = optimizer, .folder = scratch.path, .first = SAVED, .last = STEPS, .in_parts = in_parts};
    train(&test, way[1][0], way[1][1]);
    for (int k = 0; k < total; k++) {
        ck_assert_msg(memcmp(test.values[k], whole.values[k], sizeof(test.values[k])) == 0,
                      "from %d x %d to %d x %d, optimizer %d, worker %d: other bits than without the break", way[0][0],
                      way[0][1], way[1][0], way[1][1], (int)optimizer->kind, k);
    }
    scratch_done(&scratch);
    scratch_done(&other);
}

TEST(a_checkpoint_goes_on_bit_for_bit_with_other_servers_and_with_ranks)
{
    static const struct pl_optimizer_options optimizers[] = {
        {.kind = PL_SGD},     {.kind = PL_SGD, .momentum = 0.9, .nesterov = true, .weight_decay = 0.01},
        {.kind = PL_ADAM},    {.kind = PL_ADAMW, .weight_decay = 0.1},
        {.kind = PL_ADAGRAD},
    };
    static const int ways[][2][2] = {
        {{1, 1}, {1, 1}}, {{1, 2}, {2, 1}}, {{2, 1}, {1, 2}}, {{2, 2}, {1, 4}},
        {{3, 1}, {3, 1}}, {{2, 1}, {0, 2}}, {{0, 2}, {2, 1}},
    };

    for (size_t w = 0; w < PL_ARRAY_ITEMS(ways); w++) {
        for (size_t o = 0; o < PL_ARRAY_ITEMS(optimizers); o++) {
            go_on(ways[w], &optimizers[o], false);
        }
    }
}

/* Values, gradients and states take two to five messages, whose ends lie within elements. */
TEST(a_piece_that_is_longer_than_a_message_goes_in_parts)
{
    static const struct pl_optimizer_options adam = {.kind = PL_ADAM};
    static const int ways[][2][2] = {{{2, 1}, {2, 1}}, {{3, 1}, {3, 1}}};

    for (size_t w = 0; w < PL_ARRAY_ITEMS(ways); w++) {
        go_on(ways[w], &adam, true);
    }
}

/* ---- answers to a transfer that was given up ---- */

/* Server 0 holds its first answer back until server 1 asks for another transfer. */
static struct {
    struct pl_transport real[2];
    atomic_bool asks_again; /* worker 1 does */
    atomic_bool was_asked_again;
} late;

static enum pl_status send_late(void *context, const void *data, size_t bytes, int peer, uint32_t tag,
                                struct pl_transfer *transfer, struct pl_error *reterr)
{
    const struct pl_server_packet *packet = data;
    int64_t deadline_ns = pl_deadline_after_ns(30 * PL_NS_PER_S);

    if (bytes == sizeof(*packet) && packet->kind == PL_SERVER_PACKET_ASK && atomic_load(&late.asks_again)) {
        atomic_store(&late.was_asked_again, true);
    }
    while (bytes == sizeof(*packet) && packet->kind == PL_SERVER_PACKET_STATE && !atomic_load(&late.was_asked_again) &&
           !pl_deadline_passed(deadline_ns)) {
        pl_clock_nap(PL_NS_PER_MS, deadline_ns);
    }
    return late.real[1 - peer].send(context, data, bytes, peer, tag, transfer, reterr);
}

static void delay_answers(struct pl_transport *transport, int host)
{
    late.real[host] = *transport;
    transport->send = send_late;
}

static void ask_twice(struct job *job, int worker, struct pl_world *world)
{
    const struct pl_optimizer_options adam = {.kind = PL_ADAM};
    struct pl_server *server = job_new_server(job, worker, world, &adam, COUNT_A, COUNT_B);
    struct pl_error error = PL_ERROR_NONE;

    job_join_and_start(server, worker);
    if (worker == 1) {
        const uint64_t elems = ELEMS, arrays = 3;
        struct pl_server_message message = {.kind = PL_SERVER_STATE,
                                            .number = PL_SERVER_STATE_PULL,
                                            .count = elems * arrays * sizeof(float) +
                                                     pl_plan_bucket_count(pl_server_plan(server)) * sizeof(uint64_t)};
        PL_AUTO_CLOSE int fd = pl_fd_new_memory("state", message.count), read_only_fd = -1;
        char path[64];

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        read_only_fd = open(path, O_RDONLY | O_CLOEXEC);
        ck_assert(fd >= 0 && read_only_fd >= 0);
        ck_assert_int_ne(pl_worker_ask(server, &message, read_only_fd, PL_SERVER_STATE, &message, &error), PL_OK);
        ck_assert_msg(strstr(error.cause, "cannot use the file for the state of worker 1"), "%s", error.cause);
        atomic_store(&late.asks_again, true);
        ck_ok(pl_server_pull_state, server);
        for (size_t t = 0; t < pl_plan_tensor_count(pl_server_plan(server)); t++) {
            const struct pl_plan_tensor *tensor = pl_plan_tensor(pl_server_plan(server), t);

            for (uint64_t i = 0; i < tensor->count_elems; i++) {
                float wanted = job_gradient_of(99, 0, i + 1000 * t);

                ck_assert_msg(tensor->value[i] == wanted, "tensor %zu, element %llu is %g, not %g", t,
                              (unsigned long long)i, (double)tensor->value[i], (double)wanted);
            }
        }
    }
    ck_ok(pl_server_sum, server, NULL, 0);
    job_leave(server);
}

UNIT_TEST(an_answer_to_a_transfer_that_was_given_up_is_none_to_the_next,
          job_run(&(struct job){
              .hosts = 2, .workers = 1, .staleness = "none", .prepare = delay_answers, .body = ask_twice}))

/* ---- a piece is of one time, while others train ---- */

enum { LONG = 4096 };

/* All gradients are 1: after n updates a sum of squares is n, and the value has gone down by 1/sqrt(1) + ... */
static void check_pieces(struct pl_plan *plan, const struct pl_optimizer *optimizer)
{
    uint64_t least = UINT64_MAX;

    for (size_t p = 0; p < pl_plan_bucket_count(plan); p++) {
        uint64_t first, count;
        double expected = 0.0;
        float value, squares;

        pl_plan_bucket(plan, p, &first, &count);
        value = pl_plan_values(plan)[first];
        squares = pl_optimizer_slot(optimizer, 0)[first];
        for (int n = 1; n <= (int)squares; n++) {
            expected -= 1.0 / sqrt(n);
        }
        ck_assert_msg(fabs((double)value - expected) < 1e-3, "piece %zu has squares %g and value %g, not %g", p,
                      (double)squares, (double)value, expected);
        for (uint64_t i = 1; i < count; i++) {
            ck_assert_msg(pl_plan_values(plan)[first + i] == value &&
                              pl_optimizer_slot(optimizer, 0)[first + i] == squares,
                          "half an update of piece %zu: its elements differ", p);
        }
        least = (uint64_t)squares < least ? (uint64_t)squares : least;
    }
    ck_assert_uint_eq(pl_optimizer_state(optimizer).steps, least);
}

static void save_while_others_train(struct job *job, int worker, struct pl_world *world)
{
    const struct pl_optimizer_options adagrad = {.kind = PL_ADAGRAD};
    struct pl_server *server = job_new_server(job, worker, world, &adagrad, LONG, 0);
    struct pl_plan *plan = pl_server_plan(server);
    struct pl_optimizer *optimizer = NULL;

    ck_ok(pl_server_join, server);
    ck_ok(pl_server_start, server); /* zeroes */
    ck_ok(pl_server_optimizer, server, &optimizer);
    pl_server_set_rate(server, 1.0);
    for (int step = 0; step < 60; step++) {
        if (worker == 0) {
            ck_ok(pl_server_pull_state, server);
            check_pieces(plan, optimizer);
            continue;
        }
        for (uint64_t i = 0; i < LONG; i++) {
            pl_plan_gradients(plan)[i] = 1.0F;
        }
        ck_ok(pl_plan_ready, plan, 0);
        ck_ok(pl_server_step, server);
    }
    ck_ok(pl_server_sum, server, NULL, 0);
    ck_ok(pl_server_pull_state, server); /* several at once */
    check_pieces(plan, optimizer);
    ck_assert_uint_eq(pl_optimizer_state(optimizer).steps, 60U * (unsigned)(job->hosts * job->workers - 1));
    job_leave(server);
}

TEST(the_state_of_a_piece_is_of_one_time)
{
    for (int hosts = 1; hosts <= 2; hosts++) {
        struct job job = {.hosts = hosts,
                          .workers = 4 / hosts,
                          .staleness = "none",
                          .bucket_bytes = "4096",
                          .body = save_while_others_train};

        job_run(&job);
    }
}

/* ---- being asked to stop ---- */

struct stopping {
    const char *staleness;
    int steps[JOB_MOST_WORKERS];
};

/* The last worker asks after its third step; nobody else counts. */
static void stop_together(struct job *job, int worker, struct pl_world *world)
{
    const struct pl_optimizer_options sgd = {.kind = PL_SGD, .momentum = 0.5};
    struct pl_server *server = job_new_server(job, worker, world, &sgd, COUNT_A, COUNT_B);
    struct pl_plan *plan = pl_server_plan(server);
    const int workers = job->hosts * job->workers;
    struct stopping *test = job->context;
    int64_t deadline_ns = pl_deadline_after_ns(40 * PL_NS_PER_S);

    job_join_and_start(server, worker);
    pl_server_set_rate(server, 0.0);
    while (!pl_server_is_stopping(server)) {
        ck_assert(!pl_deadline_passed(deadline_ns));
        if (worker == workers - 1 && test->steps[worker] == 3) {
            pl_server_ask_stop(server);
        }
        job_backward(plan, worker, test->steps[worker]);
        ck_ok(pl_server_step, server);
        test->steps[worker]++;
    }
    if (worker == 0) {
        struct pl_optimizer *optimizer;
        uint64_t steps = 0;

        ck_ok(pl_server_outlast, server);
        ck_ok(pl_server_pull_state, server);
        ck_ok(pl_server_pull, server);
        ck_ok(pl_server_optimizer, server, &optimizer);
        for (int w = 0; w < workers; w++) { /* the others have left: these are their last */
            steps += (uint64_t)test->steps[w];
        }
        ck_assert_uint_eq(pl_optimizer_state(optimizer).steps,
                          strcmp(job->staleness, "0") == 0 ? (uint64_t)test->steps[0] : steps);
    }
    job_leave(server);
}

TEST(all_stop_when_one_asks_and_the_last_one_has_everything)
{
    static const char *const bounds[] = {"0", "2", "none"};

    for (int hosts = 1; hosts <= 2; hosts++) {
        for (size_t b = 0; b < PL_ARRAY_ITEMS(bounds); b++) {
            struct stopping test = {.staleness = bounds[b]};
            struct job job = {
                .hosts = hosts, .workers = 4 / hosts, .staleness = bounds[b], .body = stop_together, .context = &test};

            job_run(&job);
            for (int w = 0; w < 4 && b == 0; w++) {
                ck_assert_int_eq(test.steps[w], 4); /* the step that asks is the last one */
            }
        }
    }
}

/* Worker 0 waits to be the last one while another one does not leave. */
static void wait_to_be_last(struct job *job, int worker, struct pl_world *world)
{
    const struct pl_optimizer_options sgd = {.kind = PL_SGD};
    struct pl_server *server = job_new_server(job, worker, world, &sgd, COUNT_A, 0);
    _Atomic int *is_late = job->context;

    ck_ok(pl_server_join, server);
    ck_fails(PL_INVALID, "pl_server_start() comes first", pl_server_pull_state, server);
    ck_ok(pl_server_start, server);
    job_backward(pl_server_plan(server), worker, 0);
    ck_fails(PL_INVALID, "in the middle of a step", pl_server_pull_state, server);
    ck_ok(pl_server_step, server);
    if (worker == 0) {
        ck_fails(PL_TIMEOUT, "not all other workers have left", pl_server_outlast, server);
        *is_late = 1;
    }
    while (worker == 1 && *is_late == 0) {
        pl_clock_nap(PL_NS_PER_MS, PL_DEADLINE_NEVER);
    }
    pl_server_free(server);
}

TEST(what_comes_too_early_is_refused_and_the_last_ones_wait_has_a_deadline)
{
    static _Atomic int is_late;
    struct job job = {
        .hosts = 1, .workers = 2, .staleness = "none", .timeout_s = "2", .body = wait_to_be_last, .context = &is_late};

    job_run(&job);
}

UNIT_MAIN("runtime/server/state")
