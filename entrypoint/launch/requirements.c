/* SPDX-License-Identifier: Apache-2.0 */
/* Plans the steps that install what the code directory asks for: by uv where the image has it, else by pip. */
#include "entrypoint/launch/requirements.h"

#include "base/environment.h"
#include "base/file.h"
#include "base/memory.h"
#include "entrypoint/launch/companion.h"
#include "entrypoint/launch/needs.h"
#include "entrypoint/launch/steps.h"

#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#define PACKAGE_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

enum { REQUIREMENTS_BYTES = 1 << 20 };

static bool is_regular(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

/* Set `*ret_path` to the path of `name` in the code directory. */
static enum pl_status path_in_code(const struct pl_job *job, const char *name, char **ret_path, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    pl_text_printf(&path, "%s/%s", job->paths.code, name);
    return pl_text_take(&path, ret_path, reterr);
}

static bool is_in_code(const struct pl_job *job, const char *name)
{
    PL_AUTO_FREE char *path = NULL;

    return path_in_code(job, name, &path, NULL) == PL_OK && is_regular(path);
}

/* An image with Python may lack pip, and the message of the interpreter about it suggests no solution. */
static enum pl_status need_pip(const struct pl_program *program, const char *file, struct pl_launch_plan *plan,
                               struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text sentence = PL_TEXT_NONE;

    pl_text_printf(&sentence,
                   "the code has %s, but this image has no pip: build it with python3-pip (PACKAGES of Paceline's "
                   "Dockerfile), or switch the installation off by PACELINE_INSTALL=0",
                   file);
    PL_TRY(pl_text_check(&sentence, reterr));
    return pl_needs_module(program, "pip", pl_text_string(&sentence), plan, reterr);
}

/* Whether a line of requirements.txt names the package `name`. */
static bool requires(const struct pl_job *job, const char *name)
{
    PL_AUTO_FREE char *path = NULL, *text = NULL;
    const size_t length = strlen(name);

    if (path_in_code(job, job->requirements, &path, NULL) != PL_OK ||
        pl_file_read(path, REQUIREMENTS_BYTES, &text, NULL, NULL) != PL_OK) {
        return false;
    }
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += strspn(line, "\n\r\t ");
        if (strncasecmp(line, name, length) == 0 && strspn(line + length, PACKAGE_LETTERS) == 0) {
            return true;
        }
    }
    return false;
}

/*
 * If this image has Paceline's modules for Horovod, pip must not compile Horovod, which takes minutes and needs
 * compilers. A constraint makes pip install the Python files of the version that the modules serve, or report that
 * requirements.txt wants another version; a further step puts the modules into Horovod. Nothing is done if the user has
 * set HOROVOD_SKIP_COMPILE to a value other than 1.
 */
static enum pl_status add_horovod(const struct pl_job *job, const struct pl_program *program, struct pl_strv *argv,
                                  struct pl_launch_plan *plan, struct pl_error *reterr)
{
    static const char skip[] = "HOROVOD_SKIP_COMPILE";
    PL_AUTO_FREE char *module = NULL, *tool = NULL, *constraint = NULL;

    if (strcmp(pl_environment_get_or(job->process, skip, "1"), "1") != 0 ||
        pl_companion_find(job->self_path, "libpaceline-horovod.so", &module, NULL) != PL_OK ||
        pl_companion_find(job->self_path, "horovod/constraint.txt", &constraint, NULL) != PL_OK ||
        pl_companion_find(job->self_path, "paceline-horovod", &tool, NULL) != PL_OK) {
        return PL_OK;
    }
    PL_TRY(pl_steps_set(&plan->steps, skip, "1", reterr));
    PL_TRY(pl_strv_add_list(argv, (const char *const[]){"-c", constraint, NULL}, reterr));
    if (!requires(job, "horovod")) {
        return PL_OK;
    }
    PL_TRY(pl_strv_add(&plan->warnings,
                       "requirements.txt names Horovod: version 0.28.1 is installed without compiling, and runs on "
                       "Paceline; with HOROVOD_SKIP_COMPILE=0 pip compiles it",
                       reterr));
    PL_TRY(pl_steps_add(&plan->steps, "putting Paceline's modules into Horovod", job->paths.code, &argv, reterr));
    return pl_strv_add_list(argv, (const char *const[]){tool, "--python", program->python, "--unless-compiled", NULL},
                            reterr);
}

