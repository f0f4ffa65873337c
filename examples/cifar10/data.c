/* SPDX-License-Identifier: Apache-2.0 */
/* Opens CIFAR-10 channels as loaders of decoded batches. */
#include "examples/cifar10/data.h"

#include "base/clock.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CLASSES = 10, EVALUATE_SAMPLES = 100 };

struct cifar10_data {
    struct pl_channel_setup channel;
    struct pl_stream_samples samples;
    struct pl_loader *loader;
    char *socket_path;
    int64_t timeout_ns;
    struct pl_shard all, local;
};

/* Mean and standard deviation of the training pictures' colours, as most CIFAR-10 programs use them. */
static const float means[CIFAR10_CHANNELS] = {0.4914F, 0.4822F, 0.4465F};
static const float spreads[CIFAR10_CHANNELS] = {0.2470F, 0.2435F, 0.2616F};

/*
 * Decodes one tf.Example: "image" is 3072 bytes, one colour plane after the other; "label" is a number. It runs on the
 * loader's thread.
 */
static enum pl_status decode(void *context, const struct pl_record *record, void *const *fields,
                             struct pl_error *reterr)
{
    struct pl_example_feature feature;
    struct pl_view image;
    int64_t label = -1;
    size_t count = 0;

    (void)context;
    PL_TRY(pl_example_find(record->data, record->bytes, "image", &feature, reterr));
    PL_TRY(pl_example_bytes(&feature, &image, reterr));
    PL_TRY(pl_example_find(record->data, record->bytes, "label", &feature, reterr));
    PL_TRY(pl_example_int64(&feature, &label, 1, &count, reterr));
    if (image.bytes != CIFAR10_VALUES || count != 1 || label < 0 || label >= CLASSES) {
        return pl_error_set(reterr, PL_INVALID,
                            "an image of %zu bytes with label %lld; expected %d bytes and a label from 0 to 9",
                            image.bytes, (long long)label, (int)CIFAR10_VALUES);
    }
    for (size_t colour = 0; colour < CIFAR10_CHANNELS; colour++) {
        const unsigned char *from = image.data + colour * CIFAR10_PIXELS;
        float *to = (float *)fields[0] + colour;
        float scale = 1.0F / (255.0F * spreads[colour]), shift = means[colour] / spreads[colour];

        for (size_t p = 0; p < CIFAR10_PIXELS; p++) {
            to[p * CIFAR10_CHANNELS] = (float)from[p] * scale - shift;
        }
    }
    *(uint8_t *)fields[1] = (uint8_t)label;
    return PL_OK;
}

/*
 * Makes the path of the socket over which the ranks of this host share a FIFO: in the job's directory, or if there is
 * none in a place that ranks of the same mpirun know.
 */
static enum pl_status make_socket_path(struct pl_runtime *runtime, struct cifar10_data *data, const char *name,
                                       struct pl_error *reterr)
{
    const char *directory = pl_runtime_variable(runtime, "PACELINE_RUN_DIR", NULL);
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    if (directory) {
        pl_text_printf(&path, "%s/channel-%s", directory, name);
    } else {
        pl_text_printf(&path, "%s/paceline-%ld-%ld-%s", pl_runtime_variable(runtime, "TMPDIR", "/tmp"), (long)getuid(),
                       (long)getppid(), name);
    }
    return pl_text_take(&path, &data->socket_path, reterr);
}

static enum pl_status open_s3(struct cifar10_data *data, const char *url, const struct pl_stream_options *options,
                              struct pl_error *reterr)
{
    PL_AUTO_OBJECT_LIST struct pl_object_list list = {.items = NULL};
    struct pl_store *store;
    enum pl_status status;

    PL_TRY(pl_store_open(url, &store, reterr));
    /* S3 has no directories: a missing channel is a prefix without objects. */
    status = pl_store_list(store, pl_deadline_after_ns(data->timeout_ns), &list, reterr);
    if (status == PL_OK && list.count == 0) {
        status = pl_error_set(reterr, PL_NOT_FOUND, "'%s' holds no objects", url);
    }
    if (status == PL_OK) {
        status = pl_stream_open_store(store, options, &data->samples.stream, reterr);
    }
    if (status != PL_OK) {
        pl_store_close(store);
    }
    return status;
}

