/* SPDX-License-Identifier: Apache-2.0 */
/* paceline horovod: makes an installed Horovod, whose Python files were installed without compiling, use Paceline. */
#include "base/clock.h"
#include "base/environment.h"
#include "base/file.h"
#include "base/json/json_write.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/text.h"
#include "entrypoint/options.h"
#include "entrypoint/supervise/process.h"
#include "entrypoint/verbs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define VERSION "0.28.1"
#define LIBRARY "libpaceline-horovod.so"

enum { PATH_BYTES = 4096, FRAMEWORKS = 2, LINES = 3 + FRAMEWORKS };

/* TensorFlow writes much to standard error while it is imported. */
#define QUIETLY                                                                                                        \
    "import os, sys\n"                                                                                                 \
    "def quietly(name):\n"                                                                                             \
    "    kept = os.dup(2)\n"                                                                                           \
    "    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)\n"                                                               \
    "    try: return __import__(name)\n"                                                                               \
    "    finally: os.dup2(kept, 2)\n"

/* The frameworks' versions come last, in the order of `frameworks`. */
static const char inquiry[] = QUIETLY "import importlib.metadata as m, importlib.util as u, sysconfig\n"
                                      "try: print(os.path.abspath(m.distribution('horovod').locate_file('horovod')))\n"
                                      "except m.PackageNotFoundError: print('')\n"
                                      "print(sysconfig.get_config_var('EXT_SUFFIX') or '.so')\n"
                                      "try: print(m.version('horovod'))\n"
                                      "except m.PackageNotFoundError: print('')\n"
                                      "for name in 'torch', 'tensorflow':\n"
                                      "    try: print(u.find_spec(name) and quietly(name).__version__ or '')\n"
                                      "    except Exception as error:\n"
                                      "        print('')\n"
                                      "        print(f'import {name}: {error}', file=sys.stderr)\n";

/* The supported frameworks, with a short test program for each. */
static const struct framework {
    const char *name;
    const char *key;    /* key in Horovod's list of the versions that it was built for */
    const char *folder; /* folder in Horovod's */
    const char *stem;   /* stem of the module's name in that folder */
    const char *module; /* name of our module */
    const char *trial;
} frameworks[FRAMEWORKS] = {
    {"torch", "pytorch", "torch", "mpi_lib_v2", "libpaceline-horovod-torch.so",
     "import torch, horovod.torch as hvd\n"
     "hvd.init()\n"
     "assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [hvd.size()] * 2\n"
     "print('horovod.torch works')\n"
     "hvd.shutdown()\n"},
    {"TensorFlow", "tensorflow", "tensorflow", "mpi_lib", "libpaceline-horovod-tensorflow.so",
     QUIETLY "tf = quietly('tensorflow')\n"
             "import horovod.tensorflow as hvd\n"
             "hvd.init()\n"
             "assert hvd.allreduce(tf.ones(2), op=hvd.Sum).numpy().tolist() == [hvd.size()] * 2\n"
             "print('horovod.tensorflow works')\n"
             "try: hvd.broadcast_([tf.Variable([1.0])], 0)\n"
             "except tf.errors.UnimplementedError as error: print(error.message[error.message.find('broadcasting'):])\n"
             "import horovod.tensorflow.keras as keras\n"
             "print('Keras', getattr(tf.keras, '__version__', '2') + ':', keras.__name__)\n"
             "hvd.shutdown()\n"},
};

/* The answer of a Python interpreter about what is installed. */
struct installed {
    struct pl_text answer;
    const char *folder, *suffix, *version, *frameworks[FRAMEWORKS]; /* "" if it is missing */
};

/* Runs `script`; its output goes into `answer`, or to standard output if `answer` is NULL. */
static enum pl_status run_python(const char *python, const char *script, struct pl_text *answer,
                                 struct pl_error *reterr)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    struct pl_process_setup setup = PL_PROCESS_SETUP_NONE;
    enum pl_status status;

    PL_TRY(pl_environment_new(&environment, reterr));
    setup.argv = (const char *const[]){python, "-c", script, NULL};
    setup.environment = pl_environment_strings(environment);
    setup.stdout_fd = answer ? PL_PROCESS_ANSWER : -1;
    status = pl_process_run(&setup, PL_DEADLINE_NEVER, answer, reterr);
    return status != PL_FAILED ? status : pl_error_set(reterr, PL_FAILED, "'%s' has failed, see above", python);
}

