/* SPDX-License-Identifier: Apache-2.0 */
/* The operations that Horovod's own Python code for TensorFlow calls, defined by TensorFlow's C interface. They are
 * registered when TensorFlow loads this module. They are asynchronous, because blocking kernels would occupy
 * TensorFlow's threads with different tensors on different ranks. They are not stateful, because TensorFlow runs the
 * stateful operations of a function one after the other. */
#include "base/log.h"
#include "runtime/horovod/tensorflow_kernel.h"

#define REDUCED "T: {uint8, int8, int32, int64, float16, bfloat16, float32, float64}"
#define SCATTERED "T: {int32, int64, float16, bfloat16, float32, float64}"
#define MOVED "T: {uint8, int8, uint16, int16, int32, int64, float16, bfloat16, float32, float64, bool}"
#define VARIABLE "T: {uint8, int8, int32, int64, float16, bfloat16, float32, float64, bool}"
#define SET "process_set_id: int = 0"
#define SCOPE "ignore_name_scope: bool = False"
#define FACTORS "prescale_factor: float", "postscale_factor: float"
/* With this attribute TensorFlow's optimiser (ModifiesInputsInPlace() in op_types.cc) treats a node as if it had side
 * effects. So it does not remove the node or evaluate it early, which matters because other ranks take part. */
#define KEPT "in_place: bool = True"

enum { ATTRIBUTES = 8 };

static const struct pl_tensorflow_api *const tf = &pl_tensorflow_api;

/* Gives all outputs the shapes of their inputs. */
static void same_shapes(struct TF_ShapeInferenceContext *context, struct TF_Status *status)
{
    struct TF_ShapeHandle *shape = tf->NewShapeHandle();
    int count = (int)tf->ShapeInferenceContextNumInputs(context);

    for (int i = 0; i < count && tf->GetCode(status) == TF_OK; i++) {
        tf->ShapeInferenceContextGetInput(context, i, shape, status);
        if (tf->GetCode(status) == TF_OK) {
            tf->ShapeInferenceContextSetOutput(context, i, shape, status);
        }
    }
    tf->DeleteShapeHandle(shape);
}

/* Gives output `at` the shape of input `at`, with any number of rows. */
static void other_rows_of(struct TF_ShapeInferenceContext *context, int at, struct TF_Status *status)
{
    struct TF_ShapeHandle *shape = tf->NewShapeHandle(), *row = tf->NewShapeHandle();
    struct TF_ShapeHandle *rows = tf->ShapeInferenceContextVectorFromSize(context, SIZE_MAX); /* -1 means any number */

    tf->ShapeInferenceContextGetInput(context, at, shape, status);
    if (tf->GetCode(status) == TF_OK && tf->ShapeInferenceContextRankKnown(context, shape) &&
        tf->ShapeInferenceContextRank(context, shape) == 0) {
        tf->SetStatus(status, TF_INVALID_ARGUMENT, "expected a tensor with rows, found a scalar");
    }
    if (tf->GetCode(status) == TF_OK) {
        tf->ShapeInferenceContextSubshape(context, shape, 1, INT64_MAX, row, status);
    }
    if (tf->GetCode(status) == TF_OK) {
        tf->ShapeInferenceContextConcatenateShapes(context, rows, row, shape, status);
    }
    if (tf->GetCode(status) == TF_OK) {
        tf->ShapeInferenceContextSetOutput(context, at, shape, status);
    }
    tf->DeleteShapeHandle(rows);
    tf->DeleteShapeHandle(row);
    tf->DeleteShapeHandle(shape);
}

static void other_rows(struct TF_ShapeInferenceContext *context, struct TF_Status *status)
{
    int count = (int)tf->ShapeInferenceContextNumInputs(context);

    for (int i = 0; i < count && tf->GetCode(status) == TF_OK; i++) {
        other_rows_of(context, i, status);
    }
}

