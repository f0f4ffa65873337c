/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/supervise/failure.c, entrypoint/supervise/exit_report.c. */
#include "entrypoint/supervise/exit_report.h"
#include "entrypoint/supervise/failure.h"

#include "base/file.h"
#include "base/memory.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"

#include <signal.h>

/* The files of a job's end in a directory of its own. */
#define AUTO_FAILURE __attribute__((cleanup(pl_failure_close)))

static void expect_file(const struct scratch *scratch, const char *name, const char *content)
{
    PL_AUTO_FREE char *data = NULL;
    char path[PATH_MAX];

    ck_ok(pl_file_read, scratch_path(scratch, name, path), 65536, &data, NULL);
    ck_assert_str_eq(data, content);
}

TEST(the_report_is_written_and_leaves_no_other_file)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    AUTO_FAILURE struct pl_failure failure = PL_FAILURE_NONE;
    char path[PATH_MAX];

    scratch_path(&scratch, "output", path);
    ck_ok(pl_failure_open, &failure, path);
    ck_ok(pl_failure_write, &failure, "rank 1 exited with code 3\n");
    expect_file(&scratch, "output/failure", "rank 1 exited with code 3\n");
    ck_assert_int_eq(unlink(scratch_path(&scratch, "output/failure", path)), 0);
    ck_assert_int_eq(rmdir(scratch_path(&scratch, "output", path)), 0);
}

TEST(what_is_no_utf_8_or_commands_a_terminal_does_not_get_into_the_report)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    AUTO_FAILURE struct pl_failure failure = PL_FAILURE_NONE;

    ck_ok(pl_failure_open, &failure, scratch.path);
    ck_ok(pl_failure_write, &failure, "start '/\xC3\xA9\xC3': no \xF0\x9F\x98\x80 \xE2\x82\x1B\xC2\x9B\n");
    expect_file(&scratch, "failure", "start '/\xC3\xA9?': no \xF0\x9F\x98\x80 ?????\n");
}

TEST(a_programs_own_words_stay_in_front)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    AUTO_FAILURE struct pl_failure failure = PL_FAILURE_NONE;

    ck_ok(pl_failure_open, &failure, scratch.path);
    scratch_write(&scratch, "failure", "loss is NaN", 11);
    ck_ok(pl_failure_write, &failure, "the program exited with code 3\n");
    expect_file(&scratch, "failure", "loss is NaN\n\nthe program exited with code 3\n");
}

TEST(of_a_programs_long_words_the_beginning_stays)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    AUTO_FAILURE struct pl_failure failure = PL_FAILURE_NONE;
    PL_AUTO_FREE char *words = malloc(2 * PL_FAILURE_USER_MAX_BYTES);
    PL_AUTO_FREE char *data = NULL;
    static const char report[] = "\n\nthe program exited with code 3\n";
    char path[PATH_MAX];
    size_t bytes;

    ck_assert_ptr_nonnull(words);
    memset(words, 'x', 2 * PL_FAILURE_USER_MAX_BYTES);
    ck_ok(pl_failure_open, &failure, scratch.path);
    scratch_write(&scratch, "failure", words, 2 * PL_FAILURE_USER_MAX_BYTES);
    ck_ok(pl_failure_write, &failure, report + 2);
    ck_ok(pl_file_read, scratch_path(&scratch, "failure", path), 2 * PL_FAILURE_USER_MAX_BYTES, &data, &bytes);
    ck_assert_uint_ge(bytes, PL_FAILURE_USER_MAX_BYTES + strlen(report));
    ck_assert_mem_eq(data, words, PL_FAILURE_USER_MAX_BYTES);
    ck_assert_str_eq(data + bytes - strlen(report), report);
}

TEST(what_an_earlier_run_left_is_gone)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    AUTO_FAILURE struct pl_failure failure = PL_FAILURE_NONE;
    char path[PATH_MAX];

    scratch_write(&scratch, "failure", "old\n", 4);
    scratch_write(&scratch, "success", "", 0);
    ck_ok(pl_failure_open, &failure, scratch.path);
    ck_assert_int_ne(access(scratch_path(&scratch, "success", path), F_OK), 0);
    ck_ok(pl_failure_write, &failure, "new\n");
    expect_file(&scratch, "failure", "new\n");
}

