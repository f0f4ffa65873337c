/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Everything a training program needs, in one header:
 *
 *   start.h                    who am I; the world of all ranks
 *   collective.h, world.h      allreduce and its family, sub-worlds
 *   device.h, kernel.h         this rank's GPU
 *   plan.h, optimizer.h        gradients in shared buckets; the optimizers' steps
 *   named.h, service.h         tensors by name, in any order; groups of ranks; uneven data
 *   checkpoint.h, stop.h       stopping, and resuming with equal bits
 *   schedule.h                 learning rates
 *   channel.h                  the job's data channels, by name
 *   dataset.h, sampler.h, ...  reading the data
 *   trace.h                    a timeline of this rank
 *   safetensors.h              model files
 *   metrics.h                  metric lines and a progress line
 *
 * C++ programs include only this header: it declares the others as extern "C".
 *
 * Test  tests/integration/installed.sh
 */
#ifndef PACELINE_H
#define PACELINE_H

#ifdef __cplusplus
/* The standard headers that the public headers include. In C++ some have templates, which extern "C" does not allow. */
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
extern "C" {
#endif

#include "base/clock.h"
#include "base/dtype.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "collectives/arena.h"
#include "collectives/collective.h"
#include "collectives/world.h"
#include "device/device.h"
#include "device/kernel.h"
#include "runtime/channel.h"
#include "runtime/checkpoint.h"
#include "runtime/kept.h"
#include "runtime/metrics.h"
#include "runtime/named.h"
#include "runtime/optimizer.h"
#include "runtime/plan.h"
#include "runtime/safetensors.h"
#include "runtime/schedule.h"
#include "runtime/server.h"
#include "runtime/server_rows.h"
#include "runtime/service.h"
#include "runtime/start.h"
#include "runtime/stop.h"
#include "runtime/trace.h"
#include "s3io/channel.h"
#include "s3io/dataset.h"
#include "s3io/fields.h"
#include "s3io/idx.h"
#include "s3io/record.h"
#include "s3io/sampler.h"
#include "s3io/store.h"
#include "s3io/stream.h"

#ifdef __cplusplus
}
#endif

#endif
