/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Gradients between the servers of two hosts in fewer bytes (the setting ps_wire_type), with error feedback: what
 * rounding leaves is kept by the sender and added to what it sends next, so that over many steps nothing is lost.
 * Internal to runtime/server/.
 *
 * float16, bfloat16  2 bytes an element, rounded to nearest even
 * int8               a byte an element and 4 a block of 256, its largest absolute value / 127: scales, then elements
 *
 * Source  Seide et al., "1-bit stochastic gradient descent and its application to data-parallel distributed training of
 *         speech DNNs", Interspeech 2014 (error feedback); Dettmers, "8-bit approximations for parallelism in deep
 *         learning", ICLR 2016.
 * Test    tests/unit/runtime/server/test_wire.c
 */
#ifndef PL_RUNTIME_SERVER_WIRE_H
#define PL_RUNTIME_SERVER_WIRE_H

#include "base/status.h"

#include <stdint.h>

enum pl_server_wire { PL_SERVER_FLOAT32, PL_SERVER_FLOAT16, PL_SERVER_BFLOAT16, PL_SERVER_INT8 };

/** As the setting has it; "" is float32. PL_INVALID names the words. */
enum pl_status pl_server_wire_read(const char *text, enum pl_server_wire *ret_wire,
                                   struct pl_error *reterr) PL_MUST_CHECK;
const char *pl_server_wire_name(enum pl_server_wire wire);

/** How many bytes `count` elements take; at most 4 more than as float32. */
uint64_t pl_server_wire_bytes(enum pl_server_wire wire, uint64_t count);

/**
 * `packed` [pl_server_wire_bytes()] from `gradient` + `residual` [count], neither float32; `residual` is then what is
 * not in it. Of a NaN or an infinity nothing is kept; in int8 it makes a NaN of its whole block, so that it is seen.
 */
void pl_server_wire_pack(enum pl_server_wire wire, void *packed, const float *gradient, float *residual,
                         uint64_t count);
void pl_server_wire_unpack(enum pl_server_wire wire, float *data, const void *packed, uint64_t count);

#endif
