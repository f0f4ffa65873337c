/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of checkpoints in the job's kept memory. */
#include "runtime/checkpoint/keeper.h"

#include "base/clock.h"
#include "base/log.h"

#include <string.h>

enum { TIMES = 100 }; /* a copy is due after so many times its own duration */

#define FORM "paceline-plan-1"

/* The data after the arrays. */
struct tail {
    char form[sizeof(FORM)];
    uint64_t model;
    struct pl_checkpoint_record record;
};

enum pl_status pl_keeper_open(struct pl_keeper *keeper, struct pl_error *reterr)
{
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;

    if (keeper->opened) {
        return PL_OK;
    }
    status = pl_kept_open(&keeper->kept, &error);
    if (status == PL_SYSTEM) { /* this process may not use it: the program runs as in a job without restarts */
        pl_log_error(&error, "no state is kept in memory, a job that is started again goes on from files");
    } else if (status != PL_OK) {
        if (reterr) {
            *reterr = error;
        }
        return status;
    }
    keeper->opened = true;
    return PL_OK;
}

bool pl_keeper_is_due(const struct pl_keeper *keeper, uint64_t step)
{
    if (!keeper->kept) {
        return false;
    }
    pl_kept_note(keeper->kept, step);
    if (!keeper->place) {
        return true;
    }
    if (step == keeper->step) {
        return false;
    }
    if (keeper->every_steps > 0) {
        return step < keeper->step || step - keeper->step >= keeper->every_steps;
    }
    return !atomic_load_explicit(&keeper->is_writing, memory_order_acquire) &&
           (pl_clock_now_ns() - keeper->begun_ns) / TIMES >= keeper->spent_ns;
}

void pl_keeper_begin(struct pl_keeper *keeper, uint64_t step)
{
    struct pl_error error = PL_ERROR_NONE;
    void *place;

    keeper->place = NULL;
    if (!keeper->keeps) {
        return;
    }
    if (pl_kept_begin(keeper->kept, keeper->data_bytes + sizeof(struct tail), &place, &error) != PL_OK) {
        pl_log_error(&error, "no state is kept in memory, a job that is started again goes on from files");
        keeper->keeps = false;
        pl_kept_close(keeper->kept);
        keeper->kept = NULL;
        return;
    }
    keeper->place = place;
    keeper->step = step;
    keeper->begun_ns = pl_clock_now_ns();
}

void pl_keeper_end(struct pl_keeper *keeper, const struct pl_checkpoint_record *record)
{
    struct tail tail;

    memset(&tail, 0, sizeof(tail));
    memcpy(tail.form, FORM, sizeof(FORM));
    tail.model = keeper->model;
    tail.record = *record;
    memcpy(keeper->place + keeper->data_bytes, &tail, sizeof(tail));
    pl_kept_end(keeper->kept, record->state.step);
    keeper->spent_ns = pl_clock_now_ns() - keeper->begun_ns;
}

enum pl_status pl_keeper_read(struct pl_keeper *keeper, struct pl_checkpoint_record *ret_record, const float **ret_data)
{
    const void *data = NULL;
    struct tail tail;
    size_t bytes;

    if (keeper->kept) {
        pl_kept_read(keeper->kept, &ret_record->state.step, &data, &bytes);
    }
    if (!data) {
        return PL_NOT_FOUND;
    }
    if (bytes == keeper->data_bytes + sizeof(tail)) {
        memcpy(&tail, (const unsigned char *)data + keeper->data_bytes, sizeof(tail));
        if (memcmp(tail.form, FORM, sizeof(FORM)) == 0 && tail.model == keeper->model) {
            *ret_record = tail.record;
            *ret_data = data;
            return PL_OK;
        }
    }
    return PL_MISMATCH;
}
