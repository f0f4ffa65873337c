/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A convolutional network for CIFAR-10 that trains while TFRecords arrive as a stream: memory has only a shuffle
 * buffer.
 */
#include "examples/cifar10/data.h"
#include "examples/nn/device.h"
#include "examples/nn/nn.h"
#include "examples/nn/options.h"
#include "examples/nn/peers.h"
#include "examples/nn/plan.h"

#include <stdlib.h>
#include <string.h>

enum { CLASSES = 10, MOST_EVALUATED = 100 };

static const struct nn_layer_spec layers[] = {
    {.kind = NN_CONV, .name = "conv1", .outputs = 32, .kernel = 3, .relu = true},
    {.kind = NN_CONV, .name = "conv2", .outputs = 32, .kernel = 3, .relu = true},
    {.kind = NN_MAX_POOL, .name = "pool1"},
    {.kind = NN_DROPOUT, .name = "dropout1", .rate = 0.2},
    {.kind = NN_CONV, .name = "conv3", .outputs = 64, .kernel = 3, .relu = true},
    {.kind = NN_CONV, .name = "conv4", .outputs = 64, .kernel = 3, .relu = true},
    {.kind = NN_MAX_POOL, .name = "pool2"},
    {.kind = NN_DROPOUT, .name = "dropout2", .rate = 0.2},
    {.kind = NN_DENSE, .name = "dense1", .outputs = 256, .relu = true},
    {.kind = NN_DROPOUT, .name = "dropout3", .rate = 0.5},
    {.kind = NN_DENSE, .name = "dense2", .outputs = CLASSES},
    {.kind = NN_END},
};

static const struct nn_option option_table[] = {
    NN_NUMBER(struct cifar10_options, epochs, "10", 1, 1e9, "number of passes over the training records"),
    NN_NUMBER(struct cifar10_options, batch_size, "64", 1, 4096, "images per rank and step"),
    NN_NUMBER(struct cifar10_options, learning_rate, "0.01", 0, 100,
              "learning rate for one rank; it is multiplied by the number of ranks"),
    NN_NUMBER(struct cifar10_options, warmup_steps, "100", 0, 1e9, "steps over which the rate rises to its full size"),
    NN_NUMBER(struct cifar10_options, momentum, "0.9", 0, 1, "momentum of SGD"),
    NN_NUMBER(struct cifar10_options, weight_decay, "0.0005", 0, 1, "weight decay of SGD"),
    NN_NUMBER(struct cifar10_options, seed, "1", 0, 1e15, "seed of initial weights, shuffle and dropout"),
    NN_NUMBER(struct cifar10_options, shuffle_buffer, "2000", 0, 1e7,
              "size of the shuffle buffer in records; 0: do not shuffle"),
    NN_NUMBER(struct cifar10_options, max_steps, "0", 0, 1e12,
              "number of steps after which training ends; 0: no limit"),
    NN_NUMBER(struct cifar10_options, timeout, "600", 1, 1e6, "seconds to wait for one record"),
    NN_TEXT(struct cifar10_options, checkpoint_dir, "",
            "directory for checkpoints; default: the job's (/opt/ml/checkpoints), if that exists"),
    NN_NUMBER(struct cifar10_options, checkpoint_steps, "0", 0, 1e15,
              "steps between checkpoints, in addition to those after each epoch; 0: none in addition"),
    NN_TEXT(struct cifar10_options, data, "",
            "directory or s3://BUCKET/PREFIX with training/ and testing/, instead of SageMaker's channels"),
    NN_TEXT(struct cifar10_options, model_dir, "", "directory for model.safetensors, instead of SM_MODEL_DIR"),
    NN_DEVICE_OPTIONS(struct cifar10_options),
    NN_OPTIONS_END,
};

/* What a checkpoint has besides model and optimizer: where training continues in the epoch. */
struct place {
    uint64_t batches;                                 /* number of batches that each rank has taken */
    uint64_t batch_size, shuffle_buffer, seed, ranks; /* the batches of an epoch depend on these */
    struct nn_score score;                            /* of these batches */
};

