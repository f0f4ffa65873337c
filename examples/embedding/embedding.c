/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model for clicks with a table of rows that is too large for one worker: a factorization machine on parameter
 * servers.
 */
#include "examples/embedding/clicks.h"
#include "examples/nn/options.h"
#include "runtime/paceline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Number of the first held-out sample. */
#define HELD_OUT (UINT64_C(1) << 62)

struct options {
    uint64_t rows, columns, steps, batch_size, evaluate_steps, evaluate_samples;
    double learning_rate;
    uint64_t seed;
    const char *model_dir, *load;
};

static const struct nn_option option_table[] = {
    NN_NUMBER(struct options, rows, "10000000", CLICKS_FIELDS, 1e15,
              "number of ids of all fields; a row is kept once it is used"),
    NN_NUMBER(struct options, columns, "16", 2, 65536, "columns of a row: its own weight, and factors"),
    NN_NUMBER(struct options, steps, "2000", 0, 1e15, "steps of each worker"),
    NN_NUMBER(struct options, batch_size, "1024", 1, 1e6, "samples per worker and step"),
    NN_NUMBER(struct options, evaluate_steps, "500", 1, 1e15, "steps between evaluations"),
    NN_NUMBER(struct options, evaluate_samples, "50000", 1, 1e9, "number of held-out samples of all workers"),
    NN_NUMBER(struct options, learning_rate, "0.1", 0, 1e6, "learning rate of Adagrad"),
    NN_NUMBER(struct options, seed, "1", 0, 1e15, "seed of initial values and samples"),
    NN_TEXT(struct options, model_dir, "", "directory for the model, instead of SM_MODEL_DIR"),
    NN_TEXT(struct options, load, "", "directory of a model from which training continues"),
    NN_OPTIONS_END,
};

/* A batch: samples, the rows of their ids, and the gradients of those rows. */
struct batch {
    uint64_t most_samples, samples;
    struct clicks_sample *clicks; /* [most_samples]: the samples */
    int64_t *ids;                 /* [most_samples, CLICKS_FIELDS]: ids of the samples */
    float *rows;                  /* [most_samples, CLICKS_FIELDS, columns]: rows of these ids */
    float *gradients;
};

/* Sums over all workers. */
struct score {
    double trained, train_loss; /* number of samples since the last evaluation, and their loss */
    double tested, test_loss, best_loss, clicked;
    double stopped; /* number of workers that were asked to stop */
};

struct trainer {
    struct options options;
    struct pl_runtime *runtime;
    struct pl_server *server;
    size_t table;
    struct clicks clicks;
    struct batch batch;
    uint64_t step;
    double test_loss;
};

static enum pl_status make_batch(struct batch *batch, uint64_t samples, uint64_t columns, struct pl_error *reterr)
{
    batch->most_samples = samples;
    batch->clicks = pl_memory_new(samples, sizeof(*batch->clicks), reterr);
    batch->ids = pl_memory_new(samples * CLICKS_FIELDS, sizeof(*batch->ids), reterr);
    batch->rows = pl_memory_new(samples * CLICKS_FIELDS * columns, sizeof(float), reterr);
    batch->gradients = pl_memory_new(samples * CLICKS_FIELDS * columns, sizeof(float), reterr);
    return batch->clicks && batch->ids && batch->rows && batch->gradients ? PL_OK : PL_MEMORY;
}

/* Joins the other workers. Only the servers store the table's rows; the bias is a tensor, so each worker has a copy. */
static enum pl_status join(struct trainer *t, struct pl_error *reterr)
{
    struct pl_server_options options = {.optimizer = {.kind = PL_ADAGRAD}, .trace = pl_runtime_trace(t->runtime)};
    struct pl_server_table rows = {.name = "rows",
                                   .columns = t->options.columns,
                                   .initial = PL_SERVER_UNIFORM,
                                   .bound = 0.05,
                                   .seed = t->options.seed,
                                   .kind = PL_ADAGRAD,
                                   .rate = t->options.learning_rate};
    size_t index;

