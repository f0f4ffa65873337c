/* SPDX-License-Identifier: Apache-2.0 */
/*
 * paceline-info: what is in this container, for reports of bugs: programs that answer within their deadline, files of
 * the kernel and of the image; and then what the runtime finds (world.c). It links neither MPI nor anything else that
 * an image may lack.
 */
#include "base/clock.h"
#include "base/environment.h"
#include "base/file.h"
#include "base/json/json_write.h"
#include "base/json/python_json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "entrypoint/job/devices.h"
#include "entrypoint/job/job.h"
#include "entrypoint/launch/companion.h"
#include "entrypoint/launch/needs.h"
#include "entrypoint/options.h"
#include "entrypoint/supervise/blas.h"
#include "entrypoint/supervise/process.h"
#include "entrypoint/verbs.h"
#include "entrypoint/version.h"

#include <fcntl.h>
#include <gnu/libc-version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#define ANSWER_NS (20 * PL_NS_PER_S)

#define WORLD_NS (60 * PL_NS_PER_S)

enum { FILE_BYTES = 64 * 1024, MIB = 1024 * 1024, NAME_COLUMNS = 22, JSON_VERSION = 1 };

/* ---- the report: a JSON object with an object for each section, which people get as lines ---- */

/* Adds a text; NULL: there is none. Control characters and broken UTF-8 become '?'. */
static void add_text(struct pl_json_writer *report, const char *name, const char *value)
{
    PL_AUTO_TEXT struct pl_text clean = PL_TEXT_NONE;

    if (!value) {
        pl_json_write_null(report, name);
        return;
    }
    pl_text_append(&clean, value);
    pl_text_mask(clean.data, clean.length);
    pl_json_write_text(report, name, pl_text_string(&clean));
}

/* Adds the lines of the text, which may be empty, as a list. */
static void add_lines(struct pl_json_writer *report, const char *name, const char *text)
{
    pl_json_write_list(report, name);
    while (*text != '\0') {
        PL_AUTO_TEXT struct pl_text line = PL_TEXT_NONE;
        const size_t bytes = strcspn(text, "\n");

        pl_text_append_n(&line, text, bytes);
        add_text(report, NULL, pl_text_string(&line));
        text += bytes + (text[bytes] == '\n');
    }
    pl_json_write_close(report);
}

/* Prints a member: "dev_shm_mib" as "dev shm", with the unit after the number. */
static void print_value(const struct pl_python_json *item)
{
    const enum pl_python_json_kind kind = pl_python_json_kind(item);
    const char *name = pl_python_json_name(item);
    const bool is_setting = name[0] >= 'A' && name[0] <= 'Z', is_mib = pl_text_ends_with(name, "_mib");
    const size_t length = strlen(name) - (is_mib ? strlen("_mib") : 0);

    printf("  ");
    for (size_t i = 0; i < length; i++) {
        putchar(name[i] == '_' && !is_setting ? ' ' : name[i]);
    }
    printf(":%*s%s%s\n", length < NAME_COLUMNS ? (int)(NAME_COLUMNS - length) : 1, "",
           kind == PL_PYTHON_JSON_NULL   ? "none"
           : kind != PL_PYTHON_JSON_BOOL ? pl_python_json_text(item)
           : pl_python_json_bool(item)   ? "yes"
                                         : "no",
           is_mib && kind == PL_PYTHON_JSON_INT ? " MiB"
           : strcmp(name, "cpu_limit") == 0     ? " (0: none)"
                                                : "");
}

static enum pl_status print_lines(const struct pl_text *report, struct pl_error *reterr)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *document = NULL;

    PL_TRY(pl_python_json_parse(report->data, report->length, "the report", &document, reterr));
    for (const struct pl_python_json *section = pl_python_json_next(pl_python_json_first(document)); section;
         section = pl_python_json_next(section)) { /* the first member is the version */
        printf("%s:\n", pl_python_json_name(section));
        for (const struct pl_python_json *item = pl_python_json_first(section); item;
             item = pl_python_json_next(item)) {
            if (pl_python_json_kind(item) != PL_PYTHON_JSON_ARRAY) {
                print_value(item);
                continue;
            }
            for (const struct pl_python_json *line = pl_python_json_first(item); line;
                 line = pl_python_json_next(line)) {
                puts(pl_python_json_text(line));
            }
        }
    }
    return PL_OK;
}

