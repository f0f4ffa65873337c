/* SPDX-License-Identifier: Apache-2.0 */
/** hyperparameters.json: decodes each value as the toolkit does, and sorts the names by who reads them. */
#ifndef PL_ENTRYPOINT_JOB_HYPERPARAMETERS_H
#define PL_ENTRYPOINT_JOB_HYPERPARAMETERS_H

#include "base/json/python_json.h"
#include "entrypoint/job/strv.h"

/** The names, separated by commas, of the hyperparameters of which each switches on a launch. */
#define PL_HYPERPARAMETERS_LAUNCHES                                                                                    \
    "sagemaker_mpi_enabled", "sagemaker_parameter_server_enabled", "sagemaker_multi_worker_mirrored_strategy_enabled", \
        "sagemaker_torch_distributed_enabled", "sagemaker_distributed_dataparallel_enabled",                           \
        "sagemaker_pytorch_ddp_enabled", "sagemaker_pytorch_xla_multi_worker_enabled"

struct pl_hyperparameters {
    struct pl_python_json *user;      /* the hyperparameters that the program gets */
    struct pl_python_json *framework; /* sagemaker_*, except those that are consumed */
    struct pl_python_json *platform;  /* every sagemaker_* and the other reserved names */
    struct pl_strv setting_values;    /* "PACELINE_NAME=value" */
};

/** Decode and sort the members of `raw`, the whole file. The caller owns the results, even after an error. */
enum pl_status pl_hyperparameters_sort(const struct pl_python_json *raw, struct pl_hyperparameters *ret_sorted,
                                       struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Add a warning for each name in `framework` that is similar to a name that SageMaker knows: it is probably mistyped,
 * and would be ignored without a message.
 */
enum pl_status pl_hyperparameters_check(const struct pl_python_json *framework, struct pl_strv *warnings,
                                        struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Whether a decoded value is true in Python; absent and null are false. One difference: the text "False", in any case,
 * is false, because some SDK calls send the boolean in this form.
 */
bool pl_hyperparameters_is_true(const struct pl_python_json *node);

#endif
