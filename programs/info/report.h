/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What `paceline info` prints, value by value: sections of named values, as lines for people or as one JSON object with
 * an object for each section.
 *
 * Test  tests/integration/info.py
 */
#ifndef PL_PROGRAMS_INFO_REPORT_H
#define PL_PROGRAMS_INFO_REPORT_H

#include "base/json/json_write.h"

#include <stdbool.h>
#include <stdint.h>

struct pl_info_report {
    bool is_json;
    struct pl_text text;
    struct pl_json_writer json;
};

/** The report's storage must stay where it is. */
void pl_info_report_init(struct pl_info_report *report, bool is_json);
void pl_info_report_done(struct pl_info_report *report);

void pl_info_begin(struct pl_info_report *report, const char *section);
void pl_info_end(struct pl_info_report *report);

/** NULL: there is none. Control characters and broken UTF-8 are printed as '?'. */
void pl_info_text(struct pl_info_report *report, const char *name, const char *value);
void pl_info_bool(struct pl_info_report *report, const char *name, bool value);

/** `unit` follows the number in the lines for people; in JSON the name has it. */
void pl_info_number(struct pl_info_report *report, const char *name, int64_t value, const char *unit);

/** The lines of `text`, which may be empty: a list in JSON. */
void pl_info_lines(struct pl_info_report *report, const char *name, const char *text);

/** Prints the whole report to standard output. */
enum pl_status pl_info_print(struct pl_info_report *report, struct pl_error *reterr) PL_MUST_CHECK;

#endif