/* ---- what the sections ask ---- */

/* What the functions of sections need. */
struct place {
    const struct pl_environment *environment;
    const char *self_path; /* path of this program, which lies in the folder of the other programs */
    bool has_bash_env;     /* the image's shells lead back to Paceline */
};

/* Finds the last line that is not empty. */
static void last_line(const struct pl_text *answer, struct pl_text *line)
{
    const char *text = pl_text_string(answer);
    size_t end = strlen(text), begin;

    while (end > 0 && strchr(" \n\r", text[end - 1])) {
        end--;
    }
    for (begin = end; begin > 0 && text[begin - 1] != '\n'; begin--) {
    }
    pl_text_append_n(line, text + begin, end - begin);
}

/* Runs argv[0], a path, and appends all that it prints to `answer`. PL_FAILED with its last line if it does not end
 * with 0. */
static enum pl_status ask(const struct place *place, const char *const *argv, int64_t most_ns, struct pl_text *answer,
                          struct pl_error *reterr)
{
    struct pl_process_setup setup = {.argv = argv,
                                     .environment = pl_environment_strings(place->environment),
                                     .stdout_fd = PL_PROCESS_ANSWER,
                                     .stderr_fd = PL_PROCESS_ANSWER,
                                     .own_group = true};
    PL_AUTO_CLOSE int null_fd = setup.stdin_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    PL_AUTO_TEXT struct pl_text line = PL_TEXT_NONE;
    const enum pl_status status = pl_process_run(&setup, pl_deadline_after_ns(most_ns), answer, reterr);

    if (status != PL_FAILED) {
        return status;
    }
    last_line(answer, &line);
    return pl_error_set(reterr, PL_FAILED, "%s", line.length > 0 ? pl_text_string(&line) : "it failed silently");
}

static char *find_program(const struct place *place, const char *name)
{
    char *path = NULL;

    return pl_file_find_program(name, pl_environment_get(place->environment, "PATH"), &path, NULL) == PL_OK ? path
                                                                                                            : NULL;
}

/* Adds the first line that a program prints, or why there is none. */
static void add_answer(struct pl_json_writer *report, const struct place *place, const char *name, const char *program,
                       const char *word)
{
    struct pl_error error = PL_ERROR_NONE;
    PL_AUTO_TEXT struct pl_text answer = PL_TEXT_NONE;

    if (ask(place, (const char *const[]){program, word, NULL}, ANSWER_NS, &answer, &error) != PL_OK) {
        add_text(report, name, error.cause);
        return;
    }
    if (answer.data) {
        answer.data[strcspn(answer.data, "\n")] = '\0';
    }
    add_text(report, name, pl_text_string(&answer));
}

/* Whether the folder with this program has that file too. */
static bool has_companion(const struct place *place, const char *name)
{
    PL_AUTO_FREE char *path = NULL;

    return pl_companion_find(place->self_path, name, &path, NULL) == PL_OK;
}

static void add_paceline(struct pl_json_writer *report, const struct place *place)
{
    static const struct {
        const char *name, *file;
    } parts[] = {
        {"mpi", "paceline-check"},
        {"stacks", "paceline-stacks"},
        {"horovod", "libpaceline-horovod.so"},
        {"horovod_torch", "libpaceline-horovod-torch.so"},
        {"horovod_tensorflow", "libpaceline-horovod-tensorflow.so"},
        {"examples", "mnist"},
        {"examples_on_gpus", "libpaceline-nn-cuda.so"},
    };

    pl_json_write_object(report, "paceline");
    add_text(report, "version", pl_version);
    add_text(report, "program", place->self_path);
    add_text(report, "built_with", PACELINE_BUILT_WITH);
    for (size_t i = 0; i < PL_ARRAY_ITEMS(parts); i++) {
        pl_json_write_bool(report, parts[i].name, has_companion(place, parts[i].file));
    }
    pl_json_write_close(report);
}

