/* SPDX-License-Identifier: Apache-2.0 */
/**
 * float32 in fewer bytes on its way between hosts, with error feedback: what rounding leaves, the residual, is kept by
 * the sender and added to what it sends next, so that over many steps nothing is lost. Allreduces and parameter servers
 * use it. A wire type is one of the flags PL_WIRE_* (collective.h), or 0 for float32 itself.
 *
 * float16, bfloat16  2 bytes an element, rounded to nearest even
 * int8               a byte an element and 4 a block of 256, its largest absolute value / 127: scales, then elements
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

/** The wire type called `text`, as the settings wire_type and ps_wire_type have it; 0 for "" and what is none. */
unsigned pl_compress_named(const char *text);

/** "float32" for 0; NULL where `wire` is no wire type. */
const char *pl_compress_name(unsigned wire);

/** How many bytes `count` elements take; at most 4 more than as float32. */
uint64_t pl_compress_bytes(unsigned wire, uint64_t count);

/** What pl_compress_pack() does with the residual. */
enum pl_compress_residual {
    PL_COMPRESS_REPLACE, /* the residual of before is in the data */
    PL_COMPRESS_ADD,     /* the residual of before is added to the data that is sent, which stay as they are */
};

/**
 * `packed` [pl_compress_bytes()] from `data` [count]; `wire` is not 0. `residual` [count] is then what is not in it;
 * NULL: nothing is kept. Of a NaN or an infinity nothing is kept, so that a program that skips such a step goes on with
 * good numbers; in int8 it makes a NaN of its whole block, so that it is seen.
 */
void pl_compress_pack(const struct pl_kernel *kernel, unsigned wire, void *packed, const float *data, float *residual,
                      enum pl_compress_residual use, uint64_t count);

/** `data` [count] from `packed`; with `combine` data = what is packed + data. */
void pl_compress_unpack(const struct pl_kernel *kernel, unsigned wire, float *data, const void *packed, bool combine,
                        uint64_t count);

#endif
