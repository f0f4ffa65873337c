/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Covers runtime/server/lost.c, runtime/server/layout.c, runtime/server/message.c, runtime/server/pieces.c,
 * runtime/server/remote.c, runtime/server/serve.c, runtime/server/shared.c, runtime/server/worker.c,
 * runtime/server/worker_connect.c, runtime/server/workers.c.
 */
#include "base/clock.h"
#include "base/knob.h"
#include "base/memory.h"
#include "base/random.h"
#include "collectives/world_private.h"
#include "runtime/server/message.h"
#include "tests/unit/runtime/server/job.h"

#include <math.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>

enum { COUNT_A = 150, COUNT_B = 37, ELEMS = 160 + 48, STEPS = 20 };

static const double rate = 0.03125;

/* ---- asynchronous: with whole numbers the order does not matter ---- */

static void push_whole_numbers(struct job *job, int worker, struct pl_world *world)
{
    const struct pl_optimizer_options sgd = {.kind = PL_SGD};
    struct pl_server *server = job_new_server(job, worker, world, &sgd, COUNT_A, COUNT_B);
    struct pl_plan *plan = pl_server_plan(server);
    const int workers = job->hosts * job->workers, more = strcmp(job->staleness, "none") == 0;
    double expected = 0.0, sum = 1.0;

    job_join_and_start(server, worker);
    pl_server_set_rate(server, 1.0);
    /* begin where a whole number is */
    if (worker == 0) {
        memset(pl_plan_values(plan), 0, pl_plan_elems(plan) * sizeof(float));
        ck_ok(pl_server_assign, server);
    }
    ck_ok(pl_server_sum, server, &sum, 1);
    ck_assert_double_eq(sum, workers);
    for (int step = 0; step < STEPS + more * worker; step++) {
        for (size_t t = 2; t-- > 0;) {
            for (uint64_t i = 0; i < pl_plan_tensor(plan, t)->count_elems; i++) {
                pl_plan_tensor(plan, t)->gradient[i] = (float)(worker + 1);
            }
            ck_ok(pl_plan_ready, plan, t);
        }
        ck_ok(pl_server_step, server);
    }
    ck_assert_uint_eq(pl_server_counts(server).steps, (uint64_t)(STEPS + more * worker));
    ck_ok(pl_server_sum, server, NULL, 0);
    ck_ok(pl_server_pull, server);
    for (int w = 0; w < workers; w++) {
        expected -= (w + 1) * (STEPS + more * w);
    }
    for (size_t t = 0; t < 2; t++) {
        for (uint64_t i = 0; i < pl_plan_tensor(plan, t)->count_elems; i++) {
            ck_assert_msg((double)pl_plan_tensor(plan, t)->value[i] == expected,
                          "worker %d: element %d of tensor %zu "
                          "is %g, not %g",
                          worker, (int)i, t, (double)pl_plan_tensor(plan, t)->value[i], expected);
        }
    }
    job_leave(server);
}

/* All steps of all workers, and the values that worker 0 gave twice. */
static void check_counts(const struct job *job)
{
    const uint64_t workers = (uint64_t)(job->hosts * job->workers), pieces = 6;
    uint64_t pushes = 0, updates = 0, aged = 0, steps = STEPS * workers;

    if (strcmp(job->staleness, "none") == 0) {
        steps += workers * (workers - 1) / 2; /* each takes as many more as its number */
    }
    for (int h = 0; h < job->hosts; h++) {
        ck_assert_uint_eq(job->counts[h].pulls, 2 * (uint64_t)job->workers); /* starting, and at the end */
        pushes += job->counts[h].pushes;
        updates += job->counts[h].updates;
        for (int a = 0; a < PL_SERVER_AGES; a++) {
            aged += job->counts[h].ages[a];
        }
    }
    ck_assert_uint_eq(pushes, (steps + 2) * pieces);
    ck_assert_uint_eq(updates, steps * pieces);
    ck_assert_uint_eq(aged, (steps - workers) * pieces); /* except the first ones */
    if (workers == 1) {
        ck_assert_uint_eq(job->counts[0].ages[0], aged); /* there are no others */
    }
}

TEST(every_push_counts_once)
{
    for (int hosts = 1; hosts <= 3; hosts++) {
        for (int workers = 1; workers <= 2; workers++) {
            static const char *const bounds[] = {"none", "1", "3"};

            for (size_t b = 0; b < PL_ARRAY_ITEMS(bounds); b++) {
                struct job job = {
                    .hosts = hosts, .workers = workers, .staleness = bounds[b], .body = push_whole_numbers};

                job_run(&job);
                check_counts(&job);
            }
        }
    }
}

