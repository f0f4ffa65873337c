/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A training step without a model, on CPUs or GPUs: a list of gradients, a backward pass that only takes time, and real
 * communication. It shows how fast the network is for a model that does not exist yet, and how much of the
 * communication is hidden by the backward pass.
 */
#include "examples/nn/device.h"
#include "examples/synthetic/gpu.h"
#include "examples/synthetic/gradient_list.h"
#include "runtime/paceline.h"

#include "base/text.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_STEPS = 100000 };

static const int64_t SLICE_NS = PL_NS_PER_MS / 2;

struct options {
    const char *gradients, *device, *work, *late_as;
    double backward_ms, late_percent;
    uint64_t late_rank, poll, steps, warmup, json;
};

static const struct nn_option option_table[] = {
    NN_TEXT(struct options, gradients, "", "JSON file with the gradients; without one, those of examples/mnist"),
    NN_NUMBER(struct options, backward_ms, "0", 0, 1e6,
              "time of the backward pass, divided among tensors by size; 0: as long as the communication"),
    NN_TEXT(
        struct options, work, "busy",
        "busy: the backward pass keeps the CPU, or every multiprocessor of the GPU, busy; timer: it leaves them idle"),
    NN_TEXT(struct options, device, "auto",
            "cpu; cuda: a GPU for each rank; cuda:N: GPU N for all ranks; auto: as the setting `device` says"),
    NN_NUMBER(struct options, late_percent, "0", 0, 1000,
              "one rank is late in each step by this part of the backward pass; 0: none is"),
    NN_NUMBER(struct options, late_rank, "0", 0, INT32_MAX, "the rank that is late"),
    NN_TEXT(struct options, late_as, "compute", "why it is late: it computes longer, waits for data, or must save"),
    NN_NUMBER(struct options, poll, "0", 0, 1,
              "1: on the CPU, call pl_plan_progress() twice per millisecond meanwhile; 0: only mark tensors ready"),
    NN_NUMBER(struct options, steps, "20", 1, MOST_STEPS, "timed steps of each kind"),
    NN_NUMBER(struct options, warmup, "3", 0, MOST_STEPS, "steps of each kind before the timed ones"),
    NN_NUMBER(struct options, json, "0", 0, 1, "1: print one JSON object"),
    NN_OPTIONS_END,
};

struct synthetic {
    struct options options;
    struct pl_runtime *runtime;
    struct pl_world *world;
    struct gradient_list list;
    struct gpu *gpu; /* NULL on the CPU */
    struct pl_plan *plan;
    bool busy, late; /* late: this rank is the late one */
    uint64_t step;
    /* [2 * tensors]: values that this rank writes into each tensor, later the values that it finds there */
    float *ends;
    double *ms; /* [steps]: time of each step */
};

/* Times of the three kinds of step: for each step the slowest rank's time, then the median over the steps. */
struct result {
    double communication_ms;
    double backward_ms;
    double step_ms;
};

/* Returns the value that a rank writes into tensor i. It is an integer, so that the average can be checked exactly. */
static float value_of(const struct synthetic *s, size_t i, int rank)
{
    return (float)((i + s->step) % 8) + (float)rank;
}

/* Writes only the ends of a tensor: writing all of it is part of the backward pass, whose time is given. */
static void mark(const struct synthetic *s, size_t i)
{
    float *gradient = pl_plan_tensor(s->plan, i)->gradient;

    gradient[0] = s->ends[2 * i];
    gradient[s->list.counts[i] - 1] = s->ends[2 * i + 1];
}

static enum pl_status read_ends(const struct synthetic *s, struct pl_error *reterr)
{
    if (s->gpu) {
        return gpu_get_ends(s->gpu, s->ends, reterr);
    }
    for (size_t i = 0; i < s->list.count; i++) {
        const float *gradient = pl_plan_tensor(s->plan, i)->gradient;

        s->ends[2 * i] = gradient[0];
        s->ends[2 * i + 1] = gradient[s->list.counts[i] - 1];
    }
    return PL_OK;
}

