/* SPDX-License-Identifier: Apache-2.0 */
/* CSV records of arbitrary bytes: reading ends or fails, and accounts for every byte. */
#include "tests/fuzz/fuzz_record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fuzz_records(PL_RECORD_CSV, data, bytes);
    return 0;
}