/* ---- a bound ---- */

struct bounded {
    _Atomic int steps[JOB_MOST_WORKERS];
    _Atomic int farthest;
};

/* Worker 0 lets the others come as far as they can before each of its steps. */
static void keep_bound(struct job *job, int worker, struct pl_world *world)
{
    const struct pl_optimizer_options sgd = {.kind = PL_SGD};
    struct pl_server *server = job_new_server(job, worker, world, &sgd, COUNT_A, 0);
    struct bounded *test = job->context;
    const int workers = job->hosts * job->workers, bound = 2;
    double zero = 0.0;

    job_join_and_start(server, worker);
    ck_ok(pl_server_sum, server, &zero, 1); /* all have joined */
    for (int step = 0; step < STEPS; step++) {
        for (int w = 1; worker == 0 && w < workers; w++) {
            int64_t deadline_ns = pl_deadline_after_ns(40 * PL_NS_PER_S);

            /* they push steps up to step + bound, and wait in that one */
            while (test->steps[w] < step + bound && test->steps[w] < STEPS) {
                ck_assert(!pl_deadline_passed(deadline_ns));
                pl_clock_nap(PL_NS_PER_MS / 10, deadline_ns);
            }
        }
        job_backward(pl_server_plan(server), worker, step);
        ck_ok(pl_server_step, server);
        test->steps[worker] = step + 1;
        if (worker > 0) {
            int ahead = step + 1 - test->steps[0];

            if (ahead > test->farthest) {
                test->farthest = ahead;
            }
        }
    }
    job_leave(server);
}

TEST(nobody_is_farther_ahead_than_the_bound)
{
    static struct bounded test;
    struct job job = {.hosts = 2, .workers = 2, .staleness = "2", .body = keep_bound, .context = &test};

    job_run(&job);
    /* one more: worker 0's step is finished before it says so here */
    ck_assert_msg(test.farthest >= 2 && test.farthest <= 3, "%d steps ahead", test.farthest);
}

/* ---- leaving, being lost, coming late ---- */

struct leaving {
    bool is_lost;
    float values[JOB_MOST_WORKERS][ELEMS];
};

/* Worker 1 takes 3 steps, the others 6: their average is of those that are there. */
static void leave_early(struct job *job, int worker, struct pl_world *world)
{
    const struct pl_optimizer_options sgd = {.kind = PL_SGD};
    struct pl_server *server = job_new_server(job, worker, world, &sgd, COUNT_A, COUNT_B);
    struct leaving *test = job->context;

    job_join_and_start(server, worker);
    pl_server_set_rate(server, 0.5);
    for (int step = 0; step < (worker == 1 ? 3 : 6); step++) {
        job_backward(pl_server_plan(server), worker, step);
        ck_ok(pl_server_step, server);
    }
    memcpy(test->values[worker], pl_plan_values(pl_server_plan(server)), sizeof(test->values[worker]));
    if (worker == 1 && test->is_lost) {
        pl_server_free(server);
    } else {
        job_leave(server);
    }
}

TEST(a_step_goes_on_without_who_has_left_or_is_lost)
{
    static struct leaving test;

    for (int lost = 0; lost < 2; lost++) {
        struct job job = {.hosts = 2, .workers = 2, .staleness = "0", .body = leave_early, .context = &test};
        float w = job_gradient_of(99, 0, 0);

        test.is_lost = lost != 0;
        job_run(&job);
        for (int step = 0; step < 6; step++) {
            float sum = 0.0F;
            int count = 0;

            for (int k = 0; k < 4; k++) {
                if (k != 1 || step < 3) {
                    sum += job_gradient_of(k, step, 0);
                    count++;
                }
            }
            w -= 0.5F * (sum / (float)count);
        }
        /* tensor a comes after b in the layout: 48 elements */
        ck_assert_msg(fabsf(test.values[0][48] - w) < 1e-6F, "%g, expected %g", (double)test.values[0][48], (double)w);
        ck_assert_mem_eq(test.values[0], test.values[2], sizeof(test.values[0]));
        ck_assert_mem_eq(test.values[0], test.values[3], sizeof(test.values[0]));
    }
}

struct late {
    _Atomic bool is_trained;
    _Atomic bool is_checked;
    float values[ELEMS];
};