static enum pl_status check(const struct synthetic *s, struct pl_error *reterr)
{
    PL_TRY(read_ends(s, reterr));
    for (size_t i = 0; i < s->list.count; i++) {
        float want = value_of(s, i, 0) + (float)(pl_world_size(s->world) - 1) / 2.0F;

        for (size_t end = 0; end < 2; end++) {
            float got = s->ends[2 * i + end];

            if (fabsf(got - want) > 1e-3F) {
                return pl_error_set(reterr, PL_CORRUPT, "the average of tensor '%s' is %g, not %g", s->list.names[i],
                                    (double)got, (double)want);
            }
        }
    }
    return PL_OK;
}

/* Works until `end_ns`. With `poll` it calls the runtime meanwhile, as a program may do between layers. */
static enum pl_status work_until(const struct synthetic *s, int64_t end_ns, bool poll, struct pl_error *reterr)
{
    int64_t now_ns;

    while ((now_ns = pl_clock_now_ns()) < end_ns) {
        int64_t slice_ns = poll && now_ns + SLICE_NS < end_ns ? now_ns + SLICE_NS : end_ns;

        if (s->busy) {
            while (pl_clock_now_ns() < slice_ns) {
            }
        } else {
            pl_clock_nap(slice_ns - now_ns, slice_ns);
        }
        if (poll) {
            PL_TRY(pl_plan_progress(s->plan, reterr));
        }
    }
    return PL_OK;
}

/* Returns when `elems` elements are done in a backward pass of `backward_ms`. */
static int64_t done_ns(const struct synthetic *s, double backward_ms, uint64_t elems)
{
    return (int64_t)(backward_ms * (double)PL_NS_PER_MS * (double)elems / (double)s->list.elems);
}

static enum pl_status begin_step(struct synthetic *s, double backward_ms, struct pl_error *reterr)
{
    for (size_t i = 0; i < s->list.count; i++) {
        s->ends[2 * i] = s->ends[2 * i + 1] = value_of(s, i, pl_world_rank(s->world));
    }
    if (!s->gpu) {
        return PL_OK;
    }
    PL_TRY(gpu_set_ends(s->gpu, s->ends, reterr));
    return backward_ms > 0.0 ? PL_OK : gpu_mark_all(s->gpu, reterr); /* the backward pass marks each tensor itself */
}

/* Makes this rank wait before its step, as if for data or a file, and adds a span called `late_as` to the trace. */
static enum pl_status be_late(const struct synthetic *s, double ms, struct pl_error *reterr)
{
    const int64_t start_ns = pl_clock_now_ns(), end_ns = start_ns + (int64_t)(ms * (double)PL_NS_PER_MS);

    PL_TRY(work_until(s, end_ns, false, reterr));
    pl_trace_add(pl_runtime_trace(s->runtime), s->options.late_as, start_ns, pl_clock_now_ns());
    return PL_OK;
}

/* Runs one step: tensors become ready from the last to the first, each after its share of the time. */
static enum pl_status run_step(struct synthetic *s, double backward_ms, bool communicate, struct pl_error *reterr)
{
    const double late_ms = s->late ? backward_ms * s->options.late_percent / 100.0 : 0.0;
    int64_t start_ns;
    uint64_t done_elems = 0;

    if (late_ms > 0.0 && strcmp(s->options.late_as, "compute") == 0) {
        backward_ms += late_ms;
    } else if (late_ms > 0.0) {
        PL_TRY(be_late(s, late_ms, reterr));
    }
    start_ns = pl_clock_now_ns();
    PL_TRY(begin_step(s, backward_ms, reterr));
    for (size_t i = s->list.count; i-- > 0;) {
        int64_t before_ns = done_ns(s, backward_ms, done_elems), end_ns;

        done_elems += s->list.counts[i];
        end_ns = done_ns(s, backward_ms, done_elems);
        if (!s->gpu) {
            PL_TRY(work_until(s, start_ns + end_ns, communicate && s->options.poll, reterr));
            mark(s, i);
        } else if (backward_ms > 0.0) {
            PL_TRY(gpu_work(s->gpu, end_ns - before_ns, s->busy, reterr));
            PL_TRY(gpu_mark(s->gpu, i, reterr));
        }
        if (communicate) {
            PL_TRY(pl_plan_ready(s->plan, i, reterr));
        }
    }
    if (!s->gpu) {
        pl_trace_add(pl_runtime_trace(s->runtime), "backward", start_ns, pl_clock_now_ns());
    }
    PL_TRY(communicate ? pl_plan_wait(s->plan, reterr) : PL_OK);
    return pl_plan_finish(s->plan, reterr);
}

