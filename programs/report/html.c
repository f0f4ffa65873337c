/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the elements of a page that several of its parts have. */
#include "programs/report/html.h"

#include <string.h>

void pl_html_text_n(struct pl_text *html, const char *text, size_t length)
{
    const char *end = text + length;

    for (const char *at = text; at < end;) {
        const size_t control = pl_text_control_bytes(at, end), bytes = pl_text_character_bytes(at, end);

        if (*at == '&') {
            pl_text_append(html, "&amp;");
        } else if (*at == '<') {
            pl_text_append(html, "&lt;");
        } else if (*at == '>') {
            pl_text_append(html, "&gt;");
        } else if (*at == '"') {
            pl_text_append(html, "&quot;");
        } else if (bytes == 0 || (control > 0 && *at != '\n' && *at != '\t')) {
            pl_text_append_char(html, '?');
        } else {
            pl_text_append_n(html, at, bytes);
        }
        at += control > bytes ? control : bytes > 0 ? bytes : 1;
    }
}

void pl_html_text(struct pl_text *html, const char *text)
{
    pl_html_text_n(html, text, strlen(text));
}

void pl_html_element(struct pl_text *html, const char *name, const char *class, const char *text)
{
    pl_text_printf(html, class ? "<%s class=\"%s\">" : "<%s>", name, class);
    pl_html_text(html, text);
    pl_text_printf(html, "</%s>", name);
}

void pl_html_number_cell(struct pl_text *html, double number)
{
    pl_text_printf(html, "<td class=\"number\">%.6g</td>", number);
}

void pl_html_section(struct pl_text *html, const char *title)
{
    pl_text_append(html, "<section>\n");
    pl_html_element(html, "h2", NULL, title);
    pl_text_append(html, "\n");
}

void pl_html_table(struct pl_text *html, const char *const *names)
{
    pl_text_append(html, "<div class=\"table\"><table><thead><tr>");
    for (; *names; names++) {
        const bool number = **names == '#';

        pl_text_append(html, number ? "<th scope=\"col\" class=\"number\">" : "<th scope=\"col\">");
        pl_html_text(html, *names + number);
        pl_text_append(html, "</th>");
    }
    pl_text_append(html, "</tr></thead><tbody>\n");
}

void pl_html_table_end(struct pl_text *html)
{
    pl_text_append(html, "</tbody></table></div>\n");
}
