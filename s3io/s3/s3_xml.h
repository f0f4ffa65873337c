/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The XML of S3's responses: a walk over its elements, and the document of an error.
 *
 * Source  Amazon S3 API Reference: "REST Error Responses".
 * Test    tests/unit/s3io/s3/test_s3_list.c, tests/fuzz/fuzz_s3_list.c
 */
#ifndef PL_S3IO_S3_S3_XML_H
#define PL_S3IO_S3_S3_XML_H

#include "base/status.h"

#include <stddef.h>

/** Called at the end of every element, with its path ("ListBucketResult/Contents/Key") and its text. */
struct pl_s3_xml_visitor {
    void *context;
    enum pl_status (*element)(void *context, const char *path, const char *text, size_t text_bytes,
                              struct pl_error *reterr);
};

/**
 * Walks over a whole document. A document type declaration is an error: S3 sends none, and its entities could make a
 * small input very large.
 *
 * Errors  PL_CORRUPT: the text is not XML. PL_LIMIT: elements are nested deeper than 32. The visitor's errors.
 */
enum pl_status pl_s3_xml_walk(const char *text, size_t bytes, const struct pl_s3_xml_visitor *visitor,
                              struct pl_error *reterr) PL_MUST_CHECK;

struct pl_s3_error_document {
    char code[64]; /* "NoSuchKey"; "" if the text is not an error document */
    char message[256];
    char region[64];
};

/** Parses an <Error> document, STS's <ErrorResponse> around one, or {"message"}. For other texts the code is "". */
void pl_s3_error_parse(const char *text, size_t bytes, struct pl_s3_error_document *ret_document);

/** Copies `text_bytes` of `text`, and truncates them to fit. */
void pl_s3_xml_copy(char *target, size_t target_bytes, const char *text, size_t text_bytes);

#endif