/* Gives the received splits the shape of the sent splits. */
static void alltoall_shapes(struct TF_ShapeInferenceContext *context, struct TF_Status *status)
{
    struct TF_ShapeHandle *splits = tf->NewShapeHandle();

    other_rows_of(context, 0, status);
    if (tf->GetCode(status) == TF_OK) {
        tf->ShapeInferenceContextGetInput(context, 1, splits, status);
    }
    if (tf->GetCode(status) == TF_OK) {
        tf->ShapeInferenceContextSetOutput(context, 1, splits, status);
    }
    tf->DeleteShapeHandle(splits);
}

static void scalar(struct TF_ShapeInferenceContext *context, struct TF_Status *status)
{
    struct TF_ShapeHandle *shape = tf->ShapeInferenceContextScalar(context);

    tf->ShapeInferenceContextSetOutput(context, 0, shape, status);
    tf->DeleteShapeHandle(shape);
}

static void no_outputs(struct TF_ShapeInferenceContext *context, struct TF_Status *status)
{
    (void)context;
    (void)status;
}

static const struct definition {
    const char *attributes[ATTRIBUTES];
    const char *inputs[2];
    const char *outputs[2];
    pl_tensorflow_shape *shape;
    bool asks; /* the operation returns a number that TensorFlow must not keep for the next run */
} definitions[PL_TENSORFLOW_OPS] = {
    [PL_TENSORFLOW_ALLREDUCE] = {{REDUCED, "reduce_op: int", FACTORS, SCOPE, SET, KEPT},
                                 {"tensor: T"},
                                 {"sum: T"},
                                 same_shapes},
    [PL_TENSORFLOW_GROUPED_ALLREDUCE] = {{REDUCED, "reduce_op: int", FACTORS, SCOPE, "num_tensors: int", SET, KEPT},
                                         {"tensors: num_tensors*T"},
                                         {"sum: num_tensors*T"},
                                         same_shapes},
    [PL_TENSORFLOW_ALLGATHER] = {{MOVED, SCOPE, SET, KEPT}, {"tensor: T"}, {"output: T"}, other_rows},
    [PL_TENSORFLOW_GROUPED_ALLGATHER] = {{MOVED, SCOPE, "num_tensors: int", SET, KEPT},
                                         {"tensors: num_tensors*T"},
                                         {"outputs: num_tensors*T"},
                                         other_rows},
    [PL_TENSORFLOW_BROADCAST] = {{MOVED, "root_rank: int", SCOPE, SET, KEPT},
                                 {"tensor: T"},
                                 {"output: T"},
                                 same_shapes},
    [PL_TENSORFLOW_BROADCAST_INPLACE] = {{VARIABLE, "root_rank: int", SET, "num_variables: int",
                                          "variable_names: list(string)"},
                                         {"tensor_refs: Ref(num_variables * T)"},
                                         {"output_refs: Ref(num_variables * T)"},
                                         same_shapes},
    [PL_TENSORFLOW_BROADCAST_INPLACE_RESOURCE] = {{"root_rank: int", SET, "num_variables: int",
                                                   "variable_names: list(string)"},
                                                  {"resources: num_variables * resource"},
                                                  {NULL},
                                                  no_outputs},
    [PL_TENSORFLOW_ALLTOALL] = {{MOVED, SCOPE, SET, KEPT},
                                {"tensor: T", "splits: int32"},
                                {"output: T", "received_splits: int32"},
                                alltoall_shapes},
    [PL_TENSORFLOW_REDUCESCATTER] = {{SCATTERED, "reduce_op: int", SCOPE, FACTORS, SET, KEPT},
                                     {"tensor: T"},
                                     {"output: T"},
                                     other_rows},
    [PL_TENSORFLOW_GROUPED_REDUCESCATTER] = {{SCATTERED, "reduce_op: int", SCOPE, "num_tensors: int", SET, FACTORS,
                                              KEPT},
                                             {"tensors: num_tensors*T"},
                                             {"outputs: num_tensors*T"},
                                             other_rows},
    [PL_TENSORFLOW_JOIN] = {{KEPT}, {NULL}, {"output: int32"}, scalar},
    [PL_TENSORFLOW_SIZE] = {{SET}, {NULL}, {"size: int32"}, scalar, true},
    [PL_TENSORFLOW_PROCESS_SET_INCLUDED] = {{SET}, {NULL}, {"included: int32"}, scalar, true},
    [PL_TENSORFLOW_LOCAL_SIZE] = {{NULL}, {NULL}, {"local_size: int32"}, scalar, true},
    [PL_TENSORFLOW_RANK] = {{NULL}, {NULL}, {"rank: int32"}, scalar, true},
    [PL_TENSORFLOW_LOCAL_RANK] = {{NULL}, {NULL}, {"local_rank: int32"}, scalar, true},
};

