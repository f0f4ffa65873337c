/* SPDX-License-Identifier: Apache-2.0 */
/* Covers programs/unpack/stream.c. */
#include "programs/unpack/stream.h"

#include "base/file.h"
#include "base/memory.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct scratch scratch;

static void run(const char *script)
{
    char command[8192], root[PATH_MAX];

    snprintf(command, sizeof(command), "cd '%s' && %s", scratch_path(&scratch, "", root), script);
    ck_assert_msg(system(command) == 0, "%s", command);
}

/* Packs "from" into the file "stream". */
static void pack(void)
{
    struct pl_error error = PL_ERROR_NONE;
    char path[PATH_MAX];
    const int fd = open(scratch_path(&scratch, "stream", path), O_WRONLY | O_CREAT | O_TRUNC, 0600);

    ck_assert_int_ge(fd, 0);
    ck_assert_ok(pl_stream_pack(scratch_path(&scratch, "from", path), fd, false, &error), &error);
    ck_assert_int_eq(close(fd), 0);
}

static enum pl_status receive(bool in_place, struct pl_error *reterr)
{
    char path[PATH_MAX];
    const int fd = open(scratch_path(&scratch, "stream", path), O_RDONLY);
    enum pl_status status;

    ck_assert_int_ge(fd, 0);
    status = pl_stream_receive(scratch_path(&scratch, "to", path), fd, in_place, reterr);
    ck_assert_int_eq(close(fd), 0);
    return status;
}

START_TEST(a_directory_arrives_with_all_that_it_holds)
{
    struct pl_error error = PL_ERROR_NONE;

    scratch = scratch_new();
    run("mkdir -p from/deep/empty from/runs to && printf 'a b' >from/deep/file && chmod 750 from/runs && "
        "printf x >from/runs/tool && chmod 755 from/runs/tool && ln -s ../deep/file from/runs/link && "
        "printf '' >from/nothing && head -c 3000000 /dev/urandom >from/large && ln from/large from/again && "
        "truncate -s 100000 from/hole && printf y >\"from/$(printf 'n\\303\\244me with \\377 and %0100d' 7)\" && "
        "touch -d '2001-02-03 04:05:06' from/nothing && printf old >to/old");
    pack();
    ck_assert_ok(receive(false, &error), &error);
    run("diff -r --no-dereference from to && [ \"$(readlink to/runs/link)\" = ../deep/file ] && "
        "[ -d to/deep/empty ] && [ \"$(stat -c %a to/runs to/runs/tool | tr '\\n' ' ')\" = '750 755 ' ] && "
        "[ \"$(stat -c %Y from/nothing)\" = \"$(stat -c %Y to/nothing)\" ] && [ ! -e to/old ] && [ ! -e to.incoming ]");
    run("rm -rf to && mkdir to && printf old >to/old && printf before >to/nothing");
    ck_assert_ok(receive(true, &error), &error);
    run("[ -e to/old ] && [ ! -s to/nothing ] && cmp from/large to/large && [ ! -e to/.paceline-incoming ]");
    scratch_done(&scratch);
}
END_TEST

START_TEST(a_copy_on_one_host_is_whole_in_place_of_what_has_its_names)
{
    struct pl_error error = PL_ERROR_NONE;
    char from[PATH_MAX], to[PATH_MAX];

    scratch = scratch_new();
    run("mkdir -p from/deep/empty from/file to/deep to/.paceline-incoming to/link && chmod 750 from/deep && "
        "printf 1 >from/deep/one && ln -s deep/one from/link && printf 2 >from/file/in && printf 3 >to/file && "
        "printf 4 >to/deep/old && printf 5 >to/link/old && printf 6 >to/other && printf 7 >to/.paceline-incoming/half");
    ck_assert_ok(pl_stream_copy(scratch_path(&scratch, "from", from), scratch_path(&scratch, "to", to), &error),
                 &error);
    run("[ \"$(stat -c %a to/deep)\" = 750 ] && [ -e to/other ] && rm to/other && diff -r --no-dereference from to && "
        "[ ! -e to/.paceline-incoming ] && [ \"$(stat -c %i from/deep/one)\" = \"$(stat -c %i to/deep/one)\" ]");
    scratch_done(&scratch);
}
END_TEST

