/* SPDX-License-Identifier: Apache-2.0 */
/* Sends, receives and prints exit reports: how a supervised program ended. */
#include "entrypoint/supervise/exit_report.h"

#include "base/memory.h"
#include "base/number.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

bool pl_exit_report_ok(const struct pl_exit_report *exit_report)
{
    return !exit_report->signalled && exit_report->code == 0;
}

static const char *const kind_texts[] = {
#define PL_PROCESS_TEXT(name, text) [PL_PROCESS_##name] = text,
    PL_PROCESS_KIND_LIST(PL_PROCESS_TEXT)
#undef PL_PROCESS_TEXT
};

enum pl_status pl_exit_report_send(const struct pl_exit_report *exit_report, struct pl_link *link,
                                   struct pl_error *reterr)
{
    char numbers[64];

    snprintf(numbers, sizeof(numbers), "%d %d %d %d %d %d", exit_report->code, exit_report->signalled,
             exit_report->not_started, (int)exit_report->kind, exit_report->rank, exit_report->out_of_memory);
    return PL_LINK_SEND(link, PL_FRAME_ENDED, reterr, numbers, exit_report->host, exit_report->program,
                        exit_report->note, exit_report->tail, exit_report->cause, exit_report->place);
}

enum pl_status pl_exit_report_receive(const struct pl_frame *frame, struct pl_exit_report *ret_report,
                                      struct pl_error *reterr)
{
    struct pl_exit_report exit_report = PL_EXIT_REPORT_NONE;
    unsigned code, signalled, not_started, kind, out_of_memory;
    int length = 0;

    if (frame->count < 7 ||
        sscanf(frame->fields[0], "%3u %1u %1u %2u %9d %1u%n", &code, &signalled, &not_started, &kind, &exit_report.rank,
               &out_of_memory, &length) != 6 ||
        frame->fields[0][length] != '\0' || code > 255 || signalled > 1 || not_started > 1 ||
        kind >= PL_ARRAY_ITEMS(kind_texts) || exit_report.rank < -1 || out_of_memory > 1) {
        return pl_error_set(reterr, PL_CORRUPT, "control link: the frame is not an exit report");
    }
    exit_report.kind = (enum pl_process_kind)kind;
    exit_report.signalled = signalled == 1;
    exit_report.code = (int)code;
    exit_report.out_of_memory = out_of_memory == 1;
    exit_report.not_started = not_started == 1;
    snprintf(exit_report.host, sizeof(exit_report.host), "%s", frame->fields[1]);
    snprintf(exit_report.program, sizeof(exit_report.program), "%s", frame->fields[2]);
    snprintf(exit_report.note, sizeof(exit_report.note), "%s", frame->fields[3]);
    snprintf(exit_report.tail, sizeof(exit_report.tail), "%s", frame->fields[4]);
    snprintf(exit_report.cause, sizeof(exit_report.cause), "%s", frame->fields[5]);
    snprintf(exit_report.place, sizeof(exit_report.place), "%s", frame->fields[6]);
    *ret_report = exit_report;
    return PL_OK;
}

void pl_exit_report_name(enum pl_process_kind kind, int rank, const char *host, struct pl_text *text)
{
    pl_text_append(text, kind_texts[kind]);
    if (rank >= 0) {
        pl_text_printf(text, " %d", rank);
    }
    if (host[0] != '\0') {
        pl_text_printf(text, " on host %s", host);
    }
}

/* Returns the last line without its newline, or "". */
static const char *end_of_tail(const struct pl_exit_report *exit_report, char line[static PL_TAIL_LINE_BYTES + 1])
{
    const char *tail = exit_report->tail;
    size_t bytes = strlen(tail), begin;

    bytes -= bytes > 0 && tail[bytes - 1] == '\n' ? 1 : 0;
    for (begin = bytes; begin > 0 && tail[begin - 1] != '\n'; begin--) {
    }
    snprintf(line, PL_TAIL_LINE_BYTES + 1, "%.*s", (int)(bytes - begin), tail + begin);
    return line;
}

static struct pl_last_word last_word(const struct pl_exit_report *exit_report)
{
    char line[PL_TAIL_LINE_BYTES + 1];

    return pl_last_word_read(end_of_tail(exit_report, line), exit_report->code);
}

