/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The digit classifier of many tutorials: two convolutions, pooling, two dense layers. Trained by any number of ranks,
 * or of workers of parameter servers.
 */
#include "examples/mnist/data.h"
#include "examples/nn/device.h"
#include "examples/nn/nn.h"
#include "examples/nn/options.h"
#include "examples/nn/peers.h"
#include "examples/nn/plan.h"
#include "runtime/paceline.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

enum { CLASSES = 10, EVALUATE_SAMPLES = 100 };

static const struct nn_layer_spec layers[] = {
    {.kind = NN_CONV, .name = "conv1", .outputs = 32, .kernel = 3, .relu = true},
    {.kind = NN_CONV, .name = "conv2", .outputs = 64, .kernel = 3, .relu = true},
    {.kind = NN_MAX_POOL, .name = "pool"},
    {.kind = NN_DROPOUT, .name = "dropout1", .rate = 0.25},
    {.kind = NN_DENSE, .name = "dense1", .outputs = 128, .relu = true},
    {.kind = NN_DROPOUT, .name = "dropout2", .rate = 0.5},
    {.kind = NN_DENSE, .name = "dense2", .outputs = CLASSES},
    {.kind = NN_END},
};

struct options {
    uint64_t epochs, batch_size;
    double learning_rate;
    uint64_t scale_learning_rate;
    double warmup_epochs, momentum, weight_decay;
    uint64_t dropout, seed, max_steps, named;
    double target_accuracy;
    uint64_t checkpoint_steps;
    const char *checkpoint_dir, *data, *model_dir, *device, *precision;
};

static const struct nn_option option_table[] = {
    NN_NUMBER(struct options, epochs, "3", 0, 1e9, "number of passes over the training images"),
    NN_NUMBER(struct options, batch_size, "64", 1, 65536, "images per rank and step"),
    NN_NUMBER(struct options, learning_rate, "0.02", 0, 1e6,
              "learning rate for one rank; it is multiplied by the number of ranks"),
    NN_NUMBER(struct options, scale_learning_rate, "1", 0, 1, "0: do not multiply the learning rate"),
    NN_NUMBER(struct options, warmup_epochs, "1", 0, 1e9, "epochs over which the rate rises to its full size"),
    NN_NUMBER(struct options, momentum, "0.9", 0, 1, "momentum of SGD"),
    NN_NUMBER(struct options, weight_decay, "0", 0, 1, "weight decay of SGD"),
    NN_NUMBER(struct options, dropout, "1", 0, 1, "0: train without dropout"),
    NN_NUMBER(struct options, seed, "1", 0, 1e15, "seed of initial weights, shuffle and dropout"),
    NN_NUMBER(struct options, max_steps, "0", 0, 1e15, "number of steps after which training ends; 0: no limit"),
    NN_NUMBER(struct options, named, "0", 0, 1, "1: reduce gradients as named tensors, as Horovod does"),
    NN_NUMBER(struct options, target_accuracy, "0", 0, 1, "test accuracy that ends training after an epoch; 0: never"),
    NN_TEXT(struct options, checkpoint_dir, "",
            "directory for checkpoints; default: the job's (/opt/ml/checkpoints), if that exists"),
    NN_NUMBER(struct options, checkpoint_steps, "0", 0, 1e15,
              "steps between checkpoints, in addition to those after each epoch; 0: none in addition"),
    NN_TEXT(struct options, data, "", "directory with training/ and testing/, instead of SageMaker's channels"),
    NN_TEXT(struct options, model_dir, "", "directory for model.safetensors, instead of SM_MODEL_DIR"),
    NN_DEVICE_OPTIONS(struct options),
    NN_OPTIONS_END,
};

struct trainer {
    struct options options;
    struct pl_runtime *runtime;
    struct pl_world *world;
    struct mnist_data training;
    struct mnist_data testing;
    bool has_testing;
    struct nn_device device;
    struct nn_model *model;
    struct nn_peers peers;
    struct pl_service *named;       /* NULL if the plan itself exchanges gradients */
    struct pl_completion *averages; /* averages of the gradients in flight, by parameter */
    struct pl_schedule schedule;
    struct pl_stop *stop;
    size_t max_samples;
    float *inputs;   /* [max_samples][pixels]: images of a batch */
    uint8_t *labels; /* [max_samples]: digits of these images */
    uint64_t step;
    uint64_t first_epoch;            /* first epoch of this run */
    struct pl_sampler_state resumed; /* position in this epoch at which training begins */
    struct nn_score resumed_score;
    bool stopped;
    uint64_t epoch_samples; /* number of samples per epoch and rank; equal on all ranks */
};

