/* SPDX-License-Identifier: Apache-2.0 */
/* Records of arbitrary bytes, of the format that the build names: reading ends or fails and accounts for all bytes. */
#include "tests/fuzz/fuzz_record.h"

#ifndef FUZZ_FORMAT /* the build sets it */
#define FUZZ_FORMAT PL_RECORD_CSV
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fuzz_records(FUZZ_FORMAT, data, bytes);
    return 0;
}
