/* SPDX-License-Identifier: Apache-2.0 */
/* Decides what kind of program the job names, and finds it, or says which files there are instead. */
#include "entrypoint/launch/program.h"

#include "base/environment.h"
#include "base/file.h"
#include "base/memory.h"
#include "entrypoint/job/job.h"
#include "entrypoint/launch/companion.h"
#include "entrypoint/launch/launcher.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char bundled_name[] = "mnist";

/* Whether the code directory has complete code, besides `archive` (may be NULL). */
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

bool pl_program_is_file(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

/* Returns the path of `name` in the code directory. */
static const char *code_path(const struct pl_job *job, const char *name, struct pl_launch_plan *plan)
{
    return pl_pool_printf(&plan->pool, "%s/%s", job->paths.code, name);
}

bool pl_program_in_code(const struct pl_job *job, const char *name)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    pl_text_printf(&path, "%s/%s", job->paths.code, name);
    return pl_program_is_file(pl_text_string(&path));
}

/* Returns the path of a program on PATH, or NULL. */
static const char *search(const struct pl_job *job, const char *name, struct pl_launch_plan *plan)
{
    PL_AUTO_FREE char *path = NULL;

    return pl_file_find_program(name, pl_environment_get(job->process, "PATH"), &path, NULL) == PL_OK
               ? pl_pool_string(&plan->pool, path)
               : NULL;
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

/* Use the command at `path`; the word `word` starts it. sh runs text without #!, as a shell's exec does. */
static enum pl_status use_command(const char *path, const char *word, struct pl_program *program,
                                  struct pl_launch_plan *plan, struct pl_error *reterr)
{
    char head[HEAD_BYTES];

    read_head(path, head);
    PL_TRY(refuse_crlf(head, word, reterr));
    if (!starts_itself(head)) {
        pl_strv_add(&program->words, "/bin/sh");
        if (ends_in_crlf(head)) {
            pl_strv_printf(&plan->warnings,
                           "the lines of '%s' end in CR LF, and sh takes the CR as a part of each line's last word: "
                           "save it with LF alone",
                           word);
        }
        if (memcmp(head, "\xEF\xBB\xBF", 3) == 0) {
            pl_strv_printf(&plan->warnings,
                           "'%s' begins with a byte order mark, which sh takes as a part of its first line%s: save it "
                           "without one",
                           word, memcmp(head + 3, "#!", 2) == 0 ? ", so that no interpreter is named there" : "");
        }
    } else if (access(path, X_OK) != 0) {
        plan->chmod_path = pl_pool_string(&plan->pool, path);
    }
    pl_strv_add(&program->words, word);
    return PL_OK;
}

enum { DEPTH_MAX = 4, ENTRIES_MAX = 5000, NAMES_MAX = 5, NAME_BYTES = 80, FAR_EDITS = 3 };

struct near {
    unsigned edits; /* the distance of its last name from the wanted one, at most FAR_EDITS + 1 */
    char path[NAME_BYTES];
};

struct search {
    const char *name;
    size_t entries;
    size_t found;
    char *path;
    struct near nearest[NAMES_MAX]; /* sorted */
    size_t nearest_count;
    bool is_cut; /* there are more files than `nearest` has room for */
};

/* Keep the file if it is one of the nearest. */
static void add_near(struct search *search, const char *name, const char *path, size_t path_bytes)
{
    struct near near = {.edits = pl_text_distance(search->name, name, FAR_EDITS)};
    size_t at = search->nearest_count;

    if (path_bytes >= NAME_BYTES) {
        return;
    }
    memcpy(near.path, path, path_bytes);
    while (at > 0 &&
           (search->nearest[at - 1].edits > near.edits ||
            (search->nearest[at - 1].edits == near.edits && strcmp(search->nearest[at - 1].path, near.path) > 0))) {
        at--;
    }
    search->is_cut = search->is_cut || search->nearest_count == NAMES_MAX;
    if (at == NAMES_MAX) {
        return;
    }
    search->nearest_count += search->nearest_count < NAMES_MAX;
    memmove(search->nearest + at + 1, search->nearest + at, (search->nearest_count - at - 1) * sizeof(near));
    search->nearest[at] = near;
}

/* Search the folder `name` in `parent_fd`. `folder` is its path from the first folder, such as "src/". */
static void search_folder(struct search *search, int parent_fd, const char *name, const char *folder, int depth)
{
    PL_AUTO_DIRECTORY DIR *directory = pl_file_open_directory(parent_fd, name, O_NOFOLLOW);
    const struct dirent *entry;
    char path[PATH_MAX];
    struct stat info;

    while (directory && search->entries < ENTRIES_MAX && (entry = readdir(directory))) {
        int length = snprintf(path, sizeof(path), "%s%s/", folder, entry->d_name);

        search->entries++;
        if (entry->d_name[0] == '.' || length < 0 || length >= (int)sizeof(path) ||
            fstatat(dirfd(directory), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
            continue;
        }
        if (S_ISDIR(info.st_mode) && depth < DEPTH_MAX) {
            search_folder(search, dirfd(directory), entry->d_name, path, depth + 1);
        } else if (S_ISREG(info.st_mode)) {
            add_near(search, entry->d_name, path, (size_t)length - 1);
            if (strcmp(entry->d_name, search->name) == 0) {
                search->found++;
                memcpy(search->path, path, (size_t)length);
                search->path[length - 1] = '\0';
            }
        }
    }
}

/* Append "the code directory has 'src/train.py': use that path" if one file in the folders below `directory` has the
 * last name of `wanted`; otherwise the five files whose names are nearest to it, the nearest first; nothing if there is
 * no file. The search has a limit of levels and entries. Folders and files with a leading dot are left out, links are
 * not followed, and folders that cannot be read are skipped: the result is only for a message. */
static void describe_nearby(const char *directory, const char *wanted, struct pl_text *text)
{
    const char *slash = strrchr(wanted, '/');
    char path[PATH_MAX];
    struct search search = {.name = slash ? slash + 1 : wanted, .path = path};

    search_folder(&search, AT_FDCWD, directory, "", 0);
    if (search.found == 1 && search.entries < ENTRIES_MAX) {
        pl_text_printf(text, "the code directory has '%.200s': use that path", path);
        return;
    }
    for (size_t i = 0; i < search.nearest_count; i++) {
        pl_text_printf(text, "%s'%s'", i == 0 ? "the code directory has " : ", ", search.nearest[i].path);
    }
    pl_text_append(text, search.is_cut ? " and others" : "");
}

/* Add to the error which files there are: users often leave out a folder or mistype the name. Returns `status`. */
static enum pl_status name_nearby(const struct pl_job *job, enum pl_status status, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    describe_nearby(job->paths.code, job->program, &text);
    if (text.length > 0) {
        pl_error_context(reterr, "%s", pl_text_string(&text));
    }
    return status;
}

/* Refuses a command whose file begins with a line that ends in CR LF. Otherwise it is looked up when it is started. */
static enum pl_status check_given(const struct pl_job *job, struct pl_launch_plan *plan, struct pl_error *reterr)
{
    const char *word = job->command.items[0];
    const char *path = word[0] == '/' ? word : code_path(job, word, plan);
    char head[HEAD_BYTES];

    if (!strchr(word, '/') || !pl_program_is_file(path)) {
        return PL_OK;
    }
    read_head(path, head);
    return refuse_crlf(head, word, reterr);
}

static enum pl_status find_command(const struct pl_job *job, struct pl_program *program, struct pl_launch_plan *plan,
                                   struct pl_error *reterr)
{
    const char *path = code_path(job, job->program, plan), *on_path;

    if (job->program[0] == '/') {
        if (!pl_program_is_file(job->program)) {
            return pl_error_set(reterr, PL_NOT_FOUND,
                                "the program '%.200s' does not exist, or is a directory: check sagemaker_program "
                                "(entry_point in the SDK)",
                                job->program);
        }
        return use_command(job->program, job->program, program, plan, reterr);
    }
    if (pl_program_is_file(path)) {
        return use_command(path, pl_pool_printf(&plan->pool, "./%s", job->program), program, plan, reterr);
    }
    on_path = strchr(job->program, '/') ? NULL : search(job, job->program, plan);
    if (on_path) {
        return use_command(on_path, on_path, program, plan, reterr);
    }
    return name_nearby(job,
                       pl_error_set(reterr, PL_NOT_FOUND,
                                    "the program '%.200s' is neither a file in %.200s nor on PATH: give a path below "
                                    "source_dir, or install it in the image",
                                    job->program, job->paths.code),
                       reterr);
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

    if (!is_entry && !is_shell && pl_program_in_code(job, "setup.py") && (is_python || job->program[0] != '/')) {
        program->kind = PL_PROGRAM_PACKAGE;
        PL_TRY(need_python(job, program, reterr));
        pl_strv_add(&program->words, "-m"); /* "pkg.sub" for "pkg.sub.py" */
        pl_strv_printf(&program->words, "%.*s", (int)(strlen(job->program) - (is_python ? strlen(".py") : 0)),
                       job->program);
        return PL_OK;
    }
    if (is_python) {
        program->kind = PL_PROGRAM_SCRIPT;
        PL_TRY(need_python(job, program, reterr));
        if (!pending &&
            !(job->program[0] == '/' ? pl_program_is_file(job->program) : pl_program_in_code(job, job->program))) {
            return name_nearby(job,
                               pl_error_set(reterr, PL_NOT_FOUND,
                                            "the program '%.200s' is not in %.200s: set sagemaker_program (entry_point "
                                            "in the SDK) to a path below source_dir",
                                            job->program, job->paths.code),
                               reterr);
        }
        pl_strv_add(&program->words, job->program);
        return PL_OK;
    }
    program->kind = PL_PROGRAM_COMMAND;
    if (pending && job->program[0] != '/' && !pl_program_in_code(job, job->program)) {
        pl_strv_printf(&program->words, "./%s", job->program);
        return PL_OK;
    }
    return find_command(job, program, plan, reterr);
}

/* Find the program. An error has a note about the origin of the name if that overrides another one. */
static enum pl_status find_with_origin(const struct pl_job *job, bool pending, struct pl_program *program,
                                       struct pl_launch_plan *plan, struct pl_error *reterr)
{
    enum pl_status status = find_named(job, pending, program, plan, reterr);

    if (job->overridden_program && status != PL_OK) {
        pl_error_context(reterr,
                         "SAGEMAKER_PROGRAM names it; the hyperparameter sagemaker_program, '%.200s', has no effect",
                         job->overridden_program);
    } else if (job->overridden_program) {
        pl_strv_printf(&plan->warnings,
                       "the variable SAGEMAKER_PROGRAM names '%.200s', which is used; the hyperparameter "
                       "sagemaker_program, '%.200s', has no effect",
                       job->program, job->overridden_program);
    }
    return status;
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
    pl_strv_add(&program->words, path);
    return PL_OK;
}

enum pl_status pl_program_find(const struct pl_job *job, struct pl_program *program, struct pl_launch_plan *plan,
                               struct pl_error *reterr)
{
    const char *archive = job->drivers.archive; /* unpacked in its own folder */
    const bool has_code = pl_program_has_code(job);
    const bool pending =
        archive ? !has_code_beside(job, archive) || (job->program && !pl_program_in_code(job, job->program))
                : !has_code && job->submit_uri && strcmp(job->submit_uri, job->paths.code) != 0;

    *program = (struct pl_program){.kind = PL_PROGRAM_COMMAND, .words = {.pool = &plan->pool}};
    program->python = search(job, job->settings.python ? job->settings.python : "python3", plan);
    if (!program->python && !job->settings.python) {
        program->python = search(job, "python", plan);
    }
    if (job->command.count > 0) {
        program->kind = PL_PROGRAM_GIVEN;
        PL_TRY(check_given(job, plan, reterr));
        pl_strv_add(&program->words, job->command.items[0]);
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
        pl_strv_add_list(words, (const char *const *)job->command.items + 1);
        return PL_OK;
    }
    for (size_t i = 0; i < job->user_args.count; i++) {
        PL_AUTO_TEXT struct pl_text bytes = PL_TEXT_NONE;

        if (pl_variables_os_text(job->user_args.items[i], &bytes) != PL_OK) {
            return pl_error_set(reterr, PL_INVALID,
                                "the hyperparameter '%s': expected a value without U+0000, which no argument can hold",
                                i > 0 ? job->user_args.items[i - 1] : "");
        }
        if (bytes.length >= PL_VARIABLES_STRING_MAX_BYTES) {
            return pl_error_set(reterr, PL_LIMIT,
                                "the hyperparameter '%.200s': expected fewer than the %d bytes that Linux passes in "
                                "one argument, found %zu",
                                i > 0 ? job->user_args.items[i - 1] : "", PL_VARIABLES_STRING_MAX_BYTES, bytes.length);
        }
        pl_strv_add_text(words, &bytes);
    }
    return PL_OK;
}

void pl_program_add_name(const struct pl_program *program, const char *launcher_module, struct pl_strv *words)
{
    if (program->kind == PL_PROGRAM_SCRIPT || program->kind == PL_PROGRAM_PACKAGE) {
        pl_strv_add(words, program->python);
        if (launcher_module) {
            pl_strv_add(words, "-m", launcher_module);
        }
    }
    pl_strv_add_all(words, &program->words);
}

enum pl_status pl_program_use(const struct pl_job *job, const struct pl_program *program, struct pl_launch_plan *plan,
                              struct pl_error *reterr)
{
    pl_program_add_name(program, NULL, &plan->argv);
    plan->program_words = plan->argv.count;
    return pl_program_add_arguments(job, program, &plan->argv, reterr);
}
