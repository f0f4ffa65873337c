/* SPDX-License-Identifier: Apache-2.0 */
/* Decides what kind of program the job names, and finds it. */
#include "entrypoint/launch/program.h"

#include "base/environment.h"
#include "base/file.h"
#include "base/memory.h"
#include "entrypoint/job/variables.h"
#include "entrypoint/launch/companion.h"
#include "entrypoint/launch/nearby.h"
#include "entrypoint/launch/requirements.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char bundled_name[] = "mnist";

/* Whether there is something besides `archive` (may be NULL), completely. */
static bool has_code_beside(const struct pl_job *job, const char *archive)
{
    PL_AUTO_DIRECTORY DIR *dir = opendir(job->paths.code);
    const struct dirent *entry;
    bool found = false, unfinished = false;

    while (dir && !unfinished && (entry = readdir(dir))) {
        found = found || (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
                          !(archive && strcmp(entry->d_name, archive) == 0));
        unfinished = strcmp(entry->d_name, PL_PROGRAM_UNFINISHED) == 0;
    }
    return found && !unfinished;
}

bool pl_program_has_code(const struct pl_job *job)
{
    return has_code_beside(job, NULL);
}

static bool is_file(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

/* Set `*ret_path` to the path of `name` in the code directory. */
static enum pl_status code_path(const struct pl_job *job, const char *name, char **ret_path, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    pl_text_printf(&path, "%s/%s", job->paths.code, name);
    return pl_text_take(&path, ret_path, reterr);
}

static bool code_has(const struct pl_job *job, const char *name)
{
    PL_AUTO_FREE char *path = NULL;

    return code_path(job, name, &path, NULL) == PL_OK && is_file(path);
}

static enum pl_status search(const struct pl_job *job, const char *name, char **ret_path, struct pl_error *reterr)
{
    return pl_file_find_program(name, pl_environment_get(job->process, "PATH"), ret_path, reterr);
}

/* Find the interpreter: PACELINE_PYTHON, else python3, else python. */
static enum pl_status find_python(const struct pl_job *job, char **ret_path, struct pl_error *reterr)
{
    const char *named = job->settings.python;

    if (named) {
        return search(job, named, ret_path, reterr);
    }
    if (search(job, "python3", ret_path, NULL) == PL_OK) {
        return PL_OK;
    }
    return search(job, "python", ret_path, reterr);
}

enum { HEAD_BYTES = 257 };

/* Read the first bytes of the file, as many as Linux reads to find an interpreter. Bytes that are missing or cannot be
 * read are zero. */
static void read_head(const char *path, char head[HEAD_BYTES])
{
    PL_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);

    memset(head, 0, HEAD_BYTES);
    if (fd >= 0 && read(fd, head, HEAD_BYTES - 1) < 0) {
        memset(head, 0, HEAD_BYTES);
    }
}

/* Whether the kernel can start the file: a native program, or text that names its interpreter. */
static bool starts_itself(const char *head)
{
    return memcmp(head, "\177ELF", 4) == 0 || memcmp(head, "#!", 2) == 0;
}

static bool ends_in_crlf(const char *head)
{
    const char *end = strchr(head, '\n');

    return end && end > head && end[-1] == '\r';
}

/*
 * Refuse a carriage return at the end of the first line. It would become a part of the name of the interpreter, or of
 * the name that env looks for, and that file does not exist. After an option of an interpreter it breaks shells only;
 * other interpreters ignore it.
 */
static enum pl_status refuse_crlf(const char *head, const char *word, struct pl_error *reterr)
{
    static const char env[] = "/env";
    const char *name = head + 2 + strspn(head + 2, " \t");
    const char *first_end = name + strcspn(name, " \t\n"), *second = first_end + strspn(first_end, " \t");