START_TEST(what_is_no_model_and_what_cannot_be_carried_is_refused)
{
    static const char *const scripts[] = {"mkdir -p to", "mkdir from", "mkfifo from/fifo"};
    static const char *const words[] = {"it is not there", "it is empty", "'fifo' is a socket, a FIFO or a device"};
    char from[PATH_MAX], to[PATH_MAX];
    struct pl_error error;

    scratch = scratch_new();
    scratch_path(&scratch, "from", from);
    scratch_path(&scratch, "to", to);
    for (size_t i = 0; i < PL_ARRAY_ITEMS(scripts); i++) {
        run(scripts[i]);
        error = PL_ERROR_NONE;
        ck_assert_int_ne(pl_stream_copy(from, to, &error), PL_OK);
        ck_assert_msg(strstr(error.cause, words[i]), "%s", error.cause);
    }
    error = PL_ERROR_NONE;
    ck_assert_int_ne(pl_stream_pack(from, STDOUT_FILENO, true, &error), PL_OK);
    ck_assert_msg(strstr(error.cause, "a FIFO or a device"), "%s", error.cause);
    scratch_done(&scratch);
}
END_TEST

START_TEST(a_directory_that_does_not_exist_arrives_empty)
{
    struct pl_error error = PL_ERROR_NONE;

    scratch = scratch_new();
    run("mkdir to && printf old >to/old");
    pack();
    ck_assert_ok(receive(false, &error), &error);
    run("[ -d to ] && [ -z \"$(ls -A to)\" ]");
    scratch_done(&scratch);
}
END_TEST

START_TEST(a_stream_that_ends_early_leaves_what_was_there)
{
    struct pl_error error = PL_ERROR_NONE;

    scratch = scratch_new();
    run("mkdir from to && printf 1 >from/one && printf 2 >from/two && printf old >to/old");
    pack();
    run("cp stream whole");
    /* within a name, within data, and between entries, where a tar archive might end */
    for (int bytes = 0; bytes <= 2048; bytes += 256) {
        char script[256];

        snprintf(script, sizeof(script), "head -c %d whole >stream", bytes);
        run(script);
        error = PL_ERROR_NONE;
        ck_assert_int_ne(receive(false, &error), PL_OK);
        ck_assert_str_ne(error.cause, "");
        run("[ \"$(cat to/old)\" = old ] && [ ! -e to.incoming ]");
    }
    scratch_done(&scratch);
}
END_TEST

START_TEST(nothing_is_written_outside)
{
    struct pl_error error = PL_ERROR_NONE;

    scratch = scratch_new();
    run("mkdir from && ln -s .. from/up && mkdir away && printf 1 >away/evil && "
        "tar --format=pax -cf stream -C from up && tar --format=pax -rf stream -C away --transform 's,^,up/,' evil && "
        "printf '' >.paceline-end-of-stream && tar --format=pax -rf stream .paceline-end-of-stream");
    if (receive(false, &error) == PL_OK) { /* the directory replaces the link */
        run("[ -d to/up ] && [ -e to/up/evil ]");
    }
    run("[ ! -e evil ] && rm stream && "
        "tar --format=pax -cPf stream -C away --transform 's,^,../,' evil && "
        "tar --format=pax -rf stream .paceline-end-of-stream");
    ck_assert_int_ne(receive(true, &error), PL_OK);
    run("[ ! -e evil ]");
    scratch_done(&scratch);
}
END_TEST

UNIT_MAIN("programs/stream", a_directory_arrives_with_all_that_it_holds, a_directory_that_does_not_exist_arrives_empty,
          a_copy_on_one_host_is_whole_in_place_of_what_has_its_names,
          what_is_no_model_and_what_cannot_be_carried_is_refused, a_stream_that_ends_early_leaves_what_was_there,
          nothing_is_written_outside)
