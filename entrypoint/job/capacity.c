/* SPDX-License-Identifier: Apache-2.0 */
/* Orders hosts so that those of one capacity unit are neighbours. */
#include "entrypoint/job/capacity.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

/* Returns the text `name` of an entry, or NULL if it has none. */
static const char *text_of(const struct pl_python_json *entry, const char *name)
{
    const struct pl_python_json *node =
        pl_python_json_kind(entry) == PL_PYTHON_JSON_OBJECT ? pl_python_json_member(entry, name) : NULL;

    return node && pl_python_json_kind(node) == PL_PYTHON_JSON_STRING ? pl_python_json_text(node) : NULL;
}

/* Set units[i] to the unit of hosts->items[i]; it stays NULL if the unit is not known. */
static void find_units(const struct pl_python_json *topology, const struct pl_strv *hosts, const char **units)
{
    for (const struct pl_python_json *entry = pl_python_json_first(topology); entry;
         entry = pl_python_json_next(entry)) {
        const char *host = text_of(entry, "hostName");
        const int index = host ? pl_strv_find(hosts, host) : -1;

        if (index >= 0) {
            units[index] = text_of(entry, "capacityUnitId");
        }
    }
}

static bool are_neighbours(const char *a, const char *b)
{
    return a && b && strcmp(a, b) == 0;
}

enum pl_status pl_capacity_order(const struct pl_python_json *topology, struct pl_strv *hosts, struct pl_error *reterr)
{
    PL_AUTO_FREE const char **units = NULL;
    PL_AUTO_FREE char **ordered = NULL;
    size_t placed = 0;

    if (!topology || pl_python_json_kind(topology) != PL_PYTHON_JSON_ARRAY || hosts->count < 3) {
        return PL_OK;
    }
    units = pl_memory_new(hosts->count, sizeof(*units), reterr);
    ordered = pl_memory_new(hosts->count, sizeof(*ordered), reterr);
    if (!units || !ordered) {
        return PL_MEMORY;
    }
    find_units(topology, hosts, units);
    for (size_t first = 0; first < hosts->count; first++) {
        if (!hosts->items[first]) {
            continue; /* it stands next to its neighbours already */
        }
        ordered[placed++] = PL_TAKE(hosts->items[first]);
        for (size_t i = first + 1; i < hosts->count; i++) {
            if (hosts->items[i] && are_neighbours(units[first], units[i])) {
                ordered[placed++] = PL_TAKE(hosts->items[i]);
            }
        }
    }
    memcpy(hosts->items, ordered, hosts->count * sizeof(*ordered));
    return PL_OK;
}