/* Returns the signal that ended the program, or its command if the program is a shell; 0: none. */
static int fatal_signal(const struct pl_exit_report *exit_report)
{
    const int number = exit_report->signalled ? exit_report->code : exit_report->code - 128;

    return exit_report->signalled || (number > 0 && number <= SIGSYS && number != SIGCHLD && number != SIGCONT &&
                                      number != SIGSTOP && number != SIGTSTP && number != SIGTTIN &&
                                      number != SIGTTOU && number != SIGURG && number != SIGWINCH)
               ? number
               : 0;
}

/* Print what a shell means by this code; other programs may mean something else. */
static void print_shells_words(const struct pl_exit_report *exit_report, struct pl_text *text)
{
    static const char *const words[] = {"cannot be executed", "was not found"};
    const int first = 126;
    const bool is_command = exit_report->code == first || exit_report->code == first + 1;
    const struct pl_last_word word = last_word(exit_report);
    char name[16];

    if (is_command && word.command[0] != '\0') {
        pl_text_printf(text, " (the command '%s' %s)", word.command, words[exit_report->code - first]);
    } else if (is_command && !word.is_loader) {
        pl_text_printf(text, " (a shell's code for a command that %s)", words[exit_report->code - first]);
    } else if (fatal_signal(exit_report) != 0) {
        pl_text_printf(text, " (a shell's code for a command that signal %d, %s, has ended)", fatal_signal(exit_report),
                       pl_signals_name(fatal_signal(exit_report), name));
    }
}

void pl_exit_report_sentence(const struct pl_exit_report *exit_report, struct pl_text *text)
{
    char name[16];

    pl_exit_report_name(exit_report->kind, exit_report->rank, exit_report->host, text);
    if (exit_report->not_started) {
        pl_text_append(text, " did not start");
    } else if (exit_report->signalled) {
        pl_text_printf(text, " was killed by signal %d (%s)", exit_report->code,
                       pl_signals_name(exit_report->code, name));
    } else {
        pl_text_printf(text, " exited with code %d", exit_report->code);
        print_shells_words(exit_report, text);
    }
    if (exit_report->out_of_memory) {
        pl_text_append(text, exit_report->signalled && exit_report->code == SIGKILL
                                 ? ": out of memory, the kernel's OOM killer ended it (the container's count oom_kill "
                                   "has risen); use fewer ranks on a host, smaller batches or a larger instance"
                                 : ": out of memory, the kernel's OOM killer ended a process of the container (its "
                                   "count oom_kill has risen); use smaller batches or a larger instance");
    }
    if (exit_report->note[0] != '\0') {
        pl_text_printf(text, ": %s", exit_report->note);
    }
}

/*
 * Whether the exception is the first thing to know. An exception before the end by a signal was most often handled;
 * abort() is how some libraries end. mpirun and its daemons print exceptions of ranks, which report their own. A limit
 * that was reached is a deeper cause.
 */
static bool is_cause(const struct pl_exit_report *exit_report)
{
    const int number = fatal_signal(exit_report);

    return exit_report->cause[0] != '\0' && (number == 0 || number == SIGABRT) &&
           exit_report->kind != PL_PROCESS_LAUNCHER && exit_report->kind != PL_PROCESS_DAEMON;
}

static bool is_fault(int number)
{
    return number == SIGSEGV || number == SIGABRT || number == SIGBUS || number == SIGFPE || number == SIGILL;
}

/* Returns what to do next after a missing module or a signal that says nothing about its cause; "" if the report says
 * enough. If its shim was killed, the program is not known: mpirun may have killed it. */
static const char *next_step(const struct pl_exit_report *exit_report)
{
    static const char no_module[] = "ModuleNotFoundError: ";
    const bool is_plain = exit_report->note[0] == '\0' && !exit_report->out_of_memory;
    const int number = fatal_signal(exit_report);

    if (is_plain && !exit_report->signalled && strncmp(exit_report->cause, no_module, strlen(no_module)) == 0) {
        return "Next: check the spelling; then name its package in requirements.txt in source_dir, or install it in "
               "the image; a module of your own must lie in source_dir.\n";
    }
    if (number == 0 || !is_plain || exit_report->program[0] == '\0') {
        return "";
    }
    if (number == SIGKILL) {
        return "Next: look at this job's MemoryUtilization in CloudWatch. Near 100 %, the instance was out of memory: "
               "take smaller batches, fewer ranks on a host or a larger instance. Otherwise a program or a person has "
               "sent SIGKILL (`kill -9` in your scripts?). The container's own memory limit was not reached, and its "
               "entry point, Paceline, did not send SIGKILL.\n";
    }
    if (!is_fault(number) || is_cause(exit_report) || strstr(exit_report->tail, "Fatal Python error")) {
        return "";
    }
    return number == SIGBUS
               ? "Next: most often /dev/shm was full: docker run --shm-size, fewer loader workers. Otherwise set "
                 "PYTHONFAULTHANDLER=1 in the estimator's `environment` (Python) or build with -g -fsanitize=address "
                 "(C, C++): the next failure then prints the line.\n"
               : "Next: compiled code, most often of a library, has crashed or called abort(). To learn which line "
                 "called it, set PYTHONFAULTHANDLER=1 in the estimator's `environment` and run the job again; build a "
                 "program in C or C++ with -g -fsanitize=address.\n";
}

