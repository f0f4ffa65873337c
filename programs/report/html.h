/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Elements of HTML. Text from outside goes through pl_html_text() alone: what has a meaning in HTML stays text there.
 *
 * Test  tests/integration/report.py
 */
#ifndef PL_PROGRAMS_REPORT_HTML_H
#define PL_PROGRAMS_REPORT_HTML_H

#include "base/text.h"

/** Appends text from outside: what is no UTF-8, and control characters but a line feed and a tab, become '?'. */
void pl_html_text(struct pl_text *html, const char *text);

/** The same of `length` bytes. */
void pl_html_text_n(struct pl_text *html, const char *text, size_t length);

/** Appends `<NAME class="CLASS">TEXT</NAME>`; the first two are ours, and `class` may be NULL. */
void pl_html_element(struct pl_text *html, const char *name, const char *class, const char *text);

void pl_html_number_cell(struct pl_text *html, double number);

/** Begins a section, which the caller ends by `</section>`. */
void pl_html_section(struct pl_text *html, const char *title);

/** Begins a table. `names` ends with NULL; those that begin with '#' are above numbers. */
void pl_html_table(struct pl_text *html, const char *const *names);

void pl_html_table_end(struct pl_text *html);

#endif
