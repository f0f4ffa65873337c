/* SPDX-License-Identifier: Apache-2.0 */
/* Learning rates by step: warm-up, then constant, stepwise, cosine or polynomial. */
#include "runtime/schedule.h"

#include <math.h>

double pl_schedule_rate(const struct pl_schedule *schedule, uint64_t step)
{
    double scale = schedule->scale > 0.0 ? schedule->scale : 1.0;
    double full = schedule->base_rate * scale;
    uint64_t past_warmup;
    double way = 1.0;

    if (step < schedule->warmup_steps) {
        return schedule->base_rate * (1.0 + (scale - 1.0) * (double)step / (double)schedule->warmup_steps);
    }
    past_warmup = step - schedule->warmup_steps;
    if (schedule->total_steps > schedule->warmup_steps) {
        way = fmin((double)past_warmup / (double)(schedule->total_steps - schedule->warmup_steps), 1.0);
    }
    switch (schedule->kind) {
    case PL_SCHEDULE_CONSTANT:
        break;
    case PL_SCHEDULE_STEP:
        return schedule->every_steps > 0 ? full * pow(schedule->gamma, (double)(past_warmup / schedule->every_steps))
                                         : full;
    case PL_SCHEDULE_COSINE:
        return schedule->end_rate + (full - schedule->end_rate) * 0.5 * (1.0 + cos(acos(-1.0) * way));
    case PL_SCHEDULE_POLYNOMIAL:
        return schedule->end_rate +
               (full - schedule->end_rate) * pow(1.0 - way, schedule->power > 0.0 ? schedule->power : 1.0);
    }
    return full;
}