TEST(directories_in_the_files_places_are_renamed)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    AUTO_FAILURE struct pl_failure failure = PL_FAILURE_NONE;
    char path[PATH_MAX];

    ck_assert_int_eq(mkdir(scratch_path(&scratch, "failure", path), 0755), 0);
    scratch_write(&scratch, "failure/first", "1", 1);
    ck_ok(pl_failure_open, &failure, scratch.path);
    expect_file(&scratch, "failure.1/first", "1");
    ck_assert_int_eq(mkdir(scratch_path(&scratch, "failure", path), 0755), 0);
    scratch_write(&scratch, "failure/second", "2", 1);
    ck_assert_int_eq(mkdir(scratch_path(&scratch, "success", path), 0755), 0);
    ck_ok(pl_failure_write, &failure, "report\n");
    expect_file(&scratch, "failure", "report\n");
    expect_file(&scratch, "failure.2/second", "2");
    ck_ok(pl_failure_succeed, &failure);
    expect_file(&scratch, "success", "");
    ck_assert_int_eq(rmdir(scratch_path(&scratch, "success.1", path)), 0);
}

TEST(a_link_is_replaced_not_followed)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    AUTO_FAILURE struct pl_failure failure = PL_FAILURE_NONE;
    char path[PATH_MAX], target[PATH_MAX];

    ck_ok(pl_failure_open, &failure, scratch.path);
    scratch_write(&scratch, "secret", "secret", 6);
    ck_assert_int_eq(symlink(scratch_path(&scratch, "secret", target), scratch_path(&scratch, "failure", path)), 0);
    ck_ok(pl_failure_write, &failure, "report\n");
    expect_file(&scratch, "failure", "report\n");
    expect_file(&scratch, "secret", "secret");
}

/* Remove the output directory. If `words` is set, make it again, with a failure file with this text. */
static void clear_output(const struct scratch *scratch, const char *words)
{
    char path[PATH_MAX];

    ck_assert_int_eq(nftw(scratch_path(scratch, "output", path), scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
    if (words) {
        ck_assert_int_eq(mkdir(path, 0755), 0);
        scratch_write(scratch, "output/failure", words, strlen(words));
    }
}

TEST(a_program_that_clears_the_directory_does_not_take_the_report_with_it)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    AUTO_FAILURE struct pl_failure failure = PL_FAILURE_NONE;
    char path[PATH_MAX];

    ck_ok(pl_failure_open, &failure, scratch_path(&scratch, "output", path));
    clear_output(&scratch, NULL);
    ck_ok(pl_failure_write, &failure, "report\n");
    expect_file(&scratch, "output/failure", "report\n");
    clear_output(&scratch, "loss is NaN");
    ck_ok(pl_failure_write, &failure, "report\n");
    expect_file(&scratch, "output/failure", "loss is NaN\n\nreport\n");
    clear_output(&scratch, NULL);
    ck_ok(pl_failure_succeed, &failure);
    expect_file(&scratch, "output/success", "");
}

TEST(a_second_report_takes_the_place_of_the_first)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    AUTO_FAILURE struct pl_failure failure = PL_FAILURE_NONE;
    char path[PATH_MAX];
    FILE *file;

    ck_ok(pl_failure_open, &failure, scratch.path);
    scratch_write(&scratch, "failure", "loss is NaN", 11);
    ck_ok(pl_failure_write, &failure, "rank 1 was killed\n");
    expect_file(&scratch, "failure", "loss is NaN\n\nrank 1 was killed\n");
    ck_ok(pl_failure_write, &failure, "rank 1 exited\n");
    expect_file(&scratch, "failure", "loss is NaN\n\nrank 1 exited\n");
    file = fopen(scratch_path(&scratch, "failure", path), "a");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs("; more\n", file), 0);
    ck_assert_int_eq(fclose(file), 0);
    ck_ok(pl_failure_write, &failure, "rank 1 left\n");
    expect_file(&scratch, "failure", "loss is NaN; more\n\nrank 1 left\n");
}

TEST(success_is_an_empty_file)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    AUTO_FAILURE struct pl_failure failure = PL_FAILURE_NONE;

    ck_ok(pl_failure_open, &failure, scratch.path);
    ck_ok(pl_failure_succeed, &failure);
    expect_file(&scratch, "success", "");
}

TEST(without_a_directory_both_files_say_so)
{
    struct pl_failure failure = PL_FAILURE_NONE;

    ck_fails_as(PL_NOT_FOUND, "there is no output directory", pl_failure_write, &failure, "report\n");
    ck_fails_as(PL_NOT_FOUND, "there is no output directory", pl_failure_succeed, &failure);
}

