/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Manifests: the objects of a channel, if they are not all objects under a prefix.
 *
 * Source  SageMaker API Reference: S3DataSource. A ManifestFile is a JSON array: first {"prefix": "s3://..."}, then
 *         each key without this prefix. An AugmentedManifestFile is JSON lines.
 * Test    tests/unit/s3io/s3/test_texts.c, tests/fuzz/fuzz_s3.c
 */
#ifndef PL_S3IO_S3_MANIFEST_H
#define PL_S3IO_S3_MANIFEST_H

#include "s3io/s3/s3_client.h"

#include <stddef.h>

/** Zero-initialise; release with pl_manifest_done(). */
struct pl_manifest {
    char *bucket;
    char *prefix; /* common beginning of the keys in the bucket */
    char **keys;  /* without the prefix, in the order of the file */
    size_t count;
    size_t capacity;
};

#define PL_AUTO_MANIFEST __attribute__((cleanup(pl_manifest_done)))

void pl_manifest_done(struct pl_manifest *manifest);

/** Parses a ManifestFile; `name` is its name in messages. PL_INVALID, with line and column, for any other text. */
enum pl_status pl_manifest_parse(const char *text, size_t bytes, const char *name, struct pl_manifest *ret_manifest,
                                 struct pl_error *reterr) PL_MUST_CHECK;

/** Fetches the ManifestFile at `uri`, at most 1 GiB, and parses it. */
enum pl_status pl_manifest_fetch(struct pl_s3_client *client, const char *uri, int64_t deadline_ns,
                                 struct pl_manifest *ret_manifest, struct pl_error *reterr) PL_MUST_CHECK;

/** Sorts the keys by bytes, and drops duplicates. */
void pl_manifest_sort(struct pl_manifest *manifest);

/** One attribute of one line of an AugmentedManifestFile. */
struct pl_manifest_value {
    char *text; /* the attribute's value: the characters of a string, otherwise its JSON */
    /* if the attribute refers to an object ("...-ref"): the object's bucket, and `text` is its key; otherwise NULL */
    char *bucket;
};

/** Zero-initialise; release with pl_manifest_augmented_done(). */
struct pl_augmented {
    struct pl_manifest_value *values; /* [lines][attributes], lines in the order of the file */
    size_t lines;
    size_t attributes;
    size_t capacity;
};

#define PL_AUTO_AUGMENTED __attribute__((cleanup(pl_manifest_augmented_done)))

void pl_manifest_augmented_done(struct pl_augmented *augmented);

/**
 * Parses an AugmentedManifestFile, and keeps the attributes `names` of each line, in this order. Empty lines are
 * skipped.
 *
 * Errors  PL_NOT_FOUND: there are only empty lines. PL_INVALID, with the line: it is not an object, lacks an attribute,
 *         or has a reference that is not an s3:// address.
 */
enum pl_status pl_manifest_parse_augmented(const char *text, size_t bytes, const char *name, const char *const *names,
                                           size_t name_count, struct pl_augmented *ret_augmented,
                                           struct pl_error *reterr) PL_MUST_CHECK;

/** Fetches the AugmentedManifestFile at `uri`, at most 1 GiB, and parses it. */
enum pl_status pl_manifest_fetch_augmented(struct pl_s3_client *client, const char *uri, const char *const *names,
                                           size_t name_count, int64_t deadline_ns, struct pl_augmented *ret_augmented,
                                           struct pl_error *reterr) PL_MUST_CHECK;

#endif
