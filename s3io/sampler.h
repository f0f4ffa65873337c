/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Decides which sample comes next: a seeded shuffle of 0..count-1 that is the same on every rank. It is sharded so that
 * each sample is read exactly once per epoch, for any number of ranks.
 *
 * The order of an epoch is one sequence for the whole job. Rank r of n takes the positions r, r + n, r + 2n, ... of it.
 * So n ranks with batch b take in one step the same samples as one rank with batch n*b. The shuffle is a keyed
 * permutation that is computed per position: it needs no memory and no communication, and any position can be computed
 * directly.
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

/** The records of a stream that belong to one rank: record i belongs to it if i mod `size` is `rank`. */
struct pl_shard {
    uint32_t rank;
    uint32_t size;
};
#define pl_deal pl_shard /* former name, kept for one release */

/** What ranks do if the number of samples is not a multiple of the number of ranks. */
enum pl_sampler_tail {
    PL_SAMPLER_WRAP, /* every rank gets ceil(count / size) samples: the first samples of the order are taken again */
    /* every rank gets floor(count / size) samples: the last ones of the order are left out in this epoch */
    PL_SAMPLER_DROP,
    /* each sample exactly once: some ranks get one more, and the program's join handles the difference */
    PL_SAMPLER_JOIN,
};

struct pl_sampler {
    uint64_t count;
    uint64_t seed;
    struct pl_shard deal;
    bool shuffle;
    enum pl_sampler_tail tail;
    uint64_t epoch;
    uint64_t taken; /* how many samples this rank has taken in this epoch */
};

/** The position of the whole job in an epoch. It can be restored with a different number of ranks. */
struct pl_sampler_state {
    uint64_t count;
    uint64_t seed;
    uint64_t epoch;
    uint64_t position; /* how many samples all ranks together have taken */
};

/** Sets up epoch 0. PL_INVALID if deal.rank is not below deal.size. */
enum pl_status pl_sampler_init(struct pl_sampler *sampler, uint64_t count, uint64_t seed, bool shuffle,
                               enum pl_sampler_tail tail, struct pl_shard deal, struct pl_error *reterr) PL_MUST_CHECK;

/** Goes to the beginning of `epoch`. */
void pl_sampler_start(struct pl_sampler *sampler, uint64_t epoch);

/** Returns how many samples this rank takes in an epoch. */
uint64_t pl_sampler_length(const struct pl_sampler *sampler);

/** Returns the next sample of this rank; false at the end of the epoch. */
bool pl_sampler_next(struct pl_sampler *sampler, uint64_t *ret_index);

/**
 * Returns the state after the samples that were taken so far. It is valid for the job if all ranks have taken the same
 * number.
 */
struct pl_sampler_state pl_sampler_save(const struct pl_sampler *sampler);

/**
 * Goes to the position `state`. PL_MISMATCH if count or seed differ. PL_INVALID if the position is impossible for this
 * number of ranks.
 */
enum pl_status pl_sampler_restore(struct pl_sampler *sampler, const struct pl_sampler_state *state,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/** Returns the index at `position` of the shuffled order of `count` items in `epoch`. */
uint64_t pl_sampler_order(uint64_t position, uint64_t count, uint64_t seed, uint64_t epoch);

#endif
