/* SPDX-License-Identifier: Apache-2.0 */
/* Asks AWS CodeArtifact for a token and for a repository's address, and makes the URL of pip's index from both. */
#include "programs/index/codeartifact.h"

#include "base/clock.h"
#include "base/json/json.h"
#include "base/memory.h"
#include "s3io/s3/s3_client.h"
#include "s3io/s3/s3_operation.h"
#include "s3io/s3/sigv4.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_ATTEMPTS = 4 };

#define CALL_NS (60 * PL_NS_PER_S)

/* The parts of an ARN, in a copy that it owns. */
struct repository {
    char *text;
    const char *region, *owner, *domain, *name;
};

static void free_repository(struct repository *repository)
{
    free(repository->text);
}

/* Cuts off and returns the text before the next `end` at `*at_at`; NULL if there is no `end` or the text is empty. */
static const char *take_part(char **at_at, char end)
{
    char *begin = *at_at, *stop = begin ? strchr(begin, end) : NULL;

    if (!stop || stop == begin) {
        *at_at = NULL;
        return NULL;
    }
    *stop = '\0';
    *at_at = stop + 1;
    return begin;
}

static enum pl_status split_arn(const char *arn, struct repository *repository, struct pl_error *reterr)
{
    const char *word, *partition, *service, *kind;
    char *at;

    repository->text = at = pl_memory_string(arn, reterr);
    if (!at) {
        return PL_MEMORY;
    }
    word = take_part(&at, ':');
    partition = take_part(&at, ':');
    service = take_part(&at, ':');
    repository->region = take_part(&at, ':');
    repository->owner = take_part(&at, ':');
    kind = take_part(&at, '/');
    repository->domain = take_part(&at, '/');
    repository->name = at;
    if (!at || *at == '\0' || strcmp(word, "arn") != 0 || !partition || strcmp(service, "codeartifact") != 0 ||
        strcmp(kind, "repository") != 0) {
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

/* Makes https://aws:TOKEN@HOST/.../simple/ */
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

enum pl_status pl_codeartifact_index(const struct pl_environment *environment, const char *arn, char **ret_url,
                                     struct pl_error *reterr)
{
    __attribute__((cleanup(free_repository))) struct repository repository = {.text = NULL};
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