static struct pl_exit_report of_rank_1(void)
{
    struct pl_exit_report exit_report = PL_EXIT_REPORT_NONE;

    exit_report.source = PL_EXIT_SOURCE_RANK;
    exit_report.rank = 1;
    exit_report.code = 3;
    strcpy(exit_report.host, "algo-2");
    strcpy(exit_report.program, "/opt/ml/code/train");
    return exit_report;
}

/* The report as the failure file has it; valid until the next call for another one. */
static const char *printed(const struct pl_exit_report *exit_report)
{
    static struct pl_text text;

    pl_text_clear(&text);
    pl_exit_report_print(exit_report, 0, PL_FAILURE_SHOWN_BYTES, &text);
    return pl_text_string(&text);
}

TEST(the_sentence_names_rank_host_and_cause)
{
    struct pl_exit_report exit_report = of_rank_1();
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    pl_exit_report_sentence(&exit_report, &text);
    ck_assert_str_eq(pl_text_string(&text), "rank 1 on host algo-2 exited with code 3");
    pl_text_clear(&text);
    exit_report.out_of_memory = true;
    pl_exit_report_sentence(&exit_report, &text);
    ck_assert_str_eq(
        pl_text_string(&text),
        "rank 1 on host algo-2 exited with code 3: out of memory, the kernel's OOM killer ended a process of the "
        "container (its count oom_kill has risen); use smaller batches or a larger instance");
    pl_text_clear(&text);
    exit_report.signalled = true;
    exit_report.code = 9;
    pl_exit_report_sentence(&exit_report, &text);
    ck_assert_str_eq(pl_text_string(&text), "rank 1 on host algo-2 was killed by signal 9 (SIGKILL): out of memory, "
                                            "the kernel's OOM killer ended it (the container's count oom_kill has "
                                            "risen); use fewer ranks on a host, smaller batches or a larger "
                                            "instance");
}

TEST(the_report_fits_and_ends_with_the_newest_lines)
{
    struct pl_exit_report exit_report = of_rank_1();
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    for (int i = 0; i < 90; i++) {
        snprintf(exit_report.tail + strlen(exit_report.tail), sizeof(exit_report.tail) - strlen(exit_report.tail),
                 "stderr line %d\n", i);
    }
    pl_exit_report_print(&exit_report, 0, PL_FAILURE_SHOWN_BYTES, &text);
    ck_assert_uint_le(text.length, PL_FAILURE_SHOWN_BYTES);
    ck_assert_uint_gt(text.length, PL_FAILURE_SHOWN_BYTES - 40);
    ck_assert_ptr_eq(strstr(text.data, "rank 1 on host algo-2 exited with code 3\nProgram: /opt/ml/code/train\n"),
                     text.data);
    ck_assert_str_eq(text.data + text.length - strlen("stderr line 89\n"), "stderr line 89\n");
}

static void expect_next(const struct pl_exit_report *exit_report, int stopped_by, const char *wanted)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    const char *next;

    pl_exit_report_print(exit_report, stopped_by, PL_FAILURE_SHOWN_BYTES, &text);
    ck_assert_uint_le(text.length, PL_FAILURE_SHOWN_BYTES);
    next = strstr(pl_text_string(&text), "\nNext: ");
    if (wanted) {
        ck_assert_msg(next && strncmp(next + 1, wanted, strlen(wanted)) == 0, "%s", pl_text_string(&text));
    } else {
        ck_assert_msg(!next, "%s", pl_text_string(&text));
    }
}