    PL_TRY(pl_server_new(pl_runtime_world(t->runtime), &options, &t->server, reterr));
    PL_TRY(pl_plan_add(pl_server_plan(t->server), "bias", 1, &(uint64_t){1}, &index, reterr));
    PL_TRY(pl_server_rows_add(t->server, &rows, &t->table, reterr));
    PL_TRY(pl_server_join(t->server, reterr));
    PL_TRY(pl_server_start(t->server, reterr));
    pl_server_set_rate(t->server, t->options.learning_rate);
    t->clicks = (struct clicks){.rows = t->options.rows, .seed = t->options.seed};
    return make_batch(&t->batch, t->options.batch_size, t->options.columns, reterr);
}

/* Draws this worker's share of the samples from number `first` on, and gets the rows of their ids. */
static enum pl_status fill_batch(struct trainer *t, uint64_t first, uint64_t samples, struct pl_error *reterr)
{
    const uint64_t workers = (uint64_t)pl_server_workers(t->server), worker = (uint64_t)pl_server_worker(t->server);
    struct batch *batch = &t->batch;

    batch->samples = samples;
    for (uint64_t s = 0; s < samples; s++) {
        clicks_draw(&t->clicks, first + s * workers + worker, &batch->clicks[s]);
        memcpy(batch->ids + s * CLICKS_FIELDS, batch->clicks[s].ids, sizeof(batch->clicks[s].ids));
    }
    return pl_server_rows_pull(t->server, t->table, batch->ids, samples * CLICKS_FIELDS, batch->rows, reterr);
}

/* Returns the sum over the fields of column `c` of a sample's rows. */
static double sum_of(const float *rows, uint64_t columns, uint64_t c)
{
    double sum = 0.0;

    for (uint64_t f = 0; f < CLICKS_FIELDS; f++) {
        sum += (double)rows[f * columns + c];
    }
    return sum;
}

/*
 * Returns the sum of the bias, each row's own weight in column 0, and the product of the factors of each pair of rows:
 * Rendle, "Factorization machines", ICDM 2010.
 */
static double predict(const float *rows, uint64_t columns, double bias)
{
    double logit = bias + sum_of(rows, columns, 0);

    for (uint64_t c = 1; c < columns; c++) {
        double sum = sum_of(rows, columns, c), squares = 0.0;

        for (uint64_t f = 0; f < CLICKS_FIELDS; f++) {
            squares += (double)rows[f * columns + c] * (double)rows[f * columns + c];
        }
        logit += 0.5 * (sum * sum - squares);
    }
    return 1.0 / (1.0 + exp(-logit));
}

static double loss_of(double probability, bool is_clicked)
{
    double chance = is_clicked ? probability : 1.0 - probability;

    return -log(chance > 1e-12 ? chance : 1e-12);
}

static double bias_of(const struct trainer *t)
{
    return (double)pl_plan_tensor(pl_server_plan(t->server), 0)->value[0];
}

static enum pl_status train_step(struct trainer *t, struct score *score, struct pl_error *reterr)
{
    const uint64_t columns = t->options.columns;
    struct batch *batch = &t->batch;
    double bias_gradient = 0.0;

    PL_TRY(fill_batch(t, t->step * t->options.batch_size * (uint64_t)pl_server_workers(t->server),
                      t->options.batch_size, reterr));
    for (uint64_t s = 0; s < batch->samples; s++) {
        const float *rows = batch->rows + s * CLICKS_FIELDS * columns;
        float *gradients = batch->gradients + s * CLICKS_FIELDS * columns;
        double probability = predict(rows, columns, bias_of(t)), of_logit;

        score->train_loss += loss_of(probability, batch->clicks[s].is_clicked);
        of_logit = (probability - (batch->clicks[s].is_clicked ? 1.0 : 0.0)) / (double)batch->samples;
        bias_gradient += of_logit;
        for (uint64_t c = 0; c < columns; c++) {
            double sum = sum_of(rows, columns, c);

            for (uint64_t f = 0; f < CLICKS_FIELDS; f++) {
                double slope = c == 0 ? 1.0 : sum - (double)rows[f * columns + c];

                gradients[f * columns + c] = (float)(of_logit * slope);
            }
        }
    }
    score->trained += (double)batch->samples;
    pl_plan_tensor(pl_server_plan(t->server), 0)->gradient[0] = (float)bias_gradient;
    PL_TRY(pl_plan_ready(pl_server_plan(t->server), 0, reterr));
    PL_TRY(
        pl_server_rows_push(t->server, t->table, batch->ids, batch->samples * CLICKS_FIELDS, batch->gradients, reterr));
    t->step++;
    return pl_server_step(t->server, reterr);
}