/* Put `paceline-index ARN` before pip's words: it gets the index from AWS, and the token is never in a command line. */
static enum pl_status add_index(const struct pl_job *job, struct pl_strv *argv, struct pl_error *reterr)
{
    static const char variable[] = "CA_REPOSITORY_ARN", name[] = "paceline-index";
    const char *arn = pl_environment_get_or(job->process, variable, NULL);
    PL_AUTO_FREE char *tool = NULL;

    if (!arn) {
        return PL_OK;
    }
    if (pl_companion_find(job->self_path, name, &tool, NULL) != PL_OK) {
        return pl_error_set(reterr, PL_UNSUPPORTED,
                            "%s is set, but this image has no %s: set PIP_INDEX_URL to pip's index instead", variable,
                            name);
    }
    return pl_strv_add_list(argv, (const char *const[]){tool, arn, NULL}, reterr);
}

/* Whether something tells pip what uv would not hear: variables that change what is installed or where from, and pip's
 * configuration files, as they are by default. */
static bool configures_pip(const struct pl_job *job)
{
    static const char *const harmless[] = {
        "PIP_BREAK_SYSTEM_PACKAGES", "PIP_CACHE_DIR", "PIP_DEFAULT_TIMEOUT",  "PIP_DISABLE_PIP_VERSION_CHECK",
        "PIP_NO_CACHE_DIR",          "PIP_NO_INPUT",  "PIP_NO_COLOR",         "PIP_NO_WARN_SCRIPT_LOCATION",
        "PIP_PROGRESS_BAR",          "PIP_QUIET",     "PIP_ROOT_USER_ACTION", "PIP_VERBOSE"};
    static const char *const files[] = {"/.config/pip/pip.conf", "/.pip/pip.conf"};
    const bool has_files = strcmp(pl_environment_get_or(job->process, "PIP_CONFIG_FILE", ""), "/dev/null") != 0;
    const char *home = pl_environment_get_or(job->process, "HOME", NULL);

    for (char *const *string = pl_environment_strings(job->process); *string; string++) {
        const size_t length = strcspn(*string, "=");
        bool is_harmless = false;

        for (size_t i = 0; i < PL_ARRAY_ITEMS(harmless); i++) {
            is_harmless = is_harmless || (strlen(harmless[i]) == length && memcmp(*string, harmless[i], length) == 0);
        }
        is_harmless = is_harmless || (!has_files && strncmp(*string, "PIP_CONFIG_FILE=", length + 1) == 0);
        if (strncmp(*string, "PIP_", strlen("PIP_")) == 0 && (*string)[length] == '=' && !is_harmless) {
            return true;
        }
    }
    for (size_t i = 0; has_files && home && i < PL_ARRAY_ITEMS(files); i++) {
        PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

        pl_text_printf(&path, "%s%s", home, files[i]);
        if (pl_text_check(&path, NULL) != PL_OK || is_regular(pl_text_string(&path))) {
            return true;
        }
    }
    return has_files && is_regular("/etc/pip.conf");
}

/* uv does pip's work where the image has it, in a tenth of the time. Not where pip is configured, and not for Horovod,
 * which builds with packages of the environment that uv would leave out. */
static bool use_uv(const struct pl_job *job)
{
    PL_AUTO_FREE char *uv = NULL;

    return job->settings.uv &&
           pl_file_find_program("uv", pl_environment_get(job->process, "PATH"), &uv, NULL) == PL_OK &&
           !configures_pip(job) && !(job->requirements && requires(job, "horovod"));
}

/* What pip or uv has fetched stays for the next job in the directory that a warm pool keeps, if there is one. */
static enum pl_status keep_cache(const struct pl_job *job, bool with_uv, struct pl_launch_plan *plan,
                                 struct pl_error *reterr)
{
    const char *variable = with_uv ? "UV_CACHE_DIR" : "PIP_CACHE_DIR";
    const char *kept = pl_environment_get_or(job->process, "SAGEMAKER_MANAGED_WARMPOOL_CACHE_DIRECTORY", NULL);
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    struct stat info;

