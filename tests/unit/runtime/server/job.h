/* SPDX-License-Identifier: Apache-2.0 */
/** A job with parameter servers: servers and workers are threads of the test, with sockets of their own. */
#ifndef PL_TESTS_UNIT_RUNTIME_SERVER_JOB_H
#define PL_TESTS_UNIT_RUNTIME_SERVER_JOB_H

#include "base/knob.h"
#include "collectives/bootstrap.h"
#include "collectives/bootstrap/bootstrap_private.h"
#include "collectives/world_private.h"
#include "runtime/server.h"
#include "runtime/server/serve.h"
#include "tests/support/scratch.h"
#include "tests/unit/runtime/ranks.h"

#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { JOB_MOST_HOSTS = 3, JOB_MOST_WORKERS = 8 };

struct job {
    int hosts;
    int workers; /* on each host */
    const char *staleness;
    const char *wire_type;    /* worker 0 has it as an option, the others as a setting; NULL: the setting's default */
    const char *timeout_s;    /* of worker 0; NULL: 50, as of the others */
    const char *bucket_bytes; /* NULL: 128 */
    void (*prepare)(struct pl_transport *transport, int host); /* what servers send with, before they start; or NULL */
    enum pl_status server_status;                              /* that all servers are to end with */
    void (*body)(struct job *job, int worker, struct pl_world *world);
    void *context;
    int min_workers;
    const atomic_bool *stopping;                          /* as in struct pl_server_serve_options */
    struct pl_server_serve_counts counts[JOB_MOST_HOSTS]; /* of each server, at its end */
    int absent; /* a worker's number + 1, whose process ends without joining; 0: none */
    /* The job's own: */
    struct scratch scratch;
    struct pl_bootstrap *bootstraps[JOB_MOST_HOSTS];
    char socket_paths[JOB_MOST_HOSTS][PATH_MAX];
    int ended[JOB_MOST_HOSTS][2];           /* pipes to the servers, which hear there of processes that have ended */
    struct pl_error errors[JOB_MOST_HOSTS]; /* what each server ended with */
};

struct job_seat {
    struct job *job;
    int number;
    pthread_t thread;
};

static inline void *job_serve(void *argument)
{
    struct job_seat *seat = argument;
    struct job *job = seat->job;
    struct pl_server_serve_options options = {.socket_path = job->socket_paths[seat->number],
                                              .workers = job->workers,
                                              .bootstrap = job->bootstraps[seat->number],
                                              .ended_fd = job->ended[seat->number][0],
                                              .min_workers = job->min_workers,
                                              .stopping = job->stopping,
                                              .counts = &job->counts[seat->number]};
    enum pl_status status = pl_server_serve(&options, &job->errors[seat->number]);

    ck_assert_msg(status == job->server_status, "server %d ended with %s: %s", seat->number, pl_status_name(status),
                  job->errors[seat->number].cause);
    return NULL;
}

static inline struct pl_world *job_new_world(const struct job *job, int worker, struct pl_bootstrap *self)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_world *world = NULL;
    struct pl_knobs knobs;

    pl_knobs_default(&knobs);
    ck_ok(pl_knob_set, &knobs, PL_KNOB_TIMEOUT_S, job->timeout_s && worker == 0 ? job->timeout_s : "50", "the test");
    ck_ok(pl_knob_set, &knobs, PL_KNOB_BUCKET_BYTES, job->bucket_bytes ? job->bucket_bytes : "128", "the test");
    if (job->wire_type && worker > 0) {
        ck_ok(pl_knob_set, &knobs, PL_KNOB_PS_WIRE_TYPE, job->wire_type, "the test");
    }
    ck_assert_msg(pl_world_new(self, &(struct pl_world_options){.knobs = &knobs}, &world, &error) == PL_OK, "%s",
                  error.cause);
    return world;
}

/** The server learns that worker `number`'s process has ended with `status`. */
static inline void job_end_process(const struct job *job, int number, int status)
{
    const struct pl_server_ended ended = {.worker = number % job->workers, .status = status};

    ck_assert(write(job->ended[number / job->workers][1], &ended, sizeof(ended)) == sizeof(ended));
}

static inline void *job_work(void *argument)
{
    struct job_seat *seat = argument;
    struct pl_bootstrap *self = NULL;
    struct pl_world *world;

    if (seat->number + 1 == seat->job->absent) {
        job_end_process(seat->job, seat->number, 0);
        return NULL;
    }
    ck_ok(pl_bootstrap_new_self, &self);
    world = job_new_world(seat->job, seat->number, self);
    seat->job->body(seat->job, seat->number, world);
    pl_world_free(world);
    pl_bootstrap_free(self);
    return NULL;
}