/* Evaluates the model: each worker takes its share of the held-out samples, and all workers get the sums. */
static enum pl_status evaluate(struct trainer *t, struct score *score, struct pl_error *reterr)
{
    uint64_t workers = (uint64_t)pl_server_workers(t->server), worker = (uint64_t)pl_server_worker(t->server);
    uint64_t left = (t->options.evaluate_samples + workers - 1 - worker) / workers, first = HELD_OUT;
    double *sums = (double *)score;

    PL_TRY(pl_server_sum(t->server, NULL, 0, reterr)); /* a barrier: the servers have applied all updates */
    PL_TRY(pl_server_pull(t->server, reterr));
    while (left > 0) {
        uint64_t samples = left < t->batch.most_samples ? left : t->batch.most_samples;

        PL_TRY(fill_batch(t, first, samples, reterr));
        for (uint64_t s = 0; s < samples; s++) {
            const struct clicks_sample *sample = &t->batch.clicks[s];
            double probability =
                predict(t->batch.rows + s * CLICKS_FIELDS * t->options.columns, t->options.columns, bias_of(t));

            score->test_loss += loss_of(probability, sample->is_clicked);
            score->best_loss += loss_of(sample->probability, sample->is_clicked);
            score->clicked += sample->is_clicked;
        }
        score->tested += (double)samples;
        first += samples * workers;
        left -= samples;
    }
    score->stopped = pl_stop_requested();
    return pl_server_sum(t->server, sums, sizeof(*score) / sizeof(*sums), reterr);
}

static enum pl_status report(struct trainer *t, const struct score *score, int64_t elapsed_ns, struct pl_error *reterr)
{
    const char *directory = pl_runtime_variable(t->runtime, "SM_OUTPUT_DATA_DIR", NULL);
    double rate = score->clicked / score->tested;
    struct pl_metrics metrics = PL_METRICS_NONE;
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    enum pl_status status;
    uint64_t rows;

    t->test_loss = score->test_loss / score->tested;
    if (pl_server_worker(t->server) != 0) {
        return PL_OK;
    }
    PL_TRY(pl_server_rows_count(t->server, t->table, &rows, reterr));
    if (directory) {
        pl_text_printf(&path, "%s/metrics.jsonl", directory);
        PL_TRY(pl_text_check(&path, reterr));
    }
    pl_metrics_whole(&metrics, "step", (int64_t)t->step);
    if (score->trained > 0.0) {
        pl_metrics_real(&metrics, "train_logloss", 4, score->train_loss / score->trained);
    }
    pl_metrics_real(&metrics, "test_logloss", 4, t->test_loss);
    pl_metrics_real(&metrics, "constant_logloss", 4, -rate * log(rate) - (1.0 - rate) * log(1.0 - rate));
    pl_metrics_real(&metrics, "best_logloss", 4, score->best_loss / score->tested);
    pl_metrics_whole(&metrics, "rows", (int64_t)rows);
    pl_metrics_real(&metrics, "samples_per_second", 1, score->trained / ((double)elapsed_ns / (double)PL_NS_PER_S));
    status = pl_metrics_write(&metrics, stdout, directory ? pl_text_string(&path) : NULL, reterr);
    pl_metrics_done(&metrics);
    return status;
}