/* Fills a batch with samples from `sampler`; pixels become 0 to 1. */
static size_t fill_batch(struct trainer *t, const struct mnist_data *data, struct pl_sampler *sampler, size_t want)
{
    size_t pixels = data->pairs.images.item_bytes;
    size_t filled = 0;
    uint64_t index;

    while (filled < want && pl_sampler_next(sampler, &index)) {
        const unsigned char *image = data->pairs.images.data + index * pixels;
        float *input = t->inputs + filled * pixels;

        for (size_t p = 0; p < pixels; p++) {
            input[p] = (float)image[p] * (1.0F / 255.0F);
        }
        t->labels[filled] = data->pairs.labels.data[index];
        filled++;
    }
    return filled;
}

/*
 * With named tensors, the plan stores values and gradients for the optimizer and the checkpoints, but does not exchange
 * gradients.
 */
static enum pl_status make_plan(struct trainer *t, struct pl_error *reterr)
{
    struct pl_optimizer_options options = {
        .kind = PL_SGD, .momentum = t->options.momentum, .weight_decay = t->options.weight_decay};
    struct pl_plan_options plan_options = {.local = t->options.named != 0};

    if (t->options.named && pl_server_is_there()) {
        return pl_error_set(reterr, PL_INVALID,
                            "--named is 1, expected 0: named tensors do not work with parameter servers");
    }
    if (t->options.named) {
        t->averages = pl_memory_new(nn_model_parameter_count(t->model), sizeof(*t->averages), reterr);
        if (!t->averages) {
            return PL_MEMORY;
        }
        PL_TRY(pl_service_new(t->world, NULL, &t->named, reterr));
    }
    PL_TRY(nn_peers_open(t->runtime, &plan_options, &options, t->model, t->options.seed, &t->peers, reterr));
    t->training.deal = pl_channel_shard(&t->training.channel.info, t->peers.all, t->peers.local);
    t->testing.deal = pl_channel_shard(&t->testing.channel.info, t->peers.all, t->peers.local);
    return PL_OK;
}

static enum pl_status load_data(struct trainer *t, struct pl_error *reterr)
{
    enum pl_status status;

    PL_TRY(mnist_data_open(t->runtime, "training", t->options.data, &t->training, reterr));
    PL_TRY(mnist_data_load(&t->training, 0, reterr));
    status = mnist_data_open(t->runtime, "testing", t->options.data, &t->testing, reterr);
    if (status == PL_OK) {
        t->testing.image_bytes = t->training.image_bytes;
        status = mnist_data_load(&t->testing, 0, reterr);
        t->has_testing = status == PL_OK;
    }
    return status == PL_NOT_FOUND ? PL_OK : status; /* a testing channel is optional */
}

static enum pl_status make_model(struct trainer *t, struct pl_error *reterr)
{
    const struct pl_idx *images = &t->training.pairs.images;
    struct nn_layer_spec chain[PL_ARRAY_ITEMS(layers)];
    struct nn_shape shape;

    if (images->dims != 3) {
        return pl_error_set(reterr, PL_INVALID,
                            "the channel training holds arrays of %u dimensions, expected images of 3", images->dims);
    }
    memcpy(chain, layers, sizeof(layers));
    for (size_t i = 0; i < PL_ARRAY_ITEMS(chain); i++) {
        if (chain[i].kind == NN_DROPOUT && t->options.dropout == 0) {
            chain[i].rate = 0.0;
        }
    }
    shape = (struct nn_shape){.height = images->shape[1], .width = images->shape[2], .channels = 1};
    t->max_samples = t->options.batch_size;
    if (t->has_testing && t->max_samples < EVALUATE_SAMPLES) {
        t->max_samples = EVALUATE_SAMPLES;
    }
    t->inputs = pl_memory_new_aligned(t->max_samples, images->item_bytes * sizeof(float), 64, reterr);
    t->labels = pl_memory_new(t->max_samples, 1, reterr);
    if (!t->inputs || !t->labels) {
        return PL_MEMORY;
    }
    return nn_model_new(t->device.backend, &t->device.options, chain, shape, t->max_samples, &t->model, reterr);
}

/*
 * Counts an epoch's steps. Ranks may have different numbers of samples (a channel sharded by key); all ranks take the
 * steps of the rank with the fewest samples.
 */