struct trainer {
    struct cifar10_options options;
    struct pl_runtime *runtime;
    struct cifar10_data *training;
    struct cifar10_data *testing; /* NULL: there is no testing channel */
    struct nn_device device;
    struct nn_model *model;
    struct nn_peers peers;
    struct pl_schedule schedule;
    uint64_t step;
    uint64_t first_epoch; /* first epoch of this run, which begins at `place` */
    struct place place;   /* in the current epoch */
};

/* Results of an epoch: this rank's, until they are summed over all ranks. */
struct epoch {
    struct nn_score score;
    int64_t order; /* hash of every image and label in order; equal hashes mean equal batches */
    int64_t elapsed_ns;
    double waited; /* share of the time in which training waited for data */
};

static enum pl_status open_data(struct trainer *t, struct pl_error *reterr)
{
    struct cifar10_options options = t->options;
    enum pl_status status;

    options.epochs -= t->first_epoch < options.epochs ? t->first_epoch : options.epochs; /* those that are left */
    PL_TRY(
        cifar10_data_open(t->runtime, "training", true, &options, t->peers.all, t->peers.local, &t->training, reterr));
    status =
        cifar10_data_open(t->runtime, "testing", false, &options, t->peers.all, t->peers.local, &t->testing, reterr);
    return status == PL_NOT_FOUND ? PL_OK : status; /* a testing channel is optional */
}

static enum pl_status make_plan(struct trainer *t, struct pl_error *reterr)
{
    struct pl_optimizer_options options = {
        .kind = PL_SGD, .momentum = t->options.momentum, .weight_decay = t->options.weight_decay};

    PL_TRY(nn_peers_open(t->runtime, NULL, &options, t->model, t->options.seed, &t->peers, reterr));
    t->schedule = (struct pl_schedule){
        /*
         * Asynchronous servers apply each worker's update alone, after about as many other updates as there are
         * workers. With momentum, training would diverge at a larger rate.
         */
        .base_rate = t->options.learning_rate / (t->peers.averages ? 1.0 : (double)t->peers.all.size),
        .scale = t->peers.averages ? (double)t->peers.all.size : 1.0,
        .warmup_steps = t->options.warmup_steps,
    };
    return PL_OK;
}

static enum pl_status make_model(struct trainer *t, struct pl_error *reterr)
{
    struct nn_shape shape = {.height = CIFAR10_SIDE, .width = CIFAR10_SIDE, .channels = CIFAR10_CHANNELS};
    size_t batch = t->options.batch_size;

    return nn_model_new(t->device.backend, &t->device.options, layers, shape,
                        batch > MOST_EVALUATED ? batch : MOST_EVALUATED, &t->model, reterr);
}

static enum pl_status train_step(struct trainer *t, const struct cifar10_batch *batch, struct pl_error *reterr)
{
    uint64_t size = t->peers.all.size;
    struct nn_pass pass = {
        .training = true,
        .seed = t->options.seed,
        .step = t->step,
        .first_sample = batch->index * batch->samples * size + t->peers.all.rank,
        .sample_stride = size,
    };

    nn_peers_set_rate(&t->peers, pl_schedule_rate(&t->schedule, t->step));
    PL_TRY(nn_model_forward(t->model, batch->images, batch->samples, &pass, reterr));
    PL_TRY(nn_model_backward(t->model, batch->labels, &pass, nn_plan_ready, t->peers.plan, reterr));
    PL_TRY(nn_peers_step(&t->peers, reterr));
    t->step++;
    return PL_OK;
}

/*
 * Returns the next batch if every rank has one. The length of a stream is not known, and some ranks may get one batch
 * more than others: they drop it, at the end of the epoch. Asynchronous workers take all their batches.
 */
static enum pl_status next_on_all(struct trainer *t, struct cifar10_batch *ret_batch, bool *ret_have,
                                  struct pl_error *reterr)
{
    enum pl_status status = cifar10_data_next(t->training, ret_batch, reterr);
    uint64_t have = status == PL_OK;

