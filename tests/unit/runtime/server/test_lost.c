/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/server/lost.c, runtime/server/serve.c. */
#include "base/clock.h"
#include "base/memory.h"
#include "tests/unit/runtime/server/job.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>

enum { COUNT = 150, STEPS = 30, LOST = 1, EXIT_3 = 3 << 8 };

/* How worker LOST ends, and the process's status. */
struct loss {
    bool leaves;
    int status;
    const char *expected; /* what the servers end with; NULL: nothing */
    bool stops;           /* the job is being stopped */
};

static enum pl_status take_steps(struct pl_server *server, int worker, int steps, struct pl_error *reterr)
{
    double one = 1.0;

    for (int step = 0; step < steps; step++) {
        job_backward(pl_server_plan(server), worker, step);
        PL_TRY(pl_server_step(server, reterr));
    }
    return pl_server_sum(server, &one, 1, reterr); /* waits for those that are not lost */
}

static void lose_one(struct job *job, int worker, struct pl_world *world)
{
    const struct pl_optimizer_options sgd = {.kind = PL_SGD};
    struct pl_server *server = job_new_server(job, worker, world, &sgd, COUNT, 0);
    const struct loss *loss = job->context;
    struct pl_error error = PL_ERROR_NONE;

    job_join_and_start(server, worker);
    ck_ok(pl_server_sum, server, NULL, 0); /* all have joined */
    if (worker == LOST) {
        job_backward(pl_server_plan(server), worker, 0);
        ck_ok(pl_server_step, server);
        if (loss->leaves) {
            ck_ok(pl_server_leave, server);
        }
        pl_server_free(server);
        job_end_process(job, worker, loss->status);
        return;
    }
    if (!loss->expected) {
        ck_ok(take_steps, server, worker, STEPS);
        job_leave(server);
        return;
    }
    while (take_steps(server, worker, 1, &error) == PL_OK) {
    }
    ck_assert_msg(error.status == PL_PEER && strstr(error.cause, loss->expected), "%s: %s",
                  pl_status_name(error.status), error.cause);
    pl_server_free(server);
}

TEST(a_job_goes_on_while_enough_workers_are_left_and_else_ends_by_name)
{
    static const struct {
        int min_workers;
        struct loss loss;
    } cases[] = {
        {3, {.status = SIGKILL}},
        {1, {.status = EXIT_3}},
        {3, {.leaves = true, .status = EXIT_3}},
        {0, {.status = SIGKILL}}, /* the caller's affair */
        {4, {.leaves = true, .status = 0}},
        {4,
         {.status = SIGKILL,
          .expected = "worker 1 (host 0) was killed by signal 9: 3 of 4 workers are left, expected 4"}},
        {4, {.leaves = true, .status = EXIT_3, .expected = "worker 1 (host 0) exited with code 3"}},
        {4, {.status = 0, .expected = "worker 1 (host 0) is gone without leaving"}},
        {4, {.status = 0, .stops = true}},
        {4, {.leaves = true, .status = EXIT_3, .stops = true}},
    };

    for (int hosts = 1; hosts <= 2; hosts++) {
        for (size_t c = 0; c < PL_ARRAY_ITEMS(cases); c++) {
            struct loss loss = cases[c].loss;
            const atomic_bool stopping = loss.stops;
            struct job job = {.hosts = hosts,
                              .workers = 4 / hosts,
                              .staleness = c % 2 ? "0" : "none",
                              .min_workers = cases[c].min_workers,
                              .stopping = &stopping,
                              .server_status = loss.expected ? PL_PEER : PL_OK,
                              .body = lose_one,
                              .context = &loss};

            job_run(&job);
            for (int h = 0; h < hosts && loss.expected; h++) {
                ck_assert_msg(strstr(job.errors[h].cause, "worker 1 (host 0) "), "server %d: %s", h,
                              job.errors[h].cause);
            }
        }
    }
}

/* ---- connections that say nothing ---- */

enum { SILENT = 17 }; /* one more than the server keeps before they say who they are */

static void join_behind_silent_ones(struct job *job, int worker, struct pl_world *world)
{
    const struct pl_optimizer_options sgd = {.kind = PL_SGD};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct pl_server *server;
    struct pollfd first = {.events = POLLIN};
    int fds[SILENT];

    strcpy(address.sun_path, job->socket_paths[0]);
    for (int i = 0; i < SILENT; i++) {
        fds[i] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        ck_assert_int_ge(fds[i], 0);
        while (connect(fds[i], (const struct sockaddr *)&address, sizeof(address)) != 0) {
            ck_assert_msg(errno == ENOENT || errno == ECONNREFUSED, "connect: %s", strerror(errno));
            pl_clock_nap(PL_NS_PER_MS, PL_DEADLINE_NEVER); /* the server does not listen yet */
        }
    }
    server = job_new_server(job, worker, world, &sgd, COUNT, 0);
    ck_ok(pl_server_join, server);
    first.fd = fds[0]; /* it has made room */
    ck_assert_msg(poll(&first, 1, 20000) == 1 && first.revents & POLLHUP, "a connection that says nothing stays open");
    for (int i = 0; i < SILENT; i++) {
        ck_assert_int_eq(close(fds[i]), 0);
    }
    job_leave(server);
}

UNIT_TEST(connections_that_say_nothing_do_not_keep_a_worker_out,
          job_run(&(struct job){
              .hosts = 1, .workers = 1, .staleness = "none", .timeout_s = "20", .body = join_behind_silent_ones}))

UNIT_MAIN("runtime/server/lost")
