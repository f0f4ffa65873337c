/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the lowest and the highest value of each stretch. */
#include "programs/report/report.h"

#include <math.h>

static void join(struct pl_series_stretch *left, const struct pl_series_stretch *right)
{
    if (right->least < left->least) {
        left->least = right->least;
        left->least_x = right->least_x;
    }
    if (right->most > left->most) {
        left->most = right->most;
        left->most_x = right->most_x;
    }
    left->last = right->last;
    left->last_x = right->last_x;
    left->count += right->count;
}

static void halve(struct pl_series *series)
{
    for (size_t i = 0; i < series->used; i += 2) {
        series->stretches[i / 2] = series->stretches[i];
        join(&series->stretches[i / 2], &series->stretches[i + 1]);
    }
    series->used /= 2;
    series->width *= 2;
}

void pl_series_add(struct pl_series *series, double x, double y)
{
    const struct pl_series_stretch value = {.first_x = x,
                                            .last_x = x,
                                            .least = y,
                                            .least_x = x,
                                            .most = y,
                                            .most_x = x,
                                            .last = y,
                                            .count = 1,
                                            .line = series->line};

    if (!isfinite(y)) {
        series->not_finite++;
        return;
    }
    if (series->count == 0) {
        series->first = series->least = series->most = y;
        series->width = 1;
    }
    series->count++;
    series->lines = series->line >= series->lines ? series->line + 1 : series->lines;
    series->last = y;
    series->least = fmin(series->least, y);
    series->most = fmax(series->most, y);
    if (series->used > 0 && series->stretches[series->used - 1].count < series->width) {
        join(&series->stretches[series->used - 1], &value);
        return;
    }
    if (series->used == PL_SERIES_STRETCHES) {
        halve(series);
    }
    series->stretches[series->used++] = value;
}
