/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The XML that S3 answers with: a walk over its elements, and the document that every error comes as.
 *
 * Source  Amazon S3 API Reference: "REST Error Responses".
 * Test    tests/unit/s3io/s3/test_s3_list.c, tests/fuzz/fuzz_s3_list.c
 */
#ifndef PL_S3IO_S3_S3_XML_H
#define PL_S3IO_S3_S3_XML_H

#include "base/status.h"

#include <stddef.h>

/** Called at the end of every element: its path ("ListBucketResult/Contents/Key") and its text. */
struct pl_s3_xml_visitor {
    void *context;
    enum pl_status (*element)(void *context, const char *path, const char *text, size_t text_bytes,
                              struct pl_error *reterr);
};

/**
 * Walk over a whole document. A document type declaration is refused: S3 sends none, and entities let small inputs
 * grow.
 *
 * Errors  PL_CORRUPT for what is not XML, PL_LIMIT for elements nested deeper than 32; what the visitor returned.
 */
enum pl_status pl_s3_xml_walk(const char *text, size_t bytes, const struct pl_s3_xml_visitor *visitor,
                              struct pl_error *reterr) PL_MUST_CHECK;

struct pl_s3_error_document {
    char code[64]; /* "NoSuchKey"; "" when the text is not an error document */
    char message[256];
    char region[64];
};

/** Read an <Error> document, or STS's <ErrorResponse> around one; anything else leaves the code empty. */
void pl_s3_error_parse(const char *text, size_t bytes, struct pl_s3_error_document *ret_document);

/** Copy `text_bytes` of `text`, cut to fit. */
void pl_s3_xml_copy(char *target, size_t target_bytes, const char *text, size_t text_bytes);

#endif
