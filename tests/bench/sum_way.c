/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the way of one warm sum by name: the address of each function that it enters, of the sum of many that enters
 * the fewest, which polls least. tests/support/sum_way.py builds and runs it with -finstrument-functions.
 *
 *   mpirun -n 2 sum_way
 *
 * prints on rank 0 "allocations N", then one address a line, relative to the program's beginning.
 */
#include "base/memory.h"
#include "runtime/paceline.h"
#include "runtime/service.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { WARM = 200, SUMS = 300, MOST = 20000 };

extern const char __executable_start;
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void __cyg_profile_func_enter(void *function, void *caller);
void __cyg_profile_func_exit(void *function, void *caller);

static void *way[MOST], *shortest[MOST];
static size_t entered, fewest = MOST, allocations, their_allocations;
static _Thread_local bool records; /* of the thread that sums alone */

__attribute__((no_instrument_function)) void *__wrap_calloc(size_t count, size_t bytes)
{
    allocations += records;
    return __real_calloc(count, bytes);
}

__attribute__((no_instrument_function)) void *__wrap_realloc(void *memory, size_t bytes)
{
    allocations += records;
    return __real_realloc(memory, bytes);
}

__attribute__((no_instrument_function)) void __cyg_profile_func_enter(void *function, void *caller)
{
    (void)caller;
    if (records && entered < MOST) {
        way[entered++] = function;
    }
}

__attribute__((no_instrument_function)) void __cyg_profile_func_exit(void *function, void *caller)
{
    (void)function;
    (void)caller;
}

static enum pl_status sum(struct pl_service *service, struct pl_error *reterr)
{
    float values[16] = {1};
    struct pl_completion completion = {0};
    const struct pl_named_op op = {.name = "w",
                                   .kind = PL_ALLREDUCE,
                                   .dtype = PL_FLOAT32,
                                   .op = PL_SUM,
                                   .dims = 1,
                                   .shape = {16},
                                   .send = values,
                                   .recv = values};
    enum pl_status status;

    entered = allocations = 0;
    records = true;
    status = pl_service_submit(service, 0, &op, &completion, reterr);
    status = status == PL_OK ? pl_service_wait(service, &completion, reterr) : status;
    records = false;
    return status;
}

static enum pl_status run(struct pl_runtime *runtime, struct pl_error *reterr)
{
    struct pl_service *service;

    PL_TRY(pl_service_new(pl_runtime_world(runtime), NULL, &service, reterr));
    for (int i = 0; i < WARM + SUMS; i++) {
        PL_TRY(sum(service, reterr));
        if (i >= WARM && entered < fewest) {
            fewest = entered;
            their_allocations = allocations;
            memcpy(shortest, way, entered * sizeof(*way));
        }
    }
    PL_TRY(pl_service_shutdown(service, reterr));
    pl_service_free(service);
    return PL_OK;
}

int main(void)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_runtime *runtime = NULL;

    if (pl_runtime_start(&runtime, &error) != PL_OK || run(runtime, &error) != PL_OK) {
        fprintf(stderr, "sum_way: %s\n", error.cause);
        return 1;
    }
    if (pl_world_rank(pl_runtime_world(runtime)) == 0) {
        printf("allocations %zu\n", their_allocations);
        for (size_t i = 0; i < fewest; i++) {
            printf("%#zx\n", (size_t)((const char *)shortest[i] - &__executable_start));
        }
    }
    pl_runtime_stop(runtime);
    return 0;
}
