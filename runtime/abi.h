/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What a binding from another language needs besides the library's own calls: a check that its copy of the structs is
 * of the same build as libpaceline.so, and an end that knows with which status the process ends.
 * Test  tests/integration/python.py, tests/integration/python_server.py
 */
#ifndef PL_RUNTIME_ABI_H
#define PL_RUNTIME_ABI_H

#include "runtime/process_set.h"
#include "runtime/server.h"
#include "runtime/server_rows.h"
#include "runtime/start.h"

#include <stddef.h>

/**
 * Bytes of `struct NAME` ("pl_error", "pl_named_op", "pl_named_options", "pl_named_result", "pl_plan_tensor",
 * "pl_server_options", "pl_server_table"), 0 when no binding needs it.
 */
size_t pl_abi_struct_bytes(const char *name);

/**
 * When this process ends by exit(0) leave the job: shut the named tensors of set 0 down, free `sets` and stop
 * `runtime`, all of which are the library's from here on. With any other status it just ends, so that the others find
 * this rank gone and report it. For interpreters whose own exit hooks do not get the status;
 * the buffers of operations under way must outlive the interpreter.
 */
enum pl_status pl_abi_leave_at_exit(struct pl_runtime *runtime, struct pl_process_sets *sets,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/**
 * The same for a worker of parameter servers: when this process ends by exit(0) leave them, if it has not, and stop
 * `runtime`. `server` and `runtime` are the library's from here on, so that the plan's memory lasts until then. A child
 * of fork() leaves nothing.
 */
enum pl_status pl_abi_leave_servers_at_exit(struct pl_runtime *runtime, struct pl_server *server,
                                            struct pl_error *reterr) PL_MUST_CHECK;

#endif
