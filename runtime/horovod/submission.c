/* SPDX-License-Identifier: Apache-2.0 */
/* Converts Horovod's arguments to named operations, submits them, and applies factors as Horovod rounds them. */
#include "runtime/horovod/submission.h"

#include "base/hash.h"
#include "base/memory.h"
#include "collectives/reduce/kernel.h"
#include "runtime/horovod/horovod.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Factors of one tensor that are applied outside the operation. */
struct pl_submission_factors {
    void *scaled;   /* the input times the prescale; NULL: it is in `recv`, or there is no prescale to apply */
    bool has_after; /* the postscale must still be applied; the fields below are set */
    void *recv;     /* result of an ALLREDUCE; NULL if the result is new memory */
    size_t count_elems;
};

struct pl_submission *pl_submission_new(const struct pl_named_op *op, size_t count, struct pl_error *reterr)
{
    const size_t each =
        sizeof(struct pl_named_op) + sizeof(struct pl_named_result) + sizeof(struct pl_submission_factors);
    struct pl_submission *submission = pl_memory_new(1, sizeof(*submission) + count * each, reterr);

    if (!submission) {
        return NULL;
    }
    submission->count = count;
    submission->results = (struct pl_named_result *)(void *)(submission->ops + count);
    submission->factors = (struct pl_submission_factors *)(void *)(submission->results + count);
    submission->completion.results = submission->results;
    for (size_t i = 0; i < count; i++) {
        submission->ops[i] = *op;
    }
    return submission;
}

bool pl_submission_free(struct pl_submission *submission)
{
    if (submission && submission->completion.has_leaked) {
        return false;
    }
    for (size_t i = 0; submission && i < submission->count; i++) {
        pl_named_result_done(&submission->results[i]);
        free(submission->factors[i].scaled);
    }
    if (submission) {
        free(submission->splits);
        free(submission);
    }
    return true;
}

/* Multiplies by a reduction with one source, because the sum of one source is the source itself. */
static void multiply(enum pl_dtype dtype, double factor, void *dest, const void *source, size_t count_elems)
{
    const struct pl_reduction reduction = {
        .dtype = dtype, .op = PL_SUM, .divisor = 1, .prescale = factor, .postscale = 1};

    pl_kernel_reduce(pl_kernel_best(), &reduction, &dest, 1, &source, 1, count_elems);
}

static enum pl_status multiply_before(struct pl_submission_factors *factors, struct pl_named_op *op,
                                      struct pl_error *reterr)
{
    void *recv = op->kind == PL_ALLREDUCE ? op->recv : NULL;
    size_t count_elems = 1;

    if (!op->scaled || op->op == PL_ADASUM || op->memory == PL_MEMORY_DEVICE ||
        (op->dtype != PL_FLOAT16 && op->dtype != PL_BFLOAT16)) {
        return PL_OK;
    }
    for (unsigned i = 0; i < op->dims; i++) {
        if (__builtin_mul_overflow(count_elems, op->shape[i], &count_elems)) {
            return pl_error_set(reterr, PL_INVALID, "a tensor has more elements than 64 bits can count");
        }
    }
    if (op->prescale != 1) {
        void *dest = recv;

        if (!dest || dest == op->send) { /* an in-place operation must not change its input, because it may fail */
            PL_TRY(pl_memory_alloc(&factors->scaled, count_elems ? count_elems : 1, pl_dtype_bytes(op->dtype), reterr));
            dest = factors->scaled;
        }
        multiply(op->dtype, op->prescale, dest, op->send, count_elems);
        op->send = dest;
    }
    op->is_scaled_by_caller = true;
    factors->has_after = op->postscale != 1;
    factors->recv = recv;
    factors->count_elems = count_elems;
    return PL_OK;
}

enum pl_status pl_submission_start(struct pl_submission *submission, struct pl_service *service, int set,
                                   const char *name, bool grouped, struct pl_error *reterr)
{
    for (size_t i = 0; i < submission->count; i++) {
        PL_TRY(multiply_before(&submission->factors[i], &submission->ops[i], reterr));
    }
    if (grouped) {
        return pl_service_submit_group(service, set, name, submission->ops, submission->count, &submission->completion,
                                       reterr);
    }
    submission->ops[0].name = name;
    return pl_service_submit(service, set, submission->ops, &submission->completion, reterr);
}

void pl_submission_finish(const struct pl_submission *submission)
{
    for (size_t i = 0; i < submission->count; i++) {
        const struct pl_submission_factors *factors = &submission->factors[i];
        const struct pl_named_op *op = &submission->ops[i];
        void *data = factors->recv ? factors->recv : submission->results[i].data;

        if (factors->has_after) {
            multiply(op->dtype, op->postscale, data, data,
                     factors->recv ? factors->count_elems : submission->results[i].bytes / pl_dtype_bytes(op->dtype));
        }
    }
}

