/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/checkpoint/checkpoints.c, runtime/checkpoint/checkpoint_format.c,
 * runtime/checkpoint/checkpoint_format.c. */
#include "runtime/checkpoint.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/knob.h"
#include "collectives/world_private.h"
#include "runtime/gradient/optimizer_rule.h"
#include "tests/support/refuse_growth.h"
#include "tests/support/scratch.h"
#include "tests/unit/runtime/ranks.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { B_ELEMS = 33 };

/* Replaces functions of libc, to record which file gets its name first. */
static char renamed[1000];

int renameat(int old_fd, const char *old_name, int new_fd, const char *new_name)
{
    strncat(renamed, new_name, sizeof(renamed) - strlen(renamed) - 1);
    return (int)syscall(SYS_renameat2, old_fd, old_name, new_fd, new_name, 0);
}

/* True: reads of the disk fail. */
static atomic_bool disk_fails;

/* True: the disk delivers a tensor "b" only after rank 1 has received two more messages from rank 0: before "a" and
 * before "b". */
static atomic_bool disk_waits;
static atomic_int broadcasts;
static int last_broadcasts;

static void count_broadcasts(void *context, const struct pl_event *event)
{
    atomic_fetch_add(&broadcasts, event->kind == PL_BROADCAST);
}

static bool hears_twice_more(void)
{
    int64_t deadline_ns = pl_deadline_after_ns(20 * PL_NS_PER_S);

    last_broadcasts += 2;
    while (atomic_load(&broadcasts) < last_broadcasts && !pl_deadline_passed(deadline_ns)) {
        sched_yield();
    }
    return atomic_load(&broadcasts) >= last_broadcasts;
}

ssize_t pread(int fd, void *to, size_t bytes, off_t at)
{
    if (atomic_load(&disk_waits) && bytes == B_ELEMS * sizeof(float) && !hears_twice_more()) {
        errno = ETIME;
        return -1;
    }
    if (atomic_load(&disk_fails)) {
        errno = EIO;
        return -1;
    }
    return syscall(SYS_pread64, fd, to, bytes, at);
}

struct fixture {
    struct scratch scratch;
    char notes[8192];
};

struct job {
    struct pl_plan *plan;
    struct pl_optimizer *optimizer;
    struct pl_checkpoints *checkpoints;
};

static void keep_note(void *context, const char *text)
{
    char *notes = context;

    strncat(notes, text, 8191 - strlen(notes));
}

static struct job job_start(struct pl_world *world, struct fixture *f, uint64_t elems)
{
    struct pl_optimizer_options sgd = {.kind = PL_ADAM};
    struct pl_checkpoints_options options = {
        .directory = f->scratch.path, .keep = 2, .note = keep_note, .context = f->notes};
    struct job job = {0};
    size_t index;

    ck_ok(pl_plan_new, world, NULL, &job.plan);
    ck_ok(pl_plan_add, job.plan, "a", 1, &elems, &index);
    ck_ok(pl_plan_add, job.plan, "b", 1, (uint64_t[]){B_ELEMS}, &index);
    ck_ok(pl_plan_seal, job.plan);
    ck_ok(pl_optimizer_new, job.plan, &sgd, &job.optimizer);
    ck_ok(pl_checkpoints_open, job.plan, job.optimizer, &options, &job.checkpoints);
    return job;
}

static void job_end(struct job *job)
{
    pl_checkpoints_close(job->checkpoints);
    pl_optimizer_free(job->optimizer);
    pl_plan_free(job->plan);
}

static void job_train(struct job *job, int steps)
{
    for (int step = 0; step < steps; step++) {
        for (size_t t = 0; t < 2; t++) {
            const struct pl_plan_tensor *tensor = pl_plan_tensor(job->plan, t);

            for (uint64_t e = 0; e < tensor->count_elems; e++) {
                tensor->gradient[e] = tensor->value[e] * 0.1F + (float)e - 3.0F;
            }
            ck_ok(pl_plan_ready, job->plan, t);
        }
        ck_ok(pl_optimizer_step, job->optimizer, 0.1);
    }
}

/* Runs the body in so many ranks, with a directory of its own, and sees that nothing was noted if `silent`. */
static void run_ranks(int size, ranks_body *body, bool silent)
{
    struct fixture f = {.scratch = scratch_new()};

    ranks_run(size, body, &f);
    ck_assert(!silent || f.notes[0] == '\0');
    scratch_done(&f.scratch);
}

