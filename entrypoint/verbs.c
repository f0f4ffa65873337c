/* SPDX-License-Identifier: Apache-2.0 */
/* The table of verbs, and their help. */
#include "entrypoint/verbs.h"

#include "base/log.h"
#include "base/memory.h"
#include "entrypoint/options.h"

#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 100, LEAST_GAP = 2, MOST_NAME_COLUMNS = 26, EXIT_CODE_COLUMNS = 15 };

/* The parts of a row that help prints: all but where the value goes, which only the program needs. */
#define HELP(option, argument, words, ...) {option, argument, words},
#define OPTIONS(rows)                                                                                                  \
    .options = (const struct pl_verb_option[]){rows(HELP)},                                                            \
    .option_count = sizeof((const struct pl_verb_option[]){rows(HELP)}) / sizeof(struct pl_verb_option)

static const struct pl_verb_option demo_options[] = {
    {"--keep", "DIR",
     "put the job's files and the model into DIR: a new or empty folder, or that of an earlier demo, which is "
     "replaced (a new folder in /tmp)"},
    {"--data", "DIR", "take MNIST's four files, plain or gzip, instead of drawn digits"},
    {"--epochs", "N", "passes over the training digits (2)"},
    {"--processes", "N", "training processes (2)"},
};

static const struct pl_verb_option setup_options[] = {
    {"--no-mpi", NULL, "this image runs no MPI jobs: a missing Open MPI is not an error"},
    {"--no-ssh", NULL, "this image runs no jobs on several hosts: missing ssh programs and keys are not errors"},
    {"--keys", "yes|no", "whether to make the ssh keys by which the hosts of a job reach each other (yes)"},
    {"--remove", NULL, "remove the links and settings that setup has made"},
};

const struct pl_verb_exit_code pl_verbs_exit_codes[] = {
    {"0", "train: the program ended with 0 on every rank. Another verb: it did what it was asked for"},
    {"1", "Paceline reports an error, or train lost a host or a rank, or check found a need that is not met"},
    {"2", "the command line is wrong; nothing was started"},
    {"other codes", "train with one process on each host: the exit code of the program that failed first. index: the "
                    "exit code of the command that it ran"},
    {"128 + N", "signal N ended the program. 143: SIGTERM stopped the job before all ranks had saved and ended with 0"},
    {NULL, NULL},
};

