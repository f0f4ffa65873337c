/* SPDX-License-Identifier: Apache-2.0 */
/* Covers s3io/sampler.c. */
#include "s3io/sampler.h"
#include "tests/support/unit.h"

#include <string.h>

enum { MOST = 700 };

/* Every combination below is checked: 0 and 1, primes, powers of two and their neighbours, more ranks than samples. */
static const uint64_t counts[] = {0, 1, 2, 3, 4, 5, 7, 16, 17, 63, 64, 65, 100, 255, 256, 257, 699};
static const uint32_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 16, 33};

static struct pl_sampler make(uint64_t count, uint64_t seed, enum pl_sampler_tail tail, uint32_t rank, uint32_t size)
{
    struct pl_sampler sampler;

    ck_ok(pl_sampler_init, &sampler, count, seed, true, tail, (struct pl_shard){.rank = rank, .size = size});
    return sampler;
}

TEST(permutation_reaches_every_index_once)
{
    for (size_t c = 1; c < sizeof(counts) / sizeof(counts[0]); c++) {
        for (uint64_t key = 0; key < 20; key++) {
            bool seen[MOST] = {false};

            for (uint64_t i = 0; i < counts[c]; i++) {
                uint64_t image = pl_sampler_order(i, counts[c], key, 0);

                ck_assert_uint_lt(image, counts[c]);
                ck_assert(!seen[image]);
                seen[image] = true;
            }
        }
    }
}

TEST(permutation_works_at_the_largest_counts)
{
    uint64_t image = pl_sampler_order(UINT64_MAX - 1, UINT64_MAX, 7, 0);

    ck_assert_uint_lt(image, UINT64_MAX);
    ck_assert_uint_ne(image, pl_sampler_order(0, UINT64_MAX, 7, 0));
}

TEST(every_sample_is_taken_exactly_once_whatever_the_number_of_ranks)
{
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
            unsigned taken[MOST] = {0};
            uint64_t index, total = 0;

            for (uint32_t rank = 0; rank < sizes[s]; rank++) {
                struct pl_sampler sampler = make(counts[c], 5, PL_SAMPLER_JOIN, rank, sizes[s]);
                uint64_t length = 0;

                pl_sampler_start(&sampler, 3);
                while (pl_sampler_next(&sampler, &index)) {
                    taken[index]++;
                    length++;
                }
                ck_assert_uint_eq(length, pl_sampler_length(&sampler));
                total += length;
            }
            ck_assert_uint_eq(total, counts[c]);
            for (uint64_t i = 0; i < counts[c]; i++) {
                ck_assert_uint_eq(taken[i], 1);
            }
        }
    }
}

TEST(wrap_and_drop_give_every_rank_the_same_number)
{
    for (size_t c = 1; c < sizeof(counts) / sizeof(counts[0]); c++) {
        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
            unsigned wrapped[MOST] = {0}, dropped[MOST] = {0};

            for (uint32_t rank = 0; rank < sizes[s]; rank++) {
                struct pl_sampler wrap = make(counts[c], 5, PL_SAMPLER_WRAP, rank, sizes[s]);
                struct pl_sampler drop = make(counts[c], 5, PL_SAMPLER_DROP, rank, sizes[s]);
                uint64_t index;

                ck_assert_uint_eq(pl_sampler_length(&wrap), (counts[c] + sizes[s] - 1) / sizes[s]);
                ck_assert_uint_eq(pl_sampler_length(&drop), counts[c] / sizes[s]);
                while (pl_sampler_next(&wrap, &index)) {
                    wrapped[index]++;
                }
                while (pl_sampler_next(&drop, &index)) {
                    dropped[index]++;
                }
            }
            for (uint64_t i = 0; i < counts[c]; i++) {
                ck_assert_uint_ge(wrapped[i], 1);
                ck_assert_uint_le(dropped[i], 1);
            }
        }
    }
}