static int compare_doubles(const void *left_at, const void *right_at)
{
    double left = *(const double *)left_at, right = *(const double *)right_at;

    return (left > right) - (left < right);
}

static enum pl_status time_steps(struct synthetic *s, double backward_ms, bool communicate, double *ret_median_ms,
                                 struct pl_error *reterr)
{
    for (uint64_t n = 0; n < s->options.warmup + s->options.steps; n++) {
        int64_t start_ns;
        double ms;

        PL_TRY(pl_barrier(s->world, reterr));
        start_ns = pl_clock_now_ns();
        PL_TRY(run_step(s, backward_ms, communicate, reterr));
        ms = (double)(pl_clock_now_ns() - start_ns) / (double)PL_NS_PER_MS;
        if (communicate) {
            PL_TRY(check(s, reterr));
        }
        PL_TRY(pl_allreduce(s->world, &ms, &ms, 1, PL_FLOAT64, PL_MAX, reterr));
        if (n >= s->options.warmup) {
            s->ms[n - s->options.warmup] = ms;
        }
        s->step++;
    }
    qsort(s->ms, s->options.steps, sizeof(double), compare_doubles);
    *ret_median_ms = s->ms[s->options.steps / 2];
    return PL_OK;
}

/* Returns the hidden part of the communication, as a share of the part that could be hidden. */
static double overlap_of(const struct result *result)
{
    double shorter_ms = fmin(result->communication_ms, result->backward_ms);
    double saved_ms = result->communication_ms + result->backward_ms - result->step_ms;

    return shorter_ms > 0.0 ? fmin(fmax(saved_ms / shorter_ms, 0.0), 1.0) : 0.0;
}

/*
 * Returns the rate of each rank's link in one direction during a ring reduction. It is comparable between numbers of
 * ranks.
 */
static double busbw_gb_s(const struct synthetic *s, const struct result *result)
{
    double ranks = pl_world_size(s->world);
    double bytes = (double)s->list.elems * sizeof(float);

    return result->communication_ms > 0.0 ? 2.0 * (ranks - 1.0) / ranks * bytes / result->communication_ms / 1e6 : 0.0;
}

static enum pl_status report(const struct synthetic *s, const struct result *result, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    int ranks = pl_world_size(s->world), hosts = pl_world_cross_size(s->world);
    unsigned long long bytes = s->list.elems * sizeof(float);
    size_t buckets = pl_plan_bucket_count(s->plan);
    const char *device = s->gpu ? pl_device_info(pl_runtime_device(s->runtime))->name : "cpu";

    if (s->options.json) {
        pl_text_printf(
            &text,
            "{\"model\": \"%s\", \"device\": \"%s\", \"ranks\": %d, \"hosts\": %d, \"tensors\": %zu, \"bytes\": %llu, "
            "\"buckets\": %zu, \"work\": \"%s\", "
            "\"communication_ms\": %.3f, \"backward_ms\": %.3f, \"step_ms\": %.3f, \"overlap\": %.3f, \"busbw_gb_s\": "
            "%.3f}",
            s->list.name, device, ranks, hosts, s->list.count, bytes, buckets, s->options.work,
            result->communication_ms, result->backward_ms, result->step_ms, overlap_of(result), busbw_gb_s(s, result));
    } else {
        pl_text_printf(
            &text, "%s: %d rank(s) on %d host(s), %zu tensors, %.1f MB, %zu bucket(s), device: %s, work: %s\n",
            s->list.name, ranks, hosts, s->list.count, (double)bytes / 1e6, buckets, device, s->options.work);
        pl_text_printf(
            &text,
            "  communication alone %10.3f ms\n  backward pass alone %10.3f ms\n  step of both        %10.3f ms\n",
            result->communication_ms, result->backward_ms, result->step_ms);
        pl_text_printf(&text,
                       "  overlap             %10.3f of the shorter of the two\n  bus bandwidth       %10.3f GB/s",
                       overlap_of(result), busbw_gb_s(s, result));
    }
    PL_TRY(pl_text_check(&text, reterr));
    if (puts(text.data) < 0 || fflush(stdout) != 0) {
        return pl_error_errno(reterr, "write the result");
    }
    return PL_OK;
}

