/* SPDX-License-Identifier: Apache-2.0 */
/* Plans the steps that install what the code directory asks for: by uv if the image has it, else by pip. */
#include "base/environment.h"
#include "base/file.h"
#include "base/memory.h"
#include "entrypoint/launch/companion.h"
#include "entrypoint/launch/needs.h"
#include "entrypoint/launch/program.h"

#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#define PACKAGE_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

enum { REQUIREMENTS_BYTES = 1 << 20 };

/* Whether a line of requirements.txt names the package `name`. */
static bool requires(const struct pl_job *job, const char *name)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    PL_AUTO_FREE char *text = NULL;
    const size_t length = strlen(name);

    pl_text_printf(&path, "%s/%s", job->paths.code, job->requirements);
    if (pl_file_read(pl_text_string(&path), REQUIREMENTS_BYTES, &text, NULL, NULL) != PL_OK) {
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
static void add_horovod(const struct pl_job *job, const struct pl_program *program, struct pl_strv *argv,
                        struct pl_launch_plan *plan)
{
    static const char skip[] = "HOROVOD_SKIP_COMPILE";
    PL_AUTO_FREE char *module = NULL, *tool = NULL, *constraint = NULL;

    if (strcmp(pl_environment_get_or(job->process, skip, "1"), "1") != 0 ||
        pl_companion_find(job->self_path, "libpaceline-horovod.so", &module, NULL) != PL_OK ||
        pl_companion_find(job->self_path, "horovod/constraint.txt", &constraint, NULL) != PL_OK ||
        pl_companion_find(job->self_path, "paceline-horovod", &tool, NULL) != PL_OK) {
        return;
    }
    pl_launch_plan_set_for_step(&plan->steps, skip, "1");
    pl_strv_add(argv, "-c", constraint);
    if (requires(job, "horovod")) {
        pl_strv_add(&plan->warnings,
                    "requirements.txt names Horovod: version 0.28.1 is installed without compiling, and runs on "
                    "Paceline; with HOROVOD_SKIP_COMPILE=0 pip compiles it");
        pl_strv_add(pl_launch_plan_add_step(&plan->steps, "putting Paceline's modules into Horovod", job->paths.code),
                    tool, "--python", program->python, "--unless-compiled");
    }
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
    pl_strv_add(argv, tool, arn);
    return PL_OK;
}

/* Whether pip has a configuration that uv would ignore: variables that change what is installed or from where, or
 * configuration files in their default places. */
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
        if (path.failed || pl_program_is_file(pl_text_string(&path))) {
            return true;
        }
    }
    return has_files && pl_program_is_file("/etc/pip.conf");
}

/* Whether uv does pip's work, which takes it a tenth of the time: if the image has it, pip is not configured, and
 * Horovod is not wanted, whose build uses packages of the environment that uv would leave out. */
static bool use_uv(const struct pl_job *job)
{
    return job->settings.uv && pl_job_has_program(job, "uv") && !configures_pip(job) &&
           !(job->requirements && requires(job, "horovod"));
}

/* Set a variable for the step that was added last, unless the container has it. */
static void set_unless_set(const struct pl_job *job, const char *name, const char *value, struct pl_launch_plan *plan)
{
    if (!pl_environment_get(job->process, name)) {
        pl_launch_plan_set_for_step(&plan->steps, name, value);
    }
}

/* Keep what pip or uv fetches for the next job, in the directory that a warm pool keeps, if there is one. */
static void keep_cache(const struct pl_job *job, bool with_uv, struct pl_launch_plan *plan)
{
    const char *kept = pl_environment_get_or(job->process, "SAGEMAKER_MANAGED_WARMPOOL_CACHE_DIRECTORY", NULL);
    struct stat info;

    if (!kept) {
        kept = pl_pool_printf(&plan->pool, "%s/sagemaker/warmpoolcache", job->paths.base);
    }
    if (stat(kept, &info) == 0 && S_ISDIR(info.st_mode)) {
        set_unless_set(job, with_uv ? "UV_CACHE_DIR" : "PIP_CACHE_DIR",
                       pl_pool_printf(&plan->pool, "%s%s", kept, with_uv ? "/uv" : "/pip"), plan);
    }
}

/* Add the variables and first words of the step that installs. */
static enum pl_status add_installer(const struct pl_job *job, const struct pl_program *program, bool with_uv,
                                    struct pl_launch_plan *plan, struct pl_strv *argv, struct pl_error *reterr)
{
    /* Debian's Python asks for a virtual environment, to protect the system from its administrator; this container has
     * one purpose. */
    set_unless_set(job, with_uv ? "UV_BREAK_SYSTEM_PACKAGES" : "PIP_BREAK_SYSTEM_PACKAGES", "1", plan);
    keep_cache(job, with_uv, plan);
    PL_TRY(add_index(job, argv, reterr));
    if (with_uv) {
        /* as pip does: the newest version of all indexes, not those of the first index that has the package */
        set_unless_set(job, "UV_INDEX_STRATEGY", "unsafe-best-match", plan);
        pl_strv_add(argv, "uv", "pip", "install", "--python", program->python);
    } else {
        /* pip's check for a newer pip costs a request, and its line would be last, where a failure's cause should be */
        set_unless_set(job, "PIP_DISABLE_PIP_VERSION_CHECK", "1", plan);
        pl_strv_add(argv, program->python, "-m", "pip", "install");
    }
    return PL_OK;
}

enum pl_status pl_requirements_add(const struct pl_job *job, struct pl_program *program, bool pending,
                                   struct pl_launch_plan *plan, struct pl_error *reterr)
{
    bool requirements = job->requirements && pl_program_in_code(job, job->requirements);
    bool package = program->kind == PL_PROGRAM_PACKAGE;
    const bool install = job->settings.install;
    struct pl_strv *argv = NULL;
    bool with_uv;

    if (install && !requirements && !pending && job->drivers.requirements &&
        job->requirements == job->drivers.requirements) {
        return pl_error_set(reterr, PL_NOT_FOUND,
                            "sourcecode.json: requirements: expected a file in %s, found no '%s': check requirements "
                            "and ignore_patterns of SourceCode",
                            job->paths.code, job->requirements);
    }
    program->may_install = install && program->python && (requirements || package || (pending && job->requirements));
    if ((!requirements && !package) || !install) {
        return PL_OK;
    }
    if (!program->python) {
        pl_strv_printf(&plan->warnings,
                       "%s is ignored, because this image has no Python: build it with python3 and python3-pip "
                       "(PACKAGES of Paceline's Dockerfile)",
                       job->requirements);
        return PL_OK;
    }
    with_uv = use_uv(job);
    if (!with_uv) {
        /* An image with Python may lack pip, and the message of the interpreter about it suggests no solution. */
        pl_needs_module(
            program, "pip",
            pl_pool_printf(&plan->pool,
                           "the code has %s, but this image has no pip: build it with python3-pip (PACKAGES "
                           "of Paceline's Dockerfile), or switch the installation off by "
                           "PACELINE_INSTALL=0",
                           requirements ? job->requirements : "setup.py"),
            plan);
    }
    argv = pl_launch_plan_add_step(
        &plan->steps, package ? "installing the package in the code directory" : "installing requirements.txt",
        job->paths.code);
    plan->steps.items[plan->steps.count - 1].is_long = true;
    PL_TRY(add_installer(job, program, with_uv, plan, argv, reterr));
    if (package) {
        pl_strv_add(argv, ".");
    }
    if (requirements) {
        pl_strv_add(argv, "-r", job->requirements);
    }
    add_horovod(job, program, argv, plan);
    return PL_OK;
}