TEST(a_signals_end_is_followed_by_what_to_do_next)
{
    struct pl_exit_report exit_report = of_rank_1();

    expect_next(&exit_report, 0, NULL);
    expect_next(&exit_report, SIGTERM, "Next: SageMaker sends SIGTERM to all ranks when somebody stops the job");
    expect_next(&exit_report, SIGINT, NULL);
    exit_report.signalled = true;
    exit_report.code = SIGKILL;
    expect_next(&exit_report, 0, "Next: look at this job's MemoryUtilization in CloudWatch");
    expect_next(&exit_report, SIGTERM, "Next: SageMaker sends SIGTERM to all ranks when somebody stops the job");
    exit_report.out_of_memory = true; /* the sentence has it all */
    expect_next(&exit_report, 0, NULL);
    exit_report.out_of_memory = false;
    strcpy(exit_report.note, "it had not ended when it was asked to");
    expect_next(&exit_report, 0, NULL);
    exit_report.note[0] = '\0';
    exit_report.code = SIGSEGV;
    expect_next(&exit_report, 0, "Next: compiled code, most often of a library, has crashed");
    strcpy(exit_report.tail, "Fatal Python error: Segmentation fault\n"); /* the handler is on */
    expect_next(&exit_report, 0, NULL);
    exit_report.tail[0] = '\0';
    exit_report.code = SIGBUS;
    expect_next(&exit_report, 0, "Next: most often /dev/shm was full");
    exit_report.code = SIGABRT;
    strcpy(exit_report.cause, "ValueError: bad data"); /* abort() after an exception */
    expect_next(&exit_report, 0, NULL);
    exit_report.signalled = false;
    expect_next(&exit_report, 0, NULL);
    strcpy(exit_report.cause, "ModuleNotFoundError: No module named 'x'");
    expect_next(&exit_report, 0, "Next: check the spelling; then name its package in requirements.txt");
    exit_report.signalled = true;
    exit_report.code = SIGBUS;
    exit_report.program[0] = '\0'; /* its shim was killed, perhaps by mpirun */
    expect_next(&exit_report, 0, NULL);
}

TEST(the_exception_with_its_place_stands_first)
{
    static const char rest[] = "rank 1 on host algo-2 exited with code 3\nProgram: /opt/ml/code/train\n"
                               "Last lines of its stderr:\n";
    struct pl_exit_report exit_report = of_rank_1();
    char wanted[PL_FAILURE_SHOWN_BYTES];

    strcpy(exit_report.cause, "ValueError: bad data");
    strcpy(exit_report.place, "train.py:31");
    strcpy(exit_report.tail, "[rank1]: ValueError: bad data\nchatter\n");
    snprintf(wanted, sizeof(wanted), "ValueError: bad data (train.py:31, rank 1 on algo-2)\n%s%s", rest,
             exit_report.tail);
    ck_assert_str_eq(printed(&exit_report), wanted);
    for (int i = 0; i < 60; i++) {
        strcat(exit_report.tail, "^^^^^^^^^^^^^^^^^^^^^^^^^^\n");
    }
    exit_report.place[0] = '\0';
    snprintf(wanted, sizeof(wanted), "ValueError: bad data (rank 1 on algo-2)\n%s^^^", rest);
    ck_assert_msg(strncmp(printed(&exit_report), wanted, strlen(wanted)) == 0, "%s", printed(&exit_report));
    ck_assert_uint_le(strlen(printed(&exit_report)), PL_FAILURE_SHOWN_BYTES);
    exit_report.source = PL_EXIT_SOURCE_PROGRAM;
    exit_report.rank = -1;
    exit_report.tail[0] = '\0';
    strcpy(exit_report.place, "train.py:31");
    ck_assert_str_eq(printed(&exit_report), "ValueError: bad data (train.py:31, on algo-2)\n"
                                            "the program on host algo-2 exited with code 3\n"
                                            "Program: /opt/ml/code/train\n");
    exit_report.out_of_memory = true; /* perhaps hours ago */
    ck_assert_str_eq(
        printed(&exit_report),
        "ValueError: bad data (train.py:31, on algo-2)\n"
        "the program on host algo-2 exited with code 3: out of memory, the kernel's OOM killer ended a process of the "
        "container (its count oom_kill has risen); use smaller batches or a larger instance\n"
        "Program: /opt/ml/code/train\n");
}

TEST(an_exception_is_not_first_where_something_else_is_the_cause)
{
    static const char cause[] = "ValueError: bad value 3";
    struct pl_exit_report exit_report = of_rank_1();

    strcpy(exit_report.cause, cause);
    strcpy(exit_report.note, "the disk is full under /opt/ml/model");
    ck_assert_str_eq(printed(&exit_report),
                     "rank 1 on host algo-2 exited with code 3: the disk is full under /opt/ml/model\n"
                     "ValueError: bad value 3\nProgram: /opt/ml/code/train\n");
    strcpy(exit_report.tail, "ValueError: bad value 3\n"); /* the tail shows the cause */
    ck_assert_str_eq(printed(&exit_report),
                     "rank 1 on host algo-2 exited with code 3: the disk is full under /opt/ml/model\n"
                     "Program: /opt/ml/code/train\nLast lines of its stderr:\nValueError: bad value 3\n");
    exit_report.note[0] = exit_report.tail[0] = '\0';
    exit_report.signalled = true; /* then the exception need not be the cause, */
    ck_lacks(printed(&exit_report), cause);
    exit_report.code = SIGABRT; /* but after abort() it is */
    ck_assert_ptr_eq(strstr(printed(&exit_report), cause), printed(&exit_report));
    exit_report.signalled = false;
    exit_report.source = PL_EXIT_SOURCE_LAUNCHER; /* mpirun prints the exceptions of its ranks */
    exit_report.rank = -1;
    ck_lacks(printed(&exit_report), cause);
}

