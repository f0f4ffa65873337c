/* SPDX-License-Identifier: Apache-2.0 */
/*
 * paceline demo [OPTION...]
 *
 * Draws digits or copies MNIST's files, and runs `paceline local` on them: two processes train the digit classifier of
 * the examples. At the end it prints the accuracy, the path of the model, and further commands to try.
 */
#include "base/clock.h"
#include "base/environment.h"
#include "base/file.h"
#include "base/json/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/text.h"
#include "entrypoint/launch/companion.h"
#include "entrypoint/supervise/process.h"
#include "entrypoint/supervise/signals.h"
#include "entrypoint/verbs.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MARK ".paceline-demo" /* in a tree that a demo has made, and that the next demo may replace */
#define LOCAL "local"         /* what `paceline local` leaves: the packed results, the log */
#define HOST LOCAL "/algo-1"
#define TRAIN_DIGITS "1500"
#define TEST_DIGITS "500"

enum {
    FOLDER_MODE = 0755,
    FILE_MODE = 0644,
    MOST_FILE_BYTES = 256 << 20,
    MOST_METRICS_BYTES = 1 << 20,
    EMPTY_ENTRIES = 2
};

struct demo {
    const char *keep, *data; /* the values of the options; NULL if an option was not given */
    uint64_t epochs, processes;
    char tree[PATH_MAX]; /* an absolute path without symbolic links */
    char *paceline;      /* the front binary */
    struct pl_environment *environment;
    struct pl_signals signals;
};

static enum pl_status read_options(int argc, char **argv, struct demo *demo, bool *ret_help, struct pl_error *reterr)
{
    static const struct option table[] = {{"help", no_argument, NULL, 'h'},
                                          {"keep", required_argument, NULL, 'k'},
                                          {"data", required_argument, NULL, 'd'},
                                          {"epochs", required_argument, NULL, 'e'},
                                          {"processes", required_argument, NULL, 'p'},
                                          {NULL, 0, NULL, 0}};
    enum pl_status status;
    int option;

    while ((status = pl_options_next(argc, argv, "h", table, &option, reterr)) == PL_OK) {
        switch (option) {
        case 'h':
            *ret_help = true;
            return PL_OK;
        case 'k':
            demo->keep = optarg;
            break;
        case 'd':
            demo->data = optarg;
            break;
        case 'e':
            PL_TRY(pl_options_whole("epochs", optarg, 1, 1000, &demo->epochs, reterr));
            break;
        default:
            PL_TRY(pl_options_whole("processes", optarg, 1, 64, &demo->processes, reterr));
            break;
        }
    }
    if (status != PL_END) {
        return status;
    }
    return optind == argc
               ? PL_OK
               : pl_error_set(reterr, PL_INVALID, "expected only options, found '%s'; --help tells more", argv[optind]);
}

static enum pl_status join(const char *folder, const char *name, struct pl_text *path, struct pl_error *reterr)
{
    pl_text_clear(path);
    pl_text_printf(path, "%s/%s", folder, name);
    return pl_text_check(path, reterr);
}

/* A folder with files that no demo has made is somebody else's. */
static enum pl_status check_ours(const struct demo *demo, struct pl_error *reterr)
{
    PL_AUTO_DIRECTORY DIR *directory = opendir(demo->tree);
    PL_AUTO_TEXT struct pl_text mark = PL_TEXT_NONE;
    int entries = 0;

    if (!directory) {
        return pl_error_errno(reterr, "open the folder '%s'", demo->tree);
    }
    PL_TRY(join(demo->tree, MARK, &mark, reterr));
    while (readdir(directory)) {
        entries++;
    }
    return entries <= EMPTY_ENTRIES || access(mark.data, F_OK) == 0
               ? PL_OK
               : pl_error_set(
                     reterr, PL_INVALID,
                     "'%s' is not empty: expected a new folder, an empty folder, or a folder that an earlier demo made",
                     demo->keep);
}

