/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/server/pieces.c. */
/* Gradients between servers in fewer bytes. */
#include "base/memory.h"
#include "tests/unit/runtime/server/job.h"

#include <math.h>
#include <string.h>

static const char *const types[] = {"float16", "bfloat16", "int8"};
/* half a step of the largest value, of which blocks have 0.5 */
static const double half_steps[] = {0.5 / 2048, 0.5 / 256, 0.5 / 254};

enum { COUNT = 4096, STEPS = 200 };

/* One in 256 is large, so that the others are less than half a step of int8: without what is kept they never arrive. */
static float small_gradient(int worker, uint64_t i)
{
    return i % 256 == 0 ? 0.5F : 0.0009765625F * (float)(1 + worker);
}

static void push_small(struct job *job, int worker, struct pl_world *world)
{
    const struct pl_optimizer_options sgd = {.kind = PL_SGD};
    const int workers = job->hosts * job->workers;
    const bool is_synchronous = strcmp(job->staleness, "0") == 0;
    struct pl_server *server = job_new_server(job, worker, world, &sgd, COUNT, 0);
    struct pl_plan *plan = pl_server_plan(server);
    const double *half_step = job->context;
    uint64_t sent = 0;

    ck_ok(pl_server_join, server);
    ck_ok(pl_server_start, server); /* zeroes */
    pl_server_set_rate(server, is_synchronous ? -workers : -1.0);
    for (int step = 0; step < STEPS; step++) {
        for (uint64_t i = 0; i < COUNT; i++) {
            pl_plan_gradients(plan)[i] = small_gradient(worker, i);
        }
        ck_ok(pl_plan_ready, plan, 0);
        ck_ok(pl_server_step, server);
    }
    ck_ok(pl_server_sum, server, NULL, 0);
    ck_ok(pl_server_pull, server);
    for (uint64_t i = 0; i < COUNT; i++) {
        double expected = 0.0, value = (double)pl_plan_values(plan)[i];

        for (int w = 0; w < workers; w++) {
            expected += STEPS * (double)small_gradient(w, i);
        }
        ck_assert_msg(fabs(value - expected) <= 1.1 * workers * *half_step + 1e-4,
                      "%s, element %d after %d steps is %g, not %g", job->wire_type, (int)i, STEPS, value, expected);
    }
    for (size_t p = 0; p < pl_plan_bucket_count(plan); p++) {
        uint64_t first, count;

        pl_plan_bucket(plan, p, &first, &count);
        sent += p % 2 != (uint64_t)(worker / job->workers) ? count * sizeof(float) : 0;
    }
    sent *= STEPS * (uint64_t)job->workers;
    ck_assert_double_le((double)pl_server_counts(server).sent_bytes,
                        1.02 * (double)sent * (strcmp(job->wire_type, "int8") == 0 ? 0.25 : 0.5));
    ck_assert_double_ge((double)pl_server_counts(server).sent_bytes, 0.25 * (double)sent);
    job_leave(server);
}

TEST(over_many_steps_all_of_the_gradients_arrives_in_fewer_bytes)
{
    for (size_t t = 0; t < PL_ARRAY_ITEMS(types); t++) {
        double half_step = half_steps[t];

        for (int synchronous = 0; synchronous < 2; synchronous++) {
            struct job job = {.hosts = 2,
                              .workers = 1 + synchronous,
                              .staleness = synchronous ? "0" : "none",
                              .bucket_bytes = "4096",
                              .wire_type = types[t],
                              .body = push_small,
                              .context = &half_step};

            job_run(&job);
        }
    }
}

UNIT_MAIN("runtime/server/wire_type")
