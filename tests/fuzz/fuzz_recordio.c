/* SPDX-License-Identifier: Apache-2.0 */
/* RecordIO records of arbitrary bytes: reading ends or fails, and accounts for every byte. */
#include "tests/fuzz/fuzz_record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fuzz_records(PL_RECORD_RECORDIO, data, bytes);
    return 0;
}
