/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Ranks that are threads, for tests with many expectations: ck_assert_bodies(4, body, data) calls body(&rank) in four
 * ranks, and fails if any expect() in any of them failed. A failure prints its place and does not end the body, so that
 * the other ranks do not wait.
 */
#ifndef PL_TESTS_SUPPORT_EXPECT_H
#define PL_TESTS_SUPPORT_EXPECT_H

#include "tests/support/ranks.h"

struct rank {
    int rank;
    int size;
    struct pl_world *world;
    void *data; /* shared by all ranks */
    int failures;
};

struct rank_body {
    void (*body)(struct rank *self);
    void *data;
};

#define expect(condition, ...)                                                                                         \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            self->failures++;                                                                                          \
            fprintf(stderr, "%s:%d: rank %d of %d: %s: ", __FILE__, __LINE__, self->rank, self->size, #condition);     \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fprintf(stderr, "\n");                                                                                     \
        }                                                                                                              \
    } while (0)

/** For bodies that keep their error in `error`. */
#define expect_ok(expression)                                                                                          \
    do {                                                                                                               \
        enum pl_status expect_status_ = (expression);                                                                  \
        char expect_text_[1200];                                                                                       \
                                                                                                                       \
        expect(expect_status_ == PL_OK, "%s: %s", pl_status_name(expect_status_),                                      \
               pl_error_text(&error, expect_text_, sizeof(expect_text_)));                                             \
    } while (0)

static inline void expect_rank(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    const struct rank_body *body = argument;
    struct rank self = {.rank = pl_world_rank(world), .size = pl_world_size(world), .world = world, .data = body->data};

    body->body(&self);
    if (self.failures) {
        snprintf(failure, RANKS_TEXT_BYTES, "%d expectations failed, see above", self.failures);
    }
}

#define ck_assert_bodies(size, body_function, body_data)                                                               \
    do {                                                                                                               \
        struct rank_body rank_body_ = {.body = (body_function), .data = (body_data)};                                  \
                                                                                                                       \
        ck_assert_ranks((size), NULL, expect_rank, &rank_body_);                                                       \
    } while (0)

#endif
