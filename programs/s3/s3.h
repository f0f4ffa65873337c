/* SPDX-License-Identifier: Apache-2.0 */
/** The types and functions that the subcommands of paceline-s3 share. */
#ifndef PL_PROGRAMS_S3_S3_H
#define PL_PROGRAMS_S3_S3_H

#include "s3io/s3/s3_client.h"
#include "s3io/s3/s3_get.h"
#include "s3io/s3/s3_headers.h"

struct pl_tool {
    struct pl_environment *environment;
    struct pl_s3_client *client; /* NULL until pl_tool_connect() */
    struct pl_s3_options client_options;
    struct pl_s3_stream_options stream_options;
    bool recursive, manifest, again, quiet, verbose, no_checksums, json;
    struct pl_s3_encryption encryption; /* encryption of objects that are written */
    struct pl_s3_headers headers;       /* request headers for all of these options */
    /* readable once SIGINT or SIGTERM has arrived; -1 if these signals end the process */
    int stop_fd;
    int64_t timeout_ns; /* longest wait for a byte, and for one small request */
    char **args;        /* the arguments after the options */
    int arg_count;
};

/* ---- session.c: the beginning of each subcommand, and work for several threads ---- */

/** Reads keys and settings and makes the client. */
enum pl_status pl_tool_connect(struct pl_tool *tool, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * After pl_tool_hold_stop() SIGINT and SIGTERM no longer end the process; pl_tool_goes_on() reports them, so that no
 * incomplete file is left. pl_tool_let_stop() lets them end the process again.
 */
enum pl_status pl_tool_hold_stop(struct pl_tool *tool, struct pl_error *reterr) PL_MUST_CHECK;
bool pl_tool_goes_on(const struct pl_tool *tool);
void pl_tool_let_stop(struct pl_tool *tool);

enum { TOOL_AT_A_TIME = 5 };

/**
 * Calls `function` once for each index below `count`, at most TOOL_AT_A_TIME at a time. After a failure it starts no
 * more calls, and reports the first failure.
 */
typedef enum pl_status tool_each_function(void *context, size_t index, struct pl_error *reterr);
enum pl_status pl_tool_each(size_t count, tool_each_function *function, void *context,
                            struct pl_error *reterr) PL_MUST_CHECK;

/* ---- list.c, cp.c: the subcommands ---- */

/** The same as pl_s3_list(), with the tool's limit for each page. */
enum pl_status pl_tool_list(struct pl_tool *tool, const char *bucket, const char *prefix, struct pl_s3_listing *listing,
                            struct pl_error *reterr) PL_MUST_CHECK;

enum pl_status pl_tool_ls(struct pl_tool *tool, struct pl_error *reterr) PL_MUST_CHECK;
enum pl_status pl_tool_cat(struct pl_tool *tool, struct pl_error *reterr) PL_MUST_CHECK;
enum pl_status pl_tool_cp(struct pl_tool *tool, struct pl_error *reterr) PL_MUST_CHECK;

#endif
