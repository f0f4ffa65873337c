/* SPDX-License-Identifier: Apache-2.0 */
/* Opens CIFAR-10 channels as datasets, and converts their bytes to floats. */
#include "examples/cifar10/data.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

enum { CLASSES = 10, EVALUATE_SAMPLES = 100 };

struct cifar10_data {
    struct pl_dataset *dataset;
    float *images;   /* [batch][32][32][3]: pixels of a batch */
    uint8_t *labels; /* [batch]: classes of the pictures */
};

/* Mean and standard deviation of the training pictures' colours; most CIFAR-10 programs use these values. */
static const float means[CIFAR10_CHANNELS] = {0.4914F, 0.4822F, 0.4465F};
static const float spreads[CIFAR10_CHANNELS] = {0.2470F, 0.2435F, 0.2616F};

/* Converts a picture, one colour plane after the other, to floats. */
static void convert(const unsigned char *planes, float *to)
{
    for (size_t colour = 0; colour < CIFAR10_CHANNELS; colour++) {
        const unsigned char *from = planes + colour * CIFAR10_PIXELS;
        float scale = 1.0F / (255.0F * spreads[colour]), shift = means[colour] / spreads[colour];

        for (size_t p = 0; p < CIFAR10_PIXELS; p++) {
            to[p * CIFAR10_CHANNELS + colour] = (float)from[p] * scale - shift;
        }
    }
}

/* Opens `from`/`name` in S3 or a directory, or the job's channel `name`. */
static enum pl_status open_dataset(struct pl_runtime *runtime, const char *name, const char *from,
                                   struct pl_dataset_options *options, struct pl_dataset **ret_dataset,
                                   struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text place = PL_TEXT_NONE;
    struct pl_channel_setup channel = {.name = NULL};
    const char *url;
    enum pl_status status;

    pl_text_printf(&place, "%s/%s%s", from, name, strncmp(from, "s3://", 5) == 0 ? "/" : "");
    PL_TRY(pl_text_check(&place, reterr));
    url = pl_text_string(&place);
    if (strncmp(from, "s3://", 5) == 0) {
        options->paths = &url;
        options->path_count = 1;
        return pl_dataset_open(options, ret_dataset, reterr);
    }
    PL_TRY(*from ? pl_channel_setup_directory(name, url, &channel, reterr)
                 : pl_channel_setup_find(runtime, name, &channel, reterr));
    options->channel = &channel.info;
    status = pl_dataset_open(options, ret_dataset, reterr);
    pl_channel_setup_done(&channel);
    return status;
}

enum pl_status cifar10_data_open(struct pl_runtime *runtime, const char *name, bool training,
                                 const struct cifar10_options *options, struct pl_shard all, struct pl_shard local,
                                 struct cifar10_data **ret_data, struct pl_error *reterr)
{
    static const struct pl_field fields[] = {
        {.name = "image", .type = PL_UINT8, .dims = 3, .shape = {CIFAR10_CHANNELS, CIFAR10_SIDE, CIFAR10_SIDE}},
        {.name = "label", .type = PL_UINT8},
    };
    struct pl_dataset_options shape = {
        .records = {.format = PL_RECORD_TFRECORD},
        .compression = PL_COMPRESSION_AUTO,
        .source = PL_FIELDS_EXAMPLE,
        .fields = fields,
        .field_count = 2,
        .batch_samples = training ? options->batch_size : EVALUATE_SAMPLES,
        .drop_last = training,
        .shuffle_samples = training ? options->shuffle_buffer : 0,
        .seed = options->seed,
        .deal = all,
        .local = local,
        .epochs = options->max_steps ? 1 : options->epochs,
        .timeout_ns = (int64_t)(options->timeout * (double)PL_NS_PER_S),
    };
    struct cifar10_data *data;
    enum pl_status status;

    PL_TRY(pl_memory_alloc(&data, 1, sizeof(*data), reterr));
    status = open_dataset(runtime, name, options->data, &shape, &data->dataset, reterr);
    if (status == PL_OK) {
        status = pl_memory_alloc(&data->images, shape.batch_samples, CIFAR10_VALUES * sizeof(float), reterr);
    }
    if (status == PL_OK) {
        status = pl_memory_alloc(&data->labels, shape.batch_samples, 1, reterr);
    }
    if (status != PL_OK) {
        cifar10_data_close(data);
        return status;
    }
    *ret_data = data;
    return PL_OK;
}

enum pl_status cifar10_data_start(struct cifar10_data *data, uint64_t epoch, struct pl_error *reterr)
{
    return pl_dataset_start(data->dataset, epoch, reterr);
}

enum pl_status cifar10_data_next(struct cifar10_data *data, struct cifar10_batch *ret_batch, struct pl_error *reterr)
{
    enum pl_status status = PL_OK;
    struct pl_batch batch;

    /* the dataset itself fails if one record takes too long */
    PL_TRY(pl_dataset_next(data->dataset, PL_DEADLINE_NEVER, &batch, reterr));
    memcpy(data->labels, batch.fields[1].data, batch.samples);
    for (size_t i = 0; i < batch.samples; i++) {
        convert((const unsigned char *)batch.fields[0].data + i * CIFAR10_VALUES, data->images + i * CIFAR10_VALUES);
        if (data->labels[i] >= CLASSES) {
            status = pl_error_set(reterr, PL_INVALID, "sample %zu of batch %llu has the label %u; expected 0 to 9", i,
                                  (unsigned long long)batch.index, data->labels[i]);
        }
    }
    *ret_batch = (struct cifar10_batch){
        .index = batch.index, .samples = batch.samples, .images = data->images, .labels = data->labels};
    pl_batch_release(&batch);
    return status;
}

struct pl_dataset_progress cifar10_data_progress(const struct cifar10_data *data)
{
    return pl_dataset_progress(data->dataset);
}

void cifar10_data_close(struct cifar10_data *data)
{
    if (data) {
        pl_dataset_close(data->dataset);
        free(data->images);
        free(data->labels);
        free(data);
    }
}