static enum pl_status count_steps(struct trainer *t, const struct pl_sampler *sampler, struct pl_error *reterr)
{
    t->epoch_samples = pl_sampler_length(sampler);
    PL_TRY(nn_peers_least(&t->peers, &t->epoch_samples, reterr));
    return t->epoch_samples > 0 ? PL_OK
                                : pl_error_set(reterr, PL_INVALID, "there are fewer training images than ranks");
}

static void make_schedule(struct trainer *t)
{
    uint64_t steps_per_epoch = (t->epoch_samples + t->options.batch_size - 1) / t->options.batch_size;
    double size = t->peers.all.size;

    t->schedule = (struct pl_schedule){
        /*
         * Asynchronous servers apply each worker's update alone, after about as many other updates as there are
         * workers. With momentum, training would diverge at a larger rate.
         */
        .base_rate = t->options.learning_rate / (t->peers.averages ? 1.0 : size),
        .scale = t->options.scale_learning_rate && t->peers.averages ? size : 1.0,
        .warmup_steps = (uint64_t)(t->options.warmup_epochs * (double)steps_per_epoch),
    };
}

/* Called when the backward pass has computed a gradient: starts its average under the parameter's name. */
static enum pl_status submit_gradient(void *context, size_t index, struct pl_error *reterr)
{
    struct trainer *t = context;
    const struct pl_plan_tensor *tensor = pl_plan_tensor(t->peers.plan, index);
    struct pl_named_op op = {.name = tensor->name,
                             .kind = PL_ALLREDUCE,
                             .dtype = PL_FLOAT32,
                             .op = PL_AVERAGE,
                             .dims = tensor->dims,
                             .memory = pl_plan_device(t->peers.plan) ? PL_MEMORY_DEVICE : PL_MEMORY_HOST,
                             .send = tensor->gradient,
                             .recv = tensor->gradient,
                             .stream = nn_model_stream(t->model)};

    memcpy(op.shape, tensor->shape, tensor->dims * sizeof(op.shape[0]));
    return pl_service_submit(t->named, 0, &op, &t->averages[index], reterr);
}

static enum pl_status wait_for_gradients(struct trainer *t, struct pl_error *reterr)
{
    for (size_t i = pl_plan_tensor_count(t->peers.plan); i-- > 0;) {
        PL_TRY(pl_service_wait(t->named, &t->averages[i], reterr));
        PL_TRY(pl_plan_ready(t->peers.plan, i, reterr));
    }
    return PL_OK;
}

static enum pl_status train_step(struct trainer *t, uint64_t taken, size_t samples, struct pl_error *reterr)
{
    uint64_t size = t->peers.all.size;
    struct nn_pass pass = {
        .training = true,
        .seed = t->options.seed,
        .step = t->step,
        .first_sample = taken * size + t->peers.all.rank,
        .sample_stride = size,
    };

    nn_peers_set_rate(&t->peers, pl_schedule_rate(&t->schedule, t->step));
    PL_TRY(nn_model_forward(t->model, t->inputs, samples, &pass, reterr));
    if (t->named) {
        PL_TRY(nn_model_backward(t->model, t->labels, &pass, submit_gradient, t, reterr));
        PL_TRY(wait_for_gradients(t, reterr));
    } else {
        PL_TRY(nn_model_backward(t->model, t->labels, &pass, nn_plan_ready, t->peers.plan, reterr));
    }
    PL_TRY(nn_peers_step(&t->peers, reterr));
    t->step++;
    return PL_OK;
}

/* Evaluates the model: every rank takes its share of the held-out images, and the result is the same on all ranks. */
static enum pl_status evaluate(struct trainer *t, double *ret_accuracy, struct pl_error *reterr)
{
    struct nn_pass pass = {.training = false};
    struct pl_sampler sampler;
    struct nn_score score;
    size_t samples;

    PL_TRY(nn_peers_meet(&t->peers, reterr));
    PL_TRY(pl_sampler_init(&sampler, t->testing.pairs.count, 0, false, PL_SAMPLER_JOIN, t->testing.deal, reterr));
    PL_TRY(nn_model_set_score(t->model, NULL, reterr));
    while ((samples = fill_batch(t, &t->testing, &sampler, EVALUATE_SAMPLES)) > 0) {
        PL_TRY(nn_model_forward(t->model, t->inputs, samples, &pass, reterr));
        PL_TRY(nn_model_loss(t->model, t->labels, reterr));
    }
    PL_TRY(nn_plan_score(t->peers.plan, t->model, &score, reterr));
    PL_TRY(nn_peers_sum_score(&t->peers, &score, reterr));
    *ret_accuracy = score.samples > 0 ? (double)score.correct / (double)score.samples : 0.0;
    return PL_OK;
}