static struct pl_checkpoint_state state_of(uint64_t step)
{
    return (struct pl_checkpoint_state){.step = step,
                                        .sampler = {.count = 100, .seed = UINT64_MAX, .epoch = 3, .position = 40},
                                        .extra_bytes = 2,
                                        .extra = {7, 255}};
}

static void save(struct job *job, uint64_t step)
{
    struct pl_checkpoint_state state = state_of(step);

    ck_ok(pl_checkpoints_save, job->checkpoints, &state);
    ck_ok(pl_checkpoints_flush, job->checkpoints);
}

static void goes_on(struct pl_world *world, void *context)
{
    struct fixture *f = context;
    struct job whole = job_start(world, f, 500);
    struct job resumed;
    struct pl_checkpoint_state state;
    struct pl_checkpoint_state expected = state_of(5);
    bool found = true;

    ck_ok(pl_checkpoints_load, whole.checkpoints, &found, &state);
    ck_assert(!found);
    job_train(&whole, 5);
    save(&whole, 5);
    job_train(&whole, 4);
    ck_ok(pl_barrier, world);
    resumed = job_start(world, f, 500);
    ck_ok(pl_checkpoints_load, resumed.checkpoints, &found, &state);
    ck_assert(found);
    expected.world_size = (uint64_t)pl_world_size(world);
    ck_assert_mem_eq(&state, &expected, sizeof(state));
    ck_assert_uint_eq(pl_optimizer_state(resumed.optimizer).steps, 5);
    job_train(&resumed, 4);
    ck_assert_mem_eq(pl_plan_values(resumed.plan), pl_plan_values(whole.plan),
                     pl_plan_elems(whole.plan) * sizeof(float));
    job_end(&resumed);
    job_end(&whole);
}

TEST(a_resumed_run_ends_with_the_same_bits)
{
    for (int size = 1; size <= 3; size++) {
        run_ranks(size, goes_on, true);
    }
}

static void keeps_two(struct pl_world *world, void *context)
{
    struct fixture *f = context;
    struct job job;
    struct pl_checkpoint_state state;
    bool found;
    char path[PATH_MAX];

    scratch_write(&f->scratch, ".checkpoint-000000000009.json.1.2", "x", 1);
    scratch_write(&f->scratch, "checkpoint-000000000007.safetensors", "without a record", 16);
    scratch_write(&f->scratch, "checkpoint-best.safetensors", "the program's own", 17);
    scratch_write(&f->scratch, "checkpoint-500.safetensors", "the program's own", 17);
    job = job_start(world, f, 500);
    ck_assert_int_eq(access(scratch_path(&f->scratch, ".checkpoint-000000000009.json.1.2", path), F_OK), 0);
    save(&job, 6); /* the first one removes them: a reader does not */
    ck_assert_int_ne(access(scratch_path(&f->scratch, ".checkpoint-000000000009.json.1.2", path), F_OK), 0);
    ck_assert_int_ne(access(scratch_path(&f->scratch, "checkpoint-000000000007.safetensors", path), F_OK), 0);
    ck_assert_int_eq(access(scratch_path(&f->scratch, "checkpoint-best.safetensors", path), F_OK), 0);
    ck_assert_int_eq(access(scratch_path(&f->scratch, "checkpoint-500.safetensors", path), F_OK), 0);
    for (uint64_t step = 8; step <= 12; step++) {
        save(&job, step);
    }
    ck_assert_int_ne(access(scratch_path(&f->scratch, "checkpoint-000000000010.safetensors", path), F_OK), 0);
    ck_assert_int_ne(access(scratch_path(&f->scratch, "checkpoint-000000000010.json", path), F_OK), 0);
    ck_assert_int_eq(access(scratch_path(&f->scratch, "checkpoint-000000000011.safetensors", path), F_OK), 0);
    ck_ok(pl_checkpoints_load, job.checkpoints, &found, &state);
    ck_assert_uint_eq(state.step, 12);
    job_end(&job);
    job = job_start(world, f, 500); /* complete checkpoints stay */
    ck_ok(pl_checkpoints_load, job.checkpoints, &found, &state);
    ck_assert(found && state.step == 12);
    job_end(&job);
}

