/* SPDX-License-Identifier: Apache-2.0 */
/* Copies a std::function, which only C++ can do. It needs no header of TensorFlow. */
#include "runtime/tensorflow/tensorflow_done.h"

#include <functional>
#include <new>

using function = std::function<void()>;
static_assert(sizeof(function) <= sizeof(pl_tensorflow_done) && alignof(function) <= alignof(pl_tensorflow_done),
              "a std::function has room");

void pl_tensorflow_done_copy(struct pl_tensorflow_done *copy, const struct TF_AsyncOpKernelDoneCallback *done)
{
    new (copy) function(*reinterpret_cast<const function *>(done));
}

void pl_tensorflow_done_run(struct pl_tensorflow_done *copy)
{
    auto *kept = reinterpret_cast<function *>(copy);

    (*kept)();
    kept->~function();
}
