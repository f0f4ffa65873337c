/* SPDX-License-Identifier: Apache-2.0 */
/* Covers collectives/core/world_new.c. */
/* Settings with which a world cannot be made, on one rank or on all. */
#include "base/knob.h"
#include "base/memory.h"
#include "collectives/reduce/kernel.h"
#include "collectives/world.h"
#include "collectives/world_private.h"
#include "tests/support/ranks.h"
#include "tests/support/unit.h"

#include <stdatomic.h>
#include <string.h>

static void be_there(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    RANKS_OK(pl_barrier(world, &error));
}

/* With __real_ and __wrap_ the linker replaces the library's function by the one below. */
const struct pl_kernel *__real_pl_kernel_named(const char *name);
const struct pl_kernel *__wrap_pl_kernel_named(const char *name);

/* The first rank that asks for AVX-512 has a CPU without it. */
static atomic_bool lacks_avx512;

const struct pl_kernel *__wrap_pl_kernel_named(const char *name)
{
    bool avx512 = strcmp(name, "avx512") == 0;

    return avx512 && atomic_exchange(&lacks_avx512, false) ? NULL : __real_pl_kernel_named(avx512 ? "plain" : name);
}

TEST(a_kernel_that_one_ranks_cpu_cannot_run_is_refused_on_all)
{
    char failure[RANKS_TEXT_BYTES];
    struct pl_knobs knobs = ranks_knobs(PL_KNOB_KERNEL, "avx512");

    ck_assert_ranks(2, &((struct pl_world_options){.knobs = &knobs}), be_there, NULL);
    atomic_store(&lacks_avx512, true);
    ranks_run_on(2, 0, &((struct pl_world_options){.knobs = &knobs}), be_there, NULL, failure);
    ck_has(failure, "PACELINE_KERNEL is 'avx512', which this CPU cannot run (");
}

TEST(where_the_only_backend_cannot_run_each_says_why)
{
    char failure[RANKS_TEXT_BYTES];
    struct pl_knobs knobs = ranks_knobs(PL_KNOB_BACKEND, "shm");

    ranks_run_on(2, 0, &((struct pl_world_options){.knobs = &knobs, .pretend_ranks_per_host = 1}), be_there, NULL,
                 failure);
    ck_has(failure, "no backend can run on this world");
    ck_has(failure, "shm: ranks on 2 hosts");
    ck_has(failure, "p2p: the setting backend asks for shm only");
}

UNIT_MAIN("collectives/world_new")
