/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Manifests: which objects make a channel, when it is not all objects under a prefix.
 *
 * Source  SageMaker API Reference: S3DataSource (ManifestFile: a JSON array, {"prefix": "s3://..."} first, then what
 *         follows it; AugmentedManifestFile: JSON lines).
 * Test    tests/unit/s3io/s3/test_manifest.c, tests/fuzz/fuzz_manifest.c
 */
#ifndef PL_S3IO_S3_MANIFEST_H
#define PL_S3IO_S3_MANIFEST_H

#include "base/status.h"

#include <stddef.h>

/** Zero-initialise, release with pl_manifest_done(). */
struct pl_manifest {
    char *bucket;
    char *prefix; /* of the keys in the bucket */
    char **keys;  /* without the prefix, in the order of the file */
    size_t count;
    size_t capacity;
};

#define PL_AUTO_MANIFEST __attribute__((cleanup(pl_manifest_done)))

void pl_manifest_done(struct pl_manifest *manifest);

/** Parse a ManifestFile. `name` is what messages call it. PL_INVALID, with line and column, for anything else. */
enum pl_status pl_manifest_parse(const char *text, size_t bytes, const char *name, struct pl_manifest *ret_manifest,
                                 struct pl_error *reterr) PL_MUST_CHECK;

/** One attribute of one line of an AugmentedManifestFile. */
struct pl_manifest_value {
    char *text;   /* the attribute's value; of a string its characters, otherwise its JSON */
    char *bucket; /* not NULL: the attribute is a reference ("...-ref"), to this object, and `text` is the key */
};

/** Zero-initialise, release with pl_manifest_augmented_done(). */
struct pl_augmented {
    struct pl_manifest_value *values; /* [lines][attributes], lines in the order of the file */
    size_t lines;
    size_t attributes;
    size_t capacity;
};

#define PL_AUTO_AUGMENTED __attribute__((cleanup(pl_manifest_augmented_done)))

void pl_manifest_augmented_done(struct pl_augmented *augmented);

/**
 * Parse an AugmentedManifestFile and keep of each line the attributes `names`, in their order. Empty lines are skipped.
 *
 * Errors  PL_NOT_FOUND if there are no others; PL_INVALID, with the line, for a line that is not an object, lacks an
 *         attribute, or refers to what is
 * no s3:// address.
 */
enum pl_status pl_manifest_parse_augmented(const char *text, size_t bytes, const char *name, const char *const *names,
                                           size_t name_count, struct pl_augmented *ret_augmented,
                                           struct pl_error *reterr) PL_MUST_CHECK;

#endif
