/* SPDX-License-Identifier: Apache-2.0 */
/* Saves a plan and its optimizer in a background thread, to files and kept memory, and loads the newest checkpoint. */
#include "runtime/checkpoint.h"

#include "base/checksum.h"
#include "base/file.h"
#include "base/knob.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/thread.h"
#include "collectives/world_private.h"
#include "device/device_private.h"
#include "runtime/checkpoint/checkpoint_format.h"
#include "runtime/checkpoint/keeper.h"
#include "runtime/gradient/optimizer_rule.h"
#include "runtime/gradient/plan_private.h"
#include "runtime/safetensors.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SLOTS = 2 };

/* A tensor of a file: its position in the copy, and its name in the file. */
struct entry {
    char *name;
    const struct pl_plan_tensor *tensor;
    unsigned array; /* 0: values; above 0: optimizer slots */
};

struct pl_checkpoints {
    struct pl_plan *plan;
    struct pl_optimizer *optimizer;
    struct pl_checkpoints_options options;
    char *directory;
    bool writes; /* true on rank 0 */

    unsigned arrays;
    float *live[1 + MAX_SLOTS];
    struct entry *entries;
    size_t entry_count;

    float *copy;     /* [arrays][elems]: data to write; owned by the writer thread while `writing` */
    float *own_copy; /* memory for `copy` if the copy is not in kept memory */
    struct pl_checkpoint_record record;
    bool writing;
    bool to_files; /* the writer also writes files */
    bool cleaned;  /* see clean() */
    pthread_t writer;

    /* the job's kept memory. Once it is in use, `copy` is there; with device memory, a second copy is there */
    struct pl_keeper keeper;

    /*
     * In device memory `copy` is pinned memory. A separate stream fills it, after the event `begun` of the plan's
     * stream; the event `copied` is at the end of the copy.
     */
    struct pl_device *device;
    void *stream, *begun, *copied;
    int64_t copy_deadline_ns;

    enum pl_status write_status;
    struct pl_error write_error;
};

static void add_to_model(uint64_t *model, const struct entry *entry)
{
    const struct pl_plan_tensor *tensor = entry->tensor;

    *model = pl_checksum_crc64nvme(*model, entry->name, strlen(entry->name) + 1);
    *model = pl_checksum_crc64nvme(*model, &tensor->offset_elems, sizeof(tensor->offset_elems));
    *model = pl_checksum_crc64nvme(*model, tensor->shape, tensor->dims * sizeof(tensor->shape[0]));
}

static enum pl_status name_entries(struct pl_checkpoints *c, struct pl_error *reterr)
{
    size_t tensors = pl_plan_tensor_count(c->plan);

    PL_TRY(pl_memory_alloc(&c->entries, tensors * c->arrays, sizeof(*c->entries), reterr));
    for (unsigned a = 0; a < c->arrays; a++) {
        for (size_t i = 0; i < tensors; i++) {
            struct entry *entry = &c->entries[c->entry_count++];
            PL_AUTO_TEXT struct pl_text name = PL_TEXT_NONE;

            entry->tensor = pl_plan_tensor(c->plan, i);
            entry->array = a;
            if (a > 0) {
                pl_text_printf(&name, "optimizer.%s.", pl_optimizer_slot_name(c->optimizer, a - 1));
            }
            pl_text_append(&name, entry->tensor->name);
            PL_TRY(pl_text_take(&name, &entry->name, reterr));
            add_to_model(&c->keeper.model, entry);
        }
    }
    return PL_OK;
}

static enum pl_status allocate_copy(struct pl_checkpoints *c, struct pl_error *reterr)
{
    void *copy;

    if (!c->device) {
        PL_TRY(pl_memory_alloc_aligned(&c->own_copy, c->keeper.data_bytes, 1, 4096, reterr));
        c->copy = c->own_copy;
        return PL_OK;
    }
    PL_TRY(pl_device_alloc_pinned(c->device, c->keeper.data_bytes, &copy, reterr));
    c->copy = copy;
    PL_TRY(pl_device_stream_new(c->device, &c->stream, reterr));
    PL_TRY(pl_device_event_new(c->device, false, &c->begun, reterr));
    return pl_device_event_new(c->device, false, &c->copied, reterr);
}