/* Finds or makes the folder of the tree, and removes what an earlier demo left in it. */
static enum pl_status make_folder(struct demo *demo, struct pl_error *reterr)
{
    static const char *const parts[] = {"input", "model", "output", LOCAL};
    static const char *const channels[] = {"input/data/training", "input/data/testing"};
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    if (!demo->keep) {
        pl_text_printf(&path, "%s/paceline-demo-XXXXXX", pl_environment_get_or(demo->environment, "TMPDIR", "/tmp"));
        PL_TRY(pl_text_check(&path, reterr));
        if (!mkdtemp(path.data) || chmod(path.data, FOLDER_MODE) != 0) {
            return pl_error_errno(reterr,
                                  "make the folder '%s' (name a folder by --keep DIR, or give a read-only container a "
                                  "writable /tmp: docker run --tmpfs /tmp)",
                                  path.data);
        }
    } else {
        PL_TRY(pl_file_make_dirs(demo->keep, FOLDER_MODE, reterr));
        pl_text_append(&path, demo->keep);
    }
    if (!realpath(path.data, demo->tree)) {
        return pl_error_errno(reterr, "find '%s'", path.data);
    }
    PL_TRY(check_ours(demo, reterr));
    for (size_t i = 0; i < PL_ARRAY_ITEMS(parts); i++) {
        PL_TRY(join(demo->tree, parts[i], &path, reterr));
        pl_file_remove_tree(path.data);
    }
    for (size_t i = 0; i < PL_ARRAY_ITEMS(channels); i++) {
        PL_TRY(join(demo->tree, channels[i], &path, reterr));
        PL_TRY(pl_file_make_dirs(path.data, FOLDER_MODE, reterr));
    }
    PL_TRY(join(demo->tree, MARK, &path, reterr));
    return pl_file_write_atomic(path.data, "", 0, FILE_MODE, reterr);
}

/* Waits for the program and forwards signals to it. As process 1 it also reaps orphans. */
static int await(const struct pl_signals *signals, pid_t program)
{
    struct pollfd signal_fd = {.fd = signals->fd, .events = POLLIN};

    for (;;) {
        const int number = pl_signals_next(signals);
        int status;
        pid_t ended;

        if (number == 0) {
            poll(&signal_fd, 1, -1); /* both programs limit their own waits */
        } else if (number != SIGCHLD) {
            kill(program, number);
        }
        while ((ended = waitpid(-1, &status, WNOHANG)) > 0) {
            if (ended == program) {
                bool is_signal;
                const int code = pl_process_status_code(status, &is_signal);

                return is_signal ? 128 + code : code;
            }
        }
    }
}

static enum pl_status run(const struct demo *demo, const char *const *argv, int *ret_code, struct pl_error *reterr)
{
    struct pl_process_setup setup = PL_PROCESS_SETUP_NONE;
    pid_t program;

    setup.argv = argv;
    setup.environment = pl_environment_strings(demo->environment);
    setup.signals = &demo->signals;
    setup.own_group = true; /* signals that a terminal sends to a group arrive only once, from this process */
    setup.death_signal = SIGTERM;
    PL_TRY(pl_process_spawn(&setup, &program, reterr));
    *ret_code = await(&demo->signals, program);
    return PL_OK;
}

static enum pl_status draw_digits(const struct demo *demo, const char *make_digits, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text folder = PL_TEXT_NONE;
    int code;

    PL_TRY(join(demo->tree, "input/data", &folder, reterr));
    PL_TRY(run(demo, (const char *const[]){make_digits, folder.data, TRAIN_DIGITS, TEST_DIGITS, "1", NULL}, &code,
               reterr));
    return code == 0 ? PL_OK : pl_error_set(reterr, PL_FAILED, "drawing digits failed with code %d, see above", code);
}

static enum pl_status copy_file(const char *from, const char *to, struct pl_error *reterr)
{
    PL_AUTO_FREE char *data = NULL;
    size_t bytes;

    PL_TRY(pl_file_read(from, MOST_FILE_BYTES, &data, &bytes, reterr));
    return pl_file_write_atomic(to, data, bytes, FILE_MODE, reterr);
}

/* Copies MNIST's four files, plain or gzip, into the two channels. */
static enum pl_status copy_data(const struct demo *demo, struct pl_error *reterr)
{
    static const struct {
        const char *prefix, *channel;
    } channels[] = {{"train-", "training"}, {"t10k-", "testing"}};
    PL_AUTO_TEXT struct pl_text from = PL_TEXT_NONE, to = PL_TEXT_NONE;
    PL_AUTO_DIRECTORY DIR *directory = opendir(demo->data);
    const struct dirent *entry;
    int files = 0;

