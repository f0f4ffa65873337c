/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Functions only for bindings from other languages: a check that the binding's structs match this build of
 * libpaceline.so, and leaving the job at the process's end, depending on its exit status.
 * Test  tests/integration/python.py, tests/integration/python_server.py
 */
#ifndef PL_RUNTIME_ABI_H
#define PL_RUNTIME_ABI_H

#include "runtime/server.h"
#include "runtime/server_rows.h"
#include "runtime/service.h"
#include "runtime/start.h"

#include <stddef.h>

/**
 * Returns the bytes of `struct NAME` ("pl_bootstrap", "pl_collective", "pl_completion", "pl_error", "pl_named_op",
 * "pl_named_options", "pl_named_result", "pl_plan_tensor", "pl_server_options", "pl_server_table", "pl_span",
 * "pl_tensor"), or 0 for a struct that no binding needs.
 */
size_t pl_abi_struct_bytes(const char *name);

/**
 * Leaves the job if this process ends by exit(0): shuts down and frees `service`, and stops `runtime`. The library owns
 * both from this call on. With any other exit status the process just ends, and the other ranks report that it is gone.
 * This is for interpreters whose exit hooks do not get the status. The buffers and completions of operations in flight
 * must outlive the interpreter.
 */
enum pl_status pl_abi_leave_at_exit(struct pl_runtime *runtime, struct pl_service *service,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Like pl_abi_leave_at_exit(), for a worker of parameter servers: exit(0) leaves the servers, if the worker has not
 * left them, and stops `runtime`. The library owns `server` and `runtime` from this call on, so that the plan's memory
 * lasts until then. In a child of fork() this does nothing.
 */
enum pl_status pl_abi_leave_servers_at_exit(struct pl_runtime *runtime, struct pl_server *server,
                                            struct pl_error *reterr) PL_MUST_CHECK;

#endif