static void free_copy(struct pl_checkpoints *c)
{
    if (!c->device) {
        free(c->own_copy);
        return;
    }
    c->plan->copy_event = NULL;
    pl_device_event_free(c->device, c->copied);
    pl_device_event_free(c->device, c->begun);
    pl_device_stream_free(c->device, c->stream);
    pl_device_release_pinned(c->device, c->copy);
}

static enum pl_status open_checkpoints(struct pl_checkpoints *c, struct pl_error *reterr)
{
    if (c->options.memory_only) {
        c->options.directory = NULL;
    } else if (!c->options.directory) {
        PL_TRY(pl_checkpoints_directory(&c->directory, reterr));
    } else if (!(c->directory = pl_memory_string(c->options.directory, reterr))) {
        return PL_MEMORY;
    }
    c->options.keep = c->options.keep ? c->options.keep : 3;
    c->live[c->arrays++] = pl_plan_values(c->plan);
    for (unsigned s = 0; c->optimizer && s < pl_optimizer_slots(c->optimizer); s++) {
        c->live[c->arrays++] = pl_optimizer_slot(c->optimizer, s);
    }
    PL_TRY(name_entries(c, reterr));
    c->writes = pl_world_rank(pl_plan_world(c->plan)) == 0;
    c->keeper.data_bytes = c->arrays * pl_plan_elems(c->plan) * sizeof(float);
    if (c->writes && (c->device || c->directory)) {
        PL_TRY(allocate_copy(c, reterr));
    }
    return c->writes && c->directory ? pl_file_make_dirs(c->directory, 0777, reterr) : PL_OK;
}

enum pl_status pl_checkpoints_open(struct pl_plan *plan, struct pl_optimizer *optimizer,
                                   const struct pl_checkpoints_options *options,
                                   struct pl_checkpoints **ret_checkpoints, struct pl_error *reterr)
{
    struct pl_checkpoints *c;
    enum pl_status status;

    PL_TRY(pl_plan_check_sealed(plan, reterr));
    PL_TRY(pl_memory_alloc(&c, 1, sizeof(*c), reterr));
    c->plan = plan;
    c->optimizer = optimizer;
    c->device = pl_plan_device(plan);
    c->options = options ? *options : (struct pl_checkpoints_options){0};
    c->options.world_size =
        c->options.world_size ? c->options.world_size : (unsigned)pl_world_size(pl_plan_world(plan));
    c->keeper.every_steps = c->options.keep_steps
                                ? c->options.keep_steps
                                : (uint64_t)pl_knob_int(pl_world_knobs(pl_plan_world(plan)), PL_KNOB_KEEP_STEPS);
    status = open_checkpoints(c, reterr);
    if (status != PL_OK) {
        pl_checkpoints_close(c);
        return status;
    }
    *ret_checkpoints = c;
    return PL_OK;
}

/* Describes all tensors of a file, at their positions in the copy. The caller frees the result. */
static struct pl_tensor *describe_entries(const struct pl_checkpoints *c, struct pl_error *reterr)
{
    struct pl_tensor *tensors = pl_memory_new(c->entry_count, sizeof(*tensors), reterr);

    for (size_t i = 0; tensors && i < c->entry_count; i++) {
        const struct entry *entry = &c->entries[i];

        tensors[i] = pl_plan_file_tensor(entry->tensor, entry->name, c->copy + entry->array * pl_plan_elems(c->plan));
    }
    return tensors;
}

/* Removes what a killed run has left half written, before the first write: a program that only loads may run beside
 * the one that writes. */
static enum pl_status clean(struct pl_checkpoints *c, struct pl_error *reterr)
{
    PL_AUTO_FREE uint64_t *steps = NULL;
    size_t count;

    PL_TRY(c->cleaned ? PL_OK : pl_checkpoint_steps(c->directory, true, &steps, &count, reterr));
    c->cleaned = true;
    return PL_OK;
}

static enum pl_status write_files(struct pl_checkpoints *c, struct pl_error *reterr)
{
    PL_AUTO_FREE struct pl_tensor *tensors = describe_entries(c, reterr);
    PL_AUTO_TEXT struct pl_text state = PL_TEXT_NONE;

