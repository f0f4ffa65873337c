/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors called "values": whatever is found can be decoded or is refused. */
#include "s3io/proto_tensor.h"
#include "tests/support/fuzz.h"

enum { ROOM = 4096 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    for (int part = 0; part < 2; part++) {
        static float values[ROOM];
        static uint64_t keys[ROOM];
        struct pl_error error = PL_ERROR_NONE;
        struct pl_proto_tensor tensor;
        uint64_t elements;
        enum pl_status status =
            pl_proto_tensor_find(data, bytes, (enum pl_proto_tensor_part)part, "values", &tensor, &error);

        PL_BUG_IF(status != PL_OK && error.cause[0] == '\0');
        if (status != PL_OK || pl_proto_tensor_elements(&tensor, &elements, &error) != PL_OK || elements > ROOM ||
            tensor.value_count > ROOM) {
            continue;
        }
        PL_BUG_IF(tensor.type == PL_PROTO_TENSOR_BYTES && tensor.message.data &&
                  tensor.message.data + tensor.message.bytes > data + bytes);
        if (pl_proto_tensor_float32(&tensor, values, (size_t)elements, &error) == PL_OK) {
            PL_BUG_IF(pl_proto_tensor_values(&tensor, values, (size_t)tensor.value_count, &error) != PL_OK);
            PL_BUG_IF(pl_proto_tensor_keys(&tensor, keys, (size_t)tensor.key_count, &error) != PL_OK);
        }
    }
    return 0;
}
