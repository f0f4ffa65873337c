/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Unit tests as data: a file of cases, each some lines that set something up, do something and compare what came of it.
 * A case begins with "== name_of_the_case"; the lines before the first case are run in each. A test program brings the
 * words for its subject, and these are those of all:
 *
 *   let NAME TEXT              <NAME> stands for TEXT in the lines that follow
 *   take NAME VALUE            the same for a value
 *   for NAME NAME              the lines up to `end`, for each row "| TEXT | TEXT" that follows
 *   # a comment
 *   ACTION                     succeeds
 *   ACTION fails STATUS TEXT   fails, with TEXT in its cause; with "= TEXT" that is the whole cause
 *   VALUE = TEXT               or !=, has, lacks, begins; `VALUE none` if there is none
 */
#ifndef PL_TESTS_SUPPORT_CASES_H
#define PL_TESTS_SUPPORT_CASES_H

#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/text.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <string.h>

enum { CASES_MOST_LINES = 2048, CASES_MOST_WORDS = 32, CASES_WORD_BYTES = 2048 };

/** A word that writes something. It may change `rest`, which follows it. */
struct cases_verb {
    const char *name;
    void (*run)(char *rest);
};

/** A word that can fail. */
struct cases_action {
    const char *name;
    enum pl_status (*run)(struct pl_error *reterr);
};

/** What a program brings: words, both lists with an end, and how to find a value. The rest is of this file. */
struct cases {
    const struct cases_verb *verbs;
    const struct cases_action *actions;
    /* Returns a value, or NULL for none; sets *ret_known to false if nothing has this name. It may print to `text`. */
    const char *(*find)(const char *name, struct pl_text *text, bool *ret_known);
    void (*begin)(void), (*end)(void); /* of a case; may be NULL */

    struct pl_error error; /* of the last action */
    bool left_out;         /* the case cannot run here */

    char *lines[CASES_MOST_LINES];
    int lines_count, first_case, checks, words_count;
    struct {
        char name[24], value[CASES_WORD_BYTES];
    } words[CASES_MOST_WORDS];
};

/** The program's own; it defines this. */
static struct cases cases;

static inline bool cases_begin_at(int at)
{
    return strncmp(cases.lines[at], "== ", 3) == 0;
}

/** Cut the first word off a text. Returns what follows it. */
static inline char *cases_cut(char *text)
{
    char *space = text + strcspn(text, " ");

    if (!*space) {
        return space;
    }
    *space = '\0';
    return space + 1;
}

/** Replace \n, \r, \t and \xHH by their bytes. Returns the text. */
static inline char *cases_unescape(char *text)
{
    char *to = text;

    for (const char *at = text; *at;) {
        const char *letter = at[0] == '\\' && at[1] ? strchr("nrtx", at[1]) : NULL;

        if (letter && *letter == 'x') {
            *to++ = (char)(pl_text_hex_value(at[2]) * 16 + pl_text_hex_value(at[3]));
        } else {
            *to++ = letter ? "\n\r\t"[strcspn("nrt", letter)] : *at;
        }
        at += !letter ? 1 : *letter == 'x' ? 4 : 2;
    }
    *to = '\0';
    return text;
}

/* Append the text with the values of its words. */
static inline void cases_expand(const char *from, struct pl_text *text)
{
    while (*from) {
        const char *end = *from == '<' ? strchr(from, '>') : NULL;
        int word = end ? cases.words_count - 1 : -1;

        while (word >= 0 && (strlen(cases.words[word].name) != (size_t)(end - from - 1) ||
                             memcmp(cases.words[word].name, from + 1, (size_t)(end - from - 1)) != 0)) {
            word--;
        }
        if (word < 0) {
            pl_text_append_char(text, *from++);
        } else {
            pl_text_append(text, cases.words[word].value);
            from = end + 1;
        }
    }
}