    if (!tensors) {
        return PL_MEMORY;
    }
    c->record.data_crc32c = pl_checkpoint_checksum(tensors, c->entry_count);
    pl_checkpoint_record_print(&c->record, &state);
    PL_TRY(pl_text_check(&state, reterr));
    PL_TRY(clean(c, reterr));
    return pl_checkpoint_write(c->directory, c->record.state.step, c->options.keep, tensors, c->entry_count,
                               pl_text_string(&state), reterr);
}

/* Finds memory for the next copy that no needed copy uses. */
static enum pl_status place_copy(struct pl_checkpoints *c, uint64_t step, struct pl_error *reterr)
{
    pl_keeper_begin(&c->keeper, step);
    if (c->device) {
        return PL_OK;
    }
    if (c->keeper.place) {
        free(PL_TAKE(c->own_copy));
        c->copy = (float *)(void *)c->keeper.place;
        return PL_OK;
    }
    return c->own_copy || !c->directory ? PL_OK : allocate_copy(c, reterr);
}

/* Copies all arrays. In device memory this only queues the copy after the work of the plan's stream. */
static enum pl_status take_copy(struct pl_checkpoints *c, struct pl_error *reterr)
{
    uint64_t elems = pl_plan_elems(c->plan);

    if (c->device) {
        PL_TRY(pl_device_stream_follow(c->device, c->stream, c->plan->options.stream, c->begun, reterr));
    }
    for (unsigned a = 0; a < c->arrays; a++) {
        if (c->device) {
            PL_TRY(
                pl_device_copy(c->device, c->copy + a * elems, c->live[a], elems * sizeof(float), c->stream, reterr));
        } else {
            memcpy(c->copy + a * elems, c->live[a], elems * sizeof(float));
        }
    }
    if (c->device) {
        PL_TRY(pl_device_event_record(c->device, c->copied, c->stream, reterr));
        c->plan->copy_event = c->copied;
        c->copy_deadline_ns = pl_world_deadline_ns(pl_plan_world(c->plan));
    }
    return PL_OK;
}

static void *writer_main(void *argument)
{
    struct pl_checkpoints *c = argument;

    if (c->device) {
        pl_device_pass_captures(c->device);
    }
    c->write_status =
        c->device ? pl_device_stream_finish(c->device, c->stream, c->copy_deadline_ns, &c->write_error) : PL_OK;
    if (c->write_status == PL_OK && c->keeper.place) {
        if (c->device) {
            memcpy(c->keeper.place, c->copy, c->keeper.data_bytes);
        }
        pl_keeper_end(&c->keeper, &c->record);
    }
    if (c->write_status == PL_OK && c->to_files) {
        c->write_status = write_files(c, &c->write_error);
    }
    atomic_store_explicit(&c->keeper.is_writing, false, memory_order_release);
    return NULL;
}

enum pl_status pl_checkpoints_flush(struct pl_checkpoints *checkpoints, struct pl_error *reterr)
{
    struct pl_checkpoints *c = checkpoints;
    enum pl_status status;

    if (c->writing) {
        pthread_join(c->writer, NULL);
        c->writing = false;
    }
    status = c->write_status;
    if (status != PL_OK && reterr) {
        *reterr = c->write_error;
        pl_error_context(reterr, "writing the checkpoint of step %llu", (unsigned long long)c->record.state.step);
    }
    c->write_status = PL_OK;
    return status;
}

static enum pl_status check_extra(const struct pl_checkpoint_state *state, struct pl_error *reterr)
{
    return state->extra_bytes <= PL_CHECKPOINT_EXTRA_BYTES
               ? PL_OK
               : pl_error_set(reterr, PL_INVALID, "%llu extra bytes, at most %d are kept",
                              (unsigned long long)state->extra_bytes, PL_CHECKPOINT_EXTRA_BYTES);
}

/* Takes a copy and starts its writer. */
static enum pl_status write_copy(struct pl_checkpoints *c, const struct pl_checkpoint_state *state, bool to_files,
                                 struct pl_error *reterr)
{
    enum pl_status status;