static void define(const struct definition *definition, const char *name, struct TF_Status *status)
{
    struct TF_OpDefinitionBuilder *builder = tf->NewOpDefinitionBuilder(name);

    for (int i = 0; i < ATTRIBUTES && definition->attributes[i]; i++) {
        tf->OpDefinitionBuilderAddAttr(builder, definition->attributes[i]);
    }
    for (int i = 0; i < 2 && definition->inputs[i]; i++) {
        tf->OpDefinitionBuilderAddInput(builder, definition->inputs[i]);
    }
    for (int i = 0; i < 2 && definition->outputs[i]; i++) {
        tf->OpDefinitionBuilderAddOutput(builder, definition->outputs[i]);
    }
    if (definition->asks) {
        tf->OpDefinitionBuilderSetIsStateful(builder, true); /* TensorFlow ignores the value */
    }
    tf->OpDefinitionBuilderSetShapeInferenceFunction(builder, definition->shape);
    tf->RegisterOpDefinition(builder, status);
}

/* Registers a kernel. Its tensors are in host memory: TensorFlow copies GPU tensors there and back. */
static void implement(const struct definition *definition, enum pl_tensorflow_op op, struct TF_Status *status)
{
    const char *name = pl_tensorflow_kernel_names[op];
    pl_tensorflow_create *create = pl_tensorflow_kernel_create[op];
    struct TF_KernelBuilder *builder =
        definition->asks
            ? tf->NewKernelBuilder(name, "CPU", create, pl_tensorflow_call_ask, pl_tensorflow_kernel_free)
            : tf->NewAsyncKernelBuilder(name, "CPU", create, pl_tensorflow_call_start, pl_tensorflow_kernel_free);

    tf->RegisterKernelBuilder(name, builder, status);
}

/* Registers the operations while TensorFlow loads the module, because TensorFlow looks for them then. */
__attribute__((constructor)) static void register_ops(void)
{
    struct pl_error error = PL_ERROR_NONE;
    struct TF_Status *status;

    if (pl_tensorflow_api_find(&error) != PL_OK) {
        pl_log_error(&error, "cannot register Horovod's operations for TensorFlow");
        return;
    }
    if (!tf->NewAsyncKernelBuilder) {
        pl_log(PL_LOG_ERROR,
               "this TensorFlow has no TF_NewAsyncKernelBuilder, which Horovod's operations need: take 2.13 or later");
        return;
    }
    status = tf->NewStatus();
    for (int i = 0; i < PL_TENSORFLOW_OPS && tf->GetCode(status) == TF_OK; i++) {
        define(&definitions[i], pl_tensorflow_kernel_names[i], status);
        if (tf->GetCode(status) == TF_OK) {
            implement(&definitions[i], (enum pl_tensorflow_op)i, status);
        }
        if (tf->GetCode(status) != TF_OK) {
            pl_log(PL_LOG_ERROR, "TensorFlow refused the operation %s: %s", pl_tensorflow_kernel_names[i],
                   tf->Message(status));
        }
    }
    tf->DeleteStatus(status);
}
