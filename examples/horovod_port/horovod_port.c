/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Horovod program ported step by step. Each step's comment names the Horovod call that it replaces; README.md shows
 * the two side by side. Gradients are named tensors in the program's own memory, as in Horovod. examples/mnist does the
 * same training on a gradient plan, which is faster because it copies nothing.
 */
#include "examples/mnist/data.h"
#include "examples/nn/nn.h"
#include "runtime/paceline.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { BATCH = 32, MAX_PARAMETERS = 16 };

static const struct nn_layer_spec layers[] = {
    {.kind = NN_CONV, .name = "conv1", .outputs = 16, .kernel = 3, .relu = true},
    {.kind = NN_MAX_POOL, .name = "pool1"},
    {.kind = NN_CONV, .name = "conv2", .outputs = 32, .kernel = 3, .relu = true},
    {.kind = NN_MAX_POOL, .name = "pool2"},
    {.kind = NN_DENSE, .name = "dense1", .outputs = 64, .relu = true},
    {.kind = NN_DENSE, .name = "dense2", .outputs = 10},
    {.kind = NN_END},
};

struct port {
    struct pl_runtime *runtime;
    struct pl_world *world;
    struct pl_service *named;
    struct mnist_data training, testing;
    struct nn_model *model;
    size_t parameters;
    float *values[MAX_PARAMETERS], *gradients[MAX_PARAMETERS], *velocities[MAX_PARAMETERS];
    struct pl_completion completions[MAX_PARAMETERS]; /* of what is under way, by parameter */
    float *inputs;                                    /* [BATCH][pixels] */
    uint8_t *labels;                                  /* [BATCH] */
    double rate;
    uint64_t step;
};

static size_t fill_batch(struct port *port, const struct mnist_data *data, struct pl_sampler *sampler)
{
    size_t pixels = data->pairs.images.item_bytes, filled = 0;
    uint64_t index;

    while (filled < BATCH && pl_sampler_next(sampler, &index)) {
        for (size_t p = 0; p < pixels; p++) {
            port->inputs[filled * pixels + p] = (float)data->pairs.images.data[index * pixels + p] / 255.0F;
        }
        port->labels[filled++] = data->pairs.labels.data[index];
    }
    return filled;
}

static enum pl_status build_model(struct port *port, struct pl_error *reterr)
{
    const struct pl_idx *images = &port->training.pairs.images;
    struct nn_shape shape = {.height = images->shape[1], .width = images->shape[2], .channels = 1};

    PL_TRY(nn_model_new(&nn_backend_blas, NULL, layers, shape, BATCH, &port->model, reterr));
    port->parameters = nn_model_parameter_count(port->model);
    PL_BUG_IF(port->parameters > MAX_PARAMETERS);
    for (size_t i = 0; i < port->parameters; i++) {
        size_t count = nn_model_parameter(port->model, i)->count_elems;

        port->values[i] = pl_memory_new(count, sizeof(float), reterr);
        port->gradients[i] = pl_memory_new(count, sizeof(float), reterr);
        port->velocities[i] = pl_memory_new(count, sizeof(float), reterr);
        if (!port->values[i] || !port->gradients[i] || !port->velocities[i]) {
            return PL_MEMORY;
        }
        PL_TRY(nn_model_bind(port->model, i, port->values[i], port->gradients[i], reterr));
    }
    /* different on every rank until step 5 */
    PL_TRY(nn_model_initialize(port->model, (uint64_t)pl_world_rank(port->world) + 1, reterr));
    port->inputs = pl_memory_new(BATCH, images->item_bytes * sizeof(float), reterr);
    port->labels = pl_memory_new(BATCH, 1, reterr);
    return port->inputs && port->labels ? PL_OK : PL_MEMORY;
}

/* Broadcasts each of `arrays` from rank 0, one broadcast per parameter, under names that end in `suffix`. */
static enum pl_status broadcast(struct port *port, float *const *arrays, const char *suffix, struct pl_error *reterr)
{
    for (size_t i = 0; i < port->parameters; i++) {
        const struct nn_parameter *parameter = nn_model_parameter(port->model, i);
        char name[NN_PARAMETER_NAME_BYTES + 16];
        struct pl_named_op op = {.name = name,
                                 .kind = PL_BROADCAST,
                                 .dtype = PL_FLOAT32,
                                 .root = 0,
                                 .dims = 1,
                                 .shape = {parameter->count_elems},
                                 .recv = arrays[i]};

        snprintf(name, sizeof(name), "%s%s", parameter->name, suffix);
        PL_TRY(pl_service_submit(port->named, 0, &op, &port->completions[i], reterr));
    }
    for (size_t i = 0; i < port->parameters; i++) {
        PL_TRY(pl_service_wait(port->named, &port->completions[i], reterr));
    }
    return PL_OK;
}