static void waits_for_each(struct pl_world *world, void *context)
{
    const struct pl_observer observer = {.ended = count_broadcasts};
    struct job job = job_start(world, context, 500);
    struct pl_checkpoint_state state;
    bool found = false;

    save(&job, 1);
    if (pl_world_rank(world) == 1) {
        pl_world_observe(world, &observer);
    }
    atomic_store(&disk_waits, true);
    ck_ok(pl_checkpoints_load, job.checkpoints, &found, &state);
    ck_assert(found);
    atomic_store(&disk_waits, false);
    ck_assert_uint_eq(state.step, 1);
    ck_assert_int_eq(last_broadcasts, 6); /* values, means and variances */
    job_end(&job);
}

UNIT_TEST(ranks_that_wait_receive_from_the_reading_rank_before_each_tensor, run_ranks(2, waits_for_each, false))

UNIT_TEST(the_last_two_are_kept_and_half_written_ones_are_removed, run_ranks(1, keeps_two, false))

/* A run that begins next to newer checkpoints, damaged or of another model, keeps its own checkpoints. */
static void keeps_its_own(struct pl_world *world, void *context)
{
    struct fixture *f = context;
    struct job job = job_start(world, f, 33);
    struct pl_checkpoint_state state = {.step = 0};
    bool found = true;

    save(&job, 100);
    save(&job, 110);
    job_end(&job);
    scratch_write(&f->scratch, "checkpoint-000000000120.json", "{}", 2);
    job = job_start(world, f, 500);
    ck_fails(PL_MISMATCH, "", pl_checkpoints_load, job.checkpoints, &found, &state);
    for (uint64_t step = 10; step <= 13; step++) {
        save(&job, step);
        ck_ok(pl_checkpoints_load, job.checkpoints, &found, &state);
        ck_assert(found && state.step == step);
    }
    job_end(&job);
}

UNIT_TEST(a_newer_one_that_is_of_no_use_pushes_none_out, run_ranks(1, keeps_its_own, false))

/* Many runs have left checkpoints in the directory. */
static void finds_newest_of_many(struct pl_world *world, void *context)
{
    struct fixture *f = context;
    struct job job = job_start(world, f, 5);
    struct pl_checkpoint_state state = {.step = 0};
    bool found = false;
    char name[64], path[PATH_MAX];

    job_train(&job, 1);
    save(&job, 5000);
    for (int step = 0; step < 1500; step++) {
        snprintf(name, sizeof(name), "checkpoint-%012d.json", step);
        scratch_write(&f->scratch, name, "{}", 2);
    }
    ck_ok(pl_checkpoints_load, job.checkpoints, &found, &state);
    ck_assert(found && state.step == 5000);
    save(&job, 5001); /* and removes all but the newest two */
    for (int step = 0; step < 1500; step++) {
        snprintf(name, sizeof(name), "checkpoint-%012d.json", step);
        ck_assert_msg(access(scratch_path(&f->scratch, name, path), F_OK) != 0, "%s", name);
    }
    ck_assert(access(scratch_path(&f->scratch, "checkpoint-000000005000.json", path), F_OK) == 0);
    job_end(&job);
}

UNIT_TEST(the_newest_of_thousands_is_found, run_ranks(1, finds_newest_of_many, false))

/* Damages each file of the newest checkpoint in several ways: the older one is loaded, and a note gives the reason. */
static void passes_over(struct pl_world *world, void *context)
{
    struct fixture *f = context;
    static const char *const files[] = {"checkpoint-000000000002.safetensors", "checkpoint-000000000002.json"};
    struct job job = job_start(world, f, 500);

    job_train(&job, 1);
    save(&job, 1);
    for (size_t i = 0; i < 2; i++) {
        char path[PATH_MAX];
        char *data = NULL;
        size_t bytes = 0;

        save(&job, 2);
        ck_ok(pl_file_read, scratch_path(&f->scratch, files[i], path), 1 << 20, &data, &bytes);
        for (size_t at = 0; at < bytes; at += i == 0 ? 97 : 1) {
            struct pl_checkpoint_state state = {.step = 0};
            bool found = false;
            bool cut = at % 2 == 0;

            data[at] ^= 0x10;
            scratch_write(&f->scratch, files[i], data, cut ? at : bytes);
            data[at] ^= 0x10;
            f->notes[0] = '\0';
            ck_ok(pl_checkpoints_load, job.checkpoints, &found, &state);
            ck_assert(found);
            /* White space of the JSON file, including the line end, may change or be missing without harm. */
            ck_assert_msg(state.step == 1 || (i == 1 && (!cut || at + 1 == bytes) && state.step == 2), "%s: byte %zu",
                          files[i], at);
            ck_assert(state.step == 2 || strstr(f->notes, "step 2 is passed over"));
        }
        free(data);
    }
    job_end(&job);
}

