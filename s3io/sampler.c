/* SPDX-License-Identifier: Apache-2.0 */
/* The seeded shuffle, computed per position, and each rank's share of it. */
#include "s3io/sampler.h"

#include "base/number.h"
#include "base/random.h"

enum { FEISTEL_ROUNDS = 6 };

static uint64_t mix(uint64_t value)
{
    return pl_random_next(&value);
}

/* The image of `position` under the permutation of 0..count-1 that `key` names. */
static uint64_t permute(uint64_t position, uint64_t count, uint64_t key)
{
    unsigned half_bits = 1;
    uint64_t mask;

    PL_BUG_IF(position >= count);
    /* The smallest even number of bits that holds 0..count-1; a walk then needs four steps at worst on average. */
    while (half_bits < 32 && (count - 1) >> (2 * half_bits) != 0) {
        half_bits++;
    }
    mask = (UINT64_C(1) << half_bits) - 1;
    do {
        uint64_t left = position >> half_bits, right = position & mask;

        for (unsigned round = 0; round < FEISTEL_ROUNDS; round++) {
            uint64_t next = left ^ (mix(right ^ mix(key + round)) & mask);

            left = right;
            right = next;
        }
        position = left << half_bits | right;
    } while (position >= count);
    return position;
}

uint64_t pl_sampler_order(uint64_t position, uint64_t count, uint64_t seed, uint64_t epoch)
{
    return permute(position, count, mix(seed) ^ mix(~epoch));
}

enum pl_status pl_sampler_init(struct pl_sampler *sampler, uint64_t count, uint64_t seed, bool shuffle,
                               enum pl_sampler_tail tail, struct pl_shard deal, struct pl_error *reterr)
{
    if (deal.rank >= deal.size) {
        return pl_error_set(reterr, PL_INVALID,
                            "rank %u of %u: expected a rank from 0 to the number of ranks minus one", deal.rank,
                            deal.size);
    }
    *sampler = (struct pl_sampler){.count = count, .seed = seed, .deal = deal, .shuffle = shuffle, .tail = tail};
    return PL_OK;
}

void pl_sampler_start(struct pl_sampler *sampler, uint64_t epoch)
{
    sampler->epoch = epoch;
    sampler->taken = 0;
}

uint64_t pl_sampler_length(const struct pl_sampler *sampler)
{
    uint64_t whole = sampler->count / sampler->deal.size, rest = sampler->count % sampler->deal.size;

    switch (sampler->tail) {
    case PL_SAMPLER_WRAP:
        return whole + (rest > 0);
    case PL_SAMPLER_DROP:
        return whole;
    case PL_SAMPLER_JOIN:
        return whole + (sampler->deal.rank < rest);
    }
    return whole;
}

bool pl_sampler_next(struct pl_sampler *sampler, uint64_t *ret_index)
{
    uint64_t position;

    if (sampler->taken >= pl_sampler_length(sampler)) {
        return false;
    }
    /* Only wrapping can reach beyond the count, and by less than the number of ranks, which may itself be larger than
     * the count. */
    position = (sampler->taken * sampler->deal.size + sampler->deal.rank) % sampler->count;
    sampler->taken++;
    *ret_index =
        sampler->shuffle ? pl_sampler_order(position, sampler->count, sampler->seed, sampler->epoch) : position;
    return true;
}

struct pl_sampler_state pl_sampler_save(const struct pl_sampler *sampler)
{
    uint64_t position = sampler->taken * sampler->deal.size;

    return (struct pl_sampler_state){
        .count = sampler->count,
        .seed = sampler->seed,
        .epoch = sampler->epoch,
        .position = pl_number_min(position, sampler->count),
    };
}

enum pl_status pl_sampler_restore(struct pl_sampler *sampler, const struct pl_sampler_state *state,
                                  struct pl_error *reterr)
{
    if (state->count != sampler->count || state->seed != sampler->seed) {
        return pl_error_set(reterr, PL_MISMATCH,
                            "the saved position is for %llu samples and seed %llu, this run has %llu and %llu",
                            (unsigned long long)state->count, (unsigned long long)state->seed,
                            (unsigned long long)sampler->count, (unsigned long long)sampler->seed);
    }
    if (state->position < state->count && state->position % sampler->deal.size != 0) {
        return pl_error_set(reterr, PL_INVALID, "%llu samples were taken, which %u ranks cannot have shared evenly",
                            (unsigned long long)state->position, sampler->deal.size);
    }
    sampler->epoch = state->epoch;
    sampler->taken = state->position < state->count ? state->position / sampler->deal.size : pl_sampler_length(sampler);
    return PL_OK;
}