    if (memcmp(head, "#!", 2) != 0 || !ends_in_crlf(head)) {
        return PL_OK;
    }
    if (first_end - name >= (ptrdiff_t)strlen(env) && memcmp(first_end - strlen(env), env, strlen(env)) == 0 &&
        *second != '-') {
        first_end = second + strcspn(second, " \t\n");
    }
    if (*first_end != '\n' && memcmp(first_end - 2, "sh", 2) != 0) {
        return PL_OK;
    }
    return pl_error_set(reterr, PL_INVALID,
                        "the program '%s' cannot run: the script's lines end in CR LF, save it with LF alone", word);
}

/* Use the command at `path`, which the word `word` starts. Text without #! is run by sh, as a shell's exec does. */
static enum pl_status use_command(const char *path, const char *word, struct pl_program *program,
                                  struct pl_launch_plan *plan, struct pl_error *reterr)
{
    char head[HEAD_BYTES];

    read_head(path, head);
    PL_TRY(refuse_crlf(head, word, reterr));
    if (!starts_itself(head)) {
        PL_TRY(pl_strv_add(&program->words, "/bin/sh", reterr));
        if (ends_in_crlf(head)) {
            PL_TRY(pl_strv_printf(&plan->warnings, reterr,
                                  "the lines of '%s' end in CR LF, and sh takes the CR as a part of each line's last "
                                  "word: save it with LF alone",
                                  word));
        }
        if (memcmp(head, "\xEF\xBB\xBF", 3) == 0) {
            PL_TRY(pl_strv_printf(&plan->warnings, reterr,
                                  "'%s' begins with a byte order mark, which sh takes as a part of its first line%s: "
                                  "save it without one",
                                  word,
                                  memcmp(head + 3, "#!", 2) == 0 ? ", so that no interpreter is named there" : ""));
        }
    } else if (access(path, X_OK) != 0) {
        plan->chmod_path = pl_memory_string(path, reterr);
        PL_TRY(plan->chmod_path ? PL_OK : PL_MEMORY);
    }
    return pl_strv_add(&program->words, word, reterr);
}

/* Add to the error which files there are: users often leave out a folder or mistype the name. Returns `status`. */
static enum pl_status name_nearby(const struct pl_job *job, enum pl_status status, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    pl_nearby_describe(job->paths.code, job->program, &text);
    if (text.length > 0) {
        pl_error_context(reterr, "%s", pl_text_string(&text));
    }
    return status;
}

/* Find a command with a path, which is relative to the code directory unless it is absolute. */
static enum pl_status find_given(const struct pl_job *job, struct pl_error *reterr)
{
    const char *word = job->command.items[0];
    PL_AUTO_FREE char *below = NULL;
    const char *path;
    char head[HEAD_BYTES];

    PL_TRY(code_path(job, word, &below, reterr));
    path = word[0] == '/' ? word : below;
    if (!strchr(word, '/') || !is_file(path)) {
        return PL_OK;
    }
    read_head(path, head);
    return refuse_crlf(head, word, reterr);
}

static enum pl_status find_command(const struct pl_job *job, struct pl_program *program, struct pl_launch_plan *plan,
                                   struct pl_error *reterr)
{
    PL_AUTO_FREE char *path = NULL;
    PL_AUTO_FREE char *on_path = NULL;
    PL_AUTO_TEXT struct pl_text word = PL_TEXT_NONE;

    if (job->program[0] == '/') {
        if (!is_file(job->program)) {
            return pl_error_set(reterr, PL_NOT_FOUND,
                                "the program '%.200s' does not exist, or is a directory: check sagemaker_program "
                                "(entry_point in the SDK)",
                                job->program);
        }
        return use_command(job->program, job->program, program, plan, reterr);
    }
    PL_TRY(code_path(job, job->program, &path, reterr));
    if (is_file(path)) {
        pl_text_printf(&word, "./%s", job->program);
        PL_TRY(pl_text_check(&word, reterr));
        return use_command(path, pl_text_string(&word), program, plan, reterr);
    }
    if (!strchr(job->program, '/') && search(job, job->program, &on_path, NULL) == PL_OK) {
        return use_command(on_path, on_path, program, plan, reterr);
    }
    return name_nearby(job,
                       pl_error_set(reterr, PL_NOT_FOUND,
                                    "the program '%.200s' is neither a file in %.200s nor on PATH: give a path below "
                                    "source_dir, or install it in the image",
                                    job->program, job->paths.code),
                       reterr);
}

