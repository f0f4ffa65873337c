/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/supervise/failure.c. */
#include "entrypoint/supervise/failure.h"

#include "base/file.h"
#include "base/memory.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"

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

UNIT_MAIN("entrypoint/failure")
