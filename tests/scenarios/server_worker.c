/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker of parameter servers: server_worker STEPS [FAULT [STEP]]
 *
 * Every worker pushes its number + 1 for every element, STEPS times, with learning rate -1, and prints the result:
 * "worker 1 of 4: steps 20 value 50.0 uniform". Worker 1 has the FAULT, in its step number STEP, or in the middle,
 * after it has pushed the gradients: exit3, kill, segv, stop (SIGSTOP), leave (it exits with 0 and does not leave the
 * server). Or term: every worker prints "ready", waits for SIGTERM, and then succeeds; or ready: it prints that and
 * goes on.
 */
#include "runtime/paceline.h"
#include "runtime/server.h"

#include "base/clock.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ELEMS = 100000 };

static volatile sig_atomic_t is_stopped;

static void on_stop(int number)
{
    (void)number;
    is_stopped = 1;
}

static void fail_as(const char *fault)
{
    if (strcmp(fault, "exit3") == 0) {
        exit(3);
    } else if (strcmp(fault, "leave") == 0) {
        exit(0);
    } else if (strcmp(fault, "segv") == 0) {
        raise(SIGSEGV);
    } else if (strcmp(fault, "kill") == 0) {
        raise(SIGKILL);
    } else if (strcmp(fault, "stop") == 0) {
        raise(SIGSTOP);
    }
}

static enum pl_status take_steps(struct pl_server *server, int steps, const char *fault, int fault_step,
                                 struct pl_error *reterr)
{
    struct pl_plan *plan = pl_server_plan(server);
    int worker = pl_server_worker(server);

    pl_server_set_rate(server, -1.0);
    for (int step = 0; step < steps; step++) {
        for (size_t t = pl_plan_tensor_count(plan); t-- > 0;) {
            const struct pl_plan_tensor *tensor = pl_plan_tensor(plan, t);

            for (uint64_t i = 0; i < tensor->count_elems; i++) {
                tensor->gradient[i] = (float)(worker + 1);
            }
            PL_TRY(pl_plan_ready(plan, t, reterr));
        }
        if (worker == 1 && step == fault_step) {
            fail_as(fault);
        }
        PL_TRY(pl_server_step(server, reterr));
    }
    return PL_OK;
}

static enum pl_status run(const struct pl_runtime *runtime, int steps, const char *fault, int fault_step,
                          struct pl_error *reterr)
{
    struct pl_server_options options = {.optimizer = {.kind = PL_SGD}, .trace = pl_runtime_trace(runtime)};
    struct pl_server *server;
    const float *values;
    bool is_uniform = true, waits = strcmp(fault, "term") == 0;
    size_t index;

    PL_TRY(pl_server_new(pl_runtime_world(runtime), &options, &server, reterr));
    PL_TRY(pl_plan_add(pl_server_plan(server), "a", 1, &(uint64_t){ELEMS}, &index, reterr));
    PL_TRY(pl_plan_add(pl_server_plan(server), "b", 1, &(uint64_t){ELEMS}, &index, reterr));
    PL_TRY(pl_server_join(server, reterr));
    PL_TRY(pl_server_start(server, reterr));
    PL_TRY(pl_server_sum(server, NULL, 0, reterr));
    if (waits) {
        struct sigaction action = {.sa_handler = on_stop};

        sigaction(SIGTERM, &action, NULL);
        signal(SIGUSR1, SIG_IGN);
    }
    if (waits || strcmp(fault, "ready") == 0) {
        printf("ready\n");
        fflush(stdout);
    }
    while (waits && !is_stopped) {
        pl_clock_nap(PL_NS_PER_MS, PL_DEADLINE_NEVER);
    }
    PL_TRY(take_steps(server, steps, fault, fault_step, reterr));
    PL_TRY(pl_server_sum(server, NULL, 0, reterr));
    PL_TRY(pl_server_pull(server, reterr));
    values = pl_plan_tensor(pl_server_plan(server), 0)->value;
    for (size_t t = 0; t < 2; t++) {
        for (uint64_t i = 0; i < ELEMS; i++) {
            is_uniform = is_uniform && pl_plan_tensor(pl_server_plan(server), t)->value[i] == values[0];
        }
    }
    printf("worker %d of %d: steps %d value %.1f %s\n", pl_server_worker(server), pl_server_workers(server), steps,
           (double)values[0], is_uniform ? "uniform" : "mixed");
    PL_TRY(pl_server_leave(server, reterr));
    pl_server_free(server);
    return PL_OK;
}

int main(int argc, char **argv)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_runtime *runtime = NULL;

    if (argc < 2 || pl_runtime_start(&runtime, &error) != PL_OK ||
        run(runtime, atoi(argv[1]), argc > 2 ? argv[2] : "", argc > 3 ? atoi(argv[3]) : atoi(argv[1]) / 2, &error) !=
            PL_OK) {
        pl_log_error(&error, "a worker of parameter servers");
        return EXIT_FAILURE;
    }
    pl_runtime_stop(runtime);
    return EXIT_SUCCESS;
}