static void come_late(struct job *job, int worker, struct pl_world *world)
{
    const struct pl_optimizer_options adam = {.kind = PL_ADAM};
    struct pl_server *server = job_new_server(job, worker, world, &adam, COUNT_A, COUNT_B);
    struct late *test = job->context;
    int64_t deadline_ns = pl_deadline_after_ns(40 * PL_NS_PER_S);

    if (worker == 0) {
        job_join_and_start(server, 0);
        for (int step = 0; step < STEPS; step++) {
            pl_server_set_rate(server, rate);
            job_backward(pl_server_plan(server), 0, step);
            ck_ok(pl_server_step, server);
        }
        memcpy(test->values, pl_plan_values(pl_server_plan(server)), sizeof(test->values));
        test->is_trained = true;
    }
    while (worker == 1 && !test->is_trained) {
        ck_assert(!pl_deadline_passed(deadline_ns));
        pl_clock_nap(PL_NS_PER_MS, deadline_ns);
    }
    if (worker == 1) {
        job_join_and_start(server, 1);
        ck_assert_mem_eq(pl_plan_values(pl_server_plan(server)), test->values, sizeof(test->values));
        job_backward(pl_server_plan(server), 1, 0);
        ck_ok(pl_server_step, server);
        test->is_checked = true;
    }
    while (worker == 0 && !test->is_checked) {
        ck_assert(!pl_deadline_passed(deadline_ns));
        pl_clock_nap(PL_NS_PER_MS, deadline_ns);
    }
    job_leave(server);
}

TEST(a_late_worker_goes_on_from_the_values_that_are_there)
{
    for (int hosts = 1; hosts <= 2; hosts++) {
        static struct late test;
        struct job job = {.hosts = hosts, .workers = 2 / hosts, .staleness = "3", .body = come_late, .context = &test};

        test.is_trained = test.is_checked = false;
        job_run(&job);
    }
}

/* ---- reads are of one time ---- */

static void read_pieces(struct job *job, int worker, struct pl_world *world)
{
    const struct pl_optimizer_options sgd = {.kind = PL_SGD};
    struct pl_server *server = job_new_server(job, worker, world, &sgd, 4096, 0);
    struct pl_plan *plan = pl_server_plan(server);

    ck_ok(pl_server_join, server);
    ck_ok(pl_server_start, server); /* zeroes */
    pl_server_set_rate(server, -1.0);
    for (int step = 0; step < 200; step++) {
        int others = 0;

        for (size_t p = 0; p < pl_plan_bucket_count(plan); p++) {
            uint64_t first, count;

            pl_plan_bucket(plan, p, &first, &count);
            for (uint64_t i = 1; i < count; i++) {
                others += pl_plan_values(plan)[first + i] != pl_plan_values(plan)[first];
            }
        }
        ck_assert_msg(others == 0, "half an update: %d elements differ from their piece's first", others);
        if (worker > 0) {
            for (uint64_t i = 0; i < 4096; i++) {
                pl_plan_gradients(plan)[i] = 1.0F;
            }
            ck_ok(pl_plan_ready, plan, 0);
            ck_ok(pl_server_step, server);
        } else {
            ck_ok(pl_server_pull, server);
        }
    }
    job_leave(server);
}

TEST(a_pull_never_has_half_an_update_of_a_piece)
{
    for (int hosts = 1; hosts <= 2; hosts++) {
        struct job job = {
            .hosts = hosts, .workers = 4 / hosts, .staleness = "none", .bucket_bytes = "4096", .body = read_pieces};

        job_run(&job);
    }
}

/* ---- what is wrong is said ---- */

static void disagree(struct job *job, int worker, struct pl_world *world)
{
    const struct pl_optimizer_options sgd = {.kind = PL_SGD, .momentum = worker == 1 && job->context ? 0.5 : 0.9};
    struct pl_server *server =
        job_new_server(job, worker, world, &sgd, COUNT_A, worker == 1 && !job->context ? COUNT_B + 1 : COUNT_B);
    struct pl_error error = PL_ERROR_NONE;
    double sum = 0.0;

    /* between hosts the servers find out, and end */
    ck_assert_int_eq(pl_plan_seal(pl_server_plan(server), &error) == PL_OK ? pl_server_sum(server, &sum, 1, &error)
                                                                           : error.status,
                     PL_MISMATCH);
    ck_assert_ptr_nonnull(strstr(error.cause, job->context ? "momentum=0.9" : "'b' [37]"));
    ck_assert_ptr_nonnull(strstr(error.cause, job->context ? "momentum=0.5" : "'b' [38]"));
    pl_server_free(server);
}