/* Add -m "pkg.sub" for "pkg.sub.py". */
static enum pl_status add_module(const char *name, struct pl_strv *words, struct pl_error *reterr)
{
    size_t length = strlen(name) - (pl_text_ends_with(name, ".py") ? strlen(".py") : 0);

    PL_TRY(pl_strv_add(words, "-m", reterr));
    return pl_strv_printf(words, reterr, "%.*s", (int)length, name);
}

static enum pl_status need_python(const struct pl_job *job, struct pl_program *program, struct pl_error *reterr)
{
    const char *named = job->settings.python;

    if (program->python) {
        return PL_OK;
    }
    if (named) {
        return pl_error_set(reterr, PL_NOT_FOUND,
                            "the program '%s' needs Python, and '%s', which PACELINE_PYTHON names, is not on PATH",
                            job->program, named);
    }
    return pl_error_set(
        reterr, PL_NOT_FOUND,
        "the program '%s' needs Python, but neither python3 nor python is on PATH in this image: build it with python3 "
        "(PACKAGES of Paceline's Dockerfile), or name the interpreter in PACELINE_PYTHON",
        job->program);
}

static enum pl_status find_named(const struct pl_job *job, bool pending, struct pl_program *program,
                                 struct pl_launch_plan *plan, struct pl_error *reterr)
{
    bool is_shell = pl_text_ends_with(job->program, ".sh");
    bool is_python = pl_text_ends_with(job->program, ".py");
    /* the entry script is a file, even if there is a setup.py */
    bool is_entry = job->program == job->drivers.entry_script;

    if (!is_entry && !is_shell && code_has(job, "setup.py") && (is_python || job->program[0] != '/')) {
        program->kind = PL_PROGRAM_PACKAGE;
        PL_TRY(need_python(job, program, reterr));
        return add_module(job->program, &program->words, reterr);
    }
    if (is_python) {
        program->kind = PL_PROGRAM_SCRIPT;
        PL_TRY(need_python(job, program, reterr));
        if (!pending && !(job->program[0] == '/' ? is_file(job->program) : code_has(job, job->program))) {
            return name_nearby(job,
                               pl_error_set(reterr, PL_NOT_FOUND,
                                            "the program '%.200s' is not in %.200s: set sagemaker_program (entry_point "
                                            "in the SDK) to a path below source_dir",
                                            job->program, job->paths.code),
                               reterr);
        }
        return pl_strv_add(&program->words, job->program, reterr);
    }
    program->kind = PL_PROGRAM_COMMAND;
    if (pending && job->program[0] != '/' && !code_has(job, job->program)) {
        return pl_strv_printf(&program->words, reterr, "./%s", job->program);
    }
    return find_command(job, program, plan, reterr);
}

/* The same, with a note about the origin of the name if it overrides another one. */
static enum pl_status find_with_origin(const struct pl_job *job, bool pending, struct pl_program *program,
                                       struct pl_launch_plan *plan, struct pl_error *reterr)
{
    enum pl_status status = find_named(job, pending, program, plan, reterr);

    if (!job->overridden_program) {
        return status;
    }
    if (status != PL_OK) {
        pl_error_context(reterr,
                         "SAGEMAKER_PROGRAM names it; the hyperparameter sagemaker_program, '%.200s', has no effect",
                         job->overridden_program);
        return status;
    }
    return pl_strv_printf(&plan->warnings, reterr,
                          "the variable SAGEMAKER_PROGRAM names '%.200s', which is used; the hyperparameter "
                          "sagemaker_program, '%.200s', has no effect",
                          job->program, job->overridden_program);
}

static enum pl_status find_bundled(const struct pl_job *job, struct pl_program *program, struct pl_error *reterr)
{
    PL_AUTO_FREE char *path = NULL;