    if (status != PL_OK && status != PL_END) {
        return status;
    }
    if (t->peers.averages) {
        PL_TRY(nn_peers_least(&t->peers, &have, reterr));
    }
    *ret_have = have != 0;
    return PL_OK;
}

static int64_t mix_order(int64_t order, const struct cifar10_batch *batch)
{
    const unsigned char *labels = batch->labels;
    uint64_t mixed = (uint64_t)order;

    for (size_t i = 0; i < batch->samples * CIFAR10_VALUES; i++) {
        uint32_t value;

        memcpy(&value, &batch->images[i], sizeof(value));
        mixed = (mixed ^ value) * UINT64_C(0x100000001b3);
    }
    for (size_t i = 0; i < batch->samples; i++) {
        mixed = (mixed ^ labels[i]) * UINT64_C(0x100000001b3);
    }
    return (int64_t)mixed;
}

static enum pl_status sum_epoch(struct trainer *t, struct epoch *epoch, struct pl_error *reterr)
{
    double sums[5] = {epoch->score.loss_sum, (double)epoch->score.correct, (double)epoch->score.samples, epoch->waited,
                      (double)(epoch->order & INT64_C(0xffffffff))};

    PL_TRY(nn_peers_sum(&t->peers, sums, 5, reterr));
    epoch->order = (int64_t)sums[4];
    epoch->score = (struct nn_score){.loss_sum = sums[0], .correct = (uint64_t)sums[1], .samples = (uint64_t)sums[2]};
    epoch->waited = sums[3] / (double)t->peers.all.size;
    return PL_OK;
}

/* Evaluates the model: every rank takes its share of the held-out pictures, and the result is the same on all ranks. */
static enum pl_status evaluate(struct trainer *t, uint64_t number, double *ret_accuracy, struct pl_error *reterr)
{
    struct nn_pass pass = {.training = false};
    struct epoch epoch = {.order = 0};
    struct cifar10_batch batch;
    enum pl_status status;

    PL_TRY(nn_peers_meet(&t->peers, reterr));
    PL_TRY(nn_model_set_score(t->model, NULL, reterr));
    PL_TRY(cifar10_data_start(t->testing, number, reterr));
    while ((status = cifar10_data_next(t->testing, &batch, reterr)) == PL_OK) {
        PL_TRY(nn_model_forward(t->model, batch.images, batch.samples, &pass, reterr));
        PL_TRY(nn_model_loss(t->model, batch.labels, reterr));
    }
    if (status != PL_END) {
        return status;
    }
    PL_TRY(nn_plan_score(t->peers.plan, t->model, &epoch.score, reterr));
    PL_TRY(sum_epoch(t, &epoch, reterr));
    *ret_accuracy = epoch.score.samples > 0 ? (double)epoch.score.correct / (double)epoch.score.samples : 0.0;
    return PL_OK;
}

/* `before`: number of this epoch's samples that were trained before a restart. */
static enum pl_status report(struct trainer *t, uint64_t number, const struct epoch *epoch, uint64_t before,
                             double accuracy, struct pl_error *reterr)
{
    struct pl_metrics metrics = PL_METRICS_NONE;
    double seconds = (double)epoch->elapsed_ns / (double)PL_NS_PER_S;
    enum pl_status status;

    if (t->peers.all.rank != 0) {
        return PL_OK;
    }
    pl_metrics_whole(&metrics, "epoch", (int64_t)number);
    pl_metrics_whole(&metrics, "step", (int64_t)t->step);
    pl_metrics_real(&metrics, "train_loss", 4,
                    epoch->score.samples ? epoch->score.loss_sum / (double)epoch->score.samples : 0.0);
    if (t->testing) {
        pl_metrics_real(&metrics, "test_accuracy", 4, accuracy);
    }
    pl_metrics_real(&metrics, "images_per_second", 1, (double)(epoch->score.samples - before) / seconds);
    pl_metrics_real(&metrics, "waited_share", 4, epoch->waited);
    pl_metrics_whole(&metrics, "batch_order", epoch->order & INT64_C(0xffffffff));
    nn_peers_add_metrics(&t->peers, &metrics);
    status = pl_metrics_write(&metrics, stdout, NULL, reterr);
    pl_metrics_done(&metrics);
    return status;
}