TEST(other_tensors_or_options_end_the_job_by_name)
{
    for (int hosts = 1; hosts <= 2; hosts++) {
        struct job job = {
            .hosts = hosts, .workers = 2 / hosts, .staleness = "none", .body = disagree, .server_status = PL_MISMATCH};

        job_run(&job);
        job.context = &job; /* options */
        job_run(&job);
    }
}

static void ask_for_too_much(struct job *job, int worker, struct pl_world *world)
{
    struct pl_server_options options = {
        .optimizer = {.kind = PL_SGD, .clip_norm = 1.0}, .socket = job->socket_paths[0], .staleness = "none"};
    struct pl_server *server = NULL;

    ck_fails(PL_UNSUPPORTED, "clip_norm", pl_server_new, world, &options, &server);
    options.optimizer = (struct pl_optimizer_options){.kind = PL_SGD};
    options.staleness = "some";
    ck_fails(PL_INVALID, "", pl_server_new, world, &options, &server);
    options.staleness = "none";
    options.wire_type = "int4";
    ck_fails(PL_INVALID, "float16 bfloat16 int8", pl_server_new, world, &options, &server);
    options.wire_type = NULL;
    options.worker = -1;
    ck_fails(PL_INVALID, "", pl_server_new, world, &options, &server);
    options.worker = 0;
    options.socket = NULL;
    ck_fails(PL_INVALID, "PACELINE_PS_SOCKET", pl_server_new, world, &options, &server);
    options.socket = job->socket_paths[0];
    options.worker = 1; /* there is worker 0 alone */
    ck_ok(pl_server_new, world, &options, &server);
    ck_ok(pl_plan_add, pl_server_plan(server), "a", 1, &(uint64_t){COUNT_A}, &(size_t){0});
    ck_fails(PL_INVALID, "", pl_server_join, server);
    pl_server_free(server);
    server = job_new_server(job, worker, world, &options.optimizer, COUNT_A, 0);
    ck_fails(PL_INVALID, "", pl_server_start, server); /* before joining */
    job_join_and_start(server, worker);
    job_leave(server);
}

UNIT_TEST(what_cannot_be_is_refused,
          job_run(&(struct job){.hosts = 1, .workers = 1, .staleness = "none", .body = ask_for_too_much}))

/* Of two workers one does not push; then it is lost, which ends nothing but the other's wait. */
static void wait_in_vain(struct job *job, int worker, struct pl_world *world)
{
    const struct pl_optimizer_options sgd = {.kind = PL_SGD};
    struct pl_server *server = job_new_server(job, worker, world, &sgd, COUNT_A, 0);
    _Atomic int *is_late = job->context;

    job_join_and_start(server, worker);
    if (worker == 0) {
        job_backward(pl_server_plan(server), 0, 0);
        ck_fails(PL_TIMEOUT, "all workers must push", pl_server_step, server);
        *is_late = 1;
    }
    while (worker == 1 && *is_late == 0) {
        pl_clock_nap(PL_NS_PER_MS, PL_DEADLINE_NEVER);
    }
    pl_server_free(server);
}

TEST(a_step_that_waits_for_a_worker_has_a_deadline)
{
    static _Atomic int is_late;
    struct job job = {
        .hosts = 1, .workers = 2, .staleness = "0", .timeout_s = "2", .body = wait_in_vain, .context = &is_late};

    job_run(&job);
}

/* ---- a worker's process that ends without joining ---- */

static void train_without_one(struct job *job, int worker, struct pl_world *world)
{
    const struct pl_optimizer_options sgd = {.kind = PL_SGD};
    struct pl_server *server = job_new_server(job, worker, world, &sgd, COUNT_A, COUNT_B);
    double sum = 1.0;

    job_join_and_start(server, worker);
    for (int step = 0; step < 3; step++) {
        job_backward(pl_server_plan(server), worker, step);
        ck_ok(pl_server_step, server);
    }
    ck_ok(pl_server_sum, server, &sum, 1);
    ck_assert_double_eq(sum, job->hosts * job->workers - 1);
    ck_assert_int_eq(pl_server_local_worker(server), worker % job->workers);
    ck_assert_int_eq(pl_server_local_workers(server), job->workers);
    job_leave(server);
}