static enum pl_status open_channel(struct pl_runtime *runtime, struct cifar10_data *data, const char *name,
                                   const char *directory, struct pl_stream_options *options, struct pl_error *reterr)
{
    struct pl_share_options share = {
        .local_rank = data->local.rank, .local_size = data->local.size, .timeout_ns = data->timeout_ns};

    if (directory) {
        PL_TRY(pl_channel_setup_directory(name, directory, &data->channel, reterr));
    } else {
        PL_TRY(pl_channel_setup_find(runtime, name, &data->channel, reterr));
    }
    PL_TRY(make_socket_path(runtime, data, name, reterr));
    share.socket_path = data->socket_path;
    options->deal = pl_channel_shard(&data->channel.info, options->deal, data->local);
    options->share = &share;
    return pl_stream_open(&data->channel.info, options, &data->samples.stream, reterr);
}

static enum pl_status open_stream(struct pl_runtime *runtime, struct cifar10_data *data, const char *name,
                                  const char *from, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text place = PL_TEXT_NONE;
    struct pl_stream_options options = {
        .records = {.format = PL_RECORD_TFRECORD},
        .compression = PL_COMPRESSION_AUTO,
        .deal = data->all,
    };

    if (!*from) {
        return open_channel(runtime, data, name, NULL, &options, reterr);
    }
    pl_text_printf(&place, "%s/%s", from, name);
    PL_TRY(pl_text_check(&place, reterr));
    if (strncmp(from, "s3://", 5) == 0) {
        pl_text_append_char(&place, '/');
        PL_TRY(pl_text_check(&place, reterr));
        return open_s3(data, pl_text_string(&place), &options, reterr);
    }
    return open_channel(runtime, data, name, pl_text_string(&place), &options, reterr);
}

enum pl_status cifar10_data_open(struct pl_runtime *runtime, const char *name, bool training,
                                 const struct cifar10_options *options, struct pl_shard all, struct pl_shard local,
                                 struct cifar10_data **ret_data, struct pl_error *reterr)
{
    struct cifar10_data *data = pl_memory_new(1, sizeof(*data), reterr);
    struct pl_loader_options shape = {
        .fields = 2,
        .sample_bytes = {CIFAR10_VALUES * sizeof(float), 1},
        .batch_samples = training ? options->batch_size : EVALUATE_SAMPLES,
        .drop_last = training,
        .shuffle_samples = training ? options->shuffle_buffer : 0,
        .shuffle_seed = options->seed,
        .timeout_ns = (int64_t)(options->timeout * (double)PL_NS_PER_S),
    };
    struct pl_loader_input input;
    enum pl_status status;

    if (!data) {
        return PL_MEMORY;
    }
    data->timeout_ns = shape.timeout_ns;
    data->all = all;
    data->local = local;
    data->samples.decode = decode;
    status = open_stream(runtime, data, name, options->data, reterr);
    if (status == PL_OK) {
        input = pl_loader_input_stream(&data->samples);
        status = pl_loader_new(&shape, &input, &data->loader, reterr);
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
    return pl_loader_start(data->loader, epoch, reterr);
}

enum pl_status cifar10_data_next(struct cifar10_data *data, struct pl_batch *ret_batch, struct pl_error *reterr)
{
    /* the loader itself fails if one record takes too long */
    return pl_loader_next(data->loader, PL_DEADLINE_NEVER, ret_batch, reterr);
}

struct pl_loader_progress cifar10_data_progress(const struct cifar10_data *data)
{
    return pl_loader_progress(data->loader);
}

void cifar10_data_close(struct cifar10_data *data)
{
    if (data) {
        pl_loader_free(data->loader);
        pl_stream_close(data->samples.stream);
        pl_channel_setup_done(&data->channel);
        free(data->socket_path);
        free(data);
    }
}
