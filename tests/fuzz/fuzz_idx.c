/* SPDX-License-Identifier: Apache-2.0 */
/* IDX items one by one, and whole arrays, which may be compressed. */
#include "s3io/idx.h"
#include "s3io/record/record_formats.h"
#include "s3io/source.h"
#include "tests/fuzz/fuzz_record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_idx_reader *reader;
    enum pl_status status = PL_OK;
    struct pl_source *source;

    fuzz_records(PL_RECORD_IDX, data, bytes);
    PL_BUG_IF(pl_source_open_memory("fuzz", data, bytes, &source, &error) != PL_OK);
    PL_BUG_IF(pl_idx_reader_open(source, 1 << 20, &reader, &error) != PL_OK);
    while (status == PL_OK) {
        struct pl_idx idx = {.dims = 0};

        status = pl_idx_reader_next(reader, PL_DEADLINE_NEVER, &idx, &error);
        PL_BUG_IF(status == PL_OK && (idx.dims == 0 || !idx.data || idx.item_bytes * idx.shape[0] > 1 << 20));
        pl_idx_done(&idx);
    }
    PL_BUG_IF(status != PL_END && error.cause[0] == '\0');
    pl_idx_reader_close(reader);
    return 0;
}
