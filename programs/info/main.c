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
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "entrypoint/job/devices.h"
#include "entrypoint/job/secrets.h"
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

/* ---- the report: sections of named values, as lines for people or as one JSON object with an object for each ---- */

struct report {
    bool is_json;
    struct pl_text text;
    struct pl_json_writer json;
};

/* The report's storage must stay where it is. */
static void report_init(struct report *report, bool is_json)
{
    *report = (struct report){.is_json = is_json, .text = PL_TEXT_NONE};
    report->json = PL_JSON_WRITER(&report->text);
    if (is_json) {
        pl_json_write_object(&report->json, NULL);
        pl_json_write_int64(&report->json, "version", JSON_VERSION);
    }
}

static void report_done(struct report *report)
{
    pl_text_done(&report->text);
}

static void begin(struct report *report, const char *section)
{
    if (report->is_json) {
        pl_json_write_object(&report->json, section);
    } else {
        pl_text_printf(&report->text, "%s:\n", section);
    }
}

static void end(struct report *report)
{
    if (report->is_json) {
        pl_json_write_close(&report->json);
    }
}

/* "dev_shm_mib" as "dev shm". */
static void print_name(struct report *report, const char *name)
{
    size_t length = strlen(name);

    length -= length > 4 && strcmp(name + length - 4, "_mib") == 0 ? 4 : 0; /* the value has it */
    pl_text_append(&report->text, "  ");
    for (size_t i = 0; i < length; i++) {
        const bool is_setting = name[0] >= 'A' && name[0] <= 'Z';

        pl_text_append_char(&report->text, name[i] == '_' && !is_setting ? ' ' : name[i]);
    }
    pl_text_append(&report->text, ":");
    pl_text_printf(&report->text, "%*s", length < NAME_COLUMNS ? (int)(NAME_COLUMNS - length) : 1, "");
}

/* NULL: there is none. Control characters and broken UTF-8 are printed as '?'. */
static void add_text(struct report *report, const char *name, const char *value)
{
    PL_AUTO_TEXT struct pl_text clean = PL_TEXT_NONE;

    if (value) {
        pl_text_append(&clean, value);
        pl_text_mask(clean.data, clean.length);
    }
    if (report->is_json && !value) {
        pl_json_write_null(&report->json, name);
    } else if (report->is_json) {
        pl_json_write_text(&report->json, name, pl_text_string(&clean));
    } else {
        print_name(report, name);
        pl_text_printf(&report->text, "%s\n", value ? pl_text_string(&clean) : "none");
    }
}

static void add_bool(struct report *report, const char *name, bool value)
{
    if (report->is_json) {
        pl_json_write_bool(&report->json, name, value);
    } else {
        add_text(report, name, value ? "yes" : "no");
    }
}

/* The unit follows the number in the lines for people; in JSON the name has it. */
static void add_number(struct report *report, const char *name, int64_t value, const char *unit)
{
    if (report->is_json) {
        pl_json_write_int64(&report->json, name, value);
    } else {
        print_name(report, name);
        pl_text_printf(&report->text, "%lld%s%s\n", (long long)value, *unit ? " " : "", unit);
    }
}

/* The lines of the text, which may be empty: a list in JSON. */
static void add_lines(struct report *report, const char *name, const char *text)
{
    if (report->is_json) {
        pl_json_write_list(&report->json, name);
    }
    while (*text != '\0') {
        size_t bytes = strcspn(text, "\n");
        PL_AUTO_TEXT struct pl_text line = PL_TEXT_NONE;

        pl_text_append_n(&line, text, bytes);
        pl_text_mask(line.data, line.length);
        if (report->is_json) {
            pl_json_write_text(&report->json, NULL, pl_text_string(&line));
        } else {
            pl_text_printf(&report->text, "%s\n", pl_text_string(&line));
        }
        text += bytes + (text[bytes] == '\n');
    }
    if (report->is_json) {
        pl_json_write_close(&report->json);
    }
}

static enum pl_status print_report(struct report *report, struct pl_error *reterr)
{
    if (report->is_json) {
        pl_json_write_close(&report->json);
        PL_TRY(pl_json_write_end(&report->json, reterr));
        pl_text_append_char(&report->text, '\n');
    }
    PL_TRY(pl_text_check(&report->text, reterr));
    fputs(pl_text_string(&report->text), stdout);
    return fflush(stdout) == 0 && !ferror(stdout)
               ? PL_OK
               : pl_error_set(reterr, PL_SYSTEM, "standard output cannot be written");
}

/* ---- what the sections ask ---- */

/* What a section can ask. */
struct place {
    const struct pl_environment *environment;
    const char *self_path; /* this program, in the folder with the other ones */
};