/* Adds the value of PRETTY_NAME in /etc/os-release; null if there is none. */
static void add_distribution(struct pl_json_writer *report)
{
    static const char key[] = "PRETTY_NAME=";
    PL_AUTO_FREE char *text = NULL;
    char *line;

    if (pl_file_read("/etc/os-release", FILE_BYTES, &text, NULL, NULL) != PL_OK || !(line = strstr(text, key))) {
        add_text(report, "distribution", NULL);
        return;
    }
    line += strlen(key);
    line[strcspn(line, "\n")] = '\0';
    line += *line == '"';
    line[strcspn(line, "\"")] = '\0';
    add_text(report, "distribution", line);
}

/* Adds a limit of this process. -1: no limit. */
static void add_limit(struct pl_json_writer *report, const char *name, int resource)
{
    struct rlimit limit;

    if (getrlimit((__rlimit_resource_t)resource, &limit) != 0 || limit.rlim_cur > PL_JSON_MAX_INTEGER) {
        add_text(report, name, "unlimited");
        return;
    }
    pl_json_write_int64(report, name, (int64_t)limit.rlim_cur);
}

static void add_space(struct pl_json_writer *report, const char *name, const char *free_name, const char *path)
{
    struct statvfs space;

    if (statvfs(path, &space) != 0) {
        add_text(report, name, NULL);
        return;
    }
    pl_json_write_int64(report, name, (int64_t)((uint64_t)space.f_blocks * space.f_frsize / MIB));
    pl_json_write_int64(report, free_name, (int64_t)((uint64_t)space.f_bavail * space.f_frsize / MIB));
}

/* Adds the kernels that the system's OpenBLAS has chosen. */
static void add_blas(struct pl_json_writer *report)
{
    char core[PL_BLAS_CORE_BYTES];
    const char *better = pl_blas_better_core(core);
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    pl_text_printf(&text, better ? "%s, for it does not know this processor; " PL_BLAS_VARIABLE "=%s is better" : "%s",
                   core, better);
    add_text(report, "openblas", core[0] ? pl_text_string(&text) : NULL);
}

static void add_system(struct pl_json_writer *report)
{
    PL_AUTO_FREE char *memory = NULL;
    struct utsname name;

    pl_json_write_object(report, "system");
    add_distribution(report);
    add_text(report, "kernel", uname(&name) == 0 ? name.release : NULL);
    add_text(report, "machine", uname(&name) == 0 ? name.machine : NULL);
    add_text(report, "glibc", gnu_get_libc_version());
    pl_json_write_int64(report, "user", (int64_t)geteuid());
    pl_json_write_int64(report, "cpus", pl_devices_cpus());
    pl_json_write_int64(report, "cpu_limit", pl_devices_cpu_limit(""));
    if (pl_file_read("/proc/meminfo", FILE_BYTES, &memory, NULL, NULL) == PL_OK) {
        pl_json_write_int64(report, "memory_mib", (int64_t)(pl_text_field_number(memory, "MemTotal", 10, 0) / 1024));
    }
    if (pl_file_read("/sys/fs/cgroup/memory.max", FILE_BYTES, &memory, NULL, NULL) == PL_OK) {
        memory[strcspn(memory, "\n")] = '\0';
        add_text(report, "memory_limit_bytes", memory);
    }
    add_blas(report);
    add_space(report, "dev_shm_mib", "dev_shm_free_mib", "/dev/shm");
    add_limit(report, "open_files", RLIMIT_NOFILE);
    add_limit(report, "processes", RLIMIT_NPROC);
    add_limit(report, "locked_memory_bytes", RLIMIT_MEMLOCK);
    add_limit(report, "core_file_bytes", RLIMIT_CORE);
    pl_json_write_close(report);
}

static void add_openmpi(struct pl_json_writer *report, const struct place *place)
{
    PL_AUTO_FREE char *mpirun = find_program(place, "mpirun");

    pl_json_write_object(report, "open_mpi");
    add_text(report, "mpirun", mpirun);
    if (mpirun) {
        add_answer(report, place, "version", mpirun, "--version");
    }
    pl_json_write_close(report);
}

