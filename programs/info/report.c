/* SPDX-License-Identifier: Apache-2.0 */
/* Lines for people, or JSON. */
#include "programs/info/report.h"

#include "base/text.h"

#include <stdio.h>
#include <string.h>

enum { NAME_COLUMNS = 22, JSON_VERSION = 1 };

void pl_info_report_init(struct pl_info_report *report, bool is_json)
{
    *report = (struct pl_info_report){.is_json = is_json, .text = PL_TEXT_NONE};
    report->json = PL_JSON_WRITER(&report->text);
    if (is_json) {
        pl_json_write_object(&report->json, NULL);
        pl_json_write_int64(&report->json, "version", JSON_VERSION);
    }
}

void pl_info_report_done(struct pl_info_report *report)
{
    pl_text_done(&report->text);
}

void pl_info_begin(struct pl_info_report *report, const char *section)
{
    if (report->is_json) {
        pl_json_write_object(&report->json, section);
    } else {
        pl_text_printf(&report->text, "%s:\n", section);
    }
}

void pl_info_end(struct pl_info_report *report)
{
    if (report->is_json) {
        pl_json_write_close(&report->json);
    }
}

/* "dev_shm_mib" as "dev shm". */
static void print_name(struct pl_info_report *report, const char *name)
{
    size_t length = strlen(name);

    length -= length > 4 && strcmp(name + length - 4, "_mib") == 0 ? 4 : 0; /* the value has it */
    pl_text_append(&report->text, "  ");
    for (size_t i = 0; i < length; i++) {
        const bool is_setting = name[0] >= 'A' && name[0] <= 'Z';

        pl_text_append_char(&report->text, name[i] == '_' && !is_setting ? ' ' : name[i]);
    }
    pl_text_append(&report->text, ":");
    pl_text_printf(&report->text, "%*s", length < NAME_COLUMNS ? (int)(NAME_COLUMNS - length) : 1, "");
}

void pl_info_text(struct pl_info_report *report, const char *name, const char *value)
{
    PL_AUTO_TEXT struct pl_text clean = PL_TEXT_NONE;

    if (value) {
        pl_text_append(&clean, value);
        pl_text_mask(clean.data, clean.length);
    }
    if (report->is_json && !value) {
        pl_json_write_null(&report->json, name);
    } else if (report->is_json) {
        pl_json_write_text(&report->json, name, pl_text_string(&clean));
    } else {
        print_name(report, name);
        pl_text_printf(&report->text, "%s\n", value ? pl_text_string(&clean) : "none");
    }
}

void pl_info_bool(struct pl_info_report *report, const char *name, bool value)
{
    if (report->is_json) {
        pl_json_write_bool(&report->json, name, value);
    } else {
        pl_info_text(report, name, value ? "yes" : "no");
    }
}

void pl_info_number(struct pl_info_report *report, const char *name, int64_t value, const char *unit)
{
    if (report->is_json) {
        pl_json_write_int64(&report->json, name, value);
    } else {
        print_name(report, name);
        pl_text_printf(&report->text, "%lld%s%s\n", (long long)value, *unit ? " " : "", unit);
    }
}

void pl_info_lines(struct pl_info_report *report, const char *name, const char *text)
{
    if (report->is_json) {
        pl_json_write_list(&report->json, name);
    }
    while (*text != '\0') {
        size_t bytes = strcspn(text, "\n");
        PL_AUTO_TEXT struct pl_text line = PL_TEXT_NONE;

        pl_text_append_n(&line, text, bytes);
        pl_text_mask(line.data, line.length);
        if (report->is_json) {
            pl_json_write_text(&report->json, NULL, pl_text_string(&line));
        } else {
            pl_text_printf(&report->text, "%s\n", pl_text_string(&line));
        }
        text += bytes + (text[bytes] == '\n');
    }
    if (report->is_json) {
        pl_json_write_close(&report->json);
    }
}

enum pl_status pl_info_print(struct pl_info_report *report, struct pl_error *reterr)
{
    if (report->is_json) {
        pl_json_write_close(&report->json);
        PL_TRY(pl_json_write_end(&report->json, reterr));
        pl_text_append_char(&report->text, '\n');
    }
    PL_TRY(pl_text_check(&report->text, reterr));
    fputs(pl_text_string(&report->text), stdout);
    return fflush(stdout) == 0 && !ferror(stdout)
               ? PL_OK
               : pl_error_set(reterr, PL_SYSTEM, "standard output cannot be written");
}
