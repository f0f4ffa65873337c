/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/abi.h"

#include "runtime/named.h"

#include <string.h>

size_t pl_abi_struct_bytes(const char *name)
{
    static const struct {
        const char *name;
        size_t bytes;
    } structs[] = {
        {"pl_error", sizeof(struct pl_error)},
        {"pl_named_op", sizeof(struct pl_named_op)},
        {"pl_named_result", sizeof(struct pl_named_result)},
    };

    for (size_t i = 0; i < sizeof(structs) / sizeof(structs[0]); i++) {
        if (strcmp(structs[i].name, name) == 0) {
            return structs[i].bytes;
        }
    }
    return 0;
}
