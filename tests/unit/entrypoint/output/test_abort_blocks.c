/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/output/abort_blocks.c. */
#include "entrypoint/output/abort_blocks.h"
#include "tests/support/unit.h"

#include <string.h>

#define DASHES "--------------------------------------------------------------------------\n"
#define PRIMARY                                                                                                        \
    DASHES "Primary job  terminated normally, but 1 process returned\n"                                                \
           "a non-zero exit code. Per user-direction, the job has been aborted.\n" DASHES
#define NOTICED                                                                                                        \
    DASHES "mpirun noticed that process rank 1 with PID 0 on node algo-2 exited on signal 9 (Killed).\n" DASHES
#define DETECTED                                                                                                       \
    DASHES "mpirun detected that one or more processes exited with non-zero status, thus causing\n"                    \
           "the job to be terminated. The first process to do so was:\n\n"                                             \
           "  Process name: [[41215,1],1]\n  Exit code:    1\n" DASHES
#define ABORTED                                                                                                        \
    DASHES "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD\nwith errorcode 1.\n\n"                     \
           "NOTE: invoking MPI_ABORT causes Open MPI to kill all MPI processes.\n"                                     \
           "You may or may not see output from other processes, depending on\n"                                        \
           "exactly when Open MPI kills them.\n" DASHES
#define ABORTED_5                                                                                                      \
    DASHES "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD\n  Proc: [[41215,1],3]\n  Errorcode: 1\n\n" \
           "NOTE: invoking MPI_ABORT causes Open MPI to kill all MPI processes.\n" DASHES
#define SLOTS                                                                                                          \
    DASHES "There are not enough slots available in the system to satisfy the 20\nslots that were requested\n" DASHES

/* What stays of `text`, where `cut` bytes of it come first and the rest later; lines that are held come again. */
static void expect_left(const char *text, const char *left)
{
    const size_t count = strlen(text);

    for (size_t cut = 0; cut <= count; cut++) {
        struct pl_abort_blocks blocks = {0};
        char bytes[4096];
        size_t held, used;

        if (cut > 0 && cut < count && text[cut - 1] != '\n') {
            continue; /* only whole lines come */
        }
        memcpy(bytes, text, cut);
        used = pl_abort_blocks_remove(&blocks, bytes, cut, &held);
        memcpy(bytes + used, text + cut, count - cut);
        used = used - held + pl_abort_blocks_remove(&blocks, bytes + used - held, held + count - cut, &held);
        bytes[used] = '\0';
        ck_assert_str_eq(bytes, left);
    }
}

START_TEST(blocks_about_the_end_of_a_rank_are_left_out)
{
    expect_left(PRIMARY, "");
    expect_left("before\n" NOTICED "after\n", "before\nafter\n");
    expect_left("[1,3]<stderr>:ValueError: bad data\n" ABORTED "after\n",
                "[1,3]<stderr>:ValueError: bad data\nafter\n");
    expect_left(ABORTED_5, "");
    expect_left(PRIMARY "[1,0]<stderr>:last words\n" DETECTED, "[1,0]<stderr>:last words\n");
    expect_left(DASHES "prterun noticed that process rank 0 with PID 7 on node algo-1 exited\n" DASHES, "");
}
END_TEST

START_TEST(other_blocks_and_lines_of_ranks_stay)
{
    static const char *const texts[] = {SLOTS,
                                        DASHES,
                                        DASHES "\n" DASHES,
                                        "[1,0]<stderr>:" NOTICED,
                                        "-----\nPrimary job  terminated normally, but 1\n",
                                        "mpirun noticed that process rank 1 with PID 0\n",
                                        "[rank 0] " DASHES "[rank 0] mpirun noticed that process rank \n"};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        expect_left(texts[i], texts[i]);
    }
    expect_left(SLOTS PRIMARY SLOTS, SLOTS SLOTS);
}
END_TEST

START_TEST(lines_of_ranks_within_a_block_stay)
{
    expect_left(DASHES "mpirun noticed that process rank 1 with PID 0 on node\n[1,3]<stderr>:Traceback\n"
                       "algo-2 exited\n" DASHES "after\n",
                "[1,3]<stderr>:Traceback\nafter\n");
}
END_TEST

START_TEST(a_block_without_an_end_does_not_leave_out_all_that_follows)
{
    expect_left(DASHES "Primary job  terminated normally, but 1\n1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13\n", "13\n");
}
END_TEST

UNIT_MAIN("entrypoint/output/abort_blocks", blocks_about_the_end_of_a_rank_are_left_out,
          other_blocks_and_lines_of_ranks_stay, lines_of_ranks_within_a_block_stay,
          a_block_without_an_end_does_not_leave_out_all_that_follows)