UNIT_TEST(a_cut_or_changed_one_is_passed_over_with_a_note, run_ranks(1, passes_over, false))

/* Rank 0 has changed files on disk: no rank may treat that as a damaged checkpoint. */
static void refuses_to_load(struct pl_world *world, struct job *job, const char *words)
{
    struct pl_checkpoint_state state = {.step = 0};
    bool found = false;
    float before = pl_plan_values(job->plan)[0];

    ck_fails(PL_SYSTEM, words, pl_checkpoints_load, job->checkpoints, &found, &state);
    ck_assert(!found && state.step == 0 && pl_plan_values(job->plan)[0] == before);
    ck_ok(pl_barrier, world);
}

static void cannot_read(struct pl_world *world, void *context)
{
    struct fixture *f = context;
    struct pl_checkpoint_state state = {.step = 0};
    struct job job = job_start(world, f, 500);
    bool found = false, first = pl_world_rank(world) == 0;
    char record[PATH_MAX], moved[PATH_MAX];

    save(&job, 1);
    job_train(&job, 1);
    save(&job, 2);
    job_train(&job, 1);
    snprintf(moved, sizeof(moved), "%s.moved", f->scratch.path);
    if (first) {
        atomic_store(&disk_fails, true);
    }
    refuses_to_load(world, &job, "checkpoint-000000000002.safetensors': Input/output error");
    if (first) {
        atomic_store(&disk_fails, false);
        ck_assert_int_eq(rename(f->scratch.path, moved), 0);
    }
    refuses_to_load(world, &job, "open directory");
    if (first) {
        ck_assert_int_eq(rename(moved, f->scratch.path), 0);
        scratch_path(&f->scratch, "checkpoint-000000000002.json", record);
        ck_assert_int_eq(rename(record, moved), 0);
        ck_assert_int_eq(symlink(record, record), 0);
    }
    refuses_to_load(world, &job, "Too many levels of symbolic links");
    if (first) {
        ck_assert_int_eq(rename(moved, record), 0);
    }
    ck_ok(pl_barrier, world);
    ck_ok(pl_checkpoints_load, job.checkpoints, &found, &state);
    ck_assert(found && state.step == 2);
    job_end(&job);
}

TEST(one_that_cannot_be_read_is_an_error_on_every_rank_and_no_older_one_is_taken)
{
    for (int size = 1; size <= 3; size++) {
        run_ranks(size, cannot_read, true);
    }
}

/* Each time a different request for memory fails, once. */
static void lacks_memory(struct pl_world *world, void *context)
{
    struct job job = job_start(world, context, 500);
    bool refused = true;

    save(&job, 1);
    save(&job, 2);
    for (int refused_after = 0; refused; refused_after++) {
        struct pl_checkpoint_state state = {.step = 0};
        struct pl_error error = PL_ERROR_NONE;
        bool found = false;
        enum pl_status status;

        refuse_growth_after = refused_after;
        status = pl_checkpoints_load(job.checkpoints, &found, &state, &error);
        refused = refuse_growth_after < 0;
        refuse_growth_after = -1;
        ck_assert_msg(refused ? status == PL_MEMORY : status == PL_OK && state.step == 2,
                      "refused_after %d: %s, step %d: %s", refused_after, pl_status_name(status), (int)state.step,
                      error.cause);
    }
    job_end(&job);
}

UNIT_TEST(short_of_memory_no_older_one_is_taken, run_ranks(1, lacks_memory, true))

/* If the record exists, its data exists too; a record that names other data does not count. */
static void keeps_order(struct pl_world *world, void *context)
{
    struct fixture *f = context;
    struct job job = job_start(world, f, 500);
    struct pl_checkpoint_state state;
    char path[PATH_MAX];
    char *data = NULL;
    char *position;
    size_t bytes = 0;
    bool found = true;

    renamed[0] = '\0';
    save(&job, 1);
    ck_assert_str_eq(renamed, "checkpoint-000000000001.safetensorscheckpoint-000000000001.json");
    ck_ok(pl_file_read, scratch_path(&f->scratch, "checkpoint-000000000001.json", path), 1 << 20, &data, &bytes);
    position = strstr(data, "\"sampler_position\":40");
    ck_assert_ptr_nonnull(position);
    position[strlen("\"sampler_position\":40") - 1] = '1';
    scratch_write(&f->scratch, "checkpoint-000000000001.json", data, bytes);
    ck_ok(pl_checkpoints_load, job.checkpoints, &found, &state);
    ck_assert(!found);
    ck_assert_ptr_nonnull(strstr(f->notes, "has changed since it was written"));
    position[strlen("\"sampler_position\":40") - 1] = '0';
    scratch_write(&f->scratch, "checkpoint-000000000003.json", data, bytes);
    ck_ok(pl_checkpoints_load, job.checkpoints, &found, &state);
    ck_assert(!found);
    ck_assert_ptr_nonnull(strstr(f->notes, "checkpoint-000000000003.json' has step 1 inside"));
    free(data);
    job_end(&job);
}