    PL_TRY(check_extra(state, reterr));
    if (!c->writes) {
        return PL_OK;
    }
    PL_TRY(pl_checkpoints_flush(c, reterr));
    PL_TRY(place_copy(c, state->step, reterr));
    if (!to_files && !c->keeper.place) {
        return PL_OK; /* nothing is kept in memory */
    }
    PL_TRY(take_copy(c, reterr));
    c->to_files = to_files;
    c->record = (struct pl_checkpoint_record){.state = *state};
    c->record.state.world_size = c->options.world_size;
    c->record.optimizer = c->optimizer ? pl_optimizer_state(c->optimizer) : (struct pl_optimizer_state){0};
    c->write_error = PL_ERROR_NONE;
    atomic_store_explicit(&c->keeper.is_writing, true, memory_order_relaxed);
    status = pl_thread_start(&c->writer, writer_main, c, "a thread that writes a checkpoint", reterr);
    c->writing = status == PL_OK;
    if (!c->writing) { /* else the writer's thread reads it */
        c->keeper.place = NULL;
    }
    return status;
}

enum pl_status pl_checkpoints_save(struct pl_checkpoints *checkpoints, const struct pl_checkpoint_state *state,
                                   struct pl_error *reterr)
{
    struct pl_checkpoints *c = checkpoints;

    if (c->writes && c->options.memory_only) {
        PL_TRY(pl_keeper_open(&c->keeper, reterr));
        c->keeper.keeps = c->keeper.kept;
    }
    return write_copy(c, state, !c->options.memory_only, reterr);
}

bool pl_checkpoints_keep_is_due(struct pl_checkpoints *checkpoints, uint64_t step)
{
    struct pl_checkpoints *c = checkpoints;

    return c->writes && (pl_keeper_open(&c->keeper, NULL) != PL_OK || pl_keeper_is_due(&c->keeper, step));
}

enum pl_status pl_checkpoints_keep(struct pl_checkpoints *checkpoints, const struct pl_checkpoint_state *state,
                                   struct pl_error *reterr)
{
    struct pl_checkpoints *c = checkpoints;

    PL_TRY(check_extra(state, reterr));
    if (c->writes) {
        PL_TRY(pl_keeper_open(&c->keeper, reterr));
    }
    if (!pl_keeper_is_due(&c->keeper, state->step)) {
        return PL_OK;
    }
    c->keeper.keeps = true;
    return write_copy(c, state, false, reterr);
}

/* What rank 0 sends to ranks that wait for a checkpoint. */
struct answer {
    bool reading;          /* rank 0 still reads, and more answers follow; all other fields are unset */
    struct pl_error error; /* why rank 0 has no checkpoint */
    bool found;
    struct pl_checkpoint_record record;
};

static enum pl_status give_answer(const struct pl_checkpoints *c, struct answer *answer, struct pl_error *reterr)
{
    struct pl_collective from_rank_0 = {
        .kind = PL_BROADCAST, .dtype = PL_UINT8, .count = sizeof(*answer), .recv = answer, .name = "checkpoints"};

    return pl_collective_run(pl_plan_world(c->plan), &from_rank_0, reterr);
}

/* Reads the tensors of `file` into the copy, which has the arrays' layout. Gaps between tensors stay zero. */
static enum pl_status read_tensors(struct pl_checkpoints *c, const struct pl_safetensors *file, const char *path,
                                   uint32_t crc_wanted, struct pl_error *reterr)
{
    PL_AUTO_FREE struct pl_tensor *wanted = describe_entries(c, reterr);
    struct answer reading;
    uint32_t crc = 0;

    if (!wanted) {
        return PL_MEMORY;
    }
    memset(&reading, 0, sizeof(reading));
    reading.reading = true;
    PL_TRY(pl_plan_file_compare(path, file, wanted, c->entry_count, reterr));
    for (size_t i = 0; i < c->entry_count; i++) {
        const struct entry *entry = &c->entries[i];
        float *to = c->copy + entry->array * pl_plan_elems(c->plan) + entry->tensor->offset_elems;

        /*
         * An answer before each tensor, so that the other ranks' deadline covers only one tensor, not the whole
         * checkpoint.
         */
        PL_TRY(give_answer(c, &reading, reterr));
        PL_TRY(pl_safetensors_read(file, i, to, reterr));
        crc = pl_checksum_crc32c(crc, to, wanted[i].bytes);
    }
    return crc == crc_wanted ? PL_OK
                             : pl_error_set(reterr, PL_CORRUPT, "'%s': the checksum of its tensors is wrong", path);
}

