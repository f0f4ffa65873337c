/* SPDX-License-Identifier: Apache-2.0 */
/** hyperparameters.json: each value decoded as the toolkit does, the names sorted by who reads them. */
#ifndef PL_ENTRYPOINT_JOB_HYPERPARAMETERS_H
#define PL_ENTRYPOINT_JOB_HYPERPARAMETERS_H

#include "base/json/python_json.h"
#include "entrypoint/job/strv.h"

/** The names of those that switch on a launch each, separated by commas. */
#define PL_HYPERPARAMETERS_LAUNCHES                                                                                    \
    "sagemaker_mpi_enabled", "sagemaker_parameter_server_enabled", "sagemaker_multi_worker_mirrored_strategy_enabled", \
        "sagemaker_torch_distributed_enabled", "sagemaker_distributed_dataparallel_enabled",                           \
        "sagemaker_pytorch_ddp_enabled", "sagemaker_pytorch_xla_multi_worker_enabled"

struct pl_hyperparameters {
    struct pl_python_json *user;      /* what the program sees */
    struct pl_python_json *framework; /* sagemaker_* but those that are consumed */
    struct pl_python_json *platform;  /* every sagemaker_* and the other reserved names */
    struct pl_strv setting_values;    /* "PACELINE_NAME=value" */
};

/** Decode and sort the members of `raw`, the whole file. The caller owns the results, also after an error. */
enum pl_status pl_hyperparameters_sort(const struct pl_python_json *raw, struct pl_hyperparameters *ret_sorted,
                                       struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Add a warning for each name in `framework` that is nearly one that SageMaker knows: it would be ignored in silence.
 */
enum pl_status pl_hyperparameters_check(const struct pl_python_json *framework, struct pl_strv *warnings,
                                        struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Python's truth of a decoded value (absent and null are false), with one difference: the text "False", in any case, is
 * false, since that is how some SDK calls send the boolean.
 */
bool pl_hyperparameters_is_true(const struct pl_python_json *node);

#endif