    program->kind = PL_PROGRAM_BUNDLED;
    if (pl_companion_find(job->self_path, bundled_name, &path, NULL) != PL_OK) {
        return pl_error_set(reterr, PL_NOT_FOUND,
                            "no program is named, and this image was built without the example program: set the "
                            "hyperparameter sagemaker_program or the variable SAGEMAKER_PROGRAM");
    }
    return pl_strv_add(&program->words, path, reterr);
}

enum pl_status pl_program_find(const struct pl_job *job, struct pl_program *program, struct pl_launch_plan *plan,
                               struct pl_error *reterr)
{
    const char *archive = pl_drivers_archive(&job->drivers); /* it is unpacked beside itself */
    const bool has_code = pl_program_has_code(job);
    const bool pending = archive ? !has_code_beside(job, archive) || (job->program && !code_has(job, job->program))
                                 : !has_code && job->submit_uri && strcmp(job->submit_uri, job->paths.code) != 0;

    find_python(job, &program->python, NULL);
    if (job->command.count > 0) {
        program->kind = PL_PROGRAM_GIVEN;
        PL_TRY(find_given(job, reterr));
        PL_TRY(pl_strv_add(&program->words, job->command.items[0], reterr));
    } else if (job->program) {
        PL_TRY(find_with_origin(job, pending, program, plan, reterr));
    } else if (!has_code && !job->submit_uri) {
        PL_TRY(find_bundled(job, program, reterr));
    } else {
        return pl_error_set(reterr, PL_NOT_FOUND,
                            "there is code, but no program is named: set entry_point in the SDK, the hyperparameter "
                            "sagemaker_program or the variable SAGEMAKER_PROGRAM");
    }
    return pl_requirements_add(job, program, pending, plan, reterr);
}

enum pl_status pl_program_add_arguments(const struct pl_job *job, const struct pl_program *program,
                                        struct pl_strv *words, struct pl_error *reterr)
{
    if (program->kind == PL_PROGRAM_GIVEN) {
        return pl_strv_add_list(words, (const char *const *)job->command.items + 1, reterr);
    }
    for (size_t i = 0; i < job->user_args.count; i++) {
        PL_AUTO_TEXT struct pl_text bytes = PL_TEXT_NONE;

        if (pl_variables_os_text(job->user_args.items[i], &bytes) != PL_OK) {
            return pl_error_set(reterr, PL_INVALID,
                                "the hyperparameter '%s': expected a value without U+0000, which no argument can hold",
                                i > 0 ? job->user_args.items[i - 1] : "");
        }
        PL_TRY(pl_text_check(&bytes, reterr));
        if (bytes.length >= PL_VARIABLES_STRING_MAX_BYTES) {
            return pl_error_set(reterr, PL_LIMIT,
                                "the hyperparameter '%.200s': expected fewer than the %d bytes that Linux passes in "
                                "one argument, found %zu",
                                i > 0 ? job->user_args.items[i - 1] : "", PL_VARIABLES_STRING_MAX_BYTES, bytes.length);
        }
        PL_TRY(pl_strv_add(words, pl_text_string(&bytes), reterr));
    }
    return PL_OK;
}

enum pl_status pl_program_add_name(const struct pl_program *program, const char *launcher_module, struct pl_strv *words,
                                   struct pl_error *reterr)
{
    if (program->kind == PL_PROGRAM_SCRIPT || program->kind == PL_PROGRAM_PACKAGE) {
        PL_TRY(pl_strv_add(words, program->python, reterr));
        if (launcher_module) {
            PL_TRY(pl_strv_add_list(words, (const char *const[]){"-m", launcher_module, NULL}, reterr));
        }
    }
    return pl_strv_add_all(words, &program->words, reterr);
}

enum pl_status pl_program_use(const struct pl_job *job, const struct pl_program *program, struct pl_launch_plan *plan,
                              struct pl_error *reterr)
{
    PL_TRY(pl_program_add_name(program, NULL, &plan->argv, reterr));
    plan->program_words = plan->argv.count;
    return pl_program_add_arguments(job, program, &plan->argv, reterr);
}

void pl_program_done(struct pl_program *program)
{
    free(program->python);
    pl_strv_done(&program->words);
}
