/* SPDX-License-Identifier: Apache-2.0 */
/* One job by name: a single operation or a group. Operations are mostly equal to the earlier ones under that name. */
#include "tests/scenarios/mixed.h"
#include "tests/scenarios/training_private.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void draw_pattern(struct training *t, const struct place *place, struct pattern *p)
{
    static const enum pl_kind kinds[] = {PL_ALLREDUCE, PL_ALLREDUCE, PL_ALLREDUCE,      PL_BROADCAST,
                                         PL_ALLGATHER, PL_ALLTOALL,  PL_REDUCE_SCATTER, PL_BARRIER};

    *p = (struct pattern){.drawn = true,
                          .kind = kinds[mixed_draw(&t->common, 8)],
                          .dtype = (enum pl_dtype)mixed_draw(&t->common, PL_DTYPE_COUNT)};
    p->op = (enum pl_op)mixed_draw(&t->common, PL_PRODUCT + 1);
    if (p->dtype == PL_BOOL && p->op == PL_AVERAGE) {
        p->op = PL_MAX;
    }
    p->flags = mixed_draw(&t->common, 8) == 0 && p->kind != PL_BARRIER ? PL_REPRODUCIBLE : 0;
    if (p->kind == PL_ALLREDUCE && p->dtype == PL_FLOAT32 && mixed_draw(&t->common, 4) == 0) {
        p->flags |= mixed_draw(&t->common, 2) ? PL_WIRE_FLOAT16 : PL_WIRE_BFLOAT16;
    }
    p->scaled = pl_dtype_is_float(p->dtype) && p->op != PL_PRODUCT && mixed_draw(&t->common, 4) == 0;
    p->root = (int)mixed_draw(&t->common, (uint64_t)place->size);
    p->dims = 1 + (unsigned)mixed_draw(&t->common, 3);
    p->row_elems = p->dims == 1 ? 1 : mixed_draw(&t->common, 5);
    p->rows = mixed_draw(&t->common, 12) ? mixed_draw(&t->common, 40) : mixed_draw(&t->common, 20000);
}

/* Draws the number of rows of each rank, if it may change from one time to the next. */
static void draw_counts(struct training *t, const struct pattern *p, struct part *part, uint64_t size)
{
    struct pl_collective *c = &part->trial.c;

    c->count = p->rows * p->row_elems;
    if (p->kind == PL_BARRIER) {
        c->count = 0;
    } else if (p->kind == PL_ALLTOALL) {
        c->count = mixed_draw(&t->common, 20);
        part->trial.quiet = mixed_draw(&t->common, 2) ? (int)mixed_draw(&t->common, size) : -1;
        c->counts = mixed_draw(&t->common, 2) ? part->counts : NULL;
    } else if (p->kind == PL_ALLGATHER || p->kind == PL_REDUCE_SCATTER) {
        c->counts = part->counts;
        for (uint64_t r = 0; r < size; r++) {
            part->counts[r] =
                p->kind == PL_ALLGATHER ? mixed_draw(&t->common, p->rows + 1) : p->rows / size + (r < p->rows % size);
            part->counts[r] *= p->row_elems;
        }
    }
}

/* Describes the operation as this rank, number `own` of its set, submits it. */
static void describe(const struct pattern *p, struct part *part, int own)
{
    struct pl_named_op *op = &part->op;
    const struct pl_collective *c = &part->trial.c;
    uint64_t row_elems = p->kind == PL_ALLTOALL ? 1 : p->row_elems;

    *op = (struct pl_named_op){.kind = p->kind,
                               .dtype = p->dtype,
                               .op = p->op,
                               .flags = p->flags,
                               .scaled = p->scaled,
                               .prescale = c->prescale,
                               .postscale = c->postscale,
                               .root = p->root,
                               .dims = p->dims};
    for (unsigned d = 0; d < p->dims; d++) {
        op->shape[d] = d == 0 ? p->rows : d == 1 ? row_elems : 1;
    }
    if (p->kind == PL_ALLGATHER) {
        op->shape[0] = row_elems ? part->counts[own] / row_elems : p->rows;
    } else if (p->kind == PL_ALLTOALL) {
        op->shape[0] = 0;
        for (int r = 0; r < part->trial.size; r++) {
            part->splits[r] = trial_pair_count(&part->trial, own, r);
            op->shape[0] += part->splits[r];
        }
        op->splits = c->counts ? part->splits : NULL;
    }
}