TEST(a_process_that_ends_without_joining_is_not_waited_for)
{
    for (int hosts = 1; hosts <= 3; hosts++) {
        struct job job = {.hosts = hosts, .workers = 2, .staleness = "0", .body = train_without_one};

        job.absent = hosts * 2; /* the last one */
        job_run(&job);
        job.workers = 1 + (hosts == 1);
        job.absent = hosts == 1 ? 2 : hosts; /* all of the last host */
        job_run(&job);
    }
}

/* ---- sums ---- */

static void sum_long(struct job *job, int worker, struct pl_world *world)
{
    enum { LONG = 150 };
    const struct pl_optimizer_options sgd = {.kind = PL_SGD};
    struct pl_server *server = job_new_server(job, worker, world, &sgd, COUNT_A, 0);
    double values[LONG];

    job_join_and_start(server, worker);
    for (int i = 0; i < LONG; i++) {
        values[i] = i + 1000.0 * worker;
    }
    ck_ok(pl_server_sum, server, values, LONG);
    for (int i = 0; i < LONG; i++) {
        ck_assert_msg(values[i] == 4.0 * i + 6000.0, "value %d is %g, not %g", i, values[i], 4.0 * i + 6000.0);
    }
    ck_fails(PL_MISMATCH, "", pl_server_sum, server, values, worker == 2 ? LONG - 1 : LONG);
    pl_server_free(server);
}

UNIT_TEST(sums_of_any_length_are_right_and_of_others_refused,
          job_run(&(struct job){.hosts = 2, .workers = 2, .staleness = "none", .body = sum_long}))

/* ---- the order of calls ---- */

static void call_in_wrong_order(struct job *job, int worker, struct pl_world *world)
{
    const struct pl_optimizer_options sgd = {.kind = PL_SGD};
    struct pl_server *server = job_new_server(job, worker, world, &sgd, COUNT_A, COUNT_B);
    double value = 0.0;

    ck_fails(PL_INVALID, "", pl_server_push, server);
    ck_fails(PL_INVALID, "", pl_server_wait, server);
    ck_fails(PL_INVALID, "", pl_server_pull, server);
    ck_fails(PL_INVALID, "", pl_server_sum, server, &value, 1);
    ck_fails(PL_INVALID, "", pl_server_leave, server);
    ck_ok(pl_server_join, server);
    ck_fails(PL_INVALID, "pl_server_start() comes first", pl_server_pull, server);
    job_set_first_values(pl_server_plan(server));
    ck_ok(pl_server_start, server);
    ck_fails(PL_INVALID, "", pl_server_wait, server);
    job_backward(pl_server_plan(server), worker, 0);
    ck_ok(pl_server_push, server);
    ck_fails(PL_INVALID, "", pl_plan_ready, pl_server_plan(server), 1);
    ck_fails(PL_INVALID, "", pl_server_assign, server);
    ck_ok(pl_server_wait, server);
    ck_ok(pl_server_leave, server);
    ck_ok(pl_server_leave, server);
    ck_fails(PL_INVALID, "has left", pl_server_pull, server);
    pl_server_free(server);
}

UNIT_TEST(calls_in_another_order_are_refused,
          job_run(&(struct job){.hosts = 1, .workers = 1, .staleness = "none", .body = call_in_wrong_order}))

/* ---- mixtures against exact sums ---- */

struct mixture {
    uint64_t seed;
    _Atomic int64_t pushed; /* of all workers, in units of the gradient */
};

