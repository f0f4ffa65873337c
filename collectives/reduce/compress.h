/* SPDX-License-Identifier: Apache-2.0 */
/**
 * float32 sent in fewer bytes between hosts, with error feedback: the sender keeps the rounding error (residual) and
 * adds it to the data that it sends next, so that over many steps nothing is lost. Allreduces and parameter servers
 * use it. A wire type is one of the flags PL_WIRE_* (collective.h), or 0 for float32 itself.
 *
 * float16, bfloat16  2 bytes per element, rounded to nearest even
 * int8               first a scale of 4 bytes per block of 256: largest magnitude / 127; then 1 byte per element
 *
 * Source  Seide et al., "1-bit stochastic gradient descent and its application to data-parallel distributed training of
 *         speech DNNs", Interspeech 2014 (error feedback); Dettmers, "8-bit approximations for parallelism in deep
 *         learning", ICLR 2016.
 * Test    tests/unit/collectives/reduce/test_compress.c
 */
#ifndef PL_COLLECTIVES_REDUCE_COMPRESS_H
#define PL_COLLECTIVES_REDUCE_COMPRESS_H

#include "collectives/collective.h"
#include "collectives/reduce/kernel.h"

/** The wire type called `text` in the settings wire_type and ps_wire_type; 0 for "" and for unknown names. */
unsigned pl_compress_named(const char *text);

/** "float32" for 0; NULL if `wire` is not a wire type. */
const char *pl_compress_name(unsigned wire);

/** Number of bytes that `count` elements take; at most 4 more than as float32. */
uint64_t pl_compress_bytes(unsigned wire, uint64_t count);

/** How pl_compress_pack() uses the residual. */
enum pl_compress_residual {
    PL_COMPRESS_REPLACE, /* the data contains the previous residual already */
    PL_COMPRESS_ADD,     /* the previous residual is added to the sent data; `data` does not change */
};

/**
 * Pack `data` [count] into `packed` [pl_compress_bytes()]; `wire` is not 0. `residual` [count] then holds the rounding
 * error; NULL: it is not kept. The residual of a NaN or an infinity is 0, so that a program that skips such a step goes
 * on with good numbers. In int8, a NaN or an infinity turns its whole block into NaNs, so that it is noticed.
 */
void pl_compress_pack(const struct pl_kernel *kernel, unsigned wire, void *packed, const float *data, float *residual,
                      enum pl_compress_residual use, uint64_t count);

/** Unpack `packed` into `data` [count]; with `combine`, add it to `data`. */
void pl_compress_unpack(const struct pl_kernel *kernel, unsigned wire, float *data, const void *packed, bool combine,
                        uint64_t count);

#endif