    if (!directory) {
        return pl_error_errno(reterr, "open the folder '%s'", demo->data);
    }
    while ((entry = readdir(directory))) {
        for (size_t i = 0; i < PL_ARRAY_ITEMS(channels); i++) {
            if (strncmp(entry->d_name, channels[i].prefix, strlen(channels[i].prefix)) == 0 &&
                strstr(entry->d_name, "-ubyte")) {
                PL_TRY(join(demo->data, entry->d_name, &from, reterr));
                pl_text_clear(&to);
                pl_text_printf(&to, "%s/input/data/%s/%s", demo->tree, channels[i].channel, entry->d_name);
                PL_TRY(pl_text_check(&to, reterr));
                PL_TRY(copy_file(from.data, to.data, reterr));
                files++;
            }
        }
    }
    return files == 4 ? PL_OK
                      : pl_error_set(reterr, PL_INVALID,
                                     "'%s' has %d of MNIST's files: expected train-images-idx3-ubyte, "
                                     "train-labels-idx1-ubyte and the same with t10k-, plain or with .gz",
                                     demo->data, files);
}

/* Puts what the job has left where SageMaker has it, below the tree; where `paceline local` had it is a link then. */
static enum pl_status move_results(const struct demo *demo, struct pl_error *reterr)
{
    static const char *const parts[] = {"input/config", "model", "output"};
    PL_AUTO_TEXT struct pl_text from = PL_TEXT_NONE, to = PL_TEXT_NONE, host = PL_TEXT_NONE;

    PL_TRY(join(demo->tree, HOST, &host, reterr));
    for (size_t i = 0; i < PL_ARRAY_ITEMS(parts); i++) {
        PL_TRY(join(host.data, parts[i], &from, reterr));
        PL_TRY(join(demo->tree, parts[i], &to, reterr));
        if (rename(from.data, to.data) != 0) {
            return pl_error_errno(reterr, "move '%s' to '%s'", from.data, to.data);
        }
    }
    pl_file_remove_tree(host.data);
    return symlink("..", host.data) == 0 ? PL_OK : pl_error_errno(reterr, "make the link '%s'", host.data);
}

static enum pl_status run_job(const struct demo *demo, int *ret_code, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text training = PL_TEXT_NONE, testing = PL_TEXT_NONE;
    char epochs[32], processes[32];

    pl_text_printf(&training, "training=%s/input/data/training", demo->tree);
    pl_text_printf(&testing, "testing=%s/input/data/testing", demo->tree);
    PL_TRY(pl_text_check(&training, reterr));
    PL_TRY(pl_text_check(&testing, reterr));
    snprintf(epochs, sizeof(epochs), "epochs=%" PRIu64, demo->epochs);
    snprintf(processes, sizeof(processes), "%" PRIu64, demo->processes);
    return run(demo,
               (const char *const[]){demo->paceline,
                                     "local",
                                     "--kind",
                                     "plain",
                                     "--keep",
                                     "--folder",
                                     demo->tree,
                                     "--name",
                                     LOCAL,
                                     "--channel",
                                     training.data,
                                     "--channel",
                                     testing.data,
                                     "--processes-per-host",
                                     processes,
                                     "--hyperparameter",
                                     epochs,
                                     "--hyperparameter",
                                     "batch-size=32",
                                     "--hyperparameter",
                                     "learning-rate=0.02",
                                     NULL},
               ret_code, reterr);
}

/* Reads the test accuracy from the last line of the program's metrics. */
static enum pl_status read_accuracy(const struct demo *demo, double *ret_accuracy, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    PL_AUTO_FREE char *metrics = NULL;
    PL_AUTO_JSON struct pl_json *line = NULL;
    const char *last;
    size_t bytes;

    PL_TRY(join(demo->tree, "output/data/metrics.jsonl", &path, reterr));
    if (access(path.data, F_OK) != 0) {
        return pl_error_set(reterr, PL_NOT_FOUND, "the job ended before its first epoch");
    }
    PL_TRY(pl_file_read(path.data, MOST_METRICS_BYTES, &metrics, &bytes, reterr));
    while (bytes > 0 && metrics[bytes - 1] == '\n') {
        metrics[--bytes] = '\0';
    }
    last = strrchr(metrics, '\n');
    last = last ? last + 1 : metrics;
    PL_TRY(pl_json_parse(last, strlen(last), path.data, &line, reterr));
    return pl_json_double(pl_json_member(pl_json_root(line), "test_accuracy"), ret_accuracy, reterr);
}

/* Prints what a command does and, in the next line, the command as the user types it. `has_tree`: the command is for a
 * kept job. */