static enum pl_status report_epoch(struct trainer *t, uint64_t epoch, const struct nn_score *score, double rate,
                                   double accuracy, struct pl_error *reterr)
{
    const char *directory = pl_runtime_variable(t->runtime, "SM_OUTPUT_DATA_DIR", NULL);
    struct pl_metrics metrics = PL_METRICS_NONE;
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    enum pl_status status = PL_OK;

    if (t->peers.all.rank != 0) {
        return PL_OK;
    }
    if (directory) {
        pl_text_printf(&path, "%s/metrics.jsonl", directory);
        PL_TRY(pl_text_check(&path, reterr));
    }
    pl_metrics_whole(&metrics, "epoch", (int64_t)epoch);
    pl_metrics_whole(&metrics, "step", (int64_t)t->step);
    pl_metrics_real(&metrics, "train_loss", 4, score->loss_sum / (double)score->samples);
    if (t->has_testing) {
        pl_metrics_real(&metrics, "test_accuracy", 4, accuracy);
    }
    pl_metrics_real(&metrics, "images_per_second", 1, rate);
    nn_peers_add_metrics(&t->peers, &metrics);
    status = pl_metrics_write(&metrics, stdout, directory ? pl_text_string(&path) : NULL, reterr);
    pl_metrics_done(&metrics);
    return status;
}

/* Resumes from the newest checkpoint, if there is one. */
static enum pl_status resume(struct trainer *t, struct pl_error *reterr)
{
    struct pl_checkpoint_state state;
    bool found;

    PL_TRY(nn_peers_resume(&t->peers, t->options.checkpoint_dir, &found, &state, reterr));
    if (!found) {
        return PL_OK;
    }
    t->step = state.step;
    t->first_epoch = state.sampler.epoch;
    t->resumed = state.sampler;
    if (t->peers.all.rank == 0) {
        if (state.extra_bytes == sizeof(t->resumed_score)) {
            memcpy(&t->resumed_score, state.extra, sizeof(t->resumed_score));
        }
        pl_log(PL_LOG_INFO, "resuming after step %llu, in epoch %llu", (unsigned long long)state.step,
               (unsigned long long)state.sampler.epoch + 1);
    }
    return PL_OK;
}

/* Saves a checkpoint. All ranks call it after the same step; each asynchronous worker calls it at any step. */
static enum pl_status save_checkpoint(struct trainer *t, const struct pl_sampler_state *sampler,
                                      const struct nn_score *score, struct pl_error *reterr)
{
    struct pl_checkpoint_state state = {.step = t->step, .sampler = *sampler, .extra_bytes = sizeof(*score)};
    struct nn_score sum = *score;

    if (!t->peers.saves) {
        return PL_OK;
    }
    if (t->peers.averages) {
        PL_TRY(nn_peers_sum_score(&t->peers, &sum, reterr));
    }
    memcpy(state.extra, &sum, sizeof(sum));
    return nn_peers_save(&t->peers, &state, t->stopped, reterr);
}

static bool steps_used_up(const struct trainer *t)
{
    return t->options.max_steps > 0 && t->step >= t->options.max_steps;
}

/* Called after a step within an epoch. */
static enum pl_status checkpoint_step(struct trainer *t, const struct pl_sampler *sampler, uint64_t taken,
                                      struct pl_error *reterr)
{
    struct pl_sampler_state state = pl_sampler_save(sampler);
    struct nn_score score;

    PL_TRY(nn_peers_stop_agreed(&t->peers, t->stop, &t->stopped, reterr));
    if (taken < t->epoch_samples &&
        (t->stopped || (t->options.checkpoint_steps > 0 && t->step % t->options.checkpoint_steps == 0))) {
        PL_TRY(nn_plan_score(t->peers.plan, t->model, &score, reterr));
        return save_checkpoint(t, &state, &score, reterr);
    }
    if (taken < t->epoch_samples && nn_peers_keep_is_due(&t->peers, t->step)) {
        struct pl_checkpoint_state kept = {.step = t->step, .sampler = state, .extra_bytes = sizeof(score)};

        PL_TRY(nn_plan_score(t->peers.plan, t->model, &score, reterr));
        memcpy(kept.extra, &score, sizeof(score));
        return nn_peers_keep(&t->peers, &kept, reterr);
    }
    return PL_OK;
}