TEST(many_ranks_take_in_one_step_what_one_rank_takes_in_its_larger_one)
{
    enum { COUNT = 512, RANKS = 4, BATCH = 8 };
    struct pl_sampler one = make(COUNT, 9, PL_SAMPLER_JOIN, 0, 1), many[RANKS];

    for (uint32_t rank = 0; rank < RANKS; rank++) {
        many[rank] = make(COUNT, 9, PL_SAMPLER_JOIN, rank, RANKS);
    }
    for (int step = 0; step < COUNT / (RANKS * BATCH); step++) {
        bool by_one[COUNT] = {false}, by_many[COUNT] = {false};
        uint64_t index;

        for (int i = 0; i < RANKS * BATCH; i++) {
            ck_assert(pl_sampler_next(&one, &index));
            by_one[index] = true;
        }
        for (int i = 0; i < RANKS * BATCH; i++) {
            ck_assert(pl_sampler_next(&many[i / BATCH], &index));
            by_many[index] = true;
        }
        ck_assert_mem_eq(by_one, by_many, sizeof(by_one));
    }
}

TEST(order_depends_on_seed_and_epoch_and_on_nothing_else)
{
    uint64_t base[100], again[100], epoch[100], seed[100], plain;
    struct pl_sampler sampler = make(100, 1, PL_SAMPLER_JOIN, 0, 1), other = make(100, 2, PL_SAMPLER_JOIN, 0, 1);
    size_t fixed = 0;

    for (int i = 0; i < 100; i++) {
        ck_assert(pl_sampler_next(&sampler, &base[i]));
        ck_assert(pl_sampler_next(&other, &seed[i]));
    }
    pl_sampler_start(&sampler, 1);
    for (int i = 0; i < 100; i++) {
        ck_assert(pl_sampler_next(&sampler, &epoch[i]));
    }
    pl_sampler_start(&sampler, 0);
    for (int i = 0; i < 100; i++) {
        ck_assert(pl_sampler_next(&sampler, &again[i]));
        fixed += again[i] == (uint64_t)i;
    }
    ck_assert_mem_eq(base, again, sizeof(base));
    ck_assert_mem_ne(base, epoch, sizeof(base));
    ck_assert_mem_ne(base, seed, sizeof(base));
    ck_assert_uint_lt(fixed, 10);
    sampler.shuffle = false;
    pl_sampler_start(&sampler, 5);
    for (uint64_t i = 0; i < 100; i++) {
        ck_assert(pl_sampler_next(&sampler, &plain));
        ck_assert_uint_eq(plain, i);
    }
}

TEST(saved_state_goes_on_with_another_number_of_ranks)
{
    enum { COUNT = 257, STEPS = 12 };
    unsigned taken[COUNT] = {0};
    struct pl_sampler_state state = {.count = 0};
    uint64_t index;

    for (uint32_t rank = 0; rank < 4; rank++) {
        struct pl_sampler sampler = make(COUNT, 11, PL_SAMPLER_JOIN, rank, 4);

        pl_sampler_start(&sampler, 2);
        for (int i = 0; i < STEPS; i++) {
            ck_assert(pl_sampler_next(&sampler, &index));
            taken[index]++;
        }
        state = pl_sampler_save(&sampler);
        ck_assert_uint_eq(state.position, 4 * STEPS);
    }
    for (uint32_t rank = 0; rank < 6; rank++) {
        struct pl_sampler sampler = make(COUNT, 11, PL_SAMPLER_JOIN, rank, 6);

        ck_ok(pl_sampler_restore, &sampler, &state);
        ck_assert_uint_eq(sampler.epoch, 2);
        while (pl_sampler_next(&sampler, &index)) {
            taken[index]++;
        }
    }
    for (int i = 0; i < COUNT; i++) {
        ck_assert_uint_eq(taken[i], 1);
    }
}

TEST(state_that_does_not_fit_is_refused)
{
    struct pl_sampler sampler = make(100, 1, PL_SAMPLER_JOIN, 0, 4), other = make(101, 1, PL_SAMPLER_JOIN, 0, 4);
    struct pl_sampler_state state = pl_sampler_save(&sampler);

    ck_fails(PL_MISMATCH, "", pl_sampler_restore, &other, &state);
    state.seed++;
    ck_fails(PL_MISMATCH, "", pl_sampler_restore, &sampler, &state);
    state.seed--;
    state.position = 6;
    ck_fails(PL_INVALID, "", pl_sampler_restore, &sampler, &state);
    state.position = 100;
    ck_ok(pl_sampler_restore, &sampler, &state);
    ck_assert(!pl_sampler_next(&sampler, &state.position));
    ck_fails(PL_INVALID, "", pl_sampler_init, &sampler, 1, 1, true, PL_SAMPLER_JOIN,
             (struct pl_shard){.rank = 2, .size = 2});
}

UNIT_MAIN("s3io/sampler")
