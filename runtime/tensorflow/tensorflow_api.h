/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The functions of TensorFlow's C interface for ops and kernels that Paceline uses. They are looked up in the process
 * when the module is loaded. So one binary serves every TensorFlow that has them, and the build needs none.
 *
 * Source   tensorflow/c/{ops,kernels,kernels_experimental,tf_status,tf_tensor}.h of TensorFlow 2.15 and 2.21.
 * Test     tests/unit/runtime/tensorflow/test_tensorflow_api.c, tests/integration/horovod_tensorflow.py,
 *          tests/integration/data_tensorflow.py
 */
#ifndef PL_RUNTIME_TENSORFLOW_TENSORFLOW_API_H
#define PL_RUNTIME_TENSORFLOW_TENSORFLOW_API_H

#include "base/status.h"

#include <stddef.h>

struct TF_AsyncOpKernelDoneCallback;
struct TF_KernelBuilder;
struct TF_OpDefinitionBuilder;
struct TF_OpKernelConstruction;
struct TF_OpKernelContext;
struct TF_ShapeHandle;
struct TF_ShapeInferenceContext;
struct TF_Status;
struct TF_Tensor;

/** An element of a tensor of strings, opaque. */
struct TF_TString {
    uint64_t opaque[3];
};

/** A string without a NUL at the end. */
struct TF_StringView {
    const char *data;
    size_t length;
};

/** Values of TF_Code. */
enum {
    TF_OK = 0,
    TF_CANCELLED = 1,
    TF_UNKNOWN = 2,
    TF_INVALID_ARGUMENT = 3,
    TF_DEADLINE_EXCEEDED = 4,
    TF_NOT_FOUND = 5,
    TF_RESOURCE_EXHAUSTED = 8,
    TF_FAILED_PRECONDITION = 9,
    TF_OUT_OF_RANGE = 11,
    TF_UNIMPLEMENTED = 12,
    TF_UNAVAILABLE = 14,
    TF_DATA_LOSS = 15,
};

/** Values of TF_DataType. */
enum {
    TF_FLOAT = 1,
    TF_DOUBLE = 2,
    TF_INT32 = 3,
    TF_UINT8 = 4,
    TF_INT16 = 5,
    TF_INT8 = 6,
    TF_STRING = 7,
    TF_INT64 = 9,
    TF_BOOL = 10,
    TF_BFLOAT16 = 14,
    TF_UINT16 = 17,
    TF_HALF = 19,
};

typedef void pl_tensorflow_copy(struct TF_OpKernelContext *context, struct TF_Tensor *from, struct TF_Tensor *to);
typedef void pl_tensorflow_shape(struct TF_ShapeInferenceContext *context, struct TF_Status *status);
typedef void *pl_tensorflow_create(struct TF_OpKernelConstruction *construction);
typedef void pl_tensorflow_compute(void *kernel, struct TF_OpKernelContext *context);
typedef void pl_tensorflow_compute_async(void *kernel, struct TF_OpKernelContext *context,
                                         struct TF_AsyncOpKernelDoneCallback *done);
typedef void pl_tensorflow_delete(void *kernel);
typedef void pl_tensorflow_deallocate(void *data, size_t bytes, void *argument);

