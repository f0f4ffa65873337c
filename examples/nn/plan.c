/* SPDX-License-Identifier: Apache-2.0 */
/* Binds a model's parameters to a gradient plan, and saves them. */
#include "examples/nn/plan.h"

#include "base/text.h"

enum pl_status nn_plan_add(struct pl_plan *plan, const struct nn_model *model, struct pl_error *reterr)
{
    for (size_t i = 0; i < nn_model_parameter_count(model); i++) {
        const struct nn_parameter *parameter = nn_model_parameter(model, i);
        uint64_t shape[NN_PARAMETER_MAX_DIMS];
        size_t index;

        for (unsigned d = 0; d < parameter->dims; d++) {
            shape[d] = parameter->shape[d];
        }
        PL_TRY(pl_plan_add(plan, parameter->name, parameter->dims, shape, &index, reterr));
    }
    return PL_OK;
}

enum pl_status nn_plan_bind(const struct pl_plan *plan, struct nn_model *model, struct pl_error *reterr)
{
    for (size_t i = 0; i < pl_plan_tensor_count(plan); i++) {
        PL_TRY(nn_model_bind(model, i, pl_plan_tensor(plan, i)->value, pl_plan_tensor(plan, i)->gradient, reterr));
    }
    return PL_OK;
}

static enum pl_status start(struct pl_plan *plan, struct nn_model *model, uint64_t seed, struct pl_error *reterr)
{
    PL_TRY(nn_plan_add(plan, model, reterr));
    PL_TRY(pl_plan_seal(plan, reterr));
    PL_TRY(nn_plan_bind(plan, model, reterr));
    if (pl_world_rank(pl_plan_world(plan)) == 0) {
        PL_TRY(nn_model_initialize(model, seed, reterr));
    }
    return pl_plan_broadcast(plan, 0, reterr);
}

enum pl_status nn_plan_new(struct pl_world *world, const struct pl_plan_options *options, struct nn_model *model,
                           uint64_t seed, struct pl_plan **ret_plan, struct pl_error *reterr)
{
    struct pl_plan_options own = options ? *options : (struct pl_plan_options){.local = false};
    struct pl_plan *plan = NULL;
    enum pl_status status;

    own.stream = nn_model_stream(model);
    own.memory = own.stream ? PL_MEMORY_DEVICE : PL_MEMORY_HOST;
    status = pl_plan_new(world, &own, &plan, reterr);
    if (status == PL_OK) {
        status = start(plan, model, seed, reterr);
    }
    if (status != PL_OK) {
        pl_plan_free(plan);
        return status;
    }
    *ret_plan = plan;
    return PL_OK;
}

enum pl_status nn_plan_ready(void *plan, size_t index, struct pl_error *reterr)
{
    return pl_plan_ready(plan, index, reterr);
}

enum pl_status nn_plan_score(struct pl_plan *plan, struct nn_model *model, struct nn_score *ret_score,
                             struct pl_error *reterr)
{
    /* The stream may wait for other ranks. The plan must wait for it first, because only the plan has a deadline. */
    PL_TRY(pl_plan_finish(plan, reterr));
    return nn_model_score(model, ret_score, reterr);
}

enum pl_status nn_plan_save(const struct pl_runtime *runtime, const struct pl_plan *plan, const char *directory,
                            double accuracy, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    char accuracy_text[32];
    struct pl_metadata metadata[] = {{"format", "paceline"},
                                     {"layout", "conv: out,height,width,in; dense: out,in"},
                                     {"test_accuracy", accuracy_text}};

    if (pl_world_rank(pl_runtime_world(runtime)) != 0) {
        return PL_OK;
    }
    if (!*directory) {
        directory = pl_runtime_variable(runtime, "SM_MODEL_DIR", NULL);
    }
    if (!directory) {
        pl_log(PL_LOG_WARNING, "the model is not saved: neither SM_MODEL_DIR nor --model-dir is set");
        return PL_OK;
    }
    snprintf(accuracy_text, sizeof(accuracy_text), "%.4f", accuracy);
    pl_text_printf(&path, "%s/model.safetensors", directory);
    PL_TRY(pl_text_check(&path, reterr));
    return pl_plan_file_write(plan, pl_text_string(&path), metadata, PL_ARRAY_ITEMS(metadata), reterr);
}