UNIT_TEST(a_record_comes_after_its_data_and_counts_only_as_it_was_written, run_ranks(1, keeps_order, false))

/* Loads a checkpoint that does not fit: every rank gets an error with these words, or, with checkpoint_ignore, finds
 * nothing. */
static void does_not_fit(struct pl_world *world, struct job *job, const char *words)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_checkpoint_state state = {.step = 0};
    bool found = false;
    float before = pl_plan_values(job->plan)[0];

    if (pl_knob_bool(pl_world_knobs(world), PL_KNOB_CHECKPOINT_IGNORE)) {
        ck_ok(pl_checkpoints_load, job->checkpoints, &found, &state);
    } else {
        ck_assert_int_eq(pl_checkpoints_load(job->checkpoints, &found, &state, &error), PL_MISMATCH);
        ck_assert_msg(strstr(error.cause, words), "%s", error.cause);
        ck_assert_msg(strstr(error.context, "set PACELINE_CHECKPOINT_IGNORE=1 or the hyperparameter"), "%s",
                      error.context);
    }
    ck_assert(!found && state.step == 0 && pl_plan_values(job->plan)[0] == before);
}

static void other_model(struct pl_world *world, void *context)
{
    struct fixture *f = context;
    struct pl_checkpoints_options options = {.directory = f->scratch.path, .note = keep_note, .context = f->notes};
    struct pl_checkpoint_state state;
    bool found = true;
    struct job job = job_start(world, f, 500);

    if (pl_world_rank(world) == 0) { /* next to a damaged checkpoint, which says nothing about the model */
        scratch_write(&f->scratch, "checkpoint-000000000009.json", "{}", 2);
    }
    ck_ok(pl_barrier, world);
    ck_ok(pl_checkpoints_load, job.checkpoints, &found, &state);
    ck_assert(!found);
    save(&job, 1);
    job_end(&job);
    job = job_start(world, f, 501);
    does_not_fit(world, &job, "it has 'a', float32 [500], and the program wants 'a', float32 [501]");
    job_end(&job);
    job = job_start(world, f, 500);
    pl_checkpoints_close(job.checkpoints);
    ck_ok(pl_checkpoints_open, job.plan, NULL, &options, &job.checkpoints);
    does_not_fit(world, &job, "it has 'optimizer.mean.a', float32 [500], and the program wants none");
    save(&job, 10);
    pl_checkpoints_close(job.checkpoints);
    job.checkpoints = NULL;
    if (pl_world_rank(world) == 0) { /* only the checkpoint of step 10, without an optimizer, is left */
        char path[PATH_MAX];

        ck_assert_int_eq(unlink(scratch_path(&f->scratch, "checkpoint-000000000001.json", path)), 0);
    }
    ck_ok(pl_barrier, world);
    ck_ok(pl_checkpoints_open, job.plan, job.optimizer, &options, &job.checkpoints);
    does_not_fit(world, &job, "it has no further tensor, and the program wants 'optimizer.mean.a', float32 [500]");
    save(&job, 2); /* an older one that fits is loaded, and the setting is not mentioned */
    ck_ok(pl_checkpoints_load, job.checkpoints, &found, &state);
    ck_assert(found && state.step == 2);
    job_end(&job);
}

static void without_a_note(struct pl_world *world, void *context)
{
    struct fixture *f = context;
    struct pl_checkpoints_options options = {.directory = f->scratch.path};
    struct pl_checkpoint_state state;
    bool found = true;
    struct job job = job_start(world, f, 500);

    save(&job, 1);
    pl_checkpoints_close(job.checkpoints);
    ck_ok(pl_checkpoints_open, job.plan, NULL, &options, &job.checkpoints);
    ck_fails(PL_MISMATCH, "", pl_checkpoints_load, job.checkpoints, &found, &state);
    job_end(&job);
}