/* result, name without TF_, parameters */
#define PL_TENSORFLOW_CALLS(X)                                                                                         \
    X(struct TF_Status *, NewStatus, (void))                                                                           \
    X(void, DeleteStatus, (struct TF_Status *))                                                                        \
    X(void, SetStatus, (struct TF_Status *, int code, const char *text))                                               \
    X(int, GetCode, (const struct TF_Status *))                                                                        \
    X(const char *, Message, (const struct TF_Status *))                                                               \
    X(struct TF_OpDefinitionBuilder *, NewOpDefinitionBuilder, (const char *name))                                     \
    X(void, OpDefinitionBuilderAddAttr, (struct TF_OpDefinitionBuilder *, const char *))                               \
    X(void, OpDefinitionBuilderAddInput, (struct TF_OpDefinitionBuilder *, const char *))                              \
    X(void, OpDefinitionBuilderAddOutput, (struct TF_OpDefinitionBuilder *, const char *))                             \
    X(void, OpDefinitionBuilderSetIsStateful, (struct TF_OpDefinitionBuilder *, bool))                                 \
    X(void, OpDefinitionBuilderSetShapeInferenceFunction, (struct TF_OpDefinitionBuilder *, pl_tensorflow_shape *))    \
    X(void, RegisterOpDefinition, (struct TF_OpDefinitionBuilder *, struct TF_Status *))                               \
    X(void, ShapeInferenceContextSetUnknownShape, (struct TF_ShapeInferenceContext *, struct TF_Status *))             \
    X(int64_t, ShapeInferenceContextNumInputs, (struct TF_ShapeInferenceContext *))                                    \
    X(struct TF_ShapeHandle *, NewShapeHandle, (void))                                                                 \
    X(void, DeleteShapeHandle, (struct TF_ShapeHandle *))                                                              \
    X(void, ShapeInferenceContextGetInput,                                                                             \
      (struct TF_ShapeInferenceContext *, int, struct TF_ShapeHandle *, struct TF_Status *))                           \
    X(void, ShapeInferenceContextSetOutput,                                                                            \
      (struct TF_ShapeInferenceContext *, int, struct TF_ShapeHandle *, struct TF_Status *))                           \
    X(struct TF_ShapeHandle *, ShapeInferenceContextScalar, (struct TF_ShapeInferenceContext *))                       \
    X(struct TF_ShapeHandle *, ShapeInferenceContextVectorFromSize, (struct TF_ShapeInferenceContext *, size_t))       \
    X(int64_t, ShapeInferenceContextRank, (struct TF_ShapeInferenceContext *, struct TF_ShapeHandle *))                \
    X(int, ShapeInferenceContextRankKnown, (struct TF_ShapeInferenceContext *, struct TF_ShapeHandle *))               \
    X(void, ShapeInferenceContextSubshape,                                                                             \
      (struct TF_ShapeInferenceContext *, struct TF_ShapeHandle *, int64_t start, int64_t end,                         \
       struct TF_ShapeHandle * ret_shape, struct TF_Status *))                                                         \
    X(void, ShapeInferenceContextConcatenateShapes,                                                                    \
      (struct TF_ShapeInferenceContext *, struct TF_ShapeHandle *, struct TF_ShapeHandle *,                            \
       struct TF_ShapeHandle * ret_shape, struct TF_Status *))                                                         \
    X(struct TF_KernelBuilder *, NewKernelBuilder,                                                                     \
      (const char *op, const char *device, pl_tensorflow_create *, pl_tensorflow_compute *, pl_tensorflow_delete *))   \
    X(void, RegisterKernelBuilder, (const char *name, struct TF_KernelBuilder *, struct TF_Status *))                  \
    X(void, OpKernelConstruction_Failure, (struct TF_OpKernelConstruction *, struct TF_Status *))                      \
    X(void, OpKernelConstruction_GetAttrSize,                                                                          \
      (struct TF_OpKernelConstruction *, const char *, int32_t *ret_count, int32_t *ret_bytes, struct TF_Status *))    \
    X(void, OpKernelConstruction_GetAttrInt32,                                                                         \
      (struct TF_OpKernelConstruction *, const char *, int32_t *ret_value, struct TF_Status *))                        \
    X(void, OpKernelConstruction_GetAttrFloat,                                                                         \
      (struct TF_OpKernelConstruction *, const char *, float *ret_value, struct TF_Status *))                          \
    X(void, OpKernelConstruction_GetAttrBool,                                                                          \
      (struct TF_OpKernelConstruction *, const char *, unsigned char *ret_value, struct TF_Status *))                  \
    X(void, OpKernelConstruction_GetAttrStringList,                                                                    \
      (struct TF_OpKernelConstruction *, const char *, char **ret_texts, size_t *ret_lengths, int room, void *storage, \
       size_t storage_bytes, struct TF_Status *))                                                                      \
    X(struct TF_StringView, OpKernelConstruction_GetName, (struct TF_OpKernelConstruction *))                          \
    X(int64_t, StepId, (struct TF_OpKernelContext *))                                                                  \
    X(void, OpKernelContext_Failure, (struct TF_OpKernelContext *, struct TF_Status *))                                \
    X(void, GetInput, (struct TF_OpKernelContext *, int, struct TF_Tensor **ret_tensor, struct TF_Status *))           \
    X(void, SetOutput, (struct TF_OpKernelContext *, int, const struct TF_Tensor *, struct TF_Status *))               \
    X(struct TF_Tensor *, AllocateOutput,                                                                              \
      (struct TF_OpKernelContext *, int, int type, const int64_t *dims, int count, size_t bytes, struct TF_Status *))  \
    X(struct TF_Tensor *, ForwardInputOrAllocateOutput,                                                                \
      (struct TF_OpKernelContext *, const int *inputs, int input_count, int output, const int64_t *dims, int count,    \
       int *ret_forwarded, struct TF_Status *))                                                                        \
    X(struct TF_Tensor *, NewTensor,                                                                                   \
      (int type, const int64_t *dims, int count, void *data, size_t bytes, pl_tensorflow_deallocate *,                 \
       void *argument))                                                                                                \
    X(void, StringCopy, (struct TF_TString *, const char *data, size_t bytes))                                         \
    X(void, DeleteTensor, (struct TF_Tensor *))                                                                        \
    X(int, TensorType, (const struct TF_Tensor *))                                                                     \
    X(int, NumDims, (const struct TF_Tensor *))                                                                        \
    X(int64_t, Dim, (const struct TF_Tensor *, int))                                                                   \
    X(size_t, TensorByteSize, (const struct TF_Tensor *))                                                              \
    X(int64_t, TensorElementCount, (const struct TF_Tensor *))                                                         \
    X(void *, TensorData, (const struct TF_Tensor *))