static void print_command(const struct demo *demo, const char *what, bool has_tree, const char *words)
{
    PL_AUTO_FREE char *on_path = NULL, *itself = NULL;
    PL_AUTO_TEXT struct pl_text tree = PL_TEXT_NONE;
    const char *name = demo->paceline;

    printf("  # %s\n", what);
    if (getpid() == 1) { /* in a container, whose folders differ from those of the host */
        printf("  docker run --rm -v \"$PWD/job:/opt/ml\" paceline %s\n", words);
        return;
    }
    if (pl_file_find_program("paceline", pl_environment_get(demo->environment, "PATH"), &on_path, NULL) == PL_OK) {
        itself = realpath(on_path, NULL);
        name = itself && strcmp(itself, demo->paceline) == 0 ? "paceline" : name;
    }
    if (has_tree && demo->keep) {
        pl_text_append_quoted(&tree, demo->tree);
        printf("  SAGEMAKER_BASE_DIR=%s ", pl_text_string(&tree));
    } else {
        printf("  %s", has_tree ? "SAGEMAKER_BASE_DIR=$PWD/job " : "");
    }
    printf("%s %s\n", name, words);
}

static enum pl_status report(const struct demo *demo, double seconds, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text model = PL_TEXT_NONE;
    const bool container = getpid() == 1;
    double accuracy = 0.0;
    struct stat info;

    PL_TRY(read_accuracy(demo, &accuracy, reterr));
    PL_TRY(join(demo->tree, "model/model.safetensors", &model, reterr));
    if (stat(model.data, &info) != 0) {
        return pl_error_errno(reterr, "find the model '%s'", model.data);
    }
    printf("\nTrained by %" PRIu64 " process%s in %.0f s: accuracy %.3f on digits that the model has not seen\n"
           "Model: %s (%.1f MB)%s\n\nTo go on:\n",
           demo->processes, demo->processes == 1 ? "" : "es", seconds, accuracy, model.data, (double)info.st_size / 1e6,
           container && !demo->keep ? ", in this container" : "");
    if (!demo->keep) {
        print_command(demo, "keep the job's files and the model in ./job", false,
                      container ? "demo --keep /opt/ml" : "demo --keep job");
    }
    print_command(demo, "print what the job runs", true, "plan");
    print_command(demo, "run the job again; its hyperparameters are in input/config/hyperparameters.json", true,
                  "train");
    if (demo->keep) {
        print_command(demo, "run another program in place of the classifier", true, "-- COMMAND");
    }
    return fflush(stdout) == 0 && !ferror(stdout)
               ? PL_OK
               : pl_error_set(reterr, PL_FAILED, "standard output cannot be written");
}

static enum pl_status show(struct demo *demo, int *ret_code, struct pl_error *reterr)
{
    PL_AUTO_FREE char *make_digits = NULL;
    int64_t began_ns;

    PL_TRY(pl_environment_new(&demo->environment, reterr));
    PL_TRY(pl_companion_find_paceline(&demo->paceline, reterr));
    if (pl_companion_find(demo->paceline, "make_digits", &make_digits, NULL) != PL_OK) {
        return pl_error_set(reterr, PL_UNSUPPORTED,
                            "this Paceline was built without the examples: expected the digit classifier that the demo "
                            "trains");
    }
    PL_TRY(pl_signals_open(&demo->signals, reterr));
    PL_TRY(make_folder(demo, reterr));
    PL_TRY(demo->data ? copy_data(demo, reterr) : draw_digits(demo, make_digits, reterr));
    began_ns = pl_clock_now_ns();
    PL_TRY(run_job(demo, ret_code, reterr));
    if (*ret_code != 0) {
        pl_log(PL_LOG_ERROR, "the job ended with code %d; the reason is above, and its files are in %s/" LOCAL,
               *ret_code, demo->tree);
        return PL_OK;
    }
    PL_TRY(move_results(demo, reterr));
    return report(demo, (double)(pl_clock_now_ns() - began_ns) / (double)PL_NS_PER_S, reterr);
}

int main(int argc, char **argv)
{
    struct demo demo = {.epochs = 2, .processes = 2, .signals = PL_SIGNALS_NONE};
    struct pl_error error = PL_ERROR_NONE;
    bool help = false;
    enum pl_status status;
    char text[1200];
    int code = 0;

    pl_log_set_prefix("paceline demo");
    if (read_options(argc, argv, &demo, &help, &error) != PL_OK) {
        pl_log(PL_LOG_ERROR, "%s", error.cause);
        return PL_EXIT_USAGE;
    }
    if (help) {
        pl_verbs_print_help("demo", stdout);
        return EXIT_SUCCESS;
    }
    status = show(&demo, &code, &error);
    if (status != PL_OK) {
        pl_log(PL_LOG_ERROR, "%s", pl_error_text(&error, text, sizeof(text)));
    }
    free(demo.paceline);
    pl_environment_free(demo.environment);
    return status == PL_OK ? code : EXIT_FAILURE;
}
