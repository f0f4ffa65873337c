/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/fuzz_record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fuzz_records(PL_RECORD_TFRECORD, data, bytes);
    return 0;
}
