/* SPDX-License-Identifier: Apache-2.0 */
/* paceline-index: runs pip with the index of a CodeArtifact repository. Only that process gets the token. */
#include "base/environment.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "entrypoint/verbs.h"
#include "programs/index/codeartifact.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum pl_status run(char **words, struct pl_error *reterr)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    PL_AUTO_FREE char *url = NULL, *program = NULL;

    PL_TRY(pl_environment_new(&environment, reterr));
    PL_TRY(pl_file_find_program(words[1], pl_environment_get(environment, "PATH"), &program, reterr));
    PL_TRY(pl_codeartifact_index(environment, words[0], &url, reterr));
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
    pl_log_error(&error, "pip's index");
    return EXIT_FAILURE;
}