TEST(a_shells_codes_mean_what_its_command_did)
{
    static const struct {
        int code;
        const char *tail, *wanted;
    } cases[] = {
        {126, "", " (a shell's code for a command that cannot be executed)\n"},
        {127, "chatter\n", " (a shell's code for a command that was not found)\n"},
        {127, "sh: 1: foo: not found\n", " (the command 'foo' was not found)\n"},
        {127, "./x: error while loading shared libraries: y: cannot open shared object file: No such file\n", "\n"},
        {128, "", "\n"},
        {137, "", " (a shell's code for a command that signal 9, SIGKILL, has ended)\nNext: look at this job's Memory"},
        {139, "", " (a shell's code for a command that signal 11, SIGSEGV, has ended)\nNext: compiled code"},
        {135, "", " (a shell's code for a command that signal 7, SIGBUS, has ended)\nNext: most often /dev/shm"},
        {143, "", " (a shell's code for a command that signal 15, SIGTERM, has ended)\nProgram: "},
        {145, "", "\n"}, /* SIGCHLD ends nobody */
        {255, "", "\n"},
    };
    struct pl_exit_report exit_report;
    char sentence[64];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *found;

        exit_report = of_rank_1();
        exit_report.code = cases[i].code;
        strcpy(exit_report.tail, cases[i].tail);
        snprintf(sentence, sizeof(sentence), "rank 1 on host algo-2 exited with code %d", cases[i].code);
        found = strstr(printed(&exit_report), sentence);
        ck_assert_msg(found && strncmp(found + strlen(sentence), cases[i].wanted, strlen(cases[i].wanted)) == 0, "%s",
                      printed(&exit_report));
    }
    exit_report = of_rank_1();
    exit_report.code = 137;
    strcpy(exit_report.cause, "KeyError: 'x'"); /* most often one that was handled */
    {

        ck_assert_int_eq(strncmp(printed(&exit_report), "rank 1 on host", strlen("rank 1 on host")), 0);
    }
    exit_report.out_of_memory = true; /* the sentence has it all */
    expect_next(&exit_report, 0, NULL);
}

TEST(a_last_word_is_first_where_there_is_no_exception)
{
    static const char word[] = "train.py: error: argument --epochs: invalid int value: 'three'";
    struct pl_exit_report exit_report = of_rank_1();

    exit_report.code = 2;
    snprintf(exit_report.tail, sizeof(exit_report.tail), "usage: train.py [-h]\n%s\n", word);
    ck_assert_str_eq(printed(&exit_report),
                     "train.py: error: argument --epochs: invalid int value: 'three' (rank 1 on algo-2)\n"
                     "rank 1 on host algo-2 exited with code 2\nProgram: /opt/ml/code/train\n"
                     "Last lines of its stderr:\nusage: train.py [-h]\n"
                     "train.py: error: argument --epochs: invalid int value: 'three'\n");
    strcat(exit_report.tail, "epoch 3\n"); /* it went on */
    ck_assert_ptr_eq(strstr(printed(&exit_report), "rank 1 on host"), printed(&exit_report));
    snprintf(exit_report.tail, sizeof(exit_report.tail), "%s\n", word);
    strcpy(exit_report.cause, "ValueError: bad data");
    ck_assert_ptr_eq(strstr(printed(&exit_report), "ValueError: bad data ("), printed(&exit_report));
}

static void expect_step(const struct pl_exit_report *exit_report, const char *wanted)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    pl_exit_report_print_step(exit_report, "bringing the code into place", PL_FAILURE_SHOWN_BYTES, &text);
    ck_assert_str_eq(pl_text_string(&text), wanted);
}

