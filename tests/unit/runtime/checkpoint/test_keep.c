/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/checkpoint/keeper.c, runtime/checkpoint/checkpoints.c. */
#include "runtime/checkpoint.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/kept_head.h"
#include "collectives/world_private.h"
#include "runtime/gradient/optimizer_rule.h"
#include "runtime/kept.h"
#include "tests/support/scratch.h"
#include "tests/unit/runtime/ranks.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct fixture {
    struct scratch scratch;
    int memory_fd;
    bool memory_only;
    unsigned keep_steps;
    char notes[8192];
};

struct job {
    struct pl_plan *plan;
    struct pl_optimizer *optimizer;
    struct pl_checkpoints *checkpoints;
};

static void keep_note(void *context, const char *text)
{
    struct fixture *f = context;

    strncat(f->notes, text, sizeof(f->notes) - 1 - strlen(f->notes));
}

static struct job job_start(struct pl_world *world, struct fixture *f, uint64_t elems)
{
    struct pl_optimizer_options adam = {.kind = PL_ADAM};
    struct pl_checkpoints_options options = {.directory = f->scratch.path,
                                             .memory_only = f->memory_only,
                                             .keep_steps = f->keep_steps,
                                             .note = keep_note,
                                             .context = f};
    struct job job = {0};
    size_t index;

    ck_ok(pl_plan_new, world, NULL, &job.plan);
    ck_ok(pl_plan_add, job.plan, "a", 1, &elems, &index);
    ck_ok(pl_plan_add, job.plan, "b", 1, (uint64_t[]){33}, &index);
    ck_ok(pl_plan_seal, job.plan);
    ck_ok(pl_optimizer_new, job.plan, &adam, &job.optimizer);
    ck_ok(pl_checkpoints_open, job.plan, job.optimizer, &options, &job.checkpoints);
    return job;
}

static void job_end(struct job *job)
{
    pl_checkpoints_close(job->checkpoints);
    pl_optimizer_free(job->optimizer);
    pl_plan_free(job->plan);
}

static void train(struct job *job)
{
    for (size_t t = 0; t < 2; t++) {
        const struct pl_plan_tensor *tensor = pl_plan_tensor(job->plan, t);

        for (uint64_t e = 0; e < tensor->count_elems; e++) {
            tensor->gradient[e] = tensor->value[e] * 0.1F + (float)e - 3.0F;
        }
        ck_ok(pl_plan_ready, job->plan, t);
    }
    ck_ok(pl_optimizer_step, job->optimizer, 0.1);
}

static void keep(struct job *job, uint64_t step)
{
    const struct pl_checkpoint_state state = {.step = step, .extra_bytes = 2, .extra = {7, (unsigned char)step}};

    ck_ok(pl_checkpoints_keep, job->checkpoints, &state);
}

static void save(struct job *job, uint64_t step)
{
    const struct pl_checkpoint_state state = {.step = step};

    ck_ok(pl_checkpoints_save, job->checkpoints, &state);
    ck_ok(pl_checkpoints_flush, job->checkpoints);
}

/* Returns the step that is loaded, 0 if none is. */
static uint64_t load(struct job *job)
{
    struct pl_checkpoint_state state = {.step = 0};
    bool found = false;

    ck_ok(pl_checkpoints_load, job->checkpoints, &found, &state);
    return found ? state.step : 0;
}

static void run_ranks(int size, ranks_body *body, struct fixture f)
{
    char path[64];

    f.scratch = scratch_new();
    f.memory_fd = pl_fd_new_memory("kept", 0);
    ck_assert_int_ge(f.memory_fd, 0);
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)getpid(), f.memory_fd);
    setenv("PACELINE_KEPT", path, 1);
    ranks_run(size, body, &f);
    unsetenv("PACELINE_KEPT");
    pl_file_close_at(&f.memory_fd);
    scratch_done(&f.scratch);
}

static off_t memory_size(const struct fixture *f)
{
    struct stat info;

    ck_assert_int_eq(fstat(f->memory_fd, &info), 0);
    return info.st_size;
}