static void do_anything(struct job *job, int worker, struct pl_world *world)
{
    const struct pl_optimizer_options sgd = {.kind = PL_SGD};
    struct mixture *test = job->context;
    uint64_t random = test->seed * 64 + (uint64_t)worker;
    struct pl_server *server = job_new_server(job, worker, world, &sgd, COUNT_A, COUNT_B);
    struct pl_plan *plan = pl_server_plan(server);
    int64_t own = 0, before = 0;
    int others = 0;

    ck_ok(pl_server_join, server);
    ck_ok(pl_server_start, server);
    pl_server_set_rate(server, -1.0);
    for (int i = (int)(pl_random_next(&random) % 30); i > 0; i--) {
        int64_t size = (int64_t)(pl_random_next(&random) % 5);

        if ((pl_random_next(&random) % 3) == 0) {
            ck_ok(pl_server_pull, server);
        } else {
            for (uint64_t k = 0; k < COUNT_A; k++) {
                pl_plan_tensor(plan, 0)->gradient[k] = (float)size;
            }
            /* the other tensor's is now and then left out, and counts as zero */
            ck_ok(pl_plan_ready, plan, 0);
            own += size;
            test->pushed += size;
            ck_ok(pl_server_step, server);
        }
        /* values only grow, and have all that this worker has pushed */
        ck_assert((int64_t)pl_plan_tensor(plan, 0)->value[0] >= own);
        ck_assert((int64_t)pl_plan_tensor(plan, 0)->value[0] >= before);
        before = (int64_t)pl_plan_tensor(plan, 0)->value[0];
    }
    ck_ok(pl_server_sum, server, NULL, 0);
    ck_ok(pl_server_pull, server);
    for (uint64_t k = 0; k < COUNT_A; k++) {
        others += (int64_t)pl_plan_tensor(plan, 0)->value[k] != test->pushed;
    }
    ck_assert_msg(others == 0, "%d elements differ from the sum, %lld: the first is %g", others,
                  (long long)test->pushed, (double)pl_plan_tensor(plan, 0)->value[0]);
    ck_assert(pl_plan_tensor(plan, 1)->value[0] == 0.0F);
    job_leave(server);
}

TEST(mixtures_of_pushes_and_pulls_end_in_the_exact_sum)
{
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct mixture test = {.seed = seed};
        struct job job = {.hosts = 1 + (int)(seed % 3),
                          .workers = 1 + (int)(seed % 2),
                          .staleness = "none",
                          .body = do_anything,
                          .context = &test};

        job_run(&job);
    }
}

/* ---- descriptors that nobody wants are closed ---- */

/* Wait until no process has the end of the pipe that `read_fd` reads from. */
static void expect_closed(int read_fd)
{
    struct pollfd closed = {.fd = read_fd};

    ck_assert_msg(poll(&closed, 1, 20000) == 1 && closed.revents & POLLHUP, "a descriptor stays open");
    ck_assert_int_eq(close(read_fd), 0);
}

/* A worker's first message is none: its descriptor is closed with its connection. */
static void begin_with_state(struct job *job, int worker, struct pl_world *world)
{
    const struct pl_optimizer_options sgd = {.kind = PL_SGD};
    struct pl_server_message state = {.kind = PL_SERVER_STATE, .number = PL_SERVER_STATE_PULL, .count = 1};
    struct pl_server *server = job_new_server(job, worker, world, &sgd, COUNT_A, 0);
    struct sockaddr_un address;
    int ends[2], fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    job_join_and_start(server, worker); /* so that it listens */
    ck_ok(pl_server_message_address, job->socket_paths[0], &address);
    ck_assert_int_eq(connect(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_int_eq(pipe(ends), 0);
    ck_ok(pl_server_message_send, fd, &state, &ends[1], 1);
    ck_assert_int_eq(close(ends[1]), 0);
    expect_closed(ends[0]);
    ck_assert_int_eq(close(fd), 0);
    job_leave(server);
}

/* What comes in a message that is empty, or where no descriptors are expected. */
static void send_unwanted(const struct pl_server_message *message, bool *ret_closed, enum pl_status wanted)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.head = {.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))}};
    struct iovec part = {.iov_base = (void *)(uintptr_t)message, .iov_len = message ? sizeof(*message) : 0};
    struct msghdr sent = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)};
    struct pl_server_message received;
    int sockets[2], ends[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets), 0);
    ck_assert_int_eq(pipe(ends), 0);
    memcpy(CMSG_DATA(&control.head), &ends[1], sizeof(int));
    ck_assert_int_eq(sendmsg(sockets[0], &sent, 0), (ssize_t)part.iov_len);
    ck_assert_int_eq(close(ends[1]), 0);
    ck_assert_int_eq(pl_server_message_receive(sockets[1], true, &received, NULL, ret_closed, NULL), wanted);
    expect_closed(ends[0]);
    ck_assert(close(sockets[0]) == 0 && close(sockets[1]) == 0);
}

TEST(descriptors_that_nobody_wants_are_closed)
{
    const struct pl_server_message state = {.kind = PL_SERVER_STATE, .number = PL_SERVER_STATE_PULL, .count = 1};
    struct job job = {.hosts = 1, .workers = 1, .staleness = "0", .body = begin_with_state};
    bool closed = false;

    job_run(&job);
    send_unwanted(&state, &closed, PL_CORRUPT);
    ck_assert(!closed);
    send_unwanted(NULL, &closed, PL_OK);
    ck_assert(closed);
}

UNIT_MAIN("runtime/server")