/* Resumes from the newest checkpoint, if there is one. */
static enum pl_status resume(struct trainer *t, struct pl_error *reterr)
{
    struct pl_checkpoint_state state;
    struct place *place = &t->place, saved;
    bool found;

    PL_TRY(nn_peers_resume(&t->peers, t->options.checkpoint_dir, &found, &state, reterr));
    *place = (struct place){.batch_size = t->options.batch_size,
                            .shuffle_buffer = t->options.shuffle_buffer,
                            .seed = t->options.seed,
                            .ranks = t->peers.all.size};
    if (!found) {
        return PL_OK;
    }
    memcpy(&saved, state.extra, sizeof(saved));
    if (state.extra_bytes != sizeof(saved) ||
        (saved.batches > 0 && (saved.batch_size != place->batch_size || saved.shuffle_buffer != place->shuffle_buffer ||
                               saved.seed != place->seed || saved.ranks != place->ranks))) {
        return pl_error_set(reterr, PL_MISMATCH,
                            "the checkpoint of step %llu is in the middle of an epoch with another --batch-size, "
                            "--shuffle-buffer, --seed or number of ranks: use the same, or another --checkpoint-dir",
                            (unsigned long long)state.step);
    }
    t->step = state.step;
    t->first_epoch = state.sampler.epoch;
    place->batches = saved.batches;
    if (t->peers.all.rank == 0) {
        place->score = saved.score;
        pl_log(PL_LOG_INFO, "resuming after step %llu, in epoch %llu", (unsigned long long)state.step,
               (unsigned long long)t->first_epoch + 1);
    }
    return PL_OK;
}

static struct pl_checkpoint_state state_at(const struct trainer *t, uint64_t epoch, const struct nn_score *score)
{
    struct pl_checkpoint_state state = {
        .step = t->step, .sampler = {.epoch = epoch}, .extra_bytes = sizeof(struct place)};
    struct place place = t->place;

    place.score = *score;
    memcpy(state.extra, &place, sizeof(place));
    return state;
}

/* Saves a checkpoint, to continue in `epoch` at t->place. `score` is this rank's. All ranks call it. */
static enum pl_status save_checkpoint(struct trainer *t, uint64_t epoch, struct nn_score score, struct pl_error *reterr)
{
    struct pl_checkpoint_state state;

    if (!t->peers.saves) {
        return PL_OK;
    }
    if (t->peers.averages) {
        PL_TRY(nn_peers_sum_score(&t->peers, &score, reterr));
    }
    state = state_at(t, epoch, &score);
    return nn_peers_save(&t->peers, &state, false, reterr);
}

/* Called after a step. */
static enum pl_status checkpoint_step(struct trainer *t, uint64_t epoch, struct pl_error *reterr)
{
    bool saves = t->options.checkpoint_steps > 0 && t->step % t->options.checkpoint_steps == 0;
    struct pl_checkpoint_state state;
    struct nn_score score;

    if (!saves && !nn_peers_keep_is_due(&t->peers, t->step)) {
        return PL_OK;
    }
    PL_TRY(nn_plan_score(t->peers.plan, t->model, &score, reterr));
    if (saves) {
        return save_checkpoint(t, epoch, score, reterr);
    }
    state = state_at(t, epoch, &score);
    return nn_peers_keep(&t->peers, &state, reterr);
}

/* Begins an epoch. Batches that were trained before a restart are read again and not used. */
static enum pl_status start_epoch(struct trainer *t, uint64_t number, struct epoch *epoch, struct pl_error *reterr)
{
    struct cifar10_batch batch;
    enum pl_status status = PL_OK;

    PL_TRY(nn_model_set_score(t->model, &t->place.score, reterr));
    PL_TRY(cifar10_data_start(t->training, number, reterr));
    for (uint64_t i = 0; i < t->place.batches && status == PL_OK; i++) {
        status = cifar10_data_next(t->training, &batch, reterr);
        epoch->order = status == PL_OK ? mix_order(epoch->order, &batch) : epoch->order;
    }
    return status == PL_END ? PL_OK : status; /* an asynchronous worker may have fewer batches than number 0 */
}