/** What a server leaves that was killed: the next one of the same name takes its place. */
static inline void job_leave_socket(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    ck_assert_uint_lt(strlen(path), sizeof(address.sun_path));
    strcpy(address.sun_path, path);
    ck_assert(fd >= 0 && bind(fd, (const struct sockaddr *)&address, sizeof(address)) == 0 && close(fd) == 0);
}

/** Run `body` as every worker of the job, and its servers. */
static inline void job_run(struct job *job)
{
    struct job_seat servers[JOB_MOST_HOSTS], workers[JOB_MOST_WORKERS];
    char name[16];

    job->scratch = scratch_new();
    ck_ok(pl_bootstrap_new_threads, job->hosts, job->bootstraps);
    for (int h = 0; h < job->hosts; h++) {
        snprintf(name, sizeof(name), "s%d", h);
        scratch_path(&job->scratch, name, job->socket_paths[h]);
        job_leave_socket(job->socket_paths[h]);
        ck_assert_int_eq(pipe(job->ended[h]), 0);
        if (job->prepare) {
            job->prepare(job->bootstraps[h]->transport, h);
        }
        servers[h] = (struct job_seat){.job = job, .number = h};
        ck_assert_int_eq(pthread_create(&servers[h].thread, NULL, job_serve, &servers[h]), 0);
    }
    for (int w = 0; w < job->hosts * job->workers; w++) {
        workers[w] = (struct job_seat){.job = job, .number = w};
        ck_assert_int_eq(pthread_create(&workers[w].thread, NULL, job_work, &workers[w]), 0);
    }
    for (int w = 0; w < job->hosts * job->workers; w++) {
        ck_assert_int_eq(pthread_join(workers[w].thread, NULL), 0);
    }
    for (int h = 0; h < job->hosts; h++) {
        ck_assert_int_eq(pthread_join(servers[h].thread, NULL), 0);
        pl_bootstrap_free(job->bootstraps[h]);
        ck_assert(close(job->ended[h][0]) == 0 && close(job->ended[h][1]) == 0);
    }
    scratch_done(&job->scratch);
}

/** A worker that has not joined, with tensors "a" [count_a] and "b" [count_b], none where 0. */
static inline struct pl_server *job_new_server(const struct job *job, int worker, struct pl_world *world,
                                               const struct pl_optimizer_options *optimizer, uint64_t count_a,
                                               uint64_t count_b)
{
    struct pl_server_options options = {.optimizer = *optimizer,
                                        .socket = job->socket_paths[worker / job->workers],
                                        .worker = worker % job->workers,
                                        .staleness = job->staleness,
                                        .wire_type = worker == 0 ? job->wire_type : NULL};
    struct pl_server *server = NULL;
    size_t index;

    ck_ok(pl_server_new, world, &options, &server);
    ck_ok(pl_plan_add, pl_server_plan(server), "a", 1, &count_a, &index);
    if (count_b > 0) {
        ck_ok(pl_plan_add, pl_server_plan(server), "b", 1, &count_b, &index);
    }
    return server;
}

/** A number between -0.5 and 0.5 that depends on all of them. */
static inline float job_gradient_of(int worker, int step, uint64_t i)
{
    uint64_t x = ((uint64_t)worker * 7919 + (uint64_t)step) * 104729 + i * 31 + 17;

    x ^= x >> 13;
    x *= UINT64_C(0x9E3779B97F4A7C15);
    return (float)((double)(x >> 40) / 16777216.0 - 0.5);
}

/** Gradients of this step, and ready. */
static inline void job_backward(struct pl_plan *plan, int worker, int step)
{
    for (size_t t = pl_plan_tensor_count(plan); t-- > 0;) {
        const struct pl_plan_tensor *tensor = pl_plan_tensor(plan, t);

        for (uint64_t i = 0; i < tensor->count_elems; i++) {
            tensor->gradient[i] = job_gradient_of(worker, step, i + 1000 * t);
        }
        ck_ok(pl_plan_ready, plan, t);
    }
}

/** Of worker 0. */
static inline void job_set_first_values(struct pl_plan *plan)
{
    for (size_t t = 0; t < pl_plan_tensor_count(plan); t++) {
        const struct pl_plan_tensor *tensor = pl_plan_tensor(plan, t);

        for (uint64_t i = 0; i < tensor->count_elems; i++) {
            tensor->value[i] = job_gradient_of(99, 0, i + 1000 * t);
        }
    }
}

static inline void job_join_and_start(struct pl_server *server, int worker)
{
    ck_ok(pl_server_join, server);
    ck_assert_int_eq(pl_server_worker(server), worker);
    if (worker == 0) {
        job_set_first_values(pl_server_plan(server));
    }
    ck_ok(pl_server_start, server);
}

/** Leave and release. */
static inline void job_leave(struct pl_server *server)
{
    ck_ok(pl_server_leave, server);
    pl_server_free(server);
}

#endif