TEST(a_steps_failure_begins_with_its_cause)
{
    struct pl_exit_report exit_report = PL_EXIT_REPORT_NONE;

    exit_report.source = PL_EXIT_SOURCE_STEP;
    exit_report.code = 1;
    strcpy(exit_report.host, "algo-1");
    strcpy(exit_report.program, "/usr/libexec/paceline/paceline-unpack --max-bytes 17 /opt/a.tar /opt/ml/code");
    strcpy(exit_report.tail, "paceline-unpack: error: /opt/a.tar: the entry 'l' is refused: it is a symbolic link\n");
    expect_step(&exit_report,
                "bringing the code into place on host algo-1: /opt/a.tar: the entry 'l' is refused: it is "
                "a symbolic link (exit code 1)\n");
    strcpy(exit_report.tail, "paceline s3: error: cp: found no AWS credentials\n");
    expect_step(&exit_report,
                "bringing the code into place on host algo-1: cp: found no AWS credentials (exit code 1)\n");
    strcpy(exit_report.program, "/usr/bin/python3 -m pip install .");
    strcpy(exit_report.tail, "Collecting x\nERROR: No matching distribution found for x\n");
    expect_step(&exit_report,
                "bringing the code into place on host algo-1: ERROR: No matching distribution found for x "
                "(exit code 1)\nProgram: /usr/bin/python3 -m pip install .\n"
                "Last lines of its stderr:\nCollecting x\nERROR: No matching distribution found for x\n");
    strcpy(exit_report.cause, "connection broken by 'X'");
    expect_step(&exit_report, "bringing the code into place on host algo-1: connection broken by 'X' (exit code 1)\n"
                              "Program: /usr/bin/python3 -m pip install .\n"
                              "Last lines of its stderr:\nCollecting x\nERROR: No matching distribution found for x\n");
    exit_report.cause[0] = '\0';
    strcpy(exit_report.tail, "ERROR: Invalid requirement: '/x'\nHint: It looks like a path.\n");
    expect_step(&exit_report,
                "bringing the code into place on host algo-1: ERROR: Invalid requirement: '/x' (exit "
                "code 1)\nProgram: /usr/bin/python3 -m pip install .\n"
                "Last lines of its stderr:\nERROR: Invalid requirement: '/x'\nHint: It looks like a path.\n");
    strcpy(exit_report.note, "the disk is full under /tmp");
    exit_report.tail[0] = '\0';
    expect_step(&exit_report,
                "bringing the code into place: the command on host algo-1 exited with code 1: the disk is "
                "full under /tmp\nProgram: /usr/bin/python3 -m pip install .\n");
    exit_report.note[0] = '\0';
    exit_report.signalled = true;
    exit_report.code = 9;
    strcpy(exit_report.tail, "Collecting x\n");
    expect_step(&exit_report,
                "bringing the code into place: the command on host algo-1 was killed by signal 9 "
                "(SIGKILL)\nNext: look at this job's MemoryUtilization in CloudWatch. Near 100 %, the instance was out "
                "of memory: take smaller batches, fewer ranks on a host or a larger instance. Otherwise a program or a "
                "person has sent SIGKILL (`kill -9` in your scripts?). The container's own memory limit was not "
                "reached, and its entry point, Paceline, did not send SIGKILL.\nProgram: /usr/bin/python3 -m pip "
                "install .\n"
                "Last lines of its stderr:\nCollecting x\n");
}

TEST(an_exit_report_travels_unchanged)
{
    struct pl_exit_report back;
    struct pl_frame frame = {.type = PL_FRAME_ENDED,
                             .count = 7,
                             .fields = {"9 1 0 1 1 1", "algo-2", "prog", "note", "tail\n", "cause", "x.py:3"}};

    ck_ok(pl_exit_report_receive, &frame, &back);
    ck_assert(back.signalled && back.out_of_memory && !back.not_started);
    ck_assert_int_eq(back.code, 9);
    ck_assert_str_eq(back.note, "note");
    ck_assert_str_eq(back.tail, "tail\n");
    ck_assert_str_eq(back.cause, "cause");
    ck_assert_str_eq(back.place, "x.py:3");
    frame.fields[0] = "900 1 0 1 1 1";
    ck_fails(PL_CORRUPT, "", pl_exit_report_receive, &frame, &back);
    frame.count = 6;
    ck_fails(PL_CORRUPT, "", pl_exit_report_receive, &frame, &back);
}

UNIT_MAIN("entrypoint/failure")
