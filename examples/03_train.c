/* SPDX-License-Identifier: Apache-2.0 */
/* Train. A network of one hidden layer learns y = sin(x). Each rank has its own samples. The library averages the
 * gradients, changes the weights, and writes the model.
 *
 *   cc -O2 03_train.c -o train -lm $(pkg-config --cflags --libs paceline)
 *   mpirun -n 2 ./train                      or as a job: paceline train, with sagemaker_program=train (README.md)
 */
#include "runtime/paceline.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HIDDEN 16
#define BATCH 32

/* Adds one sample's gradients to `in` [HIDDEN, 2] and `out` [HIDDEN]; returns its squared error. */
static float backward(const struct pl_plan_tensor *in, const struct pl_plan_tensor *out, float x)
{
    float h[HIDDEN], off = -sinf(x);

    for (int i = 0; i < HIDDEN; i++) {
        h[i] = tanhf(in->value[2 * i] * x + in->value[2 * i + 1]);
        off += out->value[i] * h[i];
    }
    for (int i = 0; i < HIDDEN; i++) {
        const float slope = off * out->value[i] * (1 - h[i] * h[i]) / BATCH;

        out->gradient[i] += off * h[i] / BATCH;
        in->gradient[2 * i] += slope * x;
        in->gradient[2 * i + 1] += slope;
    }
    return off * off;
}

static enum pl_status run(struct pl_error *reterr)
{
    struct pl_optimizer_options options = {.kind = PL_ADAM};
    const uint64_t shapes[2][2] = {{HIDDEN, 2}, {HIDDEN}};
    struct pl_runtime *runtime;
    struct pl_plan *plan;
    struct pl_optimizer *optimizer;
    char path[4096];
    size_t in_index, out_index;

    PL_TRY(pl_runtime_start(&runtime, reterr));
    struct pl_world *world = pl_runtime_world(runtime);
    const int rank = pl_world_rank(world), ranks = pl_world_size(world);
    const int steps = atoi(pl_runtime_variable(runtime, "SM_HP_STEPS", "1000")); /* the job's hyperparameter `steps` */

    PL_TRY(pl_plan_new(world, NULL, &plan, reterr));
    PL_TRY(pl_plan_add(plan, "in", 2, shapes[0], &in_index, reterr)); /* in the order of the forward pass */
    PL_TRY(pl_plan_add(plan, "out", 1, shapes[1], &out_index, reterr));
    PL_TRY(pl_plan_seal(plan, reterr)); /* compares the plan on all ranks, and allocates memory */
    const struct pl_plan_tensor *in = pl_plan_tensor(plan, in_index), *out = pl_plan_tensor(plan, out_index);
    for (int i = 0; i < HIDDEN; i++) {
        in->value[2 * i] = in->value[2 * i + 1] = (float)(i - HIDDEN / 2) / 4;
    }
    PL_TRY(pl_plan_broadcast(plan, 0, reterr)); /* every rank gets rank 0's initial weights */
    PL_TRY(pl_optimizer_new(plan, &options, &optimizer, reterr));

    for (int step = 1; step <= steps; step++) {
        float loss = 0;

        memset(pl_plan_gradients(plan), 0, pl_plan_elems(plan) * sizeof(float));
        for (int i = 0; i < BATCH; i++) {
            loss += backward(in, out, (float)((i * ranks + rank + step) % 61) / 10 - 3) / BATCH;
        }
        PL_TRY(pl_plan_ready(plan, out_index, reterr)); /* in the order of the backward pass; averaging begins here */
        PL_TRY(pl_plan_ready(plan, in_index, reterr));
        PL_TRY(pl_optimizer_step(optimizer, 0.01, reterr)); /* waits for the averages and changes the weights */
        if (step % 100 == 0) {
            PL_TRY(pl_allreduce(world, &loss, &loss, 1, PL_FLOAT32, PL_AVERAGE, reterr));
            if (rank == 0) {
                printf("step=%d loss=%.5f\n", step, (double)loss);
            }
        }
    }
    if (rank == 0) { /* the files in SM_MODEL_DIR are the job's model; Python opens this one with `safetensors` */
        snprintf(path, sizeof(path), "%s/model.safetensors", pl_runtime_variable(runtime, "SM_MODEL_DIR", "."));
        PL_TRY(pl_plan_file_write(plan, path, NULL, 0, reterr));
    }
    pl_optimizer_free(optimizer);
    pl_plan_free(plan);
    pl_runtime_stop(runtime);
    return PL_OK;
}

int main(void)
{
    struct pl_error error = PL_ERROR_NONE;

    if (run(&error) != PL_OK) {
        pl_log_error(&error, "train");
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