const struct pl_verb pl_verbs[] = {
    {.name = "train",
     .summary = "run the job that /opt/ml/input/config describes",
     .arguments = "",
     .text = "Run the job on this host as in a container that SageMaker has started: run the job's program, by mpirun "
             "or another launcher if the job asks for one, and end with its exit code. If "
             "/opt/ml/input/config/resourceconfig.json exists, `paceline` without arguments is `paceline train`. "
             "`paceline -- COMMAND [ARGUMENT...]` runs COMMAND as the job's program."},
    {.name = "plan",
     .summary = "print what train would run here",
     .arguments = "[--json]\n[--json] -- COMMAND [ARGUMENT...]",
     .text = "Print what `paceline train`, or `paceline -- COMMAND`, would run on this host, and start nothing. To a "
             "terminal it prints lines for people, to a pipe or file JSON.",
     OPTIONS(PL_PLAN_OPTIONS),
     .examples = "paceline plan | jq .argv\nSAGEMAKER_BASE_DIR=job paceline plan"},
    {.name = "check",
     .summary = "check the job's hosts and the links between them",
     .arguments = "[OPTION...]",
     .text = "Run this on each host of a job instead of train, or set the hyperparameter paceline_check=1 to run it "
             "before the job. It prints one table. If a need is not met, it prints the reason and the exit code is 1.",
     OPTIONS(PL_CHECK_OPTIONS),
     .examples = "paceline check --expect efa --expect-mbit 20000"},
    {.name = "env",
     .summary = "print as JSON the variables that train adds",
     .arguments = "",
     .text = "Print the environment variables that `paceline train` adds for the program.",
     .examples = "paceline env | jq -r .SM_HOSTS"},
    {.name = "rank"},  /* mpirun and torchrun start it */
    {.name = "relay"}, /* sshd and mpirun start it */
    {.name = "demo",
     .program = "paceline-demo",
     .summary = "train a digit classifier here, as a job would, to try Paceline",
     .arguments = "[OPTION...]",
     .text = "Draw digits, and train the classifier of the examples on them by `paceline local`. At the end it prints "
             "the accuracy, where the model is, and how to go on. The job's files stay, laid out as by SageMaker. It "
             "needs neither network nor GPU.",
     .options = demo_options,
     .option_count = PL_ARRAY_ITEMS(demo_options),
     .examples = "paceline demo\ndocker run --rm -v \"$PWD/job:/opt/ml\" paceline demo --keep /opt/ml"},
    {.name = "local",
     .program = "paceline-local",
     .summary = "run a training job on this machine as SageMaker would",
     .arguments = "[OPTION...] [-- PROGRAM [ARGUMENT...]]",
     .text = "Lay out /opt/ml for each host, start `paceline train` there, print the log with the host's name before "
             "each line, pack model.tar.gz and output.tar.gz, and print the status, the reason of a failure, the times "
             "and the metrics. Control-C stops the job as StopTrainingJob does; a second Control-C kills it. The exit "
             "code is the job's. docs/local.md lists what is not imitated.",
     OPTIONS(PL_LOCAL_OPTIONS),
     .examples = "paceline local --hosts 2 --channel training=data --hyperparameter epochs=3 -- ./train\n"
                 "paceline local --job job.json --stop 30"},
    {.name = "report",
     .program = "paceline-report",
     .summary = "write a page about a job: its metrics, ranks, trials and warnings",
     .arguments = "[--output FILE] DIR",
     .text = "DIR is the folder of a job of `paceline local`, or a tree laid out like /opt/ml. `paceline local` writes "
             "the page itself at the end of a job. The page is one HTML file that loads nothing else.",
     OPTIONS(PL_REPORT_OPTIONS),
     .examples = "paceline report paceline-local/JOB\npaceline report --output page.html /opt/ml"},
    {.name = "sweep",
     .program = "paceline-sweep",
     .summary = "print the trials of a job that trains several models",
     .arguments = "--dry-run [FILE]",
     .text = "FILE holds the specification, a JSON object. Without FILE the specification is that of the job in "
             "/opt/ml/input/config: the variable PACELINE_SWEEP or the hyperparameter paceline_sweep. To run the "
             "sweep, run that job by `paceline train`.",
     OPTIONS(PL_SWEEP_OPTIONS),
     .examples = "paceline sweep --dry-run sweep.json | head -5"},
    {.name = "trial",
     .program = "paceline-trial",
     .summary = "run one training of a search as a trial of this job",
     .arguments = "[OPTION...] -- PROGRAM [ARGUMENT...]",
     .text = "Run PROGRAM as a job with its own /opt/ml, hyperparameters and devices, "
             "and end with its exit code. Its model is in trial-NNNN.model of the job's directory for checkpoints. A "
             "search (Optuna, Ray Tune, Syne Tune) in the job's program starts each trial by this command; see "
             "docs/sweep.md.",
     OPTIONS(PL_TRIAL_OPTIONS),
     .examples = "paceline trial --gpus 1 --hyperparameter lr=0.1 -- python3 train.py --lr 0.1"},
    {.name = "info",
     .program = "paceline-info",
     .summary = "print what this container has, for bug reports, and all settings of the runtime",
     .arguments = "[--json | --cflags | --libs]",
     .text = "Print versions, the features that are compiled in, Open MPI, Python and its packages, ssh keys, limits, "
             "devices and settings of this container, then the backends, GPUs and CPUs that the runtime finds, then "
             "what this image lacks for some jobs and the line that installs it. Values whose names look secret are "
             "not printed, and no Python package is imported. For the runtime's view of several ranks: mpirun -n N "
             "paceline info",
     OPTIONS(PL_INFO_OPTIONS),
     .examples = "paceline info\npaceline info --json | jq .python\ncc train.c $(paceline info --cflags --libs)"},
    {.name = "setup",
     .program = "paceline-setup",
     .summary = "set up Paceline in an image (a line of its Dockerfile)",
     .arguments = "[OPTION...]",
     .text = "Link the command, headers and pages into /usr/local, find Open MPI, and make the ssh keys by which hosts "
             "reach each other. If something is missing, setup names it and the package that has it, and the exit code "
             "is 1. Otherwise it prints the lines that the Dockerfile needs next. It needs root. Run it again when the "
             "image's packages have changed. /opt/paceline/install is the same program.",
     .options = setup_options,
     .option_count = PL_ARRAY_ITEMS(setup_options),
     .examples = "pip install paceline && paceline setup\npaceline setup --no-mpi --no-ssh"},
    {.name = "horovod",
     .program = "paceline-horovod",
     .summary = "install Paceline's modules into an installed Horovod",
     .arguments = "install [--python P] [--force | --unless-compiled]\ncheck [--python P]\nremove [--python P]",
     .text = "install puts Paceline's modules into the Horovod of P. First install Horovod's own Python files, which "
             "need no compiler:\n"
             "  HOROVOD_SKIP_COMPILE=1 P -m pip install horovod==0.28.1\n"
             "check changes nothing: it says what is there and whether it works. remove takes the modules out again; "
             "Horovod's own files stay.\n\n"
             "`paceline horovod` alone is install, and with --check it is check.",
     OPTIONS(PL_HOROVOD_OPTIONS),
     .examples = "paceline horovod install\npaceline horovod check --python /opt/conda/bin/python3"},
    {.name = "stacks",
     .program = "paceline-stacks",
     .summary = "print the stacks of this job's programs (if Paceline is built with libdw)",
     .arguments = "[--json] [PID...]",
     .text = "Print the stacks of the job's training programs (on the master's host: of all hosts), or of each process "
             "PID of this host. Of each program it prints the state, the CPU time and, if the job has PACELINE_HANG_S, "
             "Python's own stack; of each thread the state, the kernel function that it waits in, and its native "
             "stack. The rank that differs from the others comes first. Each thread is stopped for about a "
             "millisecond; a system call that the kernel does not restart, such as epoll_wait, then returns EINTR. It "
             "takes at most 60 s.\n\n"
             "The exit status is 0 when something was printed, and 1 when there is nothing to print. Names of C++ "
             "functions are as the linker has them: paceline stacks | c++filt",
     OPTIONS(PL_STACKS_OPTIONS),
     .examples = "docker exec CONTAINER paceline stacks"},
    {.name = "bench",
     .program = "paceline-bench",
     .needs_words = true,
     .summary = "measure the collectives",
     .arguments = "allreduce|allgather|broadcast [OPTION...]",
     .text = "With several ranks: mpirun -n N paceline bench allreduce [OPTION...]\n"
             "A size is the number of bytes of the result on each rank.",
     OPTIONS(PL_BENCH_OPTIONS),
     .examples = "mpirun -n 2 paceline bench allreduce --min-bytes 64 --max-bytes 64MiB --peer mpi"},
    {.name = "server",
     .program = "paceline-server",
     .needs_words = true,
     .summary = "run a parameter server and its workers on this host",
     .arguments = "[--workers N] [--min-workers N] PROGRAM [ARGUMENT...]",
     .text = "Start workers on this host, each of which runs PROGRAM, and be their parameter server. With "
             "PACELINE_PS=native, `paceline train` starts this command on each host by mpirun.",
     OPTIONS(PL_SERVER_OPTIONS),
     .examples = "mpirun -n 2 --map-by ppr:1:node paceline server --workers 2 ./train --steps 1000"},
    {.name = "trace",
     .program = "paceline-trace",
     .needs_words = true,
     .summary = "convert traces for chrome://tracing, or say which rank held up the others",
     .arguments = "[--summary] RING...",
     .text =
         "RING is PATH.rank0.ring and so on, where PATH is the value of PACELINE_TRACE. The programs may still run, "
         "or may have been killed. The result opens in chrome://tracing and in Perfetto. With --summary, sentences "
         "and a table say which rank the others waited for, how long, and why: give it the rings of all ranks of "
         "all hosts.",
     OPTIONS(PL_TRACE_OPTIONS),
     .examples = "paceline trace /opt/ml/output/data/trace.rank*.ring > trace.json\n"
                 "paceline trace --summary /opt/ml/output/data/trace.rank*.ring"},
    {.name = "feed",
     .program = "paceline-feed",
     .needs_words = true,
     .summary = "write a directory or S3 prefix into FIFOs, as SageMaker does in Pipe Mode",
     .arguments = "[OPTION...] FROM PATH",
     .text = "Write the objects of FROM (a directory or s3://BUCKET/PREFIX) into the FIFOs PATH_0, PATH_1, ..., one "
             "for each epoch. With --manifest or --augmented FROM is the manifest, s3://BUCKET/KEY.",
     OPTIONS(PL_FEED_OPTIONS),
     .examples = "paceline feed --epochs 3 --recordio s3://bucket/train/ /opt/ml/input/data/train &"},
    {.name = "s3",
     .program = "paceline-s3",
     .needs_words = true,
     .summary = "list, print and copy objects of S3",
     .arguments = "ls [--recursive] s3://BUCKET/PREFIX\n"
                  "cat s3://BUCKET/KEY...\n"
                  "cp [--recursive] FROM TO",
     .text = "FROM or TO is s3://BUCKET/KEY, a file, or - for a stream.",
     OPTIONS(PL_S3_OPTIONS),
     .examples = "paceline s3 ls s3://bucket/data/\npaceline s3 cp --recursive s3://bucket/data/ data\ntar c model | "
                 "paceline s3 cp - s3://bucket/model.tar"},
    {.name = "index",
     .program = "paceline-index",
     .summary = "run pip with the index of a CodeArtifact repository",
     .arguments = "ARN PROGRAM [ARGUMENT...]",
     .text = "Run PROGRAM, such as pip, with PIP_INDEX_URL set to the index of the CodeArtifact repository "
             "arn:aws:codeartifact:REGION:ACCOUNT:repository/DOMAIN/REPOSITORY and a token for it. Credentials are "
             "found as for paceline s3; AWS_ENDPOINT_URL_CODEARTIFACT names another server.",
     .examples =
         "paceline index arn:aws:codeartifact:eu-west-1:123456789012:repository/d/r pip install -r requirements.txt"},
    {.name = "sync",
     .program = "paceline-sync",
     .needs_words = true,
     .summary = "upload a directory's files as they are closed",
     .arguments = "[OPTION...] DIRECTORY s3://BUCKET/PREFIX",
     .text = "Upload each file below DIRECTORY to PREFIX/NAME whenever it was closed after writing. At SIGTERM or "
             "SIGINT it uploads what is left, then ends. At the other signal, or the same one more than 5 s later, it "
             "ends at once. Nothing is deleted on S3.",
     OPTIONS(PL_SYNC_OPTIONS),
     .examples = "paceline sync /opt/ml/checkpoints s3://bucket/job-7/checkpoints"},
    {.name = "keys", .program = "paceline-keys"},     /* makes ssh keys from a secret */
    {.name = "split", .program = "paceline-split"},   /* divides a channel in Pipe Mode among ranks */
    {.name = "unpack", .program = "paceline-unpack"}, /* unpacks a job's archive of code */
    {.name = "world", .program = "paceline-world"},   /* prints the runtime's part of info */
};