/* A run that begins again although there is a checkpoint must log that. */
TEST(one_passed_over_without_a_note_is_warned_of)
{
    struct fixture f = {.scratch = scratch_new()};
    char text[1024];

    ranks_run_logged(1, without_a_note, &f, text, sizeof(text));
    ck_assert_msg(strstr(text, "warning: the checkpoint of step 1 is passed over"), "%s", text);
    scratch_done(&f.scratch);
}

TEST(checkpoints_of_another_model_or_optimizer_alone_are_an_error_on_every_rank_unless_training_may_begin_at_0)
{
    for (int size = 1; size <= 3; size++) {
        for (int ignore = 0; ignore < 2; ignore++) {
            struct fixture f = {.scratch = scratch_new()};
            struct pl_knobs knobs;

            pl_knobs_default(&knobs);
            ck_ok(pl_knob_set, &knobs, PL_KNOB_TIMEOUT_S, "50", "the test");
            ck_ok(pl_knob_set, &knobs, PL_KNOB_CHECKPOINT_IGNORE, ignore ? "1" : "0", "the test");
            ranks_run_with(size, &(struct pl_world_options){.knobs = &knobs}, other_model, &f);
            ck_assert_ptr_nonnull(strstr(f.notes, "the checkpoint of step 1 is passed over"));
            scratch_done(&f.scratch);
        }
    }
}

static void cannot_write(struct pl_world *world, void *context)
{
    struct fixture *f = context;
    struct pl_checkpoint_state state = state_of(1);
    struct pl_error error = PL_ERROR_NONE;
    struct job job = job_start(world, f, 500);

    scratch_done(&f->scratch); /* the directory is gone */
    ck_ok(pl_checkpoints_save, job.checkpoints, &state);
    ck_assert_int_ne(pl_checkpoints_save(job.checkpoints, &state, &error), PL_OK);
    ck_assert_ptr_nonnull(strstr(error.context, "writing the checkpoint of step 1"));
    job_end(&job);
}

TEST(a_failed_write_is_said_at_the_next_save)
{
    struct fixture f = {.scratch = scratch_new()};

    ranks_run(1, cannot_write, &f);
}

static void misused(struct pl_world *world, void *context)
{
    struct fixture *f = context;
    struct pl_checkpoints_options options = {.directory = f->scratch.path};
    struct pl_checkpoint_state state = state_of(1);
    struct pl_checkpoints *checkpoints = NULL;
    struct pl_plan *unsealed = NULL;
    struct job job = job_start(world, f, 500);

    state.extra_bytes = PL_CHECKPOINT_EXTRA_BYTES + 1;
    ck_fails(PL_INVALID, "", pl_checkpoints_save, job.checkpoints, &state);
    ck_ok(pl_plan_new, world, NULL, &unsealed);
    ck_fails(PL_INVALID, "", pl_checkpoints_open, unsealed, NULL, &options, &checkpoints);
    pl_plan_free(unsealed);
    job_end(&job);
}

UNIT_TEST(a_plan_without_a_layout_and_too_many_extra_bytes_are_refused, run_ranks(1, misused, false))

static void in_the_jobs_directory(struct pl_world *world, void *context)
{
    struct fixture *f = context;
    struct pl_checkpoints_options options = {.keep = 1};
    struct pl_checkpoint_state state;
    bool found = false;
    struct job job = job_start(world, f, 500);

    save(&job, 1);
    pl_checkpoints_close(job.checkpoints);
    ck_ok(pl_checkpoints_open, job.plan, job.optimizer, &options, &job.checkpoints);
    ck_ok(pl_checkpoints_load, job.checkpoints, &found, &state);
    ck_assert(found);
    job_end(&job);
}

TEST(where_the_program_names_no_directory_the_jobs_is_used)
{
    struct fixture f = {.scratch = scratch_new()};
    PL_AUTO_FREE char *usual = NULL;

    ck_assert_int_eq(unsetenv("PACELINE_CHECKPOINT_DIR"), 0);
    ck_ok(pl_checkpoints_directory, &usual);
    ck_assert_str_eq(usual, PL_CHECKPOINT_DIRECTORY);
    ck_assert_int_eq(setenv("PACELINE_CHECKPOINT_DIR", f.scratch.path, 1), 0);
    ranks_run(1, in_the_jobs_directory, &f);
    ck_assert_int_eq(unsetenv("PACELINE_CHECKPOINT_DIR"), 0);
    scratch_done(&f.scratch);
}

UNIT_MAIN("runtime/checkpoint")
