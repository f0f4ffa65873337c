/* SPDX-License-Identifier: Apache-2.0 */
/* How the progress thread is woken. */
#include "collectives/core/lock.h"

void pl_core_wake_progress(struct pl_progress *progress)
{
    if (progress && progress->synced.asleep) {
        progress->synced.asleep = false;
        sem_post(&progress->wake);
    }
}