/* May be NULL: functions that TensorFlow calls experimental, and functions that TensorFlow 2.12 lacks. */
#define PL_TENSORFLOW_EXPERIMENTS(X)                                                                                   \
    X(void, GetInputTensorFromVariable,                                                                                \
      (struct TF_OpKernelContext *, int input, bool lock_held, bool is_variant, bool is_sparse, pl_tensorflow_copy *,  \
       struct TF_Tensor **ret_tensor, struct TF_Status *))                                                             \
    X(void, OpKernelContext_ForwardRefInputToRefOutput, (struct TF_OpKernelContext *, int32_t input, int32_t output))  \
    X(struct TF_KernelBuilder *, NewAsyncKernelBuilder,                                                                \
      (const char *op, const char *device, pl_tensorflow_create *, pl_tensorflow_compute_async *,                      \
       pl_tensorflow_delete *))

struct pl_tensorflow_api {
#define PL_TENSORFLOW_FIELD(result, name, parameters) result(*name) parameters;
    PL_TENSORFLOW_CALLS(PL_TENSORFLOW_FIELD)
    PL_TENSORFLOW_EXPERIMENTS(PL_TENSORFLOW_FIELD)
#undef PL_TENSORFLOW_FIELD
};

/** The functions, valid after pl_tensorflow_api_find(). */
extern struct pl_tensorflow_api pl_tensorflow_api;

/**
 * Looks up the functions in the TensorFlow that this process has loaded. Errors: PL_NOT_FOUND if there is no
 * TensorFlow, or if it lacks a necessary function.
 */
enum pl_status pl_tensorflow_api_find(struct pl_error *reterr) PL_MUST_CHECK;

/** Returns the name of the first experimental function that this TensorFlow lacks, or NULL. */
const char *pl_tensorflow_api_missing(void);

#endif