/* Versions come from the packages' own files; nothing is imported. */
static const char inquiry[] = "import importlib.metadata as m, sys\n"
                              "print('python', sys.version.split()[0])\n"
                              "for name in ('pip', 'numpy', 'torch', 'tensorflow', 'tensorflow-cpu', 'keras', "
                              "'horovod', 'mpi4py', 'accelerate',\n"
                              "             'transformers', 'lightning', 'deepspeed', 'sagemaker-training'):\n"
                              "    try: print(name, m.version(name))\n"
                              "    except m.PackageNotFoundError: pass\n";

static void add_python(struct pl_json_writer *report, const struct place *place)
{
    const char *named = pl_environment_get_or(place->environment, "PACELINE_PYTHON", NULL);
    PL_AUTO_FREE char *python = find_program(place, named ? named : "python3");
    PL_AUTO_FREE char *uv = find_program(place, "uv");
    PL_AUTO_FREE char *torchrun = find_program(place, "torchrun");
    PL_AUTO_TEXT struct pl_text answer = PL_TEXT_NONE;
    struct pl_error error = PL_ERROR_NONE;

    if (!python && !named) {
        python = find_program(place, "python");
    }
    pl_json_write_object(report, "python");
    add_text(report, "program", python);
    add_text(report, "uv", uv);
    add_text(report, "torchrun", torchrun);
    if (python && ask(place, (const char *const[]){python, "-c", inquiry, NULL}, ANSWER_NS, &answer, &error) != PL_OK) {
        add_text(report, "versions", error.cause);
    } else if (python) {
        char *rest = answer.data;

        for (char *line; rest && (line = strsep(&rest, "\n"));) {
            char *version = strchr(line, ' ');

            if (version && strspn(line, "abcdefghijklmnopqrstuvwxyz0123456789-") == (size_t)(version - line)) {
                *version = '\0';
                add_text(report, line, version + 1);
            }
        }
    }
    pl_json_write_close(report);
}

static void add_ssh(struct pl_json_writer *report, const struct place *place)
{
    const char *folder = pl_environment_get_or(place->environment, "PACELINE_SSH_DIR", PL_NEEDS_KEYS_DIR);
    PL_AUTO_FREE char *ssh = find_program(place, "ssh");
    PL_AUTO_FREE char *sshd = NULL;
    PL_AUTO_TEXT struct pl_text key = PL_TEXT_NONE;

    pl_text_printf(&key, "%s/id_ed25519", folder);
    pl_json_write_object(report, "ssh");
    add_text(report, "ssh", ssh);
    add_text(report, "sshd", pl_file_find_program("sshd", PL_NEEDS_SSHD_PATH, &sshd, NULL) == PL_OK ? sshd : NULL);
    add_text(report, "keys_folder", folder);
    pl_json_write_bool(report, "keys", access(pl_text_string(&key), F_OK) == 0);
    pl_json_write_bool(report, "secret", pl_environment_get_or(place->environment, "PACELINE_SSH_SECRET", NULL));
    pl_json_write_close(report);
}

/* Returns the first line of a file, or NULL. */
static char *first_line(const char *path)
{
    char *text = NULL;

    if (pl_file_read(path, FILE_BYTES, &text, NULL, NULL) == PL_OK) {
        text[strcspn(text, "\n")] = '\0';
    }
    return text;
}

static void add_devices(struct pl_json_writer *report)
{
    PL_AUTO_FREE char *driver = first_line("/proc/driver/nvidia/version");
    PL_AUTO_FREE char *installer = first_line("/opt/amazon/efa_installed_packages");
    struct pl_devices_efa efa;

    pl_devices_efa("", &efa);
    pl_json_write_object(report, "devices");
    pl_json_write_int64(report, "gpus", pl_devices_count("", "").gpus);
    add_text(report, "nvidia_driver", driver);
    pl_json_write_int64(report, "efa", efa.count);
    pl_json_write_bool(report, "efa_usable", efa.usable);
    add_text(report, "efa_installer", installer);
    pl_json_write_close(report);
}

