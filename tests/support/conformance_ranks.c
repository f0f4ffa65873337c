/* SPDX-License-Identifier: Apache-2.0 */
/* The long conformance matrix for processes (under mpirun) or threads: conformance_ranks [threads N [ranks a host]]. */
#include "tests/support/conformance.h"
#include "tests/support/ranks.h"

#include <stdlib.h>

static const uint64_t counts[] = {0, 1, 2, 1023, 40961, 300007};

static void run(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    (void)argument;
    for (int arena = 0; arena < 2; arena++) {
        struct conformance small = {.counts = counts, .count_count = 4, .all_types = true, .arena = arena};
        struct conformance large = {.counts = counts + 4, .count_count = arena ? 2 : 1, .arena = arena};

        conformance_run(world, &small);
        RANKS_NEED(!small.failure[0], "%s", small.failure);
        conformance_run(world, &large);
        RANKS_NEED(!large.failure[0], "%s", large.failure);
        if (pl_world_rank(world) == 0) {
            printf("%d ranks on %d hosts, %s buffers: %llu cases\n", pl_world_size(world), pl_world_cross_size(world), arena ? "arena" : "private",
                   (unsigned long long)(small.cases + large.cases));
        }
    }
}

int main(int argc, char **argv)
{
    char failure[RANKS_TEXT_BYTES] = "";

    if (argc >= 3) {
        ranks_run(atoi(argv[2]), &(struct pl_world_options){.pretend_ranks_per_host = argc > 3 ? atoi(argv[3]) : 0}, run, NULL, failure);
    } else {
        struct pl_error error = PL_ERROR_NONE;
        struct pl_bootstrap *bootstrap = NULL;
        struct pl_world *world = NULL;

        if (pl_bootstrap_new_mpi(NULL, &bootstrap, &error) != PL_OK || pl_world_new(bootstrap, NULL, &world, &error) != PL_OK) {
            fprintf(stderr, "no world: %s\n", error.cause);
            return 1;
        }
        run(world, NULL, failure);
        pl_world_free(world);
        pl_bootstrap_free(bootstrap);
    }
    if (failure[0]) {
        fprintf(stderr, "%s\n", failure);
        return 1;
    }
    return 0;
}