/** <NAME> stands for `value`; the name ends at its first space. */
static inline void cases_let(const char *name, const char *value)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    size_t name_bytes = strcspn(name, " ");

    cases_expand(value, &text);
    ck_assert(cases.words_count < CASES_MOST_WORDS && text.length < CASES_WORD_BYTES);
    ck_assert_uint_lt(name_bytes, sizeof(cases.words[0].name));
    snprintf(cases.words[cases.words_count].name, sizeof(cases.words[0].name), "%.*s", (int)name_bytes, name);
    snprintf(cases.words[cases.words_count++].value, CASES_WORD_BYTES, "%s", pl_text_string(&text));
}

static inline bool cases_compare(const char *found, const char *how, const char *wanted)
{
    if (strcmp(how, "none") == 0 || !found) {
        return strcmp(how, "none") == 0 && !found;
    }
    if (strcmp(how, "=") == 0 || strcmp(how, "!=") == 0) {
        return (strcmp(found, wanted) == 0) == (how[0] == '=');
    }
    if (strcmp(how, "begins") == 0) {
        return strncmp(found, wanted, strlen(wanted)) == 0;
    }
    ck_assert_msg(strcmp(how, "has") == 0 || strcmp(how, "lacks") == 0, "'%s' is not a comparison", how);
    return !strstr(found, wanted) == (how[0] == 'l');
}

/* Returns the value of the name; `cause` and `context` are those of the last action. */
static inline const char *cases_find(int line, const char *name, struct pl_text *text)
{
    bool known = true;
    const char *value;

    if (strcmp(name, "cause") == 0 || strcmp(name, "context") == 0) {
        return name[1] == 'a' ? cases.error.cause : cases.error.context;
    }
    value = cases.find(name, text, &known);
    ck_assert_msg(known, "line %d: there is no value '%s'", line, name);
    return value;
}

static inline void cases_check(int line, const char *name, char *how)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    const char *wanted = cases_unescape(cases_cut(how));
    const char *found = cases_find(line, name, &text);

    ck_assert_msg(cases_compare(found, how, wanted), "line %d: %s is '%s'; expected: %s '%s'", line, name,
                  found ? found : "none", how, wanted);
    cases.checks++;
}

static inline bool cases_act(int line, const char *name, char *rest)
{
    const struct cases_action *action = cases.actions;
    char *wanted = strncmp(rest, "fails ", 6) == 0 ? rest + 6 : NULL;
    const char *words = wanted ? cases_cut(wanted) : "", *found;
    enum pl_status status;

    while (action->name && strcmp(action->name, name) != 0) {
        action++;
    }
    if (!action->name) {
        return false;
    }
    cases.error = PL_ERROR_NONE;
    status = action->run(&cases.error);
    found = cases.error.cause;
    ck_assert_msg(strcmp(pl_status_name(status), wanted ? wanted : "OK") == 0, "line %d: %s: %s: %s", line, name,
                  pl_status_name(status), found);
    ck_assert_msg(strncmp(words, "= ", 2) == 0 ? strcmp(found, words + 2) == 0 : !!strstr(found, words),
                  "line %d: the cause is '%s'; expected: %s", line, found, words);
    cases.checks += !!wanted;
    return true;
}

static inline void cases_line(int line, char *verb)
{
    char *rest = cases_cut(verb);

    for (const struct cases_verb *own = cases.verbs; own->name; own++) {
        if (strcmp(own->name, verb) == 0) {
            own->run(rest);
            return;
        }
    }
    if (strcmp(verb, "let") == 0) {
        cases_let(rest, rest + strcspn(rest, " ") + 1);
    } else if (strcmp(verb, "take") == 0) {
        PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

        cases_let(rest, cases_find(line, rest + strcspn(rest, " ") + 1, &text));
    } else if (!cases_act(line, verb, rest)) {
        cases_check(line, verb, rest);
    }
}

/* Returns where a cell of a row ends: before the next, or at the row's end. */
static inline const char *cases_cell_end(const char *row)
{
    const char *end = strstr(row, " |");

    while (end && end[2] != ' ' && end[2] != '\0') {
        end = strstr(end + 2, " |");
    }
    return end ? end : row + strlen(row);
}