/* Trains 9 steps, and has lost the first process after step 6: the second one goes on from its kept copy. */
static void goes_on(struct pl_world *world, void *context)
{
    struct fixture *f = context;
    struct job whole = job_start(world, f, 500), killed, resumed;

    for (uint64_t step = 1; step <= 9; step++) {
        train(&whole);
    }
    killed = job_start(world, f, 500);
    ck_assert_uint_eq(load(&killed), 0);
    for (uint64_t step = 1; step <= 6; step++) {
        train(&killed);
        if (step == 3) {
            save(&killed, step);
        }
        keep(&killed, step);
    }
    job_end(&killed);
    ck_ok(pl_barrier, world);
    resumed = job_start(world, f, 500);
    ck_assert_uint_eq(load(&resumed), 6);
    ck_assert_uint_eq(pl_optimizer_state(resumed.optimizer).steps, 6);
    for (uint64_t step = 7; step <= 9; step++) {
        train(&resumed);
    }
    ck_assert_mem_eq(pl_plan_values(resumed.plan), pl_plan_values(whole.plan),
                     pl_plan_elems(whole.plan) * sizeof(float));
    ck_assert_str_eq(f->notes, "");
    job_end(&resumed);
    job_end(&whole);
}

TEST(a_run_that_goes_on_from_memory_ends_with_the_same_bits)
{
    for (int size = 1; size <= 3; size++) {
        run_ranks(size, goes_on, (struct fixture){.keep_steps = 1});
        run_ranks(size, goes_on, (struct fixture){.keep_steps = 1, .memory_only = true});
    }
}

static void takes_newest(struct pl_world *world, void *context)
{
    struct fixture *f = context;
    struct job job = job_start(world, f, 500);

    train(&job);
    save(&job, 1);
    ck_assert_int_eq(memory_size(f), 0); /* nothing is kept unless the program keeps */
    keep(&job, 2);
    train(&job);
    save(&job, 4);
    job_end(&job);
    job = job_start(world, f, 500);
    ck_assert_uint_eq(load(&job), 4); /* a file and, of the same copy, kept memory */
    keep(&job, 6);
    save(&job, 8);
    ck_assert_uint_eq(load(&job), 8);
    job_end(&job);
    scratch_write(&f->scratch, "checkpoint-000000000008.json", "{}", 2);
    job = job_start(world, f, 500);
    ck_assert_uint_eq(load(&job), 8);
    ck_assert_str_eq(f->notes, "");
    job_end(&job);
}

UNIT_TEST(the_newest_of_files_and_kept_copies_is_loaded, run_ranks(1, takes_newest, (struct fixture){.keep_steps = 2}))

static void counts_steps(struct pl_world *world, void *context)
{
    const struct fixture *f = context;
    struct job job = job_start(world, context, 500);
    uint64_t kept = 0, reached = 0;

    for (uint64_t step = 1; step <= 11; step++) {
        ck_assert_int_eq(pl_checkpoints_keep_is_due(job.checkpoints, step), step % 4 == 1);
        keep(&job, step);
        ck_assert(!pl_checkpoints_keep_is_due(job.checkpoints, step));
    }
    ck_ok(pl_checkpoints_flush, job.checkpoints);
    job_end(&job);
    ck_assert(pl_kept_head_read(f->memory_fd, &kept, &reached));
    ck_assert_uint_eq(kept, 9);
    ck_assert_uint_eq(reached, 11);
    job = job_start(world, context, 500);
    ck_assert_uint_eq(load(&job), 9);
    job_end(&job);
}

UNIT_TEST(a_copy_is_due_after_so_many_steps, run_ranks(1, counts_steps, (struct fixture){.keep_steps = 4}))

