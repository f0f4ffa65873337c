/* SPDX-License-Identifier: Apache-2.0 */
/* Metric lines as text and as JSON, and a progress line on terminals. */
#include "runtime/metrics.h"

#include "base/file.h"
#include "base/json/python_json.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <unistd.h>

static void begin_pair(struct pl_metrics *metrics, const char *name)
{
    pl_text_printf(&metrics->line, "%s%s=", metrics->line.length > 0 ? " " : "", name);
    pl_text_append(&metrics->json, metrics->json.length > 0 ? ", " : "{");
    pl_python_json_print_string(name, &metrics->json);
    pl_text_append(&metrics->json, ": ");
}

void pl_metrics_whole(struct pl_metrics *metrics, const char *name, int64_t value)
{
    begin_pair(metrics, name);
    pl_text_printf(&metrics->line, "%lld", (long long)value);
    pl_text_printf(&metrics->json, "%lld", (long long)value);
}

void pl_metrics_real(struct pl_metrics *metrics, const char *name, int decimals, double value)
{
    begin_pair(metrics, name);
    pl_text_printf(&metrics->line, "%.*f", decimals, value);
    if (isfinite(value)) {
        pl_python_json_print_double(value, &metrics->json);
    } else {
        pl_text_append(&metrics->json, "null"); /* JSON has no NaN and no infinity */
    }
}

static enum pl_status append_line(const char *path, const struct pl_text *text, struct pl_error *reterr)
{
    PL_AUTO_CLOSE int fd = -1;

    PL_TRY(pl_file_make_parents(path, 0777, reterr));
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0) {
        return pl_error_errno(reterr, "open '%s'", path);
    }
    return pl_file_write_fd(fd, text->data, text->length, path, reterr);
}

enum pl_status pl_metrics_write(struct pl_metrics *metrics, FILE *stream, const char *jsonl_path,
                                struct pl_error *reterr)
{
    enum pl_status status;

    pl_text_append(&metrics->line, "\n");
    pl_text_append(&metrics->json, metrics->json.length > 0 ? "}\n" : "{}\n");
    status = pl_text_check(&metrics->line, reterr);
    if (status == PL_OK) {
        status = pl_text_check(&metrics->json, reterr);
    }
    if (status == PL_OK) {
        pl_metrics_clear_progress();
        if (fwrite(metrics->line.data, 1, metrics->line.length, stream) != metrics->line.length ||
            fflush(stream) != 0) {
            status = pl_error_errno(reterr, "write a metric line");
        }
    }
    if (status == PL_OK && jsonl_path) {
        status = append_line(jsonl_path, &metrics->json, reterr);
    }
    pl_text_clear(&metrics->line);
    pl_text_clear(&metrics->json);
    return status;
}

void pl_metrics_done(struct pl_metrics *metrics)
{
    pl_text_done(&metrics->line);
    pl_text_done(&metrics->json);
}

void pl_metrics_show_progress(const char *format, ...)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    va_list args;

    if (!isatty(STDERR_FILENO)) {
        return;
    }
    pl_text_append(&text, "\r");
    va_start(args, format);
    pl_text_vprintf(&text, format, args);
    va_end(args);
    pl_text_append(&text, "\x1b[K");
    if (pl_text_check(&text, NULL) == PL_OK) {
        (void)!write(STDERR_FILENO, text.data, text.length);
    }
}

void pl_metrics_clear_progress(void)
{
    if (isatty(STDERR_FILENO)) {
        (void)!write(STDERR_FILENO, "\r\x1b[K", 4);
    }
}