/* Step 5. hvd.broadcast_parameters(model.state_dict(), root_rank=0); hvd.broadcast_optimizer_state(optimizer,
 * root_rank=0) */
static enum pl_status broadcast_state(struct port *port, struct pl_error *reterr)
{
    PL_TRY(broadcast(port, port->values, "", reterr));
    return broadcast(port, port->velocities, ".momentum", reterr);
}

/*
 * Step 6, first half: hvd.DistributedOptimizer starts the allreduce of a gradient as soon as the backward pass has
 * computed it.
 */
static enum pl_status gradient_ready(void *context, size_t index, struct pl_error *reterr)
{
    struct port *port = context;
    const struct nn_parameter *parameter = nn_model_parameter(port->model, index);
    struct pl_named_op op = {.name = parameter->name,
                             .kind = PL_ALLREDUCE,
                             .dtype = PL_FLOAT32,
                             .op = PL_AVERAGE,
                             .dims = 1,
                             .shape = {parameter->count_elems},
                             .send = port->gradients[index],
                             .recv = port->gradients[index]};

    return pl_service_submit(port->named, 0, &op, &port->completions[index], reterr);
}

/* Step 6, second half: optimizer.step() waits for each gradient and applies it. */
static enum pl_status optimizer_step(struct port *port, struct pl_error *reterr)
{
    for (size_t i = port->parameters; i-- > 0;) {
        PL_TRY(pl_service_wait(port->named, &port->completions[i], reterr));
        for (size_t e = 0; e < nn_model_parameter(port->model, i)->count_elems; e++) {
            port->velocities[i][e] = 0.9F * port->velocities[i][e] + port->gradients[i][e];
            port->values[i][e] -= (float)port->rate * port->velocities[i][e];
        }
    }
    return PL_OK;
}

static enum pl_status train_epoch(struct port *port, uint64_t epoch, struct pl_error *reterr)
{
    struct pl_sampler sampler;
    struct nn_score score;
    double loss;
    size_t samples;

    /* Step 3. torch.utils.data.DistributedSampler(dataset, num_replicas=hvd.size(), rank=hvd.rank()) */
    PL_TRY(
        pl_sampler_init(&sampler, port->training.pairs.count, 1, true, PL_SAMPLER_JOIN, port->training.deal, reterr));
    pl_sampler_start(&sampler, epoch);
    PL_TRY(nn_model_set_score(port->model, NULL, reterr));
    while ((samples = fill_batch(port, &port->training, &sampler)) > 0) {
        struct nn_pass pass = {.training = true, .step = port->step++, .sample_stride = 1};

        PL_TRY(nn_model_forward(port->model, port->inputs, samples, &pass, reterr));
        PL_TRY(nn_model_backward(port->model, port->labels, &pass, gradient_ready, port, reterr));
        PL_TRY(optimizer_step(port, reterr));
    }
    /*
     * hvd.join(): ranks may have a different number of batches; a rank without batches contributes nothing until all
     * have joined.
     */
    PL_TRY(pl_service_submit_join(port->named, &port->completions[0], reterr));
    PL_TRY(pl_service_wait(port->named, &port->completions[0], reterr));
    /* a rank that joined early has missed the last steps, but rank 0 never does */
    PL_TRY(broadcast_state(port, reterr));

    /* MetricAverageCallback */
    PL_TRY(nn_model_score(port->model, &score, reterr));
    loss = score.loss_sum / (double)score.samples;
    PL_TRY(pl_allreduce(port->world, &loss, &loss, 1, PL_FLOAT64, PL_AVERAGE, reterr));
    if (pl_world_rank(port->world) == 0) {
        printf("epoch=%llu train_loss=%.4f\n", (unsigned long long)epoch + 1, loss);
        fflush(stdout);
    }
    return PL_OK;
}

static enum pl_status evaluate(struct port *port, struct pl_error *reterr)
{
    struct nn_pass pass = {.training = false};
    struct pl_sampler sampler;
    struct nn_score score;
    int64_t sums[2];
    size_t samples;