/* Copies the arrays at `data` into the plan and its optimizer. */
static enum pl_status take_over(struct pl_checkpoints *c, const float *data, struct pl_error *reterr)
{
    for (unsigned a = 0; a < c->arrays; a++) {
        PL_TRY(pl_plan_write_array(c->plan, c->live[a], data + a * pl_plan_elems(c->plan), reterr));
    }
    return PL_OK;
}

/* Checks the checkpoint of `step` completely, then copies it into the plan and its optimizer. */
static enum pl_status load_step(struct pl_checkpoints *c, uint64_t step, struct pl_checkpoint_record *ret_record,
                                struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    struct pl_safetensors *file = NULL;
    enum pl_status status;

    PL_TRY(pl_checkpoint_path(c->directory, step, "json", &path, reterr));
    PL_TRY(pl_checkpoint_record_read(pl_text_string(&path), ret_record, reterr));
    if (ret_record->state.step != step) {
        return pl_error_set(reterr, PL_CORRUPT, "'%s' has step %llu inside", pl_text_string(&path),
                            (unsigned long long)ret_record->state.step);
    }
    PL_TRY(pl_checkpoint_path(c->directory, step, "safetensors", &path, reterr));
    PL_TRY(pl_safetensors_open(pl_text_string(&path), &file, reterr));
    status = read_tensors(c, file, pl_text_string(&path), ret_record->data_crc32c, reterr);
    pl_safetensors_close(file);
    return status == PL_OK ? take_over(c, c->copy, reterr) : status;
}

static void note(const struct pl_checkpoints *c, const char *format, ...) PL_PRINTF(2, 3);

static void note(const struct pl_checkpoints *c, const char *format, ...)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    va_list args;

    va_start(args, format);
    pl_text_vprintf(&text, format, args);
    va_end(args);
    if (pl_text_check(&text, NULL) != PL_OK) {
        return;
    }
    if (c->options.note) {
        c->options.note(c->options.context, pl_text_string(&text));
    } else {
        pl_log(PL_LOG_WARNING, "%s", pl_text_string(&text));
    }
}

/*
 * Whether a failure is the checkpoint's own. Any other failure, for example an I/O error, may be temporary; loading an
 * older checkpoint would then lose the steps since it.
 */
static bool is_useless(enum pl_status status)
{
    return status == PL_CORRUPT || status == PL_LIMIT || status == PL_MISMATCH || status == PL_NOT_FOUND;
}

/* Notes if the number of ranks has changed since the checkpoint. */
static void note_world_size(const struct pl_checkpoints *c, const struct pl_checkpoint_state *state)
{
    if (state->world_size != c->options.world_size) {
        note(c,
             "the checkpoint of step %llu was written by %llu ranks and is continued by %llu: results will differ "
             "in the last bits",
             (unsigned long long)state->step, (unsigned long long)state->world_size,
             (unsigned long long)c->options.world_size);
    }
}

/* Finds the newest kept copy that fits; `*ret_data` is NULL if there is none, or if another part of the job keeps. */
static enum pl_status find_kept(struct pl_checkpoints *c, struct pl_checkpoint_record *ret_record,
                                const float **ret_data, struct pl_error *reterr)
{
    const enum pl_status status = pl_keeper_open(&c->keeper, reterr);

    *ret_data = NULL;
    if (status == PL_OK && pl_keeper_read(&c->keeper, ret_record, ret_data) == PL_MISMATCH) {
        note(c, "the kept copy of step %llu is passed over: it is of another model or optimizer",
             (unsigned long long)ret_record->state.step);
    }
    return status == PL_INVALID ? PL_OK : status;
}

