/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/checkpoint/safetensors.c. */
#include "runtime/safetensors.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
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

    ck_ok(pl_safetensors_write, path, tensors, 3, metadata, 1);
}

TEST(what_was_written_reads_back)
{
    struct pl_safetensors *file = NULL;
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    char path[PATH_MAX];
    const struct pl_tensor *tensor;
    float floats[6];
    int64_t number;

    scratch_path(&scratch, "m.safetensors", path);
    write_sample(path);
    ck_ok(pl_safetensors_open, path, &file);
    ck_assert_uint_eq(pl_safetensors_count(file), 3);
    tensor = pl_safetensors_find(file, "a.weight \"x\"");
    ck_assert_ptr_nonnull(tensor);
    ck_assert_uint_eq(tensor->dims, 2);
    ck_assert_uint_eq(tensor->shape[1], 3);
    ck_assert_uint_eq(tensor->bytes, sizeof(numbers));
    ck_ok(pl_safetensors_read, file, 0, floats);
    ck_assert_mem_eq(floats, numbers, sizeof(numbers));
    tensor = pl_safetensors_find(file, "b");
    ck_assert_int_eq(tensor->dtype, PL_INT64);
    ck_ok(pl_safetensors_read, file, 1, &number);
    ck_assert_int_eq(number, whole);
    ck_ok(pl_safetensors_read, file, 2, NULL); /* no bytes */
    ck_assert_int_eq(pl_safetensors_find(file, "c")->dtype, PL_BFLOAT16);
    ck_assert_ptr_null(pl_safetensors_find(file, "d"));
    ck_assert_str_eq(pl_safetensors_metadata(file, "step"), "7");
    ck_assert_ptr_null(pl_safetensors_metadata(file, "other"));
    pl_safetensors_close(file);
}

TEST(a_file_cut_anywhere_is_corrupt)
{
    struct pl_safetensors *file = NULL;
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    char path[PATH_MAX];
    char cut[PATH_MAX];
    char *data = NULL;
    size_t bytes = 0;

    scratch_path(&scratch, "m.safetensors", path);
    scratch_path(&scratch, "cut.safetensors", cut);
    write_sample(path);
    ck_ok(pl_file_read, path, 100000, &data, &bytes);
    for (size_t length = 0; length < bytes; length++) {
        FILE *stream = fopen(cut, "w");

        ck_assert_uint_eq(fwrite(data, 1, length, stream), length);
        ck_assert_int_eq(fclose(stream), 0);
        ck_fails(PL_CORRUPT, "", pl_safetensors_open, cut, &file);
        ck_assert_ptr_null(file);
    }
    free(data);
}

/* Changes every byte of the header: there is never a crash, and never a tensor outside the file. */
TEST(a_damaged_header_never_leads_outside_the_file)
{
    struct pl_error error = PL_ERROR_NONE;
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    char path[PATH_MAX];
    char *data = NULL;
    size_t bytes = 0;

    scratch_path(&scratch, "m.safetensors", path);
    write_sample(path);
    ck_ok(pl_file_read, path, 100000, &data, &bytes);
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
                    const struct pl_tensor *tensor = pl_safetensors_tensor(file, i);
                    PL_AUTO_FREE void *to = pl_memory_new(tensor->bytes, 1, &error);

                    status = pl_safetensors_read(file, i, to, &error);
                    ck_assert_msg(status == (tensor->dtype == PL_DTYPE_COUNT ? PL_UNSUPPORTED : PL_OK), "%s",
                                  error.cause);
                }
            }
            pl_safetensors_close(file);
        }
    }
    free(data);
}

/* Opens a file with this header and `data_bytes` bytes 0, 1, 2, ... */
static enum pl_status open_made(const char *header, size_t data_bytes, struct pl_safetensors **ret_file,
                                struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    struct scratch scratch = scratch_new();
    uint64_t length = strlen(header);
    enum pl_status status;
    char path[PATH_MAX];

    for (unsigned i = 0; i < 8; i++) {
        pl_text_append_char(&text, (char)(length >> (8 * i)));
    }
    pl_text_append(&text, header);
    for (size_t i = 0; i < data_bytes; i++) {
        pl_text_append_char(&text, (char)i);
    }
    scratch_write(&scratch, "made.safetensors", text.data, text.length);
    status = pl_safetensors_open(scratch_path(&scratch, "made.safetensors", path), ret_file, reterr);
    scratch_done(&scratch); /* the file stays open */
    return status;
}