static enum pl_status ask(const char *python, struct installed *installed, struct pl_error *reterr)
{
    const char **lines[LINES] = {&installed->folder, &installed->suffix, &installed->version, &installed->frameworks[0],
                                 &installed->frameworks[1]};
    char *at;

    PL_TRY(run_python(python, inquiry, &installed->answer, reterr));
    at = installed->answer.data ? installed->answer.data : "";
    for (int i = 0; i < LINES; i++) {
        char *end = strchr(at, '\n');

        if (!end) {
            return pl_error_set(reterr, PL_CORRUPT, "'%s' did not answer as a Python interpreter does", python);
        }
        *end = '\0';
        *lines[i] = at;
        at = end + 1;
    }
    if (!*installed->folder || !*installed->version) {
        return pl_error_set(reterr, PL_NOT_FOUND,
                            "there is no Horovod for '%s': HOROVOD_SKIP_COMPILE=1 %s -m pip install horovod==" VERSION,
                            python, python);
    }
    return PL_OK;
}

/* Whether `path` is a link to our library or module; `*ret_exists` tells whether `path` exists. */
static bool is_ours(const char *path, const char *name, bool *ret_exists)
{
    char target[PATH_BYTES];
    struct stat info;
    ssize_t length = readlink(path, target, sizeof(target) - 1);
    const char *slash;

    *ret_exists = lstat(path, &info) == 0;
    if (length < 0) {
        return false;
    }
    target[length] = '\0';
    slash = strrchr(target, '/');
    return strcmp(slash ? slash + 1 : target, name) == 0;
}

/* Replaces `path`, whatever it was, by a link to `name` in the folder of this program. */
static enum pl_status link_to(const char *path, const char *name, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text target = PL_TEXT_NONE, before = PL_TEXT_NONE;
    char self[PATH_BYTES];
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);

    if (length < 0) {
        return pl_error_errno(reterr, "read the link /proc/self/exe");
    }
    self[length] = '\0';
    *strrchr(self, '/') = '\0';
    PL_TRY(pl_text_set(&target, reterr, "%s/%s", self, name));
    PL_TRY(pl_text_set(&before, reterr, "%s.paceline", path));
    if (access(target.data, R_OK) != 0) {
        return pl_error_errno(reterr, "%s: Paceline was built without Python.h, or without a C++ compiler",
                              target.data);
    }
    unlink(before.data);
    if (symlink(target.data, before.data) != 0 || rename(before.data, path) != 0) {
        return pl_error_errno(reterr, "make the link '%s'", path);
    }
    return PL_OK;
}

/* The paths of a framework's module in Horovod, and of our library beside it. */
struct place {
    struct pl_text module, library;
    bool exists, ours;
};

static enum pl_status find_place(const struct installed *installed, const struct framework *framework,
                                 struct place *place, struct pl_error *reterr)
{
    PL_TRY(pl_text_set(&place->module, reterr, "%s/%s/%s%s", installed->folder, framework->folder, framework->stem,
                       installed->suffix));
    PL_TRY(pl_text_set(&place->library, reterr, "%s/%s/" LIBRARY, installed->folder, framework->folder));
    place->ours = is_ours(place->module.data, framework->module, &place->exists);
    return PL_OK;
}

/* Writes the frameworks' versions: Horovod compares the framework that is loaded with the one that it was built for. */
static enum pl_status write_versions(const struct installed *installed, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text metadata = PL_TEXT_NONE, path = PL_TEXT_NONE;
    struct pl_json_writer writer = PL_JSON_WRITER(&metadata);

    pl_json_write_object(&writer, NULL);
    for (int i = 0; i < FRAMEWORKS; i++) {
        if (*installed->frameworks[i]) {
            pl_json_write_text(&writer, frameworks[i].key, installed->frameworks[i]);
        }
    }
    pl_json_write_close(&writer);
    PL_TRY(pl_json_write_end(&writer, reterr));
    PL_TRY(pl_text_set(&path, reterr, "%s/metadata.json", installed->folder));
    return pl_file_write_atomic(path.data, metadata.data, metadata.length, 0644, reterr);
}