static enum pl_status load_newest(struct pl_checkpoints *c, bool *ret_found, struct pl_checkpoint_record *ret_record,
                                  struct pl_error *reterr)
{
    PL_AUTO_FREE uint64_t *steps = NULL;
    size_t count = 0;
    char text[PL_ERROR_CAUSE_BYTES + PL_ERROR_CONTEXT_BYTES];
    struct pl_error other = PL_ERROR_NONE; /* error of the newest checkpoint of another model */
    struct pl_checkpoint_record kept_record;
    const float *kept;

    PL_TRY(pl_checkpoints_flush(c, reterr));
    PL_TRY(place_copy(c, 0, reterr)); /* files are read into this memory */
    if (c->keeper.place) {
        memset(c->keeper.place, 0, c->keeper.data_bytes); /* also the gaps between tensors */
        c->keeper.place = NULL;
    }
    PL_TRY(find_kept(c, &kept_record, &kept, reterr));
    PL_TRY(c->directory ? pl_checkpoint_steps(c->directory, false, &steps, &count, reterr) : PL_OK);
    for (size_t i = 0; i < count && !*ret_found && (!kept || steps[i] > kept_record.state.step); i++) {
        struct pl_error error = PL_ERROR_NONE;
        enum pl_status status = load_step(c, steps[i], ret_record, &error);

        PL_TRY(pl_world_failure(pl_plan_world(c->plan), reterr)); /* the world has failed, not the checkpoint */
        *ret_found = status == PL_OK;
        if (is_useless(status)) {
            note(c, "the checkpoint of step %llu is passed over: %s", (unsigned long long)steps[i],
                 pl_error_text(&error, text, sizeof(text)));
            other = status == PL_MISMATCH && other.status == PL_OK ? error : other;
        } else if (!*ret_found) {
            *reterr = error;
            pl_error_context(reterr, "loading the checkpoint of step %llu; it may be good, so no older one is taken",
                             (unsigned long long)steps[i]);
            return status;
        }
    }
    if (!*ret_found && kept) {
        PL_TRY(take_over(c, kept, reterr));
        *ret_record = kept_record;
        *ret_found = true;
    }
    if (*ret_found) {
        note_world_size(c, &ret_record->state);
    }
    if (!*ret_found && other.status != PL_OK &&
        !pl_knob_bool(pl_world_knobs(pl_plan_world(c->plan)), PL_KNOB_CHECKPOINT_IGNORE)) {
        *reterr = other;
        pl_error_context(reterr,
                         "no checkpoint in '%.200s' fits the program; to begin at step 0 beside them, set "
                         "PACELINE_CHECKPOINT_IGNORE=1 or the hyperparameter paceline_checkpoint_ignore",
                         c->directory);
        return other.status;
    }
    return PL_OK;
}

enum pl_status pl_checkpoints_load(struct pl_checkpoints *checkpoints, bool *ret_found,
                                   struct pl_checkpoint_state *ret_state, struct pl_error *reterr)
{
    struct pl_checkpoints *c = checkpoints;
    struct answer answer;

    memset(&answer, 0, sizeof(answer));
    if (c->writes) {
        answer.error.status = load_newest(c, &answer.found, &answer.record, &answer.error);
    }
    do {
        PL_TRY(give_answer(c, &answer, reterr));
    } while (answer.reading);
    if (answer.error.status != PL_OK) {
        if (reterr) {
            *reterr = answer.error;
        }
        return answer.error.status;
    }
    *ret_found = answer.found;
    if (!*ret_found) {
        return PL_OK;
    }
    PL_TRY(pl_plan_broadcast(c->plan, 0, reterr));
    if (c->optimizer) {
        pl_optimizer_restore(c->optimizer, &answer.record.optimizer);
        PL_TRY(pl_optimizer_broadcast(c->optimizer, 0, reterr));
    }
    *ret_state = answer.record.state;
    return PL_OK;
}

void pl_checkpoints_close(struct pl_checkpoints *checkpoints)
{
    struct pl_checkpoints *c = checkpoints;

    if (!c) {
        return;
    }
    if (c->writing) {
        pthread_join(c->writer, NULL);
    }
    for (size_t i = 0; i < c->entry_count; i++) {
        free(c->entries[i].name);
    }
    free(c->entries);
    free_copy(c);
    pl_kept_close(c->keeper.kept);
    free(c->directory);
    free(c);
}
