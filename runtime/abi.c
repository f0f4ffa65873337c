/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes of the public structs and leaving the job at exit(0), for bindings from other languages. */
#include "runtime/abi.h"

#include "base/log.h"
#include "base/memory.h"
#include "collectives/bootstrap.h"
#include "runtime/safetensors.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

size_t pl_abi_struct_bytes(const char *name)
{
    static const struct {
        const char *name;
        size_t bytes;
    } structs[] = {
        {"pl_bootstrap", sizeof(struct pl_bootstrap)},
        {"pl_collective", sizeof(struct pl_collective)},
        {"pl_completion", sizeof(struct pl_completion)},
        {"pl_error", sizeof(struct pl_error)},
        {"pl_named_op", sizeof(struct pl_named_op)},
        {"pl_named_options", sizeof(struct pl_named_options)},
        {"pl_named_result", sizeof(struct pl_named_result)},
        {"pl_plan_tensor", sizeof(struct pl_plan_tensor)},
        {"pl_server_options", sizeof(struct pl_server_options)},
        {"pl_server_table", sizeof(struct pl_server_table)},
        {"pl_span", sizeof(struct pl_span)},
        {"pl_tensor", sizeof(struct pl_tensor)},
    };

    for (size_t i = 0; i < sizeof(structs) / sizeof(structs[0]); i++) {
        if (strcmp(structs[i].name, name) == 0) {
            return structs[i].bytes;
        }
    }
    return 0;
}

/* What to leave at the process's end: first a service or parameter servers, then the runtime. */
struct leaving {
    struct pl_runtime *runtime;
    struct pl_service *service;
    struct pl_server *server;
    pid_t pid;
};

static void leave(int status, void *context)
{
    struct leaving *leaving = context;
    struct pl_error error = PL_ERROR_NONE;

    if (status != 0 || getpid() != leaving->pid) {
        return;
    }
    if (leaving->server && pl_server_leave(leaving->server, &error) != PL_OK) {
        pl_log_error(&error, "cannot leave the parameter servers");
    }
    if (leaving->service && pl_service_shutdown(leaving->service, &error) != PL_OK) {
        pl_log_error(&error, "cannot leave the world");
    }
    pl_server_free(leaving->server);
    pl_service_free(leaving->service);
    pl_runtime_stop(leaving->runtime);
    free(leaving);
}

static enum pl_status leave_at_exit(struct leaving what, struct pl_error *reterr)
{
    struct leaving *leaving;

    PL_TRY(pl_memory_alloc(&leaving, 1, sizeof(*leaving), reterr));
    *leaving = what;
    leaving->pid = getpid();
    if (on_exit(leave, leaving) != 0) { /* on_exit(), because functions of atexit() do not get the exit status */
        free(leaving);
        return pl_error_set(reterr, PL_SYSTEM, "cannot register a function for the end of the process");
    }
    return PL_OK;
}

enum pl_status pl_abi_leave_at_exit(struct pl_runtime *runtime, struct pl_service *service, struct pl_error *reterr)
{
    return leave_at_exit((struct leaving){.runtime = runtime, .service = service}, reterr);
}

enum pl_status pl_abi_leave_servers_at_exit(struct pl_runtime *runtime, struct pl_server *server,
                                            struct pl_error *reterr)
{
    return leave_at_exit((struct leaving){.runtime = runtime, .server = server}, reterr);
}
