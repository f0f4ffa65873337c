/* SPDX-License-Identifier: Apache-2.0 */
/* Wakes the progress thread. */
#include "collectives/core/lock.h"

void pl_core_wake_progress(struct pl_progress *progress)
{
    if (progress && progress->synced.asleep) {
        progress->synced.asleep = false;
        sem_post(&progress->wake);
    }
}