enum pl_status pl_submission_split(struct pl_submission *submission, int set, const void *splits, size_t bytes,
                                   uint64_t count, struct pl_error *reterr)
{
    const int ranks = submission->completion.ranks;
    uint64_t *rows;

    if (count == 0) {
        return PL_OK;
    }
    if (ranks < 0 || count != (uint64_t)ranks) {
        return pl_error_set(reterr, PL_INVALID,
                            "expected one split for each of the ranks of process set %d, which has %d, found %" PRIu64,
                            set, ranks, count);
    }
    rows = submission->splits = pl_memory_new(count, sizeof(*rows), reterr);
    if (!rows) {
        return PL_MEMORY;
    }
    for (uint64_t i = 0; i < count; i++) {
        int64_t number = bytes == sizeof(int32_t) ? ((const int32_t *)splits)[i] : ((const int64_t *)splits)[i];

        if (number < 0) {
            return pl_error_set(reterr, PL_INVALID, "splits[%" PRIu64 "] is negative: %" PRId64, i, number);
        }
        rows[i] = (uint64_t)number;
    }
    submission->ops[0].splits = rows;
    return PL_OK;
}

enum pl_status pl_submission_received(const struct pl_submission *submission, size_t bytes, void *ret_splits,
                                      struct pl_error *reterr)
{
    const uint64_t *rows = submission->results[0].rows_of_rank;

    for (int i = 0; i < submission->completion.ranks; i++) {
        if (bytes == sizeof(int64_t)) {
            ((int64_t *)ret_splits)[i] = (int64_t)rows[i];
            continue;
        }
        if (rows[i] > INT32_MAX) {
            return pl_error_set(
                reterr, PL_LIMIT,
                "alltoall: %" PRIu64
                " rows came from rank %d of the process set, which is more than the received splits can hold: they are "
                "int32, as the splits. Send fewer rows at once, or with torch use splits of int64",
                rows[i], i);
        }
        ((int32_t *)ret_splits)[i] = (int32_t)rows[i];
    }
    return PL_OK;
}

void pl_submission_reduce(struct pl_named_op *op, int number, double prescale, double postscale)
{
    static const enum pl_op ops[] = {
        [HOROVOD_AVERAGE] = PL_AVERAGE, [HOROVOD_SUM] = PL_SUM, [HOROVOD_ADASUM] = PL_ADASUM,
        [HOROVOD_MIN] = PL_MIN,         [HOROVOD_MAX] = PL_MAX, [HOROVOD_PRODUCT] = PL_PRODUCT,
    };

    op->op = number >= 0 && number <= HOROVOD_PRODUCT ? ops[number] : PL_OP_COUNT;
    op->scaled = prescale != 1 || postscale != 1;
    op->prescale = prescale;
    op->postscale = postscale;
}

void pl_submission_dimension(struct pl_named_op *op, uint64_t extent)
{
    if (op->dims < PL_NAMED_MAX_DIMS) {
        op->shape[op->dims++] = extent;
    } else {
        op->shape[PL_NAMED_MAX_DIMS - 1] *= extent;
    }
}

enum pl_status pl_submission_root(struct pl_service *service, int set, int root, int *ret_root, struct pl_error *reterr)
{
    PL_AUTO_FREE int *ranks = NULL;
    struct pl_service_set found;
    int at = 0;

    if (set == 0) {
        *ret_root = root; /* the submission checks the root */
        return PL_OK;
    }
    PL_TRY(pl_service_get_set(service, set, &found, NULL, 0, reterr));
    PL_TRY(pl_memory_alloc(&ranks, (size_t)found.size, sizeof(*ranks), reterr));
    PL_TRY(pl_service_get_set(service, set, &found, ranks, found.size, reterr));
    while (at < found.size && ranks[at] != root) {
        at++;
    }
    if (at == found.size) {
        return pl_error_set(reterr, PL_INVALID, "root rank %d is not in process set %d", root, set);
    }
    *ret_root = at;
    return PL_OK;
}

const char *pl_submission_name(const char *kind, const char *text, size_t length, char name[PL_NAMED_MAX_NAME_BYTES])
{
    enum { HASH_BYTES = 17, MEMBER_BYTES = 24 }; /* the hash and its separator; the longest suffix of a group */
    size_t before = kind ? strlen(kind) + 1 : 0, room = PL_NAMED_MAX_NAME_BYTES - 1 - MEMBER_BYTES - before;
    size_t kept = room - HASH_BYTES;

    if (length <= room) {
        snprintf(name, PL_NAMED_MAX_NAME_BYTES, "%s%s%.*s", kind ? kind : "", kind ? "." : "", (int)length, text);
    } else {
        snprintf(name, PL_NAMED_MAX_NAME_BYTES, "%s%s%016" PRIx64 "~%.*s", kind ? kind : "", kind ? "." : "",
                 pl_hash(PL_HASH_START, text, length), (int)kept, text + (length - kept));
    }
    return name;
}
