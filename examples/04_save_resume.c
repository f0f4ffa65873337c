/* SPDX-License-Identifier: Apache-2.0 */
/* Save and resume. After SIGTERM all ranks save after the same step. The next start resumes there. Its result has the
 * same bits as that of a run without a stop.
 *
 *   cc 04_save_resume.c -o save_resume $(pkg-config --cflags --libs paceline)
 *   paceline train                           with sagemaker_program=save_resume; docker stop -t 120 sends SIGTERM
 *
 * With paceline_max_restarts=3, if a rank is killed, the job restarts and resumes from a copy in memory.
 *
 * Checkpoints are in the job's directory for them, /opt/ml/checkpoints, or in PACELINE_CHECKPOINT_DIR.
 */
#include "runtime/paceline.h"

#include <stdio.h>
#include <stdlib.h>

static enum pl_status run(struct pl_error *reterr)
{
    struct pl_optimizer_options options = {.kind = PL_ADAM};
    struct pl_checkpoint_state state = {0};
    const uint64_t shape[] = {2};
    struct pl_runtime *runtime;
    struct pl_plan *plan;
    struct pl_optimizer *optimizer;
    struct pl_checkpoints *checkpoints;
    struct pl_stop *stop;
    size_t index;
    bool found, stopping = false;

    /* first of all: from now on SIGTERM is recorded and does not end the program */
    PL_TRY(pl_stop_watch(reterr));
    PL_TRY(pl_runtime_start(&runtime, reterr));
    struct pl_world *world = pl_runtime_world(runtime);
    const int rank = pl_world_rank(world), ranks = pl_world_size(world);
    const uint64_t steps = strtoull(pl_runtime_variable(runtime, "SM_HP_STEPS", "100000"), NULL, 10);

    PL_TRY(pl_plan_new(world, NULL, &plan, reterr));
    PL_TRY(pl_plan_add(plan, "line", 1, shape, &index, reterr));
    PL_TRY(pl_plan_seal(plan, reterr));
    PL_TRY(pl_optimizer_new(plan, &options, &optimizer, reterr));
    PL_TRY(pl_checkpoints_open(plan, optimizer, NULL, &checkpoints, reterr));
    /* loads weights, optimizer and step on all ranks */
    PL_TRY(pl_checkpoints_load(checkpoints, &found, &state, reterr));
    PL_TRY(pl_stop_new(world, &stop, reterr));
    if (rank == 0) {
        printf("%s after step %llu\n", found ? "resuming" : "beginning", (unsigned long long)state.step);
        fflush(stdout);
    }

    const struct pl_plan_tensor *line = pl_plan_tensor(plan, index);
    while (state.step < steps && !stopping) { /* fits a line to y = x * x */
        const float x = (float)((state.step * (uint64_t)ranks + (uint64_t)rank) % 7) / 7;
        const float off = line->value[0] * x + line->value[1] - x * x;

        line->gradient[0] = off * x;
        line->gradient[1] = off;
        PL_TRY(pl_plan_ready(plan, index, reterr));
        PL_TRY(pl_optimizer_step(optimizer, 0.001, reterr));
        state.step++;
        PL_TRY(pl_checkpoints_keep(checkpoints, &state, reterr)); /* has an effect with paceline_max_restarts */
        PL_TRY(pl_stop_agreed(stop, &stopping, reterr));          /* the same answer on all ranks */
    }
    PL_TRY(pl_checkpoints_save(checkpoints, &state, reterr)); /* rank 0 writes, in the background */
    PL_TRY(pl_checkpoints_flush(checkpoints, reterr));
    if (rank == 0) {
        printf("%s after step %llu: slope=%a offset=%a\n", state.step < steps ? "stopped" : "done",
               (unsigned long long)state.step, (double)line->value[0], (double)line->value[1]);
    }
    pl_stop_free(stop);
    pl_checkpoints_close(checkpoints);
    pl_optimizer_free(optimizer);
    pl_plan_free(plan);
    pl_runtime_stop(runtime);
    return PL_OK;
}

int main(void)
{
    struct pl_error error = PL_ERROR_NONE;

    if (run(&error) != PL_OK) {
        pl_log_error(&error, "save_resume");
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