TEST(a_header_may_name_the_tensors_in_any_order)
{
    struct pl_safetensors *file = NULL;
    unsigned char bytes[4];

    ck_ok(open_made,
          "{\"b\":{\"dtype\":\"U8\",\"shape\":[2,2],\"data_offsets\":[4,8]},"
          "\"none\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[4,4]},"
          "\"__metadata__\":{\"format\":\"pt\"},"
          "\"c\":{\"shape\":[],\"data_offsets\":[8,9],\"dtype\":\"BOOL\"},"
          "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}  ",
          9, &file);
    ck_assert_uint_eq(pl_safetensors_count(file), 4);
    ck_assert_str_eq(pl_safetensors_tensor(file, 0)->name, "a");
    ck_assert_str_eq(pl_safetensors_tensor(file, 1)->name, "none");
    ck_assert_str_eq(pl_safetensors_tensor(file, 2)->name, "b");
    ck_assert_str_eq(pl_safetensors_tensor(file, 3)->name, "c");
    ck_ok(pl_safetensors_read, file, 2, bytes);
    ck_assert_mem_eq(bytes, "\4\5\6\7", 4);
    ck_assert_str_eq(pl_safetensors_metadata(file, "format"), "pt");
    pl_safetensors_close(file);
}

#define TENSOR(name, begin, end) "\"" name "\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[" #begin "," #end "]}"

TEST(a_header_that_is_wrong_is_told_with_the_place)
{
    static const struct {
        const char *header, *cause;
    } cases[] = {
        {"{" TENSOR("b", 5, 9) "," TENSOR("a", 0, 4) "}", "two tensors overlap, or there is a gap between them"},
        {"{" TENSOR("b", 2, 6) "," TENSOR("a", 0, 4) "}", "two tensors overlap, or there is a gap between them"},
        {"{" TENSOR("a", 0, 4) "," TENSOR("b", 0, 4) "}", "two tensors overlap, or there is a gap between them"},
        {"{" TENSOR("b", 4, 8) "," TENSOR("a", 0, 4) "}", "the file is not as long as its header says"},
        {"{" TENSOR("a", 0, 5) "}",
         "header: a.data_offsets: expected begin and end of as many bytes as type and shape make, found a list"},
        {"{" TENSOR("a", 4, 0) "}",
         "header: a.data_offsets: expected begin and end of as many bytes as type and shape make, found a list"},
        {"{" TENSOR("a", -4, 0) "}", "header: a.data_offsets[0]: expected a whole number from 0 to 9007199254740992, "
                                     "found the number -4"},
        {"{" TENSOR("a", 0, 4.5) "}", "header: a.data_offsets[1]: expected a whole number from 0 to 9007199254740992, "
                                      "found the number 4.5"},
        {"{" TENSOR("a", 0, 4) "," TENSOR("a", 4, 8) "}",
         "header, line 1, column 54: expected each key once, found \"a\" twice"},
        {"{\"a\":{\"shape\":[4],\"data_offsets\":[0,4]}}", "header: a.dtype: expected a string, found nothing"},
        {"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,4]}}", "header: a.shape: expected a list, found nothing"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0]}}",
         "header: a.data_offsets[1]: expected a whole number from 0 to 9007199254740992, found nothing"},
        {"{\"a\":{\"dtype\":8,\"shape\":[4],\"data_offsets\":[0,4]}}",
         "header: a.dtype: expected a string, found the number 8"},
        {"{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[4],\"data_offsets\":[4,0]}}",
         "header: a.data_offsets: expected begin and end of as many bytes as type and shape make, found a list"},
        {"{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[4],\"data_offsets\":[0,5]}}",
         "the file is not as long as its header says"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,5],\"data_offsets\":[0,4]}}",
         "header: a.data_offsets: expected begin and end of as many bytes as type and shape make, found a list"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[9007199254740992,4096],\"data_offsets\":[0,4]}}",
         "header: a.shape[1]: expected a dimension of a tensor that 64 bits can count, found the number 4096"},
        {"{\"a\":7}", "header: a: expected an object, found the number 7"},
        {"[]", "header: expected an object, found a list"},
        {"{\"a\":007}", "header, line 1, column 6: expected a number, found '007'"},
        {"{\"a\\u0000b\":{}}", "header, line 1, column 4: expected no U+0000 in a string, found \\u0000"},
    };

    for (size_t i = 0; i < PL_ARRAY_ITEMS(cases); i++) {
        struct pl_safetensors *file = NULL;

        ck_fails(PL_CORRUPT, cases[i].cause, open_made, cases[i].header, 9, &file);
        ck_assert_ptr_null(file);
    }
}