static bool steps_used_up(const struct trainer *t)
{
    return t->options.max_steps > 0 && t->step >= t->options.max_steps;
}

static enum pl_status train_epoch(struct trainer *t, uint64_t number, double *ret_accuracy, struct pl_error *reterr)
{
    struct epoch epoch = {.order = 0};
    struct pl_dataset_progress progress;
    int64_t shown_ns = 0;
    struct cifar10_batch batch;
    uint64_t before = t->place.score.samples;
    struct nn_score score;
    bool have = true;

    PL_TRY(start_epoch(t, number, &epoch, reterr));
    while (!steps_used_up(t)) {
        PL_TRY(next_on_all(t, &batch, &have, reterr));
        if (!have) {
            break;
        }
        epoch.order = mix_order(epoch.order, &batch);
        PL_TRY(train_step(t, &batch, reterr));
        t->place.batches++;
        PL_TRY(checkpoint_step(t, number, reterr));
        if (t->peers.all.rank == 0 && pl_clock_now_ns() - shown_ns > PL_NS_PER_S / 5) {
            shown_ns = pl_clock_now_ns();
            PL_TRY(nn_plan_score(t->peers.plan, t->model, &epoch.score, reterr));
            pl_metrics_show_progress("epoch %llu: %llu pictures, loss %.4f", (unsigned long long)number + 1,
                                     (unsigned long long)epoch.score.samples * (unsigned long long)t->peers.all.size,
                                     epoch.score.loss_sum / (double)epoch.score.samples);
        }
    }
    PL_TRY(nn_plan_score(t->peers.plan, t->model, &score, reterr)); /* also waits for a GPU */
    epoch.score = score;
    progress = cifar10_data_progress(t->training);
    epoch.elapsed_ns = progress.elapsed_ns;
    epoch.waited = progress.elapsed_ns ? (double)progress.waited_ns / (double)progress.elapsed_ns : 0.0;
    PL_TRY(sum_epoch(t, &epoch, reterr));
    if (epoch.score.samples == 0) {
        return pl_error_set(reterr, PL_INVALID, "the channel training has fewer records than one batch of every rank");
    }
    if (t->testing) {
        PL_TRY(evaluate(t, number, ret_accuracy, reterr));
    }
    PL_TRY(report(t, number + 1, &epoch, before, *ret_accuracy, reterr));
    t->place.batches = have ? t->place.batches : 0;
    t->place.score = (struct nn_score){0};
    return save_checkpoint(t, have ? number : number + 1, have ? score : t->place.score, reterr);
}

static enum pl_status train(struct trainer *t, struct pl_error *reterr)
{
    double accuracy = 0.0;
    uint64_t epoch;

    PL_TRY(nn_device_start(t->options.device, t->options.precision, &t->runtime, &t->device, reterr));
    PL_TRY(make_model(t, reterr));
    PL_TRY(make_plan(t, reterr));
    PL_TRY(resume(t, reterr));
    PL_TRY(open_data(t, reterr));
    for (epoch = t->first_epoch; epoch < t->options.epochs && !steps_used_up(t); epoch++) {
        PL_TRY(train_epoch(t, epoch, &accuracy, reterr));
    }
    if (epoch == t->first_epoch && t->testing) {
        PL_TRY(evaluate(t, epoch, &accuracy, reterr)); /* all had been trained before */
    }
    return nn_peers_finish(&t->peers, t->runtime, t->options.model_dir, accuracy, reterr);
}

static void done(struct trainer *t)
{
    cifar10_data_close(t->training);
    cifar10_data_close(t->testing);
    nn_peers_close(&t->peers);
    nn_model_free(t->model);
    pl_runtime_stop(t->runtime);
}

int main(int argc, char **argv)
{
    struct trainer trainer = {.step = 0};
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;

    pl_log_set_prefix("cifar10");
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        nn_options_help(option_table, "cifar10", stdout);
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