/* Without a number the time decides: a copy is due at some time, and then none at once. */
static void costs_a_hundredth(struct pl_world *world, void *context)
{
    struct job job = job_start(world, context, 500);
    uint64_t step = 1;

    for (int copies = 0; copies < 3; copies++) {
        while (!pl_checkpoints_keep_is_due(job.checkpoints, step)) {
            keep(&job, step++);
        }
        keep(&job, step);
        ck_assert(!pl_checkpoints_keep_is_due(job.checkpoints, step));
        ck_ok(pl_checkpoints_flush, job.checkpoints);
    }
    job_end(&job);
    job = job_start(world, context, 500);
    ck_assert_uint_eq(load(&job), step);
    job_end(&job);
}

UNIT_TEST(without_a_number_copies_are_due_again_and_again, run_ranks(1, costs_a_hundredth, (struct fixture){0}))

static void passes_over(struct pl_world *world, void *context)
{
    struct fixture *f = context;
    struct job job = job_start(world, f, 500);
    struct pl_kept *kept;

    save(&job, 1);
    keep(&job, 2);
    job_end(&job);
    job = job_start(world, f, 501);
    keep(&job, 5);
    job_end(&job);
    job = job_start(world, f, 500);
    ck_assert_uint_eq(load(&job), 1);
    ck_assert_ptr_nonnull(
        strstr(f->notes, "the kept copy of step 5 is passed over: it is of another model or optimizer"));
    job_end(&job);
    f->notes[0] = '\0';
    ck_ok(pl_kept_open, &kept);
    ck_ok(pl_kept_write, kept, 9, "another part", 12);
    job = job_start(world, f, 500);
    ck_assert_uint_eq(load(&job), 1);
    ck_assert_str_eq(f->notes, "");
    ck_assert(pl_checkpoints_keep_is_due(job.checkpoints, 10));
    ck_fails(PL_INVALID, "one part of a job may keep state", pl_checkpoints_keep, job.checkpoints,
             &(struct pl_checkpoint_state){.step = 10});
    pl_kept_close(kept);
    ck_assert_uint_eq(load(&job), 1);
    ck_assert_ptr_nonnull(strstr(f->notes, "the kept copy of step 9 is passed over"));
    ck_fails(PL_INVALID, "257 extra bytes", pl_checkpoints_keep, job.checkpoints,
             &(struct pl_checkpoint_state){.step = 10, .extra_bytes = 257});
    job_end(&job);
}

UNIT_TEST(what_is_of_another_model_or_part_is_passed_over_with_a_note,
          run_ranks(1, passes_over, (struct fixture){.keep_steps = 1}))

static void does_nothing(struct pl_world *world, void *context)
{
    struct fixture *f = context;
    struct job job;
    char path[PATH_MAX];

    if (pl_world_rank(world) == 0) {
        unsetenv("PACELINE_KEPT");
    }
    ck_ok(pl_barrier, world);
    job = job_start(world, f, 500);
    ck_assert(!pl_checkpoints_keep_is_due(job.checkpoints, 1));
    keep(&job, 1);
    save(&job, 2);
    ck_assert_uint_eq(load(&job), 0);
    job_end(&job);
    ck_assert_int_eq(memory_size(f), 0);
    ck_assert_int_ne(access(scratch_path(&f->scratch, "checkpoint-000000000002.json", path), F_OK), 0);
}

UNIT_TEST(without_kept_memory_and_directory_nothing_is_kept_or_saved,
          run_ranks(2, does_nothing, (struct fixture){.keep_steps = 1, .memory_only = true}))

static void goes_on_from_files(struct pl_world *world, void *context)
{
    struct job job;

    setenv("PACELINE_KEPT", "/proc/self/mem/kept", 1); /* as of another user's process */
    job = job_start(world, context, 500);
    keep(&job, 1);
    save(&job, 2);
    job_end(&job);
    job = job_start(world, context, 500);
    ck_assert_uint_eq(load(&job), 2);
    job_end(&job);
}

UNIT_TEST(memory_that_the_program_may_not_open_leaves_it_to_files,
          run_ranks(1, goes_on_from_files, (struct fixture){.keep_steps = 1}))

UNIT_MAIN("runtime/checkpoint/keep")