static enum pl_status train_epoch(struct trainer *t, struct pl_sampler *sampler, uint64_t epoch, double *ret_accuracy,
                                  struct pl_error *reterr)
{
    uint64_t before = t->resumed_score.samples;
    int64_t began_ns = pl_clock_now_ns();
    int64_t shown_ns = 0;
    int64_t elapsed_ns;
    struct nn_score score;
    uint64_t taken = sampler->taken;
    struct pl_sampler_state next = {.count = sampler->count, .seed = sampler->seed, .epoch = sampler->epoch + 1};

    PL_TRY(nn_model_set_score(t->model, &t->resumed_score, reterr));
    t->resumed_score = (struct nn_score){0};
    while (taken < t->epoch_samples && !steps_used_up(t) && !t->stopped) {
        uint64_t left = t->epoch_samples - taken;
        size_t samples =
            fill_batch(t, &t->training, sampler, left < t->options.batch_size ? left : t->options.batch_size);

        PL_TRY(train_step(t, taken, samples, reterr));
        taken += samples;
        PL_TRY(checkpoint_step(t, sampler, taken, reterr));
        if (t->peers.all.rank == 0 && pl_clock_now_ns() - shown_ns > PL_NS_PER_S / 5) {
            shown_ns = pl_clock_now_ns();
            PL_TRY(nn_plan_score(t->peers.plan, t->model, &score, reterr));
            pl_metrics_show_progress("epoch %llu: %llu %% of %llu images, loss %.4f", (unsigned long long)epoch,
                                     (unsigned long long)(100 * taken / t->epoch_samples),
                                     (unsigned long long)t->training.pairs.count,
                                     score.loss_sum / (double)score.samples);
        }
    }
    PL_TRY(nn_plan_score(t->peers.plan, t->model, &score, reterr)); /* also waits for a GPU */
    elapsed_ns = pl_clock_now_ns() - began_ns;
    if (taken < t->epoch_samples) {
        next = pl_sampler_save(sampler);
        t->resumed_score = score;
    }
    if (t->stopped && taken < t->epoch_samples) {
        return PL_OK; /* the checkpoint is written; there is no metric line for an incomplete epoch */
    }
    PL_TRY(nn_peers_sum_score(&t->peers, &score, reterr));
    if (t->has_testing) {
        PL_TRY(evaluate(t, ret_accuracy, reterr));
    }
    PL_TRY(report_epoch(t, epoch, &score, (double)(score.samples - before) / ((double)elapsed_ns / (double)PL_NS_PER_S),
                        *ret_accuracy, reterr));
    return save_checkpoint(t, &next, &t->resumed_score, reterr);
}

/* Loads the epoch's images. A missing feeder must not delay a stop: all ranks then stop after the previous epoch. */
static enum pl_status load_epoch(struct trainer *t, uint64_t epoch, struct pl_error *reterr)
{
    /* after a restart of the job, the FIFOs' numbers begin at 0 again */
    enum pl_status status = mnist_data_load(&t->training, epoch - t->first_epoch, reterr);

    if (epoch == t->first_epoch || (status != PL_OK && status != PL_CANCELLED)) {
        return status;
    }
    for (int i = 0; i < 2 && !t->stopped; i++) { /* twice, because the first answer is about the last step */
        PL_TRY(nn_peers_stop_agreed(&t->peers, t->stop, &t->stopped, reterr));
    }
    /* workers of servers have no common steps here */
    t->stopped = t->stopped || (t->peers.server && status == PL_CANCELLED);
    return t->stopped ? PL_OK : status;
}

/*
 * Returns the position from which this rank resumes. The checkpoint has rank 0's position. If each host has its own
 * shard, perhaps of different size, all ranks have taken the same number of images. If the number of ranks has changed,
 * the nearest possible position is used, so that a few images are read twice.
 */
static struct pl_sampler_state own_position(const struct trainer *t, const struct pl_sampler *sampler)
{
    struct pl_sampler_state place = t->resumed;
    uint64_t sharing = t->peers.server ? t->peers.local.size : 0; /* number of ranks on rank 0's host */

