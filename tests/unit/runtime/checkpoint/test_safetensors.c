/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/checkpoint/safetensors.c. */
#include "runtime/safetensors.h"

#include "base/file.h"
#include "base/memory.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const float numbers[6] = {1.0F, -2.5F, 3.0F, 0.0F, 5.0F, 6.0F};
static const int64_t whole = 42;

static void write_sample(const char *path)
{
    struct pl_error error = PL_ERROR_NONE;
    const struct pl_tensor tensors[] = {
        {.name = "a.weight \"x\"",
         .dtype = PL_FLOAT32,
         .dims = 2,
         .shape = {2, 3},
         .data = numbers,
         .bytes = sizeof(numbers)},
        {.name = "b", .dtype = PL_INT64, .dims = 0, .data = &whole, .bytes = sizeof(whole)},
        {.name = "c", .dtype = PL_BFLOAT16, .dims = 1, .shape = {0}, .data = NULL, .bytes = 0},
    };
    const struct pl_metadata metadata[] = {{"step", "7"}};

    ck_assert_ok(pl_safetensors_write(path, tensors, 3, metadata, 1, &error), &error);
}

START_TEST(what_was_written_reads_back)
{
    struct pl_safetensors *file = NULL;
    struct pl_error error = PL_ERROR_NONE;
    struct scratch scratch = scratch_new();
    char path[PATH_MAX];
    const struct pl_tensor *tensor;
    float floats[6];
    int64_t number;

    scratch_path(&scratch, "m.safetensors", path);
    write_sample(path);
    ck_assert_ok(pl_safetensors_open(path, &file, &error), &error);
    ck_assert_uint_eq(pl_safetensors_count(file), 3);
    tensor = pl_safetensors_find(file, "a.weight \"x\"");
    ck_assert_ptr_nonnull(tensor);
    ck_assert_uint_eq(tensor->dims, 2);
    ck_assert_uint_eq(tensor->shape[1], 3);
    ck_assert_uint_eq(tensor->bytes, sizeof(numbers));
    ck_assert_ok(pl_safetensors_read(file, 0, floats, &error), &error);
    ck_assert_mem_eq(floats, numbers, sizeof(numbers));
    tensor = pl_safetensors_find(file, "b");
    ck_assert_int_eq(tensor->dtype, PL_INT64);
    ck_assert_ok(pl_safetensors_read(file, 1, &number, &error), &error);
    ck_assert_int_eq(number, whole);
    ck_assert_ok(pl_safetensors_read(file, 2, NULL, &error), &error); /* no bytes */
    ck_assert_int_eq(pl_safetensors_find(file, "c")->dtype, PL_BFLOAT16);
    ck_assert_ptr_null(pl_safetensors_find(file, "d"));
    ck_assert_str_eq(pl_safetensors_metadata(file, "step"), "7");
    ck_assert_ptr_null(pl_safetensors_metadata(file, "other"));
    pl_safetensors_close(file);
    scratch_done(&scratch);
}
END_TEST

START_TEST(a_file_cut_anywhere_is_corrupt)
{
    struct pl_safetensors *file = NULL;
    struct pl_error error = PL_ERROR_NONE;
    struct scratch scratch = scratch_new();
    char path[PATH_MAX];
    char cut[PATH_MAX];
    char *data = NULL;
    size_t bytes = 0;

    scratch_path(&scratch, "m.safetensors", path);
    scratch_path(&scratch, "cut.safetensors", cut);
    write_sample(path);
    ck_assert_ok(pl_file_read(path, 100000, &data, &bytes, &error), &error);
    for (size_t length = 0; length < bytes; length++) {
        FILE *stream = fopen(cut, "w");

        ck_assert_uint_eq(fwrite(data, 1, length, stream), length);
        ck_assert_int_eq(fclose(stream), 0);
        ck_assert_int_eq(pl_safetensors_open(cut, &file, &error), PL_CORRUPT);
        ck_assert_ptr_null(file);
    }
    free(data);
    scratch_done(&scratch);
}
END_TEST

/* Every byte of the header turned around: never a crash, never a tensor that lies outside the file. */
START_TEST(a_damaged_header_never_leads_outside_the_file)
{
    struct pl_error error = PL_ERROR_NONE;
    struct scratch scratch = scratch_new();
    char path[PATH_MAX];
    char *data = NULL;
    size_t bytes = 0;

    scratch_path(&scratch, "m.safetensors", path);
    write_sample(path);
    ck_assert_ok(pl_file_read(path, 100000, &data, &bytes, &error), &error);
    for (size_t at = 0; at < bytes - sizeof(numbers) - 8; at++) {
        for (int bit = 0; bit < 8; bit += 3) {
            struct pl_safetensors *file = NULL;
            FILE *stream = fopen(path, "w");
            enum pl_status status;

            data[at] = (char)(data[at] ^ (1 << bit));
            ck_assert_uint_eq(fwrite(data, 1, bytes, stream), bytes);
            ck_assert_int_eq(fclose(stream), 0);
            data[at] = (char)(data[at] ^ (1 << bit));
            status = pl_safetensors_open(path, &file, &error);
            ck_assert(status == PL_OK || status == PL_CORRUPT);
            if (status == PL_OK) {
                for (size_t i = 0; i < pl_safetensors_count(file); i++) {
                    PL_AUTO_FREE void *to = pl_memory_new(pl_safetensors_tensor(file, i)->bytes, 1, &error);

                    ck_assert_ok(pl_safetensors_read(file, i, to, &error), &error);
                }
            }
            pl_safetensors_close(file);
        }
    }
    free(data);
    scratch_done(&scratch);
}
END_TEST

START_TEST(a_missing_file_is_not_found)
{
    struct pl_safetensors *file = NULL;

    ck_assert_int_eq(pl_safetensors_open("/nonexistent/m.safetensors", &file, NULL), PL_NOT_FOUND);
}
END_TEST

START_TEST(what_cannot_be_read_is_not_corrupt)
{
    struct pl_safetensors *file = NULL;
    struct pl_error error = PL_ERROR_NONE;
    struct scratch scratch = scratch_new();
    char path[PATH_MAX];
    int64_t number = 0;

    /* a directory opens, but cannot be read */
    ck_assert_int_eq(pl_safetensors_open(scratch.path, &file, &error), PL_SYSTEM);
    ck_assert_int_eq(error.code, EISDIR);
    ck_assert_int_eq(mkfifo(scratch_path(&scratch, "fifo", path), 0600), 0);
    ck_assert_int_eq(pl_safetensors_open(path, &file, &error), PL_CORRUPT); /* and not waited for */
    write_sample(scratch_path(&scratch, "m.safetensors", path));
    ck_assert_ok(pl_safetensors_open(path, &file, &error), &error);
    ck_assert_int_eq(truncate(path, 8), 0);
    ck_assert_int_eq(pl_safetensors_read(file, 1, &number, &error), PL_CORRUPT); /* and no SIGBUS */
    pl_safetensors_close(file);
    scratch_done(&scratch);
}
END_TEST

UNIT_MAIN("runtime/safetensors", what_was_written_reads_back, a_file_cut_anywhere_is_corrupt,
          a_damaged_header_never_leads_outside_the_file, a_missing_file_is_not_found,
          what_cannot_be_read_is_not_corrupt)