/* Reads the bias of a saved model. */
static enum pl_status load_bias(struct trainer *t, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    struct pl_safetensors *file = NULL;
    enum pl_status status;

    pl_text_printf(&path, "%s/model.safetensors", t->options.load);
    PL_TRY(pl_text_check(&path, reterr));
    PL_TRY(pl_safetensors_open(pl_text_string(&path), &file, reterr));
    if (pl_safetensors_count(file) == 1 && pl_safetensors_tensor(file, 0)->bytes == sizeof(float)) {
        status = pl_safetensors_read(file, 0, pl_plan_tensor(pl_server_plan(t->server), 0)->value, reterr);
    } else {
        status = pl_error_set(reterr, PL_INVALID, "'%s' is not a model of this program", pl_text_string(&path));
    }
    pl_safetensors_close(file);
    return status;
}

/* Worker 0 loads the model for all workers. */
static enum pl_status load(struct trainer *t, struct pl_error *reterr)
{
    if (*t->options.load && pl_server_worker(t->server) == 0) {
        PL_TRY(load_bias(t, reterr));
        PL_TRY(pl_server_assign(t->server, reterr));
        PL_TRY(pl_server_rows_load(t->server, t->table, t->options.load, reterr));
    }
    return pl_server_sum(t->server, NULL, 0, reterr);
}

/* Saves the model after the last evaluation, when no worker pushes: worker 0 asks the servers to save. */
static enum pl_status save(struct trainer *t, struct pl_error *reterr)
{
    const char *directory =
        *t->options.model_dir ? t->options.model_dir : pl_runtime_variable(t->runtime, "SM_MODEL_DIR", NULL);
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    char loss[32];
    struct pl_metadata metadata[] = {{"format", "paceline"}, {"test_logloss", loss}};

    if (pl_server_worker(t->server) != 0) {
        return PL_OK;
    }
    if (!directory) {
        pl_log(PL_LOG_WARNING, "the model is not saved: neither SM_MODEL_DIR nor --model-dir is set");
        return PL_OK;
    }
    snprintf(loss, sizeof(loss), "%.4f", t->test_loss);
    pl_text_printf(&path, "%s/model.safetensors", directory);
    PL_TRY(pl_text_check(&path, reterr));
    PL_TRY(pl_server_rows_save(t->server, t->table, directory, reterr));
    return pl_plan_file_write(pl_server_plan(t->server), pl_text_string(&path), metadata, PL_ARRAY_ITEMS(metadata),
                              reterr);
}

static enum pl_status train(struct trainer *t, struct pl_error *reterr)
{
    bool is_over = false;

    PL_TRY(pl_stop_watch(reterr));
    PL_TRY(pl_runtime_start(&t->runtime, reterr));
    PL_TRY(join(t, reterr));
    PL_TRY(load(t, reterr));
    while (!is_over) {
        int64_t began_ns = pl_clock_now_ns(), elapsed_ns;
        struct score score = {0};

        for (uint64_t i = 0; i < t->options.evaluate_steps && t->step < t->options.steps && !pl_stop_requested(); i++) {
            PL_TRY(train_step(t, &score, reterr));
        }
        elapsed_ns = pl_clock_now_ns() - began_ns;
        PL_TRY(evaluate(t, &score, reterr));
        PL_TRY(report(t, &score, elapsed_ns, reterr));
        is_over = score.stopped > 0.0 || t->step >= t->options.steps;
    }
    if (t->step < t->options.steps && pl_server_worker(t->server) == 0) {
        pl_log(PL_LOG_INFO, "stopped after step %llu, as asked", (unsigned long long)t->step);
    }
    PL_TRY(save(t, reterr));
    return pl_server_leave(t->server, reterr);
}

static void done(struct trainer *t)
{
    pl_server_free(t->server);
    free(t->batch.clicks);
    free(t->batch.ids);
    free(t->batch.rows);
    free(t->batch.gradients);
    pl_runtime_stop(t->runtime);
}

int main(int argc, char **argv)
{
    struct trainer trainer = {.step = 0};
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;

    pl_log_set_prefix("embedding");
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        nn_options_help(option_table, "embedding", stdout);
        return EXIT_SUCCESS;
    }
    status = nn_options_parse(option_table, argc, argv, &trainer.options, &error);
    if (status == PL_OK) {
        status = train(&trainer, &error);
    }
    if (status != PL_OK) {
        pl_log_error(&error, "training failed");
        return EXIT_FAILURE;
    }
    done(&trainer);
    return EXIT_SUCCESS;
}