/*
 * Adds a package of ours next to Horovod, into which Python looks at its start: for example, Horovod's Python files for
 * Keras do not support Keras 3. A link that leads nowhere has no effect.
 */
static enum pl_status add_package(const struct installed *installed, struct pl_error *reterr)
{
    static const char line[] = "import sys; exec('try: import paceline_horovod.redirect\\nexcept ImportError: pass')\n";
    PL_AUTO_TEXT struct pl_text package = PL_TEXT_NONE, start = PL_TEXT_NONE;

    PL_TRY(pl_text_set(&package, reterr, "%s/../paceline_horovod", installed->folder));
    PL_TRY(pl_text_set(&start, reterr, "%s/../paceline_horovod.pth", installed->folder));
    PL_TRY(link_to(package.data, "horovod/paceline_horovod", reterr));
    return pl_file_write_atomic(start.data, line, sizeof(line) - 1, 0644, reterr);
}

/* Treatment of a compiled Horovod. */
enum compiled { REFUSED, REPLACED, KEPT };

/* Checks whether the installed Horovod may be changed. PL_END if it is to stay unchanged, as requested. */
static enum pl_status check_install(const struct installed *installed, const struct place *places,
                                    enum compiled compiled, struct pl_error *reterr)
{
    bool any = false, force = compiled == REPLACED;

    for (int i = 0; i < FRAMEWORKS && compiled == KEPT; i++) {
        if (places[i].exists && !places[i].ours) {
            printf("Horovod %s in %s was compiled and stays as it is\n", installed->version, installed->folder);
            return PL_END;
        }
    }

    if (strcmp(installed->version, VERSION) != 0 && !force) {
        return pl_error_set(reterr, PL_UNSUPPORTED,
                            "Horovod in %s is %s, not " VERSION "; --force uses it nevertheless", installed->folder,
                            installed->version);
    }
    for (int i = 0; i < FRAMEWORKS; i++) {
        any = any || *installed->frameworks[i];
        if (places[i].exists && !places[i].ours && !force) {
            return pl_error_set(reterr, PL_INVALID,
                                "Horovod in %s was compiled: %s is not a link to Paceline; --force replaces it",
                                installed->folder, places[i].module.data);
        }
    }
    return any ? PL_OK : pl_error_set(reterr, PL_NOT_FOUND, "neither torch nor TensorFlow is installed");
}

static enum pl_status install(const struct installed *installed, const struct place *places, enum compiled compiled,
                              struct pl_error *reterr)
{
    enum pl_status status = check_install(installed, places, compiled, reterr);

    if (status != PL_OK) {
        return status == PL_END ? PL_OK : status;
    }
    for (int i = 0; i < FRAMEWORKS; i++) {
        if (*installed->frameworks[i]) {
            PL_TRY(link_to(places[i].library.data, LIBRARY, reterr));
            PL_TRY(link_to(places[i].module.data, frameworks[i].module, reterr));
        }
    }
    PL_TRY(write_versions(installed, reterr));
    PL_TRY(add_package(installed, reterr));
    printf("Horovod %s in %s runs on Paceline; ", installed->version, installed->folder);
    for (int i = 0; i < FRAMEWORKS; i++) {
        if (*installed->frameworks[i]) {
            printf("%s %s, ", frameworks[i].name, installed->frameworks[i]);
        }
    }
    printf("not there:");
    for (int i = 0; i < FRAMEWORKS; i++) {
        if (!*installed->frameworks[i]) {
            printf(" %s,", frameworks[i].name);
        }
    }
    printf(" MXNet\n");
    return PL_OK;
}

/* Prints what is installed, and tests each framework. */
static enum pl_status check(const char *python, const struct installed *installed, const struct place *places,
                            struct pl_error *reterr)
{
    int ours = 0, there = 0;

