/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Everything a training program needs, in one header:
 *
 *   start.h                    who am I; the world of all ranks
 *   collective.h, world.h      allreduce and its family, sub-worlds
 *   device.h, kernel.h         this rank's GPU
 *   plan.h, optimizer.h        gradients in shared buckets, and what is done with them
 *   named.h, service.h         tensors by name, in any order; groups of ranks; uneven data
 *   checkpoint.h, stop.h       going on later, bit for bit
 *   schedule.h                 learning rates
 *   channel.h                  where the platform put the data
 *   dataset.h, sampler.h, ...  reading it
 *   trace.h                    what happened when
 *   safetensors.h              the model as a file
 *   metrics.h                  lines that say how it goes
 *
 * C++ programs include this one and none of the others: only it says that they are C.
 *
 * Test  tests/integration/installed.sh
 */
#ifndef PACELINE_H
#define PACELINE_H

#ifdef __cplusplus
/* What the headers include of the standard library has parts in C++ that must not be taken for C. */
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
