/* SPDX-License-Identifier: Apache-2.0 */
/* The hosts of a sweep, by number. */
#include "entrypoint/sweep/sweep_state.h"

struct pl_connection *pl_sweep_link(const struct pl_sweep *sweep, int host)
{
    const struct pl_supervisor *supervisor = sweep->supervisor;

    for (size_t i = 0; i < supervisor->connections_count; i++) {
        struct pl_connection *connection = supervisor->connections[i];

        if (connection->kind == PL_CONNECTION_WORKER && connection->index == host - 1 && connection->begun &&
            !connection->dropped) {
            return connection;
        }
    }
    return NULL;
}

int pl_sweep_find_host(const struct pl_sweep *sweep, const char *name)
{
    return pl_strv_find(&sweep->plan->hosts, name);
}
