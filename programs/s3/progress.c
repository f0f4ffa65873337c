/* SPDX-License-Identifier: Apache-2.0 */
/* The progress line on a terminal. */
#include "programs/s3/s3.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BAR = 24, DRAW_MS = 100 };

void pl_tool_progress_begin(struct pl_tool_progress *progress, uint64_t total_bytes, bool quiet)
{
    *progress = (struct pl_tool_progress){
        .shown = !quiet && isatty(STDERR_FILENO), .total_bytes = total_bytes, .begun_ns = pl_clock_now_ns()};
}

static void print_bytes(double bytes, char *text, size_t text_bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    size_t unit = 0;

    while (bytes >= 1000 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        bytes /= 1000;
        unit++;
    }
    snprintf(text, text_bytes, unit ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
}

static void draw(const struct pl_tool_progress *progress, const char *name)
{
    double part = progress->total_bytes ? (double)progress->moved_bytes / (double)progress->total_bytes : 0;
    double seconds = (double)(pl_clock_now_ns() - progress->begun_ns) / 1e9;
    double rate = seconds > 0 ? (double)progress->moved_bytes / seconds : 0;
    char moved[32], total[32], speed[32], bar[BAR + 1];
    const char *slash = strrchr(name, '/');
    int full;

    part = part > 1 ? 1 : part;
    full = (int)(part * BAR);
    memset(bar, '.', BAR);
    memset(bar, '#', (size_t)full);
    bar[BAR] = '\0';
    print_bytes((double)progress->moved_bytes, moved, sizeof(moved));
    print_bytes((double)progress->total_bytes, total, sizeof(total));
    print_bytes(rate, speed, sizeof(speed));
    if (progress->total_bytes) {
        double left_s = rate > 0 ? (double)(progress->total_bytes - progress->moved_bytes) / rate : 0;

        fprintf(stderr, "\r[%s] %3.0f %% %s of %s, %s/s, %.0f s left  %.40s\033[K", bar, part * 100, moved, total,
                speed, left_s, slash ? slash + 1 : name);
    } else {
        fprintf(stderr, "\r%s, %s/s  %.40s\033[K", moved, speed, slash ? slash + 1 : name);
    }
}

void pl_tool_progress_move(struct pl_tool_progress *progress, const char *name, uint64_t bytes)
{
    int64_t now_ns = pl_clock_now_ns();

    progress->moved_bytes += bytes;
    if (progress->shown && now_ns - progress->drawn_ns >= DRAW_MS * PL_NS_PER_MS) {
        progress->drawn_ns = now_ns;
        draw(progress, name);
    }
}

void pl_tool_progress_end(struct pl_tool_progress *progress)
{
    if (progress->shown) {
        draw(progress, "");
        fputc('\n', stderr);
    }
}