    PL_TRY(pl_sampler_init(&sampler, port->testing.pairs.count, 0, false, PL_SAMPLER_JOIN, port->testing.deal, reterr));
    PL_TRY(nn_model_set_score(port->model, NULL, reterr));
    while ((samples = fill_batch(port, &port->testing, &sampler)) > 0) {
        PL_TRY(nn_model_forward(port->model, port->inputs, samples, &pass, reterr));
        PL_TRY(nn_model_loss(port->model, port->labels, reterr));
    }
    PL_TRY(nn_model_score(port->model, &score, reterr));
    sums[0] = (int64_t)score.correct;
    sums[1] = (int64_t)score.samples;
    PL_TRY(pl_allreduce(port->world, sums, sums, 2, PL_INT64, PL_SUM, reterr));
    if (pl_world_rank(port->world) == 0) {
        printf("test_accuracy=%.4f\n", (double)sums[0] / (double)sums[1]);
    }
    return PL_OK;
}

/* Step 7. if hvd.rank() == 0: torch.save(model.state_dict(), path) */
static enum pl_status save(struct port *port, const char *directory, struct pl_error *reterr)
{
    struct pl_tensor tensors[MAX_PARAMETERS];
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    if (pl_world_rank(port->world) != 0) {
        return PL_OK;
    }
    if (mkdir(directory, 0777) != 0 && errno != EEXIST) {
        return pl_error_errno(reterr, "create directory '%s'", directory);
    }
    for (size_t i = 0; i < port->parameters; i++) {
        const struct nn_parameter *parameter = nn_model_parameter(port->model, i);

        tensors[i] = (struct pl_tensor){
            .name = parameter->name, .dtype = PL_FLOAT32, .dims = parameter->dims, .data = port->values[i]};
        tensors[i].bytes = parameter->count_elems * sizeof(float);
        for (unsigned d = 0; d < parameter->dims; d++) {
            tensors[i].shape[d] = parameter->shape[d];
        }
    }
    pl_text_printf(&path, "%s/model.safetensors", directory);
    PL_TRY(pl_text_check(&path, reterr));
    return pl_safetensors_write(pl_text_string(&path), tensors, port->parameters, NULL, 0, reterr);
}

static enum pl_status run(struct port *port, const char *data, const char *model_dir, struct pl_error *reterr)
{
    /* Step 1. hvd.init() */
    PL_TRY(pl_runtime_start(&port->runtime, reterr));
    port->world = pl_runtime_world(port->runtime);
    PL_TRY(pl_service_new(port->world, NULL, &port->named, reterr));

    /* Step 2. Horovod pins a GPU here: torch.cuda.set_device(hvd.local_rank()). On CPUs the launcher has set
     * OPENBLAS_NUM_THREADS to this rank's share of the machine. */

    PL_TRY(mnist_data_open(port->runtime, "training", data, &port->training, reterr));
    PL_TRY(mnist_data_load(&port->training, 0, reterr));
    PL_TRY(mnist_data_open(port->runtime, "testing", data, &port->testing, reterr));
    port->testing.image_bytes = port->training.image_bytes;
    PL_TRY(mnist_data_load(&port->testing, 0, reterr));
    PL_TRY(build_model(port, reterr));

    /* Step 4. optim.SGD(model.parameters(), lr=0.005 * hvd.size(), momentum=0.9) */
    port->rate = 0.005 * pl_world_size(port->world);
    PL_TRY(broadcast_state(port, reterr));
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        PL_TRY(train_epoch(port, epoch, reterr));
    }
    PL_TRY(evaluate(port, reterr));
    PL_TRY(save(port, model_dir, reterr));
    return pl_service_shutdown(port->named, reterr);
}

static void done(struct port *port)
{
    pl_service_free(port->named);
    nn_model_free(port->model);
    for (size_t i = 0; i < port->parameters; i++) {
        free(port->values[i]);
        free(port->gradients[i]);
        free(port->velocities[i]);
    }
    free(port->inputs);
    free(port->labels);
    mnist_data_done(&port->training);
    mnist_data_done(&port->testing);
    pl_runtime_stop(port->runtime);
}

int main(int argc, char **argv)
{
    struct port port = {.step = 0};
    struct pl_error error = PL_ERROR_NONE;

    pl_log_set_prefix("horovod_port");
    if (argc != 3) {
        pl_log(PL_LOG_ERROR,
               "usage: horovod_port DATA_DIR MODEL_DIR (DATA_DIR holds training/ and testing/ with IDX files)");
        return 2;
    }
    if (run(&port, argv[1], argv[2], &error) != PL_OK) {
        pl_log_error(&error, "training failed");
        return EXIT_FAILURE; /* exit at once: mpirun ends the other ranks */
    }
    done(&port);
    return EXIT_SUCCESS;
}