    printf("Horovod %s in %s\n", installed->version, installed->folder);
    for (int i = 0; i < FRAMEWORKS; i++) {
        printf("%s: %s, module: %s\n", frameworks[i].name,
               *installed->frameworks[i] ? installed->frameworks[i] : "not there",
               places[i].ours     ? "Paceline's"
               : places[i].exists ? "Horovod's own, compiled"
                                  : "not there: paceline horovod install");
        there += *installed->frameworks[i] != '\0';
        ours += *installed->frameworks[i] && places[i].ours;
    }
    fflush(stdout);
    if (ours == 0 || ours < there) {
        return pl_error_set(reterr, PL_NOT_FOUND, "%s", "this Horovod does not run on Paceline");
    }
    for (int i = 0; i < FRAMEWORKS; i++) {
        if (*installed->frameworks[i]) {
            PL_TRY(run_python(python, frameworks[i].trial, NULL, reterr));
        }
    }
    return PL_OK;
}

static enum pl_status remove_link(const struct installed *installed, const char *name, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    PL_TRY(pl_text_set(&path, reterr, "%s/%s", installed->folder, name));
    return unlink(path.data) == 0 || errno == ENOENT ? PL_OK : pl_error_errno(reterr, "remove '%s'", path.data);
}

/* Removes the files that install() made. Files that it replaced with --force are not restored. */
static enum pl_status uninstall(const struct installed *installed, const struct place *places, struct pl_error *reterr)
{
    static const char *const beside[] = {"../paceline_horovod.pth", "../paceline_horovod", "metadata.json"};
    bool any = false;

    for (int i = 0; i < FRAMEWORKS; i++) {
        bool exists;

        if (!places[i].ours) {
            continue;
        }
        any = true;
        if (unlink(places[i].module.data) != 0 ||
            (is_ours(places[i].library.data, LIBRARY, &exists) && unlink(places[i].library.data) != 0)) {
            return pl_error_errno(reterr, "remove '%s'", places[i].module.data);
        }
    }
    if (!any) {
        return pl_error_set(reterr, PL_NOT_FOUND, "Horovod in %s has no module of Paceline's", installed->folder);
    }
    for (size_t i = 0; i < PL_ARRAY_ITEMS(beside); i++) {
        PL_TRY(remove_link(installed, beside[i], reterr));
    }
    printf("Horovod %s in %s no longer runs on Paceline\n", installed->version, installed->folder);
    return PL_OK;
}

enum command { INSTALL, CHECK, REMOVE };

static const char *const commands[] = {[INSTALL] = "install", [CHECK] = "check", [REMOVE] = "remove"};

static enum pl_status run(const char *python, enum command command, enum compiled compiled, struct pl_error *reterr)
{
    struct place places[FRAMEWORKS] = {0};
    struct installed installed = {.answer = PL_TEXT_NONE};
    enum pl_status status = ask(python, &installed, reterr);

    for (int i = 0; i < FRAMEWORKS && status == PL_OK; i++) {
        status = find_place(&installed, &frameworks[i], &places[i], reterr);
    }
    if (status == PL_OK) {
        status = command == CHECK    ? check(python, &installed, places, reterr)
                 : command == REMOVE ? uninstall(&installed, places, reterr)
                                     : install(&installed, places, compiled, reterr);
    }
    for (int i = 0; i < FRAMEWORKS; i++) {
        pl_text_done(&places[i].module);
        pl_text_done(&places[i].library);
    }
    pl_text_done(&installed.answer);
    return status;
}

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

struct options {
    const char *python;
    enum command command;
    enum compiled compiled;
};

#define PL_OPTIONS_OF struct options
static const struct pl_option table[] = {PL_HOROVOD_OPTIONS(PL_OPTION) PL_OPTIONS_END};

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
    if (run(options.python, options.command, options.compiled, &error) != PL_OK) {
        pl_log_error(&error, options.command == CHECK    ? "checking"
                             : options.command == REMOVE ? "removing"
                                                         : "installing");
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