TEST(tensors_that_cannot_be_used_are_listed_and_do_not_hide_the_others)
{
    struct pl_safetensors *file = NULL;
    unsigned char bytes[8] = {0};

    ck_ok(open_made,
          "{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[2,2],\"data_offsets\":[0,4]},"
          "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[4,6]},"
          "\"c\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,2,2],\"data_offsets\":[6,10]},"
          "\"d\":{\"dtype\":\"F4\",\"shape\":[6],\"data_offsets\":[10,13]},"
          "\"e\":{\"dtype\":\"C64\",\"shape\":[0],\"data_offsets\":[13,13]},"
          "\"f\":{\"dtype\":\"I16\",\"shape\":[1],\"data_offsets\":[13,15]}}",
          15, &file);
    ck_assert_uint_eq(pl_safetensors_count(file), 6);
    ck_assert_int_eq(pl_safetensors_tensor(file, 0)->dtype, PL_DTYPE_COUNT);
    ck_assert_uint_eq(pl_safetensors_tensor(file, 0)->bytes, 4);
    ck_assert_uint_eq(pl_safetensors_tensor(file, 0)->shape[1], 2);
    ck_assert_str_eq(pl_safetensors_dtype(file, 0), "F8_E4M3");
    ck_assert_ptr_nonnull(pl_safetensors_find(file, "a"));
    ck_fails(PL_UNSUPPORTED, "made.safetensors': tensor 'a' is of dtype F8_E4M3: expected F32, ", pl_safetensors_read,
             file, 0, bytes);
    ck_ok(pl_safetensors_read, file, 1, bytes);
    ck_assert_mem_eq(bytes, "\4\5", 2);
    ck_assert_str_eq(pl_safetensors_dtype(file, 1), "U8");
    ck_assert_uint_eq(pl_safetensors_tensor(file, 2)->dims, PL_TENSOR_MAX_DIMS);
    ck_fails(PL_UNSUPPORTED, "tensor 'c' of dtype U8 has 9 dimensions: expected at most 8", pl_safetensors_read, file,
             2, bytes);
    ck_fails(PL_UNSUPPORTED, "tensor 'd' is of dtype F4", pl_safetensors_read, file, 3, bytes);
    ck_fails(PL_UNSUPPORTED, "", pl_safetensors_read, file, 4, NULL);
    ck_ok(pl_safetensors_read, file, 5, bytes);
    ck_assert_mem_eq(bytes, "\15\16", 2);
    pl_safetensors_close(file);
}

/* More than a million values of JSON. */
TEST(a_header_of_130000_tensors_is_read)
{
    enum { TENSORS = 130000 };
    struct pl_safetensors *file = NULL;
    PL_AUTO_TEXT struct pl_text header = PL_TEXT_NONE;
    unsigned char byte;

    pl_text_append(&header, "{");
    for (unsigned i = TENSORS; i-- > 0;) { /* the last one first, so that sorting is necessary */
        pl_text_printf(&header, "%s\"layer.%u\":{\"dtype\":\"U8\",\"shape\":[1,1],\"data_offsets\":[%u,%u]}",
                       i == TENSORS - 1 ? "" : ",", i, i, i + 1);
    }
    pl_text_append(&header, "}");
    ck_ok(open_made, pl_text_string(&header), TENSORS, &file);
    ck_assert_uint_eq(pl_safetensors_count(file), TENSORS);
    ck_assert_str_eq(pl_safetensors_tensor(file, 70001)->name, "layer.70001");
    ck_ok(pl_safetensors_read, file, 70001, &byte);
    ck_assert_uint_eq(byte, 70001 % 256);
    pl_safetensors_close(file);
}

