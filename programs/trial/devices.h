/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The GPUs of a trial, of those that this container sees (CUDA_VISIBLE_DEVICES).
 *
 * Test  tests/unit/programs/trial/test_devices.c
 */
#ifndef PL_PROGRAMS_TRIAL_DEVICES_H
#define PL_PROGRAMS_TRIAL_DEVICES_H

#include "entrypoint/job/job.h"

/**
 * Appends CUDA_VISIBLE_DEVICES for `gpus` GPUs. With a slot from 0 on, they are the slot's: slots share GPUs if there
 * are more slots than GPUs. With -1 they are GPUs that no other trial uses; they stay this process's until it ends.
 *
 * Errors  PL_INVALID: the host has fewer GPUs. PL_LIMIT: other trials use too many of them.
 */
enum pl_status pl_trial_devices_take(const struct pl_job *job, int gpus, int slot, struct pl_text *visible,
                                     struct pl_error *reterr) PL_MUST_CHECK;

#endif
