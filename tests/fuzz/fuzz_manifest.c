/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests of both kinds: entries that are accepted are complete, whatever the input is. */
#include "s3io/s3/manifest.h"
#include "tests/support/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const names[] = {"a-ref", "b"};
    PL_AUTO_MANIFEST struct pl_manifest manifest = {.bucket = NULL};
    PL_AUTO_AUGMENTED struct pl_augmented augmented = {.values = NULL};
    struct pl_error error = PL_ERROR_NONE;

    if (pl_manifest_parse((const char *)data, bytes, "fuzz", &manifest, &error) == PL_OK) {
        PL_BUG_IF(!manifest.bucket || !manifest.prefix);
        for (size_t i = 0; i < manifest.count; i++) {
            PL_BUG_IF(!manifest.keys[i]);
        }
    }
    if (pl_manifest_parse_augmented((const char *)data, bytes, "fuzz", names, 2, &augmented, &error) == PL_OK) {
        for (size_t i = 0; i < augmented.lines * augmented.attributes; i++) {
            PL_BUG_IF(!augmented.values[i].text || (i % 2 == 0) == !augmented.values[i].bucket);
        }
    }
    return 0;
}
