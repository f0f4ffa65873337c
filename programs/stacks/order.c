/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Orders programs: the one that differs from the others comes first.
 *
 * A program's key is a line with its kind of state, then a line for each function of its main thread from the outermost
 * inwards (Python's own functions first, if they are known), then its state and wait. Each program has a row of
 * numbers: how many programs have the same first line, then how many have the same first two lines, and so on. Rows are
 * compared number by number, and the least row comes first: it belongs to the program that diverges first, with the
 * fewest others. It is not enough to compare the innermost functions: ranks that poll in one and the same allreduce are
 * seen in different functions.
 *
 *     rank 0   running  main  step  MPI_Allreduce  poll    4 4 4 3 2 2
 *     rank 1   running  main  step  MPI_Allreduce  poll    4 4 4 3 2 2
 *     rank 2   running  main  step  stuck_here             4 4 4 1 1     <- first
 *     rank 3   running  main  step  MPI_Allreduce  yield   4 4 4 3 1 1
 *
 * A stopped program comes before all others. Programs with equal rows are ordered by rank, host and process.
 */
#include "base/memory.h"
#include "programs/stacks/hosts.h"

#include <stdlib.h>
#include <string.h>

/* A program and its row of numbers. */
struct place {
    struct pl_hosts_program program;
    size_t line_count;
    uint32_t *shared_with; /* for each line: number of programs, itself included, whose keys are equal up to it */
};

/*
 * Running and sleeping are one kind, since a thread that polls is seen in both. A wait that only one of the two looks
 * found uninterruptible belongs to the same kind: it may be a page fault.
 */
static char kind_of(const struct pl_stacks_program *program)
{
    bool is_short = program->state == 'D' && program->threads[0].state != 'D';

    if (program->state == 't') {
        return 'T';
    }
    return program->state == 'S' || program->state == 'I' || is_short ? 'R'
           : program->state == 0                                      ? 'X'
                                                                      : program->state;
}

void pl_order_key(const struct pl_stacks_program *program, struct pl_text *key)
{
    const struct pl_stacks_thread *main_thread = &program->threads[0];

    pl_text_printf(key, "%c\n", kind_of(program));
    pl_python_append_key(program->python, key);
    for (size_t i = main_thread->frame_count; i > 0; i--) {
        const struct pl_stacks_frame *frame = &main_thread->frames[i - 1];

        if (frame->function[0] != '\0') {
            pl_text_printf(key, "%s (%s)\n", frame->function, frame->module);
        } else { /* if the function has no name, its offset in the file identifies it */
            pl_text_printf(key, "+0x%llx (%s)\n", (unsigned long long)frame->offset, frame->module);
        }
    }
    pl_text_printf(key, "%c %s", main_thread->state != 0 ? main_thread->state : 'X', main_thread->wait);
}

static size_t count_lines(const char *key)
{
    size_t lines = 1;

    for (const char *at = strchr(key, '\n'); at; at = strchr(at + 1, '\n')) {
        lines++;
    }
    return lines;
}

/* Returns the number of equal lines before the first difference. */
static size_t count_alike(const char *left, const char *right)
{
    size_t lines = 0;

    for (; *left == *right && *left != '\0'; left++, right++) {
        lines += *left == '\n';
    }
    return lines + (*left == *right);
}

static bool is_stopped(const struct place *place)
{
    return pl_text_string(&place->program.key)[0] == 'T';
}

static int by_place(const void *left, const void *right)
{
    const struct place *a = left, *b = right;
    size_t least = a->line_count < b->line_count ? a->line_count : b->line_count;
    int hosts = strcmp(a->program.host, b->program.host);

    if (is_stopped(a) != is_stopped(b)) {
        return is_stopped(a) ? -1 : 1;
    }
    for (size_t i = 0; i < least; i++) {
        if (a->shared_with[i] != b->shared_with[i]) {
            return a->shared_with[i] < b->shared_with[i] ? -1 : 1;
        }
    }
    if (a->program.rank != b->program.rank) {
        return a->program.rank < b->program.rank ? -1 : 1;
    }
    return hosts != 0 ? hosts : (a->program.pid > b->program.pid) - (a->program.pid < b->program.pid);
}

static enum pl_status fill_places(const struct pl_hosts_program *programs, size_t count, struct place *places,
                                  struct pl_error *reterr)
{
    for (size_t i = 0; i < count; i++) {
        const char *key = pl_text_string(&programs[i].key);

        places[i].program = programs[i];
        places[i].line_count = count_lines(key);
        PL_TRY(pl_memory_alloc(&places[i].shared_with, places[i].line_count, sizeof(*places[i].shared_with), reterr));
        for (size_t j = 0; j < count; j++) {
            size_t alike = i == j ? places[i].line_count : count_alike(key, pl_text_string(&programs[j].key));

            for (size_t line = 0; line < alike; line++) {
                places[i].shared_with[line]++;
            }
        }
    }
    return PL_OK;
}

enum pl_status pl_order_programs(struct pl_hosts_program *programs, size_t count, struct pl_error *reterr)
{
    PL_AUTO_FREE struct place *places = pl_memory_new(count + 1, sizeof(*places), reterr);
    enum pl_status status;

    PL_TRY(places ? PL_OK : PL_MEMORY);
    status = fill_places(programs, count, places, reterr);
    if (status == PL_OK) {
        qsort(places, count, sizeof(*places), by_place);
        for (size_t i = 0; i < count; i++) {
            programs[i] = places[i].program;
        }
    }
    for (size_t i = 0; i < count; i++) {
        free(places[i].shared_with);
    }
    return status;
}