static const char tail_heading[] = "Last lines of its stderr:\n";

/* Returns the part of the tail that fits into `room` bytes with the heading; "" if no line fits. */
static const char *fit_tail(const struct pl_exit_report *exit_report, size_t room)
{
    const char *tail = exit_report->tail, *end;

    while (*tail != '\0' && strlen(tail) + sizeof(tail_heading) > room) {
        end = strchr(tail, '\n');
        tail = end ? end + 1 : tail + strlen(tail);
    }
    return tail;
}

static bool has_line(const char *text, const char *line)
{
    const size_t bytes = strlen(line);

    for (const char *at = strstr(text, line); at; at = strstr(at + 1, line)) {
        if (at[bytes] == '\n') { /* the line may have a tag before it */
            return true;
        }
    }
    return false;
}

/* Print the cause, unless the lines below contain it, then the program, and as many of the last lines as fit.
 * `max_bytes` counts from `start` on. */
static void print_program(const struct pl_exit_report *exit_report, const char *cause, size_t start, size_t max_bytes,
                          struct pl_text *text)
{
    PL_AUTO_TEXT struct pl_text program = PL_TEXT_NONE;
    size_t room = max_bytes > text->length - start ? max_bytes - (text->length - start) : 0;

    if (exit_report->program[0] != '\0') {
        pl_text_printf(&program, "Program: %s\n", exit_report->program);
    }
    room = room > program.length ? room - program.length : 0;
    if (*cause != '\0' && strlen(cause) + 1 <= room && !has_line(fit_tail(exit_report, room), cause)) {
        pl_text_printf(text, "%s\n", cause);
        room -= strlen(cause) + 1;
    }
    pl_text_append(text, pl_text_string(&program));
    if (*fit_tail(exit_report, room) != '\0') {
        pl_text_append(text, tail_heading);
        pl_text_append(text, fit_tail(exit_report, room));
    }
}

/* Returns the last line without its newline, or "". For pip, which may add a hint after its error, it is the last line
 * that begins with "ERROR: ". */
static const char *last_line(const char *tail, size_t *ret_bytes)
{
    static const char mark[] = "ERROR: ";
    const char *line = "";
    bool is_marked = false;

    for (const char *at = tail, *end; *at != '\0'; at = *end != '\0' ? end + 1 : end) {
        bool has_mark = strncmp(at, mark, strlen(mark)) == 0;

        end = strchrnul(at, '\n');
        line = has_mark || !is_marked ? at : line;
        is_marked = is_marked || has_mark;
    }
    *ret_bytes = strcspn(line, "\n");
    return line;
}

/* Whether the line is an error of pip that has nothing to do with connections: in that case pip has found all versions,
 * and failed attempts to connect did no harm. */
static bool is_other_error(const char *line, size_t bytes)
{
    static const char mark[] = "ERROR: ", none[] = "No matching distribution found",
                      also[] = "Could not find a version";

    return bytes >= strlen(mark) && memcmp(line, mark, strlen(mark)) == 0 && !memmem(line, bytes, none, strlen(none)) &&
           !memmem(line, bytes, also, strlen(also));
}

static bool is_own_tool(const struct pl_exit_report *exit_report)
{
    const size_t path_bytes = strcspn(exit_report->program, " ");
    const char *name = memrchr(exit_report->program, '/', path_bytes);

    return strncmp(name ? name + 1 : exit_report->program, "paceline-", strlen("paceline-")) == 0;
}

/* Cut the line to the words that one of our own tools prints after its name, such as "paceline s3", and "error:".
 * Returns false if the line has another form. */
