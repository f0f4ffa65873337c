/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What a binding from another language checks before it trusts its own copy of the structs: libpaceline.so and the binding
 * may come from different builds.
 * Test  tests/integration/python.py
 */
#ifndef PL_RUNTIME_ABI_H
#define PL_RUNTIME_ABI_H

#include <stddef.h>

/** Bytes of `struct NAME` ("pl_error", "pl_named_op", "pl_named_result"), 0 when no binding needs it. */
size_t pl_abi_struct_bytes(const char *name);

#endif
