/* SPDX-License-Identifier: Apache-2.0 */
/* Fills an error report: the cause once, then the callers' additions. Also the texts of statuses. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *text;
} statuses[] = {
#define PL_STATUS_ROW(name, text) [PL_##name] = {#name, text},
    PL_STATUS_LIST(PL_STATUS_ROW)
#undef PL_STATUS_ROW
};

static const char *text_of(enum pl_status status)
{
    return (size_t)status < sizeof(statuses) / sizeof(statuses[0]) ? statuses[status].text : "unknown status";
}

const char *pl_status_name(enum pl_status status)
{
    return (size_t)status < sizeof(statuses) / sizeof(statuses[0]) ? statuses[status].name : "UNKNOWN";
}

/* Makes a vsnprintf() result that did not fit end in "...", so that a reader sees the cut. */
static size_t mark_cut(char *text, size_t text_bytes, int wanted)
{
    if (wanted < 0) {
        text[0] = '\0';
        return 0;
    }
    if ((size_t)wanted < text_bytes) {
        return (size_t)wanted;
    }
    if (text_bytes > 4) {
        memcpy(text + text_bytes - 4, "...", 4);
    }
    return text_bytes - 1;
}

enum pl_status pl_error_raise(struct pl_error *reterr, enum pl_status status, enum pl_domain domain, int64_t code,
                              const char *format, ...)
{
    va_list args;
    size_t used;

    if (!reterr) {
        return status;
    }
    memset(reterr, 0, sizeof(*reterr));
    reterr->status = status;
    reterr->domain = domain;
    reterr->code = code;
    va_start(args, format);
    used =
        mark_cut(reterr->cause, sizeof(reterr->cause), vsnprintf(reterr->cause, sizeof(reterr->cause), format, args));
    va_end(args);
    if (domain == PL_DOMAIN_ERRNO) {
        char words[128];

        /* strerrordesc_np() is glibc's table, which is thread-safe and independent of the locale. */
        snprintf(words, sizeof(words), ": %s",
                 strerrordesc_np((int)code) ? strerrordesc_np((int)code) : "unknown error");
        mark_cut(reterr->cause + used, sizeof(reterr->cause) - used,
                 snprintf(reterr->cause + used, sizeof(reterr->cause) - used, "%s", words));
    }
    return status;
}

void pl_error_context(struct pl_error *reterr, const char *format, ...)
{
    va_list args;
    size_t used;

    if (!reterr) {
        return;
    }
    used = strlen(reterr->context);
    if (used && used + 3 < sizeof(reterr->context)) {
        memcpy(reterr->context + used, "; ", 3);
        used += 2;
    }
    va_start(args, format);
    mark_cut(reterr->context + used, sizeof(reterr->context) - used,
             vsnprintf(reterr->context + used, sizeof(reterr->context) - used, format, args));
    va_end(args);
}

const char *pl_error_text(const struct pl_error *error, char *text, uint32_t text_bytes)
{
    const char *cause = error->cause[0] ? error->cause : text_of(error->status);

    PL_BUG_IF(text_bytes == 0);
    if (error->context[0]) {
        mark_cut(text, text_bytes, snprintf(text, text_bytes, "%s (%s)", cause, error->context));
    } else {
        mark_cut(text, text_bytes, snprintf(text, text_bytes, "%s", cause));
    }
    return text;
}

void pl_bug(const char *file, int line, const char *function, const char *condition)
{
    fprintf(stderr, "paceline: bug: %s:%d: %s: %s\n", file, line, function, condition);
    abort();
}
