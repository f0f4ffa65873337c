/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Which sample comes next: a seeded shuffle of 0..count-1 that is the same on every rank and sharded so that each
 * sample is read exactly once an epoch whatever the number of ranks.
 *
 * The order of an epoch is one sequence for the whole job. Rank r of n takes its positions r, r + n, r + 2n, ..., so n
 * ranks with batch b take in one step the same samples as one rank with batch n*b. The shuffle is a keyed
 * permutation computed per position: no memory, no communication, any position directly.
 *
 * Source  format-preserving permutation: a Feistel network with cycle walking (Black and Rogaway, "Ciphers with
 *         Arbitrary Finite Domains", 2002).
 * Test    tests/unit/s3io/test_sampler.c
 */
#ifndef PL_S3IO_SAMPLER_H
#define PL_S3IO_SAMPLER_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/** Which records of a stream belong to this rank: record i when i mod `size` is `rank`. */
struct pl_shard {
    uint32_t rank;
    uint32_t size;
};
#define pl_deal pl_shard /* its former name, for one release */

/** What ranks do when the count does not divide by their number. */
enum pl_sampler_tail {
    PL_SAMPLER_WRAP, /* every rank gets ceil(count / size): the first samples of the order are taken again */
    PL_SAMPLER_DROP, /* every rank gets floor(count / size): the last of the order are left out this epoch */
    PL_SAMPLER_JOIN, /* exactly once each: some ranks get one more; the program's join handles the difference */
};

struct pl_sampler {
    uint64_t count;
    uint64_t seed;
    struct pl_shard deal;
    bool shuffle;
    enum pl_sampler_tail tail;
    uint64_t epoch;
    uint64_t taken; /* samples this rank has taken of the epoch */
};

/** The position in an epoch, for the whole job, so that it can be restored with another number of ranks. */
struct pl_sampler_state {
    uint64_t count;
    uint64_t seed;
    uint64_t epoch;
    uint64_t position; /* samples that all ranks together have taken */
};

/** Set up for epoch 0. PL_INVALID when deal.rank is not below deal.size. */
enum pl_status pl_sampler_init(struct pl_sampler *sampler, uint64_t count, uint64_t seed, bool shuffle,
                               enum pl_sampler_tail tail, struct pl_shard deal, struct pl_error *reterr) PL_MUST_CHECK;

/** Go to the beginning of `epoch`. */
void pl_sampler_start(struct pl_sampler *sampler, uint64_t epoch);

/** How many samples this rank takes in an epoch. */
uint64_t pl_sampler_length(const struct pl_sampler *sampler);

/** The next sample of this rank; false at the end of the epoch. */
bool pl_sampler_next(struct pl_sampler *sampler, uint64_t *ret_index);

/** The state after the samples taken so far; meaningful when all ranks have taken the same number. */
struct pl_sampler_state pl_sampler_save(const struct pl_sampler *sampler);

/**
 * Go to the position `state`. PL_MISMATCH when count or seed differ; PL_INVALID when this number of ranks cannot have
 * that position.
 */
enum pl_status pl_sampler_restore(struct pl_sampler *sampler, const struct pl_sampler_state *state,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/** The index at `position` of the shuffled order of `count` items in `epoch`. */
uint64_t pl_sampler_order(uint64_t position, uint64_t count, uint64_t seed, uint64_t epoch);

#endif