    if (kept) {
        pl_text_append(&path, kept);
    } else {
        pl_text_printf(&path, "%s/sagemaker/warmpoolcache", job->paths.base);
    }
    PL_TRY(pl_text_check(&path, reterr));
    if (pl_environment_get(job->process, variable) || stat(pl_text_string(&path), &info) != 0 ||
        !S_ISDIR(info.st_mode)) {
        return PL_OK;
    }
    pl_text_append(&path, with_uv ? "/uv" : "/pip");
    PL_TRY(pl_text_check(&path, reterr));
    return pl_steps_set(&plan->steps, variable, pl_text_string(&path), reterr);
}

/* Set a variable for the step that was added last, unless the container has it. */
static enum pl_status set_unless_set(const struct pl_job *job, const char *name, const char *value,
                                     struct pl_launch_plan *plan, struct pl_error *reterr)
{
    return pl_environment_get(job->process, name) ? PL_OK : pl_steps_set(&plan->steps, name, value, reterr);
}

/* The variables and first words of the step that installs. */
static enum pl_status add_installer(const struct pl_job *job, const struct pl_program *program, bool with_uv,
                                    struct pl_launch_plan *plan, struct pl_strv *argv, struct pl_error *reterr)
{
    /* Debian's Python asks for a virtual environment, to protect the system from its administrator; this container has
     * one purpose. */
    PL_TRY(set_unless_set(job, with_uv ? "UV_BREAK_SYSTEM_PACKAGES" : "PIP_BREAK_SYSTEM_PACKAGES", "1", plan, reterr));
    PL_TRY(keep_cache(job, with_uv, plan, reterr));
    PL_TRY(add_index(job, argv, reterr));
    if (with_uv) {
        /* as pip: the newest version of all indexes, in place of those of the first one that has the package */
        PL_TRY(set_unless_set(job, "UV_INDEX_STRATEGY", "unsafe-best-match", plan, reterr));
        return pl_strv_add_list(argv, (const char *const[]){"uv", "pip", "install", "--python", program->python, NULL},
                                reterr);
    }
    /* That there is a newer pip costs a request, and would be the last line, where a failure's cause should be. */
    PL_TRY(set_unless_set(job, "PIP_DISABLE_PIP_VERSION_CHECK", "1", plan, reterr));
    return pl_strv_add_list(argv, (const char *const[]){program->python, "-m", "pip", "install", NULL}, reterr);
}

enum pl_status pl_requirements_add(const struct pl_job *job, struct pl_program *program, bool pending,
                                   struct pl_launch_plan *plan, struct pl_error *reterr)
{
    bool requirements = job->requirements && is_in_code(job, job->requirements);
    bool package = program->kind == PL_PROGRAM_PACKAGE;
    const bool install = job->settings.install;
    struct pl_strv *argv = NULL;
    bool with_uv;

    if (install && !requirements && !pending && job->drivers.requirements &&
        job->requirements == job->drivers.requirements) {
        return pl_error_set(reterr, PL_NOT_FOUND, "sourcecode.json: requirements: expected a file in %s, found no '%s'",
                            job->paths.code, job->requirements);
    }
    program->may_install = install && program->python && (requirements || package || (pending && job->requirements));
    if ((!requirements && !package) || !install) {
        return PL_OK;
    }
    if (!program->python) {
        return pl_strv_printf(&plan->warnings, reterr, "%s is not installed: there is no Python in this image",
                              job->requirements);
    }
    with_uv = use_uv(job);
    if (!with_uv) {
        PL_TRY(need_pip(program, requirements ? job->requirements : "setup.py", plan, reterr));
    }
    PL_TRY(pl_steps_add(&plan->steps,
                        package ? "installing the package in the code directory" : "installing requirements.txt",
                        job->paths.code, &argv, reterr));
    plan->steps.items[plan->steps.count - 1].is_long = true;
    PL_TRY(add_installer(job, program, with_uv, plan, argv, reterr));
    if (package) {
        PL_TRY(pl_strv_add(argv, ".", reterr));
    }
    if (requirements) {
        PL_TRY(pl_strv_add_list(argv, (const char *const[]){"-r", job->requirements, NULL}, reterr));
    }
    return add_horovod(job, program, argv, plan, reterr);
}