/* The last line that is not empty. */
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
    return pl_error_set(reterr, PL_FAILED, "%s", line.length > 0 ? pl_text_string(&line) : "it failed without a word");
}

static char *find_program(const struct place *place, const char *name)
{
    char *path = NULL;

    return pl_file_find_program(name, pl_environment_get(place->environment, "PATH"), &path, NULL) == PL_OK ? path
                                                                                                            : NULL;
}

/* The first line that a program prints, or why there is none. */
static void add_answer(struct report *report, const struct place *place, const char *name, const char *program,
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

static void add_paceline(struct report *report, const struct place *place)
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

    begin(report, "paceline");
    add_text(report, "version", pl_version);
    add_text(report, "program", place->self_path);
    add_text(report, "built_with", PACELINE_BUILT_WITH);
    for (size_t i = 0; i < PL_ARRAY_ITEMS(parts); i++) {
        add_bool(report, parts[i].name, has_companion(place, parts[i].file));
    }
    end(report);
}

/* The value of NAME="value" in /etc/os-release. */
static void add_distribution(struct report *report)
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

/* -1: no limit. */
static void add_limit(struct report *report, const char *name, int resource)
{
    struct rlimit limit;

    if (getrlimit((__rlimit_resource_t)resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
        add_text(report, name, "unlimited");
        return;
    }
    add_number(report, name, (int64_t)limit.rlim_cur, "");
}

static void add_space(struct report *report, const char *name, const char *free_name, const char *path)
{
    struct statvfs space;

    if (statvfs(path, &space) != 0) {
        add_text(report, name, NULL);
        return;
    }
    add_number(report, name, (int64_t)((uint64_t)space.f_blocks * space.f_frsize / MIB), "MiB");
    add_number(report, free_name, (int64_t)((uint64_t)space.f_bavail * space.f_frsize / MIB), "MiB");
}

/* The kernels that the system's OpenBLAS has chosen. */
static void add_blas(struct report *report)
{
    char core[PL_BLAS_CORE_BYTES];
    const char *better = pl_blas_better_core(core);
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    pl_text_printf(&text, better ? "%s, for it does not know this processor; " PL_BLAS_VARIABLE "=%s is better" : "%s",
                   core, better);
    add_text(report, "openblas", core[0] ? pl_text_string(&text) : NULL);
}

static void add_system(struct report *report)
{
    PL_AUTO_FREE char *memory = NULL;
    struct utsname name;

    begin(report, "system");
    add_distribution(report);
    add_text(report, "kernel", uname(&name) == 0 ? name.release : NULL);
    add_text(report, "machine", uname(&name) == 0 ? name.machine : NULL);
    add_text(report, "glibc", gnu_get_libc_version());
    add_number(report, "user", (int64_t)geteuid(), "");
    add_number(report, "cpus", pl_devices_cpus(), "");
    add_number(report, "cpu_limit", pl_devices_cpu_limit(""), "(0: none)");
    if (pl_file_read("/proc/meminfo", FILE_BYTES, &memory, NULL, NULL) == PL_OK) {
        add_number(report, "memory_mib", (int64_t)(pl_text_field_number(memory, "MemTotal", 10, 0) / 1024), "MiB");
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
    end(report);
}

static void add_openmpi(struct report *report, const struct place *place)
{
    PL_AUTO_FREE char *mpirun = find_program(place, "mpirun");

    begin(report, "open_mpi");
    add_text(report, "mpirun", mpirun);
    if (mpirun) {
        add_answer(report, place, "version", mpirun, "--version");
    }
    end(report);
}

/* Versions come from the packages' own files; nothing is imported. */
static const char inquiry[] = "import importlib.metadata as m, sys\n"
                              "print('python', sys.version.split()[0])\n"
                              "for name in ('pip', 'numpy', 'torch', 'tensorflow', 'tensorflow-cpu', 'keras', "
                              "'horovod', 'mpi4py', 'accelerate',\n"
                              "             'transformers', 'lightning', 'deepspeed', 'sagemaker-training'):\n"
                              "    try: print(name, m.version(name))\n"
                              "    except m.PackageNotFoundError: pass\n";

static void add_python(struct report *report, const struct place *place)
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
    begin(report, "python");
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
    end(report);
}

static void add_ssh(struct report *report, const struct place *place)
{
    const char *folder = pl_environment_get_or(place->environment, "PACELINE_SSH_DIR", PL_NEEDS_KEYS_DIR);
    PL_AUTO_FREE char *ssh = find_program(place, "ssh");
    PL_AUTO_FREE char *sshd = NULL;
    PL_AUTO_TEXT struct pl_text key = PL_TEXT_NONE;

    pl_text_printf(&key, "%s/id_ed25519", folder);
    begin(report, "ssh");
    add_text(report, "ssh", ssh);
    add_text(report, "sshd", pl_file_find_program("sshd", PL_NEEDS_SSHD_PATH, &sshd, NULL) == PL_OK ? sshd : NULL);
    add_text(report, "keys_folder", folder);
    add_bool(report, "keys", access(pl_text_string(&key), F_OK) == 0);
    add_bool(report, "secret", pl_environment_get_or(place->environment, "PACELINE_SSH_SECRET", NULL));
    end(report);
}

/* The first line of a file, or NULL. */
static char *first_line(const char *path)
{
    char *text = NULL;

    if (pl_file_read(path, FILE_BYTES, &text, NULL, NULL) == PL_OK) {
        text[strcspn(text, "\n")] = '\0';
    }
    return text;
}

static void add_devices(struct report *report)
{
    PL_AUTO_FREE char *driver = first_line("/proc/driver/nvidia/version");
    PL_AUTO_FREE char *installer = first_line("/opt/amazon/efa_installed_packages");
    struct pl_devices_efa efa;

    pl_devices_efa("", &efa);
    begin(report, "devices");
    add_number(report, "gpus", pl_devices_gpus(""), "");
    add_text(report, "nvidia_driver", driver);
    add_number(report, "efa", efa.count, "");
    add_bool(report, "efa_usable", efa.usable);
    add_text(report, "efa_installer", installer);
    end(report);
}

static void add_settings(struct report *report, const struct place *place)
{
    static const char *const prefixes[] = {"PACELINE_", "HOROVOD_", "NCCL_",    "OMPI_MCA_", "FI_",    "GLOO_",
                                           "TORCH_",    "CUDA_",    "NVIDIA_",  "PIP_",      "UV_",    "SAGEMAKER_",
                                           "LD_",       "PYTHON",   "BASH_ENV", "OMP_",      "MASTER_"};

    begin(report, "environment");
    for (char *const *string = pl_environment_strings(place->environment); *string; string++) {
        PL_AUTO_TEXT struct pl_text name = PL_TEXT_NONE;
        const size_t length = strcspn(*string, "=");

        for (size_t i = 0; i < PL_ARRAY_ITEMS(prefixes); i++) {
            if (strncmp(*string, prefixes[i], strlen(prefixes[i])) == 0) {
                pl_text_append_n(&name, *string, length);
                /* an index of packages often has a password in its address */
                add_text(report, pl_text_string(&name),
                         pl_secrets_is_name(pl_text_string(&name)) || strstr(*string, "://") ? "***"
                                                                                             : *string + length + 1);
                break;
            }
        }
    }
    end(report);
}

/* What the runtime finds, or why it cannot run here. */
static enum pl_status add_world(struct report *report, const struct place *place, const char *world,
                                struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text answer = PL_TEXT_NONE;
    struct pl_error error = PL_ERROR_NONE;
    const enum pl_status status = ask(place, (const char *const[]){world, NULL}, WORLD_NS, &answer, &error);

    begin(report, "runtime");
    add_bool(report, "works", status == PL_OK);
    if (status != PL_OK) {
        add_text(report, "why_not", error.cause);
    }
    add_lines(report, "lines", pl_text_string(&answer));
    end(report);
    return pl_text_check(&answer, reterr);
}

static enum pl_status show(bool is_json, const char *self_path, const char *world, struct pl_error *reterr)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    struct place place = {.self_path = self_path};
    __attribute__((cleanup(report_done))) struct report report;

    report_init(&report, is_json);
    PL_TRY(pl_environment_new(&environment, reterr));
    place.environment = environment;
    add_paceline(&report, &place);
    add_system(&report);
    add_openmpi(&report, &place);
    add_python(&report, &place);
    add_ssh(&report, &place);
    add_devices(&report);
    add_settings(&report, &place);
    PL_TRY(add_world(&report, &place, world, reterr));
    return print_report(&report, reterr);
}

struct options {
    bool json;
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
    if (pl_companion_find(self_path ? self_path : "", "paceline-world", &world, &error) != PL_OK) {
        pl_log_error(&error, "looking for the runtime's part");
        return 1;
    }
    is_rank = pl_environment_own("OMPI_COMM_WORLD_SIZE");
    if (is_rank && options.json) {
        pl_log(PL_LOG_ERROR, "--json is for one process: run it without mpirun");
        return PL_EXIT_USAGE;
    }
    if (is_rank) { /* a world of all ranks cannot be asked by a process between them and mpirun */
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