TEST(a_header_beyond_the_bounds_of_json_is_over_a_limit_and_not_corrupt)
{
    struct pl_safetensors *file = NULL;
    PL_AUTO_TEXT struct pl_text header = PL_TEXT_NONE;

    pl_text_append(&header, "{\"a\":");
    for (int i = 0; i < 200; i++) {
        pl_text_append(&header, "[");
    }
    ck_fails(PL_LIMIT,
             "made.safetensors': header, line 1, column 133: expected at most 128 levels of nesting, found more",
             open_made, pl_text_string(&header), 0, &file);
    ck_assert_ptr_null(file);
}

TEST(names_that_json_cannot_hold_are_not_written)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    const struct pl_tensor tensor = {
        .name = "a\xFF", .dtype = PL_INT64, .dims = 0, .data = &whole, .bytes = sizeof(whole)};
    struct pl_safetensors *file = NULL;
    char path[PATH_MAX];

    scratch_path(&scratch, "m.safetensors", path);
    ck_fails_as(PL_INVALID, "JSON cannot hold text that is not UTF-8, which 'a?' is", pl_safetensors_write, path,
                &tensor, 1, NULL, 0);
    ck_fails(PL_NOT_FOUND, "", pl_safetensors_open, path, &file);
}

TEST(what_would_not_be_read_is_not_written)
{
    static const struct {
        struct pl_tensor tensor;
        const char *words;
    } cases[] = {
        {{.name = "b", .dtype = PL_INT64, .bytes = 8}, "two tensors are called 'b'"},
        {{.name = "__metadata__", .dtype = PL_INT64, .bytes = 8}, "'__metadata__', which the format keeps"},
        {{.name = "a", .dtype = PL_INT64, .bytes = 4}, "'a' has 4 bytes, expected 8 by its dtype and shape"},
        {{.name = "a", .dtype = PL_INT64, .dims = 2, .shape = {2, 3}, .bytes = 8}, "has 8 bytes, expected 48"},
        {{.name = "a", .dtype = PL_INT64, .dims = 9, .bytes = 8}, "and 9 dimensions, expected a dtype"},
        {{.name = "a", .dtype = PL_DTYPE_COUNT, .bytes = 8}, "has dtype 10 and"},
        {{.name = "a", .dtype = PL_INT64, .dims = 2, .shape = {1ULL << 62, 4}, .bytes = 0}, "more bytes than 64 bits"},
    };
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    struct pl_safetensors *file = NULL;
    char path[PATH_MAX];

    scratch_path(&scratch, "m.safetensors", path);
    for (size_t i = 0; i < PL_ARRAY_ITEMS(cases); i++) {
        struct pl_tensor tensors[] = {{.name = "b", .dtype = PL_INT64, .data = &whole, .bytes = sizeof(whole)},
                                      cases[i].tensor};

        tensors[1].data = numbers;
        ck_fails(PL_INVALID, cases[i].words, pl_safetensors_write, path, tensors, 2, NULL, 0);
        ck_fails(PL_NOT_FOUND, "", pl_safetensors_open, path, &file);
    }
}

TEST(a_missing_file_is_not_found)
{
    struct pl_safetensors *file = NULL;

    ck_assert_int_eq(pl_safetensors_open("/nonexistent/m.safetensors", &file, NULL), PL_NOT_FOUND);
}

TEST(what_cannot_be_read_is_not_corrupt)
{
    struct pl_safetensors *file = NULL;
    struct pl_error error = PL_ERROR_NONE;
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    char path[PATH_MAX];
    int64_t number = 0;

    /* a directory opens, but cannot be read */
    ck_assert_int_eq(pl_safetensors_open(scratch.path, &file, &error), PL_SYSTEM);
    ck_assert_int_eq(error.code, EISDIR);
    ck_assert_int_eq(mkfifo(scratch_path(&scratch, "fifo", path), 0600), 0);
    ck_fails(PL_CORRUPT, "", pl_safetensors_open, path, &file); /* and the call does not wait for it */
    write_sample(scratch_path(&scratch, "m.safetensors", path));
    ck_ok(pl_safetensors_open, path, &file);
    ck_assert_int_eq(truncate(path, 8), 0);
    ck_fails(PL_CORRUPT, "", pl_safetensors_read, file, 1, &number); /* and no SIGBUS */
    pl_safetensors_close(file);
}

UNIT_MAIN("runtime/safetensors")
