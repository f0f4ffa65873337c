/* SPDX-License-Identifier: Apache-2.0 */
/* Converts Horovod's arguments of an operation to the fields of a named operation. */
#include "runtime/horovod/arguments.h"

#include "base/hash.h"
#include "base/memory.h"
#include "runtime/horovod/horovod.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void pl_arguments_reduce(struct pl_named_op *op, int number, double prescale, double postscale)
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

void pl_arguments_dimension(struct pl_named_op *op, uint64_t extent)
{
    if (op->dims < PL_NAMED_MAX_DIMS) {
        op->shape[op->dims++] = extent;
    } else {
        op->shape[PL_NAMED_MAX_DIMS - 1] *= extent;
    }
}

enum pl_status pl_arguments_root(struct pl_service *service, int set, int root, int *ret_root, struct pl_error *reterr)
{
    PL_AUTO_FREE int *ranks = NULL;
    int size = 0, at = 0;

    if (set == 0) {
        *ret_root = root; /* the submission checks it */
        return PL_OK;
    }
    PL_TRY(pl_service_set_size(service, set, &size, reterr));
    ranks = pl_memory_new((size_t)size, sizeof(*ranks), reterr);
    if (!ranks) {
        return PL_MEMORY;
    }
    PL_TRY(pl_service_set_ranks(service, set, ranks, size, reterr));
    while (at < size && ranks[at] != root) {
        at++;
    }
    if (at == size) {
        return pl_error_set(reterr, PL_INVALID, "root rank %d is not in process set %d", root, set);
    }
    *ret_root = at;
    return PL_OK;
}

enum pl_status pl_arguments_splits(const void *splits, size_t bytes, uint64_t count, int set, int ranks,
                                   uint64_t **ret_rows, struct pl_error *reterr)
{
    PL_AUTO_FREE uint64_t *rows = NULL;

    if (count == 0) {
        *ret_rows = NULL;
        return PL_OK;
    }
    if (ranks < 0 || count != (uint64_t)ranks) {
        return pl_error_set(reterr, PL_INVALID,
                            "expected one split for each of the ranks of process set %d, which has %d, found %" PRIu64,
                            set, ranks, count);
    }
    rows = pl_memory_new(count, sizeof(*rows), reterr);
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
    *ret_rows = PL_TAKE(rows);
    return PL_OK;
}

enum pl_status pl_arguments_received(const uint64_t *rows, int ranks, size_t bytes, void *ret_splits,
                                     struct pl_error *reterr)
{
    for (int i = 0; i < ranks; i++) {
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

const char *pl_arguments_name(const char *kind, const char *text, size_t length, char name[PL_NAMED_MAX_NAME_BYTES])
{
    enum { HASH_BYTES = 17, MEMBER_BYTES = 24 }; /* the hash with its separator; the suffix that a group appends */
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