/* Set the words `names` from a row. */
static inline void cases_row(const char *names, const char *row)
{
    for (row++; *names; names += strcspn(names, " "), names += *names == ' ') {
        const char *end = row ? cases_cell_end(row) : NULL;
        PL_AUTO_TEXT struct pl_text cell = PL_TEXT_NONE;

        ck_assert_msg(row, "the row has too few cells");
        row += end > row;
        pl_text_append_n(&cell, row, (size_t)(end - row));
        cases_let(names, pl_text_string(&cell));
        row = *end ? end + 2 : NULL;
    }
}

/* Returns the number of the line that ends the loop whose body begins at `at`. */
static inline int cases_loop_end(int at)
{
    for (int depth = 1;; at++) {
        ck_assert_msg(at < cases.lines_count, "a loop has no end");
        depth += strncmp(cases.lines[at], "for ", 4) == 0 ? 1 : strcmp(cases.lines[at], "end") == 0 ? -1 : 0;
        if (depth == 0) {
            return at;
        }
    }
}

static inline void cases_run(int at, int end)
{
    for (; at < end && !cases.left_out; at++) {
        PL_AUTO_TEXT struct pl_text line = PL_TEXT_NONE;
        int row = at + 1, body = row, words_count = cases.words_count;

        if (strncmp(cases.lines[at], "for ", 4) != 0) {
            cases_expand(cases.lines[at], &line);
            if (line.length > 0 && line.data[0] != '#') {
                cases_line(at + 1, line.data);
            }
            continue;
        }
        while (cases.lines[body][0] == '|') {
            body++;
        }
        for (; row < body; row++) {
            cases_row(cases.lines[at] + 4, cases.lines[row]);
            cases_run(body, cases_loop_end(body));
            cases.words_count = words_count;
        }
        at = cases_loop_end(body);
    }
}

/* The case that begins at this line. */
static inline void cases_test(int at)
{
    int end = at + 1;

    while (end < cases.lines_count && !cases_begin_at(end)) {
        end++;
    }
    cases.words_count = cases.checks = 0;
    cases.left_out = false;
    if (cases.begin) {
        cases.begin();
    }
    cases_run(0, cases.first_case);
    cases_run(at + 1, end);
    ck_assert_msg(cases.left_out || cases.checks > 0, "the case compares nothing");
    if (cases.end) {
        cases.end();
    }
}

/** As UNIT_MAIN(), for a program that also runs the cases of the file that is its argument, each as a test. */
#define CASES_MAIN(suite_name)                                                                                         \
    UNIT_OF_FILE(suite_name)                                                                                           \
                                                                                                                       \
    int main(int argc, char **argv)                                                                                    \
    {                                                                                                                  \
        return cases_main(unit_suite(unit_of_file()), argc == 2 ? argv[1] : "");                                       \
    }

static inline int cases_main(Suite *suite, const char *path)
{
    static const TTest test = {"cases_test", cases_test, __FILE__, __LINE__};
    struct pl_error error = PL_ERROR_NONE;
    PL_AUTO_FREE char *data = NULL;
    char *line, *rest;

    if (pl_file_read(path, 1 << 20, &data, NULL, &error) != PL_OK) {
        fprintf(stderr, "expected a file of cases: %s\n", error.cause);
        return EXIT_FAILURE;
    }
    for (rest = data; cases.lines_count < CASES_MOST_LINES && (line = strsep(&rest, "\n"));) {
        cases.lines[cases.lines_count++] = line + strspn(line, " ");
    }
    for (int i = cases.lines_count - 1; i >= 0; i--) {
        if (cases_begin_at(i)) {
            TCase *test_case = tcase_create(cases.lines[i] + 3);

            cases.first_case = i;
            tcase_add_loop_test(test_case, &test, i, i + 1);
            suite_add_tcase(suite, test_case);
        }
    }
    return rest ? EXIT_FAILURE : unit_run(suite);
}

#endif