static void draw_part(struct training *t, const struct place *place, struct pattern *p, struct part *part)
{
    struct trial *trial = &part->trial;
    uint64_t elems[2];

    if (!p->drawn || mixed_draw(&t->common, 8) == 0) {
        draw_pattern(t, place, p);
    }
    memset(part, 0, sizeof(*part));
    *trial = (struct trial){.size = place->size,
                            .rank = place->own,
                            .salt = t->salt++,
                            .failure = t->failure,
                            .failure_bytes = TRAINING_TEXT_BYTES};
    trial->c = (struct pl_collective){.kind = p->kind,
                                      .dtype = p->dtype,
                                      .op = p->op,
                                      .root = p->root,
                                      .scaled = p->scaled,
                                      .prescale = p->scaled ? 2.0 : 1.0,
                                      .postscale = p->scaled ? 0.5 : 1.0};
    draw_counts(t, p, part, (uint64_t)place->size);
    if (place->own < 0) {
        return;
    }
    trial->in_place = (p->kind == PL_ALLREDUCE || p->kind == PL_BROADCAST) && mixed_draw(&t->own, 2);
    describe(p, part, place->own);
    trial_extents(trial, &elems[0], &elems[1]);
    trial->send = malloc(elems[0] * pl_dtype_bytes(p->dtype) + 1);
    trial->recv = malloc(elems[1] * pl_dtype_bytes(p->dtype) + 1);
    trial->before = malloc(elems[0] * pl_dtype_bytes(p->dtype) + 1);
    trial_fill(trial);
    part->op.send = trial->c.send;
    part->op.recv = trial->c.recv;
}

void training_draw_job(struct training *t, struct place *place, int name, struct job *job)
{
    memset(job, 0, sizeof(*job));
    job->type = mixed_draw(&t->common, 2) ? JOB_SINGLE : (enum job_type)mixed_draw(&t->common, JOB_TYPES);
    job->place = place;
    job->members = job->type == JOB_GROUP ? (size_t)mixed_draw(&t->common, TRAINING_MEMBERS + 1) : 1;
    snprintf(job->name, sizeof(job->name), "%s%d", job->type == JOB_GROUP ? "g" : "n", name);
    for (size_t i = 0; i < job->members; i++) {
        struct pattern other = {.drawn = false};

        draw_part(t, place, i == 0 && job->type == JOB_SINGLE ? &place->patterns[name] : &other, &job->parts[i]);
    }
}

bool training_submit_job(struct training *t, struct job *job)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_named_op ops[TRAINING_MEMBERS];
    enum pl_status status = PL_OK;

    for (size_t i = 0; i < job->members; i++) {
        ops[i] = job->parts[i].op;
    }
    job->completion = (struct pl_completion){.results = job->results, .ranks = job->place->size};
    switch (job->type) {
    case JOB_SINGLE:
        ops[0].name = job->name;
        status = pl_service_submit(t->service, job->place->set, &ops[0], &job->completion, &error);
        break;
    case JOB_NUMBERED:
        status = pl_service_submit(t->service, job->place->set, &ops[0], &job->completion, &error);
        break;
    case JOB_GROUP:
    case JOB_TYPES:
        status = pl_service_submit_group(t->service, job->place->set, job->name, ops, job->members, &job->completion,
                                         &error);
        break;
    }
    return status == PL_OK || training_fail(t, "submit", &error);
}

static bool check_part(struct training *t, const struct job *job, struct part *part,
                       const struct pl_named_result *result)
{
    uint64_t elems[2], rows_of_rank, item = pl_dtype_bytes(part->op.dtype);
    uint64_t row_elems = part->op.dims > 1 ? part->op.shape[1] : 1;
    struct trial trial = part->trial;

    if (result->data) {
        trial.recv = result->data;
        trial.c.recv = result->data;
        trial_extents(&trial, &elems[0], &elems[1]);
        if (result->bytes != elems[1] * item) {
            return training_wrong(t, "bytes of a result", 0, (double)result->bytes, (double)(elems[1] * item));
        }
    }
    for (int r = 0; result->rows_of_rank && row_elems && r < job->place->size; r++) {
        rows_of_rank =
            part->op.kind == PL_ALLGATHER ? part->counts[r] / row_elems : trial_pair_count(&trial, r, trial.rank);
        if (result->rows_of_rank[r] != rows_of_rank) {
            return training_wrong(t, "rows of a rank", (uint64_t)r, (double)result->rows_of_rank[r],
                                  (double)rows_of_rank);
        }
    }
    if (!trial_check(&trial)) {
        size_t length = strlen(t->failure);

        snprintf(t->failure + length, TRAINING_TEXT_BYTES - length, " ('%s')", job->name);
        return false;
    }
    return true;
}

bool training_finish_job(struct training *t, struct job *job)
{
    struct pl_error error = PL_ERROR_NONE;
    bool polls = mixed_draw(&t->own, 2), good = true;

    while (polls && !pl_service_poll(t->service, &job->completion)) {
        training_stumble(t);
        sched_yield();
    }
    if (pl_service_wait(t->service, &job->completion, &error) != PL_OK) {
        return training_fail(t, job->name, &error);
    }
    for (size_t i = 0; i < job->members; i++) {
        good = good && check_part(t, job, &job->parts[i], &job->results[i]);
        pl_named_result_done(&job->results[i]);
    }
    return good;
}

void training_release_job(struct job *job)
{
    for (size_t i = 0; i < job->members; i++) {
        free(job->parts[i].trial.send);
        free(job->parts[i].trial.recv);
        free(job->parts[i].trial.before);
    }
}
