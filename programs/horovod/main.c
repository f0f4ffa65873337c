/* SPDX-License-Identifier: Apache-2.0 */
/* paceline horovod: reads the command line of install.py, which it runs with the Python whose Horovod is meant. */
#include "base/environment.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "entrypoint/launch/companion.h"
#include "entrypoint/options.h"
#include "entrypoint/verbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum command { INSTALL, CHECK, REMOVE };

static const char *const commands[] = {[INSTALL] = "install", [CHECK] = "check", [REMOVE] = "remove"};

/* What is done with a compiled Horovod. */
enum compiled { REFUSED, REPLACED, KEPT };

static const char *const compiled_words[] = {[REFUSED] = "refused", [REPLACED] = "replaced", [KEPT] = "kept"};

struct options {
    const char *python;
    enum command command;
    enum compiled compiled;
};

#define PL_OPTIONS_OF struct options
static const struct pl_option table[] = {PL_HOROVOD_OPTIONS(PL_OPTION) PL_OPTIONS_END};

/* Reads the command's word. If there is no word, the command is install. */
static enum pl_status read_command(int count, char **words, enum command *ret_command, struct pl_error *reterr)
{
    for (size_t i = 0; count == 1 && i < PL_ARRAY_ITEMS(commands); i++) {
        if (strcmp(words[0], commands[i]) == 0) {
            *ret_command = (enum command)i;
            return PL_OK;
        }
    }
    return count == 0
               ? PL_OK
               : pl_error_set(reterr, PL_INVALID, "expected install, check or remove, found '%s'; --help tells more",
                              words[count - 1]);
}

/* Replaces this process by Python. Returns only an error. */
static enum pl_status run(const struct options *options, struct pl_error *reterr)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    PL_AUTO_FREE char *self = realpath("/proc/self/exe", NULL), *python = NULL, *script = NULL;

    PL_TRY(pl_environment_new(&environment, reterr));
    PL_TRY(pl_file_find_program(options->python, pl_environment_get(environment, "PATH"), &python, reterr));
    PL_TRY(pl_companion_find(self ? self : "", "horovod/install.py", &script, reterr));
    execve(python,
           (char *[]){python, script, (char *)(uintptr_t)commands[options->command],
                      (char *)(uintptr_t)compiled_words[options->compiled], (char *)(uintptr_t)options->python, NULL},
           (char **)(uintptr_t)pl_environment_strings(environment));
    return pl_error_errno(reterr, "start '%s'", python);
}

int main(int argc, char **argv)
{
    struct pl_error error = PL_ERROR_NONE;
    struct options options = {.python = "python3", .compiled = REFUSED};
    enum pl_status status;

    pl_log_open("paceline horovod");
    status = pl_verbs_read("horovod", table, argc, argv, &options, &error);
    status = status == PL_OK ? read_command(argc - optind, argv + optind, &options.command, &error) : status;
    if (status != PL_OK) {
        return pl_verbs_refuse(status, &error);
    }
    run(&options, &error); /* returns only if it fails */
    pl_log_error(&error, options.command == CHECK ? "checking" : options.command == REMOVE ? "removing" : "installing");
    return EXIT_FAILURE;
}