const size_t pl_verbs_count = PL_ARRAY_ITEMS(pl_verbs);

const struct pl_verb *pl_verbs_find(const char *name)
{
    for (size_t i = 0; i < pl_verbs_count; i++) {
        if (strcmp(name, pl_verbs[i].name) == 0) {
            return &pl_verbs[i];
        }
    }
    return NULL;
}

/* Print words of `text` in lines that begin at column `indent`; the first continues the present line. A newline in the
 * text and spaces at the start of a line stay. */
static void print_wrapped(const char *text, size_t indent, FILE *out)
{
    size_t column = indent;

    while (*text != '\0') {
        size_t spaces = strspn(text, " ");
        size_t bytes = strcspn(text + spaces, " \n");

        if (*text == '\n') {
            fprintf(out, "\n%*s", text[1] != '\n' ? (int)indent : 0, "");
            column = indent;
            text++;
        } else if (column > indent && column + spaces + bytes > COLUMNS) {
            fprintf(out, "\n%*s", (int)indent, "");
            column = indent;
            text += spaces;
        } else {
            fwrite(text, 1, spaces + bytes, out);
            column += spaces + bytes;
            text += spaces + bytes;
        }
    }
    fputc('\n', out);
}

void pl_verbs_print_list(FILE *out)
{
    bool programs = false;

    fputs("paceline: run a SageMaker training job in this container\n\n", out);
    for (size_t i = 0; i < pl_verbs_count; i++) {
        const struct pl_verb *verb = &pl_verbs[i];

        if (verb->summary) {
            fputs(verb->program && !programs ? "\n" : "", out);
            programs = verb->program;
            fprintf(out, "  paceline %-9s %s\n", verb->name, verb->summary);
        }
    }
    fputs("\nExit codes:\n", out);
    for (const struct pl_verb_exit_code *exit_code = pl_verbs_exit_codes; exit_code->code; exit_code++) {
        fprintf(out, "  %-12s ", exit_code->code);
        print_wrapped(exit_code->text, EXIT_CODE_COLUMNS, out);
    }
    fputc('\n', out);
    print_wrapped(
        "`paceline VERB --help` explains a verb, `paceline --version` prints the version. `paceline -- "
        "COMMAND...` is train with COMMAND as the program. Without arguments `paceline` is `paceline train` "
        "where /opt/ml/input/config/resourceconfig.json exists. If SAGEMAKER_BASE_DIR is set, it replaces /opt/ml.",
        0, out);
}