static void add_settings(struct pl_json_writer *report, const struct place *place)
{
    static const char *const prefixes[] = {"PACELINE_", "HOROVOD_", "NCCL_",    "OMPI_MCA_", "FI_",    "GLOO_",
                                           "TORCH_",    "CUDA_",    "NVIDIA_",  "PIP_",      "UV_",    "SAGEMAKER_",
                                           "LD_",       "PYTHON",   "BASH_ENV", "OMP_",      "MASTER_"};

    pl_json_write_object(report, "environment");
    for (char *const *string = pl_environment_strings(place->environment); *string; string++) {
        PL_AUTO_TEXT struct pl_text name = PL_TEXT_NONE;
        const size_t length = strcspn(*string, "=");

        for (size_t i = 0; i < PL_ARRAY_ITEMS(prefixes); i++) {
            if (strncmp(*string, prefixes[i], strlen(prefixes[i])) == 0) {
                pl_text_append_n(&name, *string, length);
                pl_text_mask(name.data, name.length);
                /* an index of packages often has a password in its address */
                add_text(report, pl_text_string(&name),
                         pl_secrets_is_name(pl_text_string(&name)) || strstr(*string, "://") ? "***"
                                                                                             : *string + length + 1);
                break;
            }
        }
    }
    pl_json_write_close(report);
}

/* Adds what jobs of some kinds need and this image lacks, and how to get it. */
static void add_missing(struct pl_json_writer *report, const struct place *place)
{
    PL_AUTO_FREE char *mpirun = find_program(place, "mpirun"), *ssh = find_program(place, "ssh"), *sshd = NULL;
    PL_AUTO_TEXT struct pl_text key = PL_TEXT_NONE;
    const bool has_sshd = pl_file_find_program("sshd", PL_NEEDS_SSHD_PATH, &sshd, NULL) == PL_OK;

    pl_text_printf(&key, "%s/id_ed25519",
                   pl_environment_get_or(place->environment, "PACELINE_SSH_DIR", PL_NEEDS_KEYS_DIR));
    pl_json_write_object(report, "missing");
    if (!mpirun) {
        add_text(report, "mpirun", "MPI jobs need it: apt-get install openmpi-bin, or pip install 'paceline[mpi]'");
    }
    if (!ssh) {
        add_text(report, "ssh", "jobs on several hosts need it: apt-get install openssh-client");
    }
    if (!has_sshd) {
        add_text(report, "sshd", "jobs on several hosts need it: apt-get install openssh-server");
    }
    if (access(pl_text_string(&key), F_OK) != 0 &&
        !pl_environment_get_or(place->environment, "PACELINE_SSH_SECRET", NULL)) {
        add_text(report, "keys", "jobs on several hosts need them, or PACELINE_SSH_SECRET: paceline setup");
    }
    if (!place->has_bash_env) {
        add_text(report, "BASH_ENV", "version 3 of the SDK needs it: the line ENV that paceline setup prints");
    }
    pl_json_write_close(report);
}

/* Adds the backends, devices and settings that the runtime finds, or why it cannot run here. */
static enum pl_status add_world(struct pl_json_writer *report, const struct place *place, const char *world,
                                struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text answer = PL_TEXT_NONE;
    struct pl_error error = PL_ERROR_NONE;
    const enum pl_status status = ask(place, (const char *const[]){world, NULL}, WORLD_NS, &answer, &error);

    pl_json_write_object(report, "runtime");
    pl_json_write_bool(report, "works", status == PL_OK);
    if (status != PL_OK) {
        add_text(report, "why_not", error.cause);
    }
    add_lines(report, "lines", pl_text_string(&answer));
    pl_json_write_close(report);
    return pl_text_check(&answer, reterr);
}