    if (t->training.channel.info.distribution == PL_CHANNEL_SHARDED_BY_KEY) {
        for (int r = 0; r < pl_world_size(t->world) && !t->peers.server; r++) {
            sharing += pl_world_host_of(t->world, r) == pl_world_host_of(t->world, 0);
        }
        place.count = sampler->count;
        /* from the number of images that each rank has taken */
        place.position = place.position / sharing * sampler->deal.size;
    }
    if (place.position < place.count) {
        place.position -= place.position % sampler->deal.size;
    }
    return place;
}

/* Starts an epoch. If the checkpoint does not match the data (another number of images), that is a user error. */
static enum pl_status start_epoch(struct trainer *t, uint64_t epoch, struct pl_sampler *sampler,
                                  struct pl_error *reterr)
{
    PL_TRY(pl_sampler_init(sampler, t->training.pairs.count, t->options.seed, true, PL_SAMPLER_WRAP, t->training.deal,
                           reterr));
    pl_sampler_start(sampler, epoch);
    if (epoch == t->first_epoch && t->resumed.count > 0) {
        struct pl_sampler_state place = own_position(t, sampler);
        enum pl_status status = pl_sampler_restore(sampler, &place, reterr);

        if (status != PL_OK) {
            pl_error_context(reterr, "the checkpoint of step %llu is of other data or another seed",
                             (unsigned long long)t->step);
            return status;
        }
    }
    return count_steps(t, sampler, reterr);
}

static enum pl_status train(struct trainer *t, struct pl_error *reterr)
{
    struct pl_sampler sampler;
    double accuracy = 0.0;

    PL_TRY(pl_stop_watch(reterr));
    PL_TRY(nn_device_start(t->options.device, t->options.precision, &t->runtime, &t->device, reterr));
    t->world = pl_runtime_world(t->runtime);
    PL_TRY(pl_stop_new(t->world, &t->stop, reterr));
    PL_TRY(load_data(t, reterr));
    PL_TRY(make_model(t, reterr));
    PL_TRY(make_plan(t, reterr));
    PL_TRY(resume(t, reterr));
    for (uint64_t epoch = t->first_epoch; epoch < t->options.epochs && !steps_used_up(t) && !t->stopped; epoch++) {
        PL_TRY(load_epoch(t, epoch, reterr));
        if (t->stopped) {
            break;
        }
        PL_TRY(start_epoch(t, epoch, &sampler, reterr));
        make_schedule(t);
        PL_TRY(train_epoch(t, &sampler, epoch + 1, &accuracy, reterr));
        if (t->options.target_accuracy > 0.0 && accuracy >= t->options.target_accuracy) {
            break;
        }
    }
    if (t->first_epoch >= t->options.epochs && t->has_testing) {
        PL_TRY(evaluate(t, &accuracy, reterr)); /* all epochs had been trained before */
    }
    if (t->stopped && t->peers.all.rank == 0) {
        pl_metrics_clear_progress();
        if (t->peers.saves) {
            pl_log(PL_LOG_INFO, "stopped after step %llu, as asked", (unsigned long long)t->step);
        } else {
            pl_log(
                PL_LOG_INFO,
                "stopped after step %llu, as asked; no checkpoint was saved: there is neither %s nor --checkpoint-dir",
                (unsigned long long)t->step, t->peers.job_checkpoints);
        }
    }
    if (t->named) {
        PL_TRY(pl_service_shutdown(t->named, reterr));
    }
    return nn_peers_finish(&t->peers, t->runtime, t->options.model_dir, accuracy, reterr);
}

static void done(struct trainer *t)
{
    pl_stop_free(t->stop);
    pl_service_free(t->named);
    free(t->averages);
    nn_peers_close(&t->peers);
    nn_model_free(t->model);
    free(t->inputs);
    free(t->labels);
    mnist_data_done(&t->training);
    mnist_data_done(&t->testing);
    pl_runtime_stop(t->runtime);
}

int main(int argc, char **argv)
{
    struct trainer trainer = {.step = 0};
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;

    pl_log_set_prefix("mnist");
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        nn_options_help(option_table, "mnist", stdout);
        return EXIT_SUCCESS;
    }
    status = nn_options_parse(option_table, argc, argv, &trainer.options, &error);
    if (status == PL_OK) {
        status = train(&trainer, &error);
    }
    if (status != PL_OK) {
        pl_metrics_clear_progress();
        pl_log_error(&error, "training failed");
        return EXIT_FAILURE; /* exit at once: other ranks may be waiting for this one, and mpirun ends them */
    }
    done(&trainer);
    return EXIT_SUCCESS;
}