static size_t name_columns(const struct pl_verb_option *option)
{
    return strlen(option->name) + (option->value ? 1 + strlen(option->value) : 0);
}

static void print_options(const struct pl_verb *verb, FILE *out)
{
    size_t columns = 0;

    for (size_t i = 0; i < verb->option_count; i++) {
        size_t wanted = name_columns(&verb->options[i]);

        columns = wanted > columns && wanted <= MOST_NAME_COLUMNS ? wanted : columns;
    }
    for (size_t i = 0; i < verb->option_count; i++) {
        const struct pl_verb_option *option = &verb->options[i];
        size_t used = name_columns(option), indent = 2 + columns + LEAST_GAP;

        fprintf(out, "  %s%s%s", option->name, option->value ? " " : "", option->value ? option->value : "");
        if (used > columns) {
            fprintf(out, "\n%*s", (int)indent, "");
        } else {
            fprintf(out, "%*s", (int)(columns + LEAST_GAP - used), "");
        }
        print_wrapped(option->text, indent, out);
    }
}

void pl_verbs_print_help(const char *name, FILE *out)
{
    const struct pl_verb *verb = pl_verbs_find(name);
    const char *form = verb->arguments;
    size_t bytes;

    for (const char *word = "usage:"; form; word = "      ") {
        bytes = strcspn(form, "\n");
        fprintf(out, "%s paceline %s%s%.*s\n", word, name, bytes > 0 ? " " : "", (int)bytes, form);
        form = form[bytes] == '\n' ? form + bytes + 1 : NULL;
    }
    if (verb->text) {
        fputc('\n', out);
        print_wrapped(verb->text, 0, out);
    }
    if (verb->option_count > 0) {
        fputc('\n', out);
        print_options(verb, out);
    }
    if (verb->examples) {
        fputs(strchr(verb->examples, '\n') ? "\nExamples:\n  " : "\nExample:\n  ", out);
        print_wrapped(verb->examples, 2, out);
    }
}

enum pl_status pl_verbs_read(const char *name, const struct pl_option *table, int argc, char **argv, void *options,
                             struct pl_error *reterr)
{
    const enum pl_status status = pl_options_read(table, argc, argv, options, reterr);

    if (status == PL_OK && optind == argc && pl_verbs_find(name)->needs_words) {
        pl_verbs_print_help(name, stderr);
        return PL_INVALID;
    }
    if (status == PL_END) {
        pl_verbs_print_help(name, stdout);
    }
    return status;
}

int pl_verbs_refuse(enum pl_status status, const struct pl_error *error)
{
    char text[PL_ERROR_CAUSE_BYTES + PL_ERROR_CONTEXT_BYTES];

    if (status == PL_END) {
        return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    if (error->cause[0]) {
        pl_log(PL_LOG_ERROR, "%s", pl_error_text(error, text, sizeof(text)));
    }
    return PL_EXIT_USAGE;
}