static enum pl_status show(bool is_json, const char *self_path, const char *world, struct pl_error *reterr)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    struct place place = {.self_path = self_path};
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    struct pl_json_writer report = PL_JSON_WRITER(&text);

    PL_TRY(pl_environment_new(&environment, reterr));
    place.environment = environment;
    place.has_bash_env = pl_text_ends_with(pl_environment_get_or(environment, "BASH_ENV", ""), "/bash-env.sh");
    if (place.has_bash_env) { /* the programs that are asked may be scripts */
        pl_environment_unset(environment, "BASH_ENV");
    }
    pl_json_write_object(&report, NULL);
    pl_json_write_int64(&report, "version", JSON_VERSION);
    add_paceline(&report, &place);
    add_system(&report);
    add_openmpi(&report, &place);
    add_python(&report, &place);
    add_ssh(&report, &place);
    add_devices(&report);
    add_settings(&report, &place);
    PL_TRY(add_world(&report, &place, world, reterr));
    add_missing(&report, &place);
    pl_json_write_close(&report);
    PL_TRY(pl_json_write_end(&report, reterr));
    if (is_json) {
        puts(text.data);
    } else {
        PL_TRY(print_lines(&text, reterr));
    }
    return fflush(stdout) == 0 && !ferror(stdout)
               ? PL_OK
               : pl_error_set(reterr, PL_SYSTEM, "standard output cannot be written");
}

/* Prints the options for compiling and linking a program in C, as pkg-config has them in an image. */
static enum pl_status print_flags(const char *self_path, bool cflags, bool libs, struct pl_error *reterr)
{
    static const char header[] = "/include/paceline/runtime/paceline.h";
    PL_AUTO_FREE char *path = NULL;
    PL_AUTO_TEXT struct pl_text prefix = PL_TEXT_NONE;
    const char *root;

    PL_TRY(pl_companion_find(self_path, "../../include/paceline/runtime/paceline.h", &path, reterr));
    pl_text_append_n(&prefix, path, strlen(path) - strlen(header));
    PL_TRY(pl_text_check(&prefix, reterr));
    root = pl_text_string(&prefix);
    if (cflags) {
        printf("-I%s/include/paceline%s", root, libs ? " " : "\n");
    }
    if (libs) { /* with libraries that ours needs and the base image may lack */
        printf("-L%s/lib -Wl,-rpath,%s/lib -Wl,-rpath-link,%s/lib/carried -lpaceline\n", root, root, root);
    }
    return PL_OK;
}

struct options {
    bool json, cflags, libs;
};

#define PL_OPTIONS_OF struct options
static const struct pl_option table[] = {PL_INFO_OPTIONS(PL_OPTION) PL_OPTIONS_END};

int main(int argc, char **argv)
{
    struct pl_error error = PL_ERROR_NONE;
    PL_AUTO_FREE char *self_path = realpath("/proc/self/exe", NULL), *world = NULL;
    struct options options = {.json = false};
    bool is_rank;
    enum pl_status status;

    pl_log_open("paceline info");
    status = pl_verbs_read("info", table, argc, argv, &options, &error);
    if (status == PL_OK && optind < argc) {
        status = pl_error_set(&error, PL_INVALID, "expected nothing, found '%s'; --help tells more", argv[optind]);
    }
    if (status != PL_OK) {
        return pl_verbs_refuse(status, &error);
    }
    if (options.cflags || options.libs) {
        if (print_flags(self_path ? self_path : "", options.cflags, options.libs, &error) != PL_OK) {
            pl_log_error(&error, "cannot look for the headers");
            return 1;
        }
        return 0;
    }
    if (pl_companion_find(self_path ? self_path : "", "paceline-world", &world, &error) != PL_OK) {
        pl_log_error(&error, "cannot find the program paceline-world");
        return 1;
    }
    is_rank = pl_environment_own("OMPI_COMM_WORLD_SIZE");
    if (is_rank && options.json) {
        pl_log(PL_LOG_ERROR, "--json is for one process: run it without mpirun");
        return PL_EXIT_USAGE;
    }
    if (is_rank) { /* a process between the ranks and mpirun cannot ask a world of all ranks */
        execv(world, (char *const[]){world, NULL});
        pl_log(PL_LOG_ERROR, "'%s' cannot be started", world);
        return 1;
    }
    if (show(options.json, self_path, world, &error) != PL_OK) {
        pl_log(PL_LOG_ERROR, "%s", error.cause);
        return 1;
    }
    return 0;
}