static enum pl_status make_plan(struct synthetic *s, struct pl_error *reterr)
{
    struct pl_plan_options options = {.memory = PL_MEMORY_HOST};

    if (pl_runtime_device(s->runtime)) {
        PL_TRY(gpu_new(pl_runtime_device(s->runtime), &s->gpu, reterr));
        options.memory = PL_MEMORY_DEVICE;
        options.stream = gpu_stream(s->gpu);
    }
    PL_TRY(pl_plan_new(s->world, &options, &s->plan, reterr));
    for (size_t i = 0; i < s->list.count; i++) {
        size_t index;

        PL_TRY(pl_plan_add(s->plan, s->list.names[i], 1, &s->list.counts[i], &index, reterr));
    }
    PL_TRY(pl_plan_seal(s->plan, reterr));
    return s->gpu ? gpu_bind(s->gpu, s->plan, reterr) : PL_OK;
}

static enum pl_status run(struct synthetic *s, struct pl_error *reterr)
{
    struct result result;
    const char *device;
    double backward_ms;

    PL_TRY(nn_device_parse(s->options.device, &device, reterr));
    s->busy = strcmp(s->options.work, "busy") == 0;
    if (!s->busy && strcmp(s->options.work, "timer") != 0) {
        return pl_error_set(reterr, PL_INVALID, "--work is '%s', expected busy or timer", s->options.work);
    }
    if (strcmp(s->options.late_as, "compute") != 0 && strcmp(s->options.late_as, "data") != 0 &&
        strcmp(s->options.late_as, "save") != 0) {
        return pl_error_set(reterr, PL_INVALID, "--late-as is '%s', expected compute, data or save",
                            s->options.late_as);
    }
    s->ms = pl_memory_new(s->options.steps, sizeof(double), reterr);
    if (!s->ms) {
        return PL_MEMORY;
    }
    PL_TRY(*s->options.gradients ? gradient_list_read(s->options.gradients, &s->list, reterr)
                                 : gradient_list_default(&s->list, reterr));
    s->ends = pl_memory_new(2 * s->list.count, sizeof(float), reterr);
    if (!s->ends) {
        return PL_MEMORY;
    }
    PL_TRY(pl_runtime_start_on_device(NULL, device, &s->runtime, reterr));
    s->world = pl_runtime_world(s->runtime);
    s->late = pl_world_rank(s->world) == (int)s->options.late_rank;
    PL_TRY(make_plan(s, reterr));
    PL_TRY(time_steps(s, 0.0, true, &result.communication_ms, reterr));
    backward_ms = s->options.backward_ms > 0.0 ? s->options.backward_ms : result.communication_ms;
    PL_TRY(time_steps(s, backward_ms, false, &result.backward_ms, reterr));
    PL_TRY(time_steps(s, backward_ms, true, &result.step_ms, reterr));
    return pl_world_rank(s->world) == 0 ? report(s, &result, reterr) : PL_OK;
}

int main(int argc, char **argv)
{
    struct synthetic synthetic = {.step = 0};
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;

    pl_log_set_prefix("synthetic");
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        nn_options_help(option_table, "synthetic", stdout);
        return EXIT_SUCCESS;
    }
    status = nn_options_parse(option_table, argc, argv, &synthetic.options, &error);
    if (status == PL_OK) {
        status = run(&synthetic, &error);
    }
    if (status != PL_OK) {
        pl_log_error(&error, "no result");
        return EXIT_FAILURE; /* exit at once: mpirun ends the other ranks */
    }
    pl_plan_free(synthetic.plan);
    gpu_free(synthetic.gpu);
    gradient_list_done(&synthetic.list);
    free(synthetic.ends);
    free(synthetic.ms);
    pl_runtime_stop(synthetic.runtime);
    return EXIT_SUCCESS;
}