static bool own_words(const char **line_at, size_t *bytes_at)
{
    static const char mark[] = ": error: ", front[] = "paceline ";
    const char *error = memmem(*line_at, *bytes_at, mark, strlen(mark)), *name = *line_at;

    name += strncmp(name, front, strlen(front)) == 0 ? strlen(front) : 0;
    if (!error || memchr(name, ' ', (size_t)(error - name))) {
        return false;
    }
    *bytes_at -= (size_t)(error - *line_at) + strlen(mark);
    *line_at = error + strlen(mark);
    return true;
}

/* Print "ValueError: bad data (train.py:31, rank 3 on algo-2)"; if the program is not a rank, only its host. */
static void print_cause(const struct pl_exit_report *exit_report, struct pl_text *text)
{
    pl_text_printf(text, "%s (%s%s", exit_report->cause, exit_report->place, exit_report->place[0] != '\0' ? ", " : "");
    if (exit_report->kind != PL_PROCESS_PROGRAM) {
        pl_text_append(text, kind_texts[exit_report->kind]);
        if (exit_report->rank >= 0) {
            pl_text_printf(text, " %d", exit_report->rank);
        }
        pl_text_append_char(text, ' ');
    }
    pl_text_printf(text, "on %s)\n", exit_report->host);
}

const char *pl_exit_report_stop_step(int number)
{
    return number == SIGTERM
               ? "Next: SageMaker sends SIGTERM to all ranks when somebody stops the job, when max_run is over, and "
                 "when it takes a spot instance back; the job's secondary status says which. To go on where this job "
                 "ended, save to /opt/ml/checkpoints at times (or in a handler of SIGTERM), load from there at the "
                 "start, and set checkpoint_s3_uri in the estimator.\n"
               : "";
}

/* If there is no exception and the last line is an error message, make that line the cause. */
static void use_last_word(struct pl_exit_report *exit_report)
{
    if (exit_report->cause[0] == '\0' && last_word(exit_report).is_error) {
        end_of_tail(exit_report, exit_report->cause);
        exit_report->place[0] = '\0';
    }
}

void pl_exit_report_print(const struct pl_exit_report *given, int stopped_by, size_t max_bytes, struct pl_text *text)
{
    struct pl_exit_report whole = *given, *exit_report = &whole;
    size_t start = text->length;
    /* An out-of-memory kill may be old, or of another trial, so it does not hide an exception. */
    const bool is_limit = exit_report->note[0] != '\0';
    const char *line;
    size_t bytes;

    line = last_line(exit_report->tail, &bytes);
    if (exit_report->kind == PL_PROCESS_PROGRAM && !exit_report->signalled && is_own_tool(exit_report) &&
        own_words(&line, &bytes)) { /* the tool's message says more than its exit code */
        pl_text_printf(text, "%.*s\n", (int)pl_number_min(bytes, max_bytes), line);
        return;
    }
    use_last_word(exit_report);
    if (is_cause(exit_report) && !is_limit) {
        print_cause(exit_report, text);
    }
    pl_exit_report_sentence(exit_report, text);
    pl_text_append_char(text, '\n');
    pl_text_append(text, stopped_by != 0 ? pl_exit_report_stop_step(stopped_by) : next_step(exit_report));
    print_program(exit_report, is_cause(exit_report) && is_limit ? exit_report->cause : "", start, max_bytes, text);
}

void pl_exit_report_print_step(const struct pl_exit_report *exit_report, const char *what, size_t max_bytes,
                               struct pl_text *text)
{
    struct pl_exit_report rest = *exit_report;
    size_t start = text->length, bytes;
    const char *line = last_line(exit_report->tail, &bytes);

    if (exit_report->cause[0] != '\0' && !is_other_error(line, bytes)) {
        line = exit_report->cause;
        bytes = strlen(line);
    }
    pl_text_append(text, what);
    if (is_own_tool(exit_report)) {
        rest.program[0] = '\0';
        own_words(&line, &bytes);
    }
    if (bytes > 0 && !exit_report->signalled && !exit_report->out_of_memory && exit_report->note[0] == '\0') {
        pl_text_printf(text, " on host %s: %.*s (exit code %d)\n", exit_report->host, (int)bytes, line,
                       exit_report->code);
        if (strchr(exit_report->tail, '\n') == strrchr(exit_report->tail, '\n')) {
            rest.tail[0] = '\0'; /* the tail has no other line */
        }
    } else {
        pl_text_append(text, ": ");
        pl_exit_report_sentence(exit_report, text);
        pl_text_append_char(text, '\n');
        pl_text_append(text, next_step(exit_report));
    }
    print_program(&rest, "", start, max_bytes, text);
}
