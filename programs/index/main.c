/* SPDX-License-Identifier: Apache-2.0 */
/*
 * paceline-index ARN PROGRAM...: runs pip with the index of a repository of AWS CodeArtifact. Two signed requests get
 * its address and token. Only that process gets the token.
 *
 * Source  AWS CodeArtifact API Reference: GetAuthorizationToken, GetRepositoryEndpoint; user guide: "Configure and use
 *         pip with CodeArtifact".
 */
#include "base/clock.h"
#include "base/environment.h"
#include "base/file.h"
#include "base/json/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "entrypoint/verbs.h"
#include "s3io/s3/s3_client.h"
#include "s3io/s3/s3_operation.h"
#include "s3io/s3/sigv4.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_ATTEMPTS = 4 };

#define CALL_NS (60 * PL_NS_PER_S)

/* The parts of an ARN. AWS allows 50 letters of a domain, and 100 of a repository. */
struct repository {
    char region[64], owner[64], domain[128], name[128];
};

static enum pl_status split_arn(const char *arn, struct repository *repository, struct pl_error *reterr)
{
    int end = 0;

    sscanf(arn, "arn:%*[^:]:codeartifact:%63[^:]:%63[^:]:repository/%127[^/]/%127[^\n]%n", repository->region,
           repository->owner, repository->domain, repository->name, &end);
    if (end == 0 || arn[end] != '\0') {
        return pl_error_set(reterr, PL_INVALID,
                            "CA_REPOSITORY_ARN is '%.200s': expected "
                            "arn:aws:codeartifact:REGION:ACCOUNT:repository/DOMAIN/REPOSITORY",
                            arn);
    }
    return PL_OK;
}

/* Sets *ret_value to the text `member` in the answer to `method` PATH?QUERY. */
static enum pl_status ask(struct pl_s3_client *client, const struct repository *repository, const char *name,
                          const char *method, const char *path, const char *query, const char *member, char **ret_value,
                          struct pl_error *reterr)
{
    struct pl_s3_operation operation = {
        .method = method, .bucket = "", .key = path, .query = query, .deadline_ns = pl_deadline_after_ns(CALL_NS)};
    PL_AUTO_JSON struct pl_json *document = NULL;
    enum pl_status status = pl_s3_call(client, &operation, NULL, reterr);
    const char *value;

    if (status == PL_OK) {
        status =
            pl_json_parse(pl_text_string(&operation.reply), operation.reply.length, "the answer", &document, reterr);
    }
    if (status == PL_OK) {
        status = pl_json_text(pl_json_member(pl_json_root(document), member), &value, reterr);
    }
    if (status == PL_OK) {
        *ret_value = pl_memory_string(value, reterr);
        status = *ret_value ? PL_OK : PL_MEMORY;
    }
    if (status != PL_OK) {
        pl_error_context(reterr, "CodeArtifact's %s for the repository '%.100s' in the domain '%.100s'", name,
                         repository->name, repository->domain);
    }
    pl_s3_operation_done(&operation);
    return status;
}

static void append_field(struct pl_text *query, const char *name, const char *value)
{
    pl_text_printf(query, "%s%s=", query->length > 0 ? "&" : "", name);
    pl_sigv4_encode(value, strlen(value), false, query);
}

/* Makes the URL https://aws:TOKEN@HOST/.../simple/ */
static enum pl_status join_index(const char *endpoint, const char *token, bool plain, char **ret_url,
                                 struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text url = PL_TEXT_NONE;
    const char *host = strstr(endpoint, "://");
    size_t length;

    if (!host || strpbrk(endpoint, "@?# \t\r\n") ||
        (strncmp(endpoint, "https://", 8) != 0 && !(plain && strncmp(endpoint, "http://", 7) == 0))) {
        return pl_error_set(reterr, PL_CORRUPT,
                            "CodeArtifact's GetRepositoryEndpoint: expected an https:// address, found '%.200s'",
                            endpoint);
    }
    host += strlen("://");
    length = strlen(host);
    while (length > 0 && host[length - 1] == '/') {
        length--;
    }
    pl_text_append_n(&url, endpoint, (size_t)(host - endpoint));
    pl_text_append(&url, "aws:");
    pl_sigv4_encode(token, strlen(token), false, &url);
    pl_text_append(&url, "@");
    pl_text_append_n(&url, host, length);
    pl_text_append(&url, "/simple/");
    return pl_text_take(&url, ret_url, reterr);
}

/*
 * Returns the index of the repository `arn` as a URL that holds a token for it, a secret. Credentials come from the
 * same places as for S3.
 */
static enum pl_status find_index(const struct pl_environment *environment, const char *arn, char **ret_url,
                                 struct pl_error *reterr)
{
    struct repository repository;
    struct pl_s3_options options = {.service = "codeartifact", .connections = 1, .attempts = MAX_ATTEMPTS};
    PL_AUTO_S3_CLIENT struct pl_s3_client *client = NULL;
    PL_AUTO_TEXT struct pl_text query = PL_TEXT_NONE;
    PL_AUTO_FREE char *token = NULL, *endpoint = NULL;

    PL_TRY(split_arn(arn, &repository, reterr));
    options.region = repository.region;
    PL_TRY(pl_s3_client_new(environment, &options, &client, reterr));
    append_field(&query, "domain", repository.domain);
    append_field(&query, "domain-owner", repository.owner);
    PL_TRY(pl_text_check(&query, reterr));
    PL_TRY(ask(client, &repository, "GetAuthorizationToken", "POST", "/v1/authorization-token", query.data,
               "authorizationToken", &token, reterr));
    append_field(&query, "repository", repository.name);
    append_field(&query, "format", "pypi");
    PL_TRY(pl_text_check(&query, reterr));
    PL_TRY(ask(client, &repository, "GetRepositoryEndpoint", "GET", "/v1/repository/endpoint", query.data,
               "repositoryEndpoint", &endpoint, reterr));
    return join_index(endpoint, token, client->plain, ret_url, reterr);
}

static enum pl_status run(char **words, struct pl_error *reterr)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    PL_AUTO_FREE char *url = NULL, *program = NULL;

    PL_TRY(pl_environment_new(&environment, reterr));
    PL_TRY(pl_file_find_program(words[1], pl_environment_get(environment, "PATH"), &program, reterr));
    PL_TRY(find_index(environment, words[0], &url, reterr));
    PL_TRY(pl_environment_set(environment, "PIP_INDEX_URL", url, reterr));
    PL_TRY(pl_environment_set(environment, "UV_DEFAULT_INDEX", url, reterr));
    execve(program, words + 1, (char **)pl_environment_strings(environment));
    return pl_error_errno(reterr, "run '%s'", program);
}

int main(int argc, char **argv)
{
    struct pl_error error = PL_ERROR_NONE;

    pl_log_open("paceline index");
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        pl_verbs_print_help("index", stdout);
        return EXIT_SUCCESS;
    }
    if (argc < 3) {
        pl_verbs_print_help("index", stderr);
        return 2;
    }
    run(argv + 1, &error); /* run() returns only if it fails */
    pl_log_error(&error, "cannot run pip with its index");
    return EXIT_FAILURE;
}
