/* SPDX-License-Identifier: Apache-2.0 */
/* The layout that all workers and servers agree on: a worker writes it, servers check and compare it. Also the tables'
 * options: their ranges and their text. */
#include "runtime/server/layout.h"

#include "base/memory.h"
#include "base/text.h"
#include "collectives/reduce/compress.h"
#include "runtime/gradient/optimizer_rule.h"
#include "runtime/gradient/plan_private.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 2 };

static const char *const kind_names[] = {
    [PL_SGD] = "sgd", [PL_ADAM] = "adam", [PL_ADAMW] = "adamw", [PL_ADAGRAD] = "adagrad"};

/* Prints "table 'users' [64] initial=zeros ...". */
static void print_table(const struct pl_table *table, struct pl_text *text)
{
    pl_text_printf(
        text, "table '%s' [%llu columns] initial=%s bound=%g seed=%llu optimizer=%s rate=%g epsilon=%g", table->name,
        (unsigned long long)table->columns, table->initial == PL_SERVER_UNIFORM ? "uniform" : "zeros", table->bound,
        (unsigned long long)table->seed, table->kind == PL_ADAGRAD ? "adagrad" : "sgd", table->rate, table->epsilon);
}

static void write_lines(const struct pl_plan *plan, const struct pl_server_layout_head *head,
                        const struct pl_table *tables, struct pl_text *text)
{
    pl_text_printf(text, "optimizer=%s momentum=%g nesterov=%d weight_decay=%g beta1=%g beta2=%g epsilon=%g ",
                   kind_names[head->kind], head->momentum, (int)head->nesterov, head->weight_decay, head->beta1,
                   head->beta2, head->epsilon);
    pl_text_printf(text, "staleness=%lld wire=%s pieces=%llu\n", (long long)head->staleness,
                   pl_compress_name(head->wire), (unsigned long long)head->pieces);
    for (size_t i = 0; i < pl_plan_tensor_count(plan); i++) {
        pl_plan_print_tensor(pl_plan_tensor(plan, i), text);
        pl_text_append_char(text, '\n');
    }
    for (uint64_t i = 0; i < head->tables; i++) {
        print_table(&tables[i], text);
        pl_text_append_char(text, '\n');
    }
}

enum pl_status pl_server_layout_new(const struct pl_plan *plan, const struct pl_optimizer_options *optimizer,
                                    int64_t staleness, unsigned wire, const struct pl_table *tables, size_t table_count,
                                    struct pl_server_layout *ret_layout, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text lines = PL_TEXT_NONE, whole = PL_TEXT_NONE;
    struct pl_server_layout_head head = {
        .version = VERSION,
        .elems = pl_plan_elems(plan),
        .pieces = pl_plan_bucket_count(plan),
        .tables = table_count,
        .staleness = staleness,
        .kind = optimizer->kind,
        .nesterov = optimizer->nesterov,
        .wire = wire,
        .momentum = optimizer->momentum,
        .weight_decay = optimizer->weight_decay,
        .beta1 = optimizer->beta1,
        .beta2 = optimizer->beta2,
        .epsilon = optimizer->epsilon,
    };
    char *data = NULL;
    size_t bytes;

    write_lines(plan, &head, tables, &lines);
    PL_TRY(pl_text_check(&lines, reterr));
    head.lines_bytes = lines.length;
    pl_text_append_n(&whole, (const char *)&head, sizeof(head));
    for (size_t p = 0; p < head.pieces; p++) {
        struct pl_server_range range;

        pl_plan_bucket(plan, p, &range.first_elem, &range.count_elems);
        pl_text_append_n(&whole, (const char *)&range, sizeof(range));
    }
    pl_text_append_n(&whole, (const char *)tables, table_count * sizeof(*tables));
    pl_text_append_n(&whole, lines.data, lines.length);
    bytes = whole.length;
    PL_TRY(pl_text_take(&whole, &data, reterr));
    return pl_server_layout_read(data, bytes, ret_layout, reterr);
}

/* Whether the pieces follow each other and cover all elements. */
static bool are_pieces_whole(struct pl_server_layout *layout)
{
    uint64_t at = 0;

    for (uint64_t p = 0; p < layout->head->pieces; p++) {
        const struct pl_server_range *range = &layout->pieces[p];

        if (range->first_elem != at || range->count_elems == 0 || range->count_elems > layout->head->elems - at) {
            return false;
        }
        at += range->count_elems;
        layout->longest_elems = range->count_elems > layout->longest_elems ? range->count_elems : layout->longest_elems;
    }
    return at == layout->head->elems;
}

/* Whether pieces, tables and lines exactly fill the `left` bytes after the head. */
static bool has_length(const struct pl_server_layout_head *head, size_t left)
{
    if (head->pieces == 0 || head->pieces > left / sizeof(struct pl_server_range)) {
        return false;
    }
    left -= head->pieces * sizeof(struct pl_server_range);
    if (head->tables > PL_SERVER_MOST_TABLES || head->tables > left / sizeof(struct pl_table)) {
        return false;
    }
    return head->lines_bytes > 0 && head->lines_bytes == left - head->tables * sizeof(struct pl_table);
}

static enum pl_status check(struct pl_server_layout *layout, struct pl_error *reterr)
{
    const struct pl_server_layout_head *head = layout->head;
    struct pl_optimizer_options options;
    size_t left = layout->bytes - sizeof(*head);

    if (head->version != VERSION) {
        return pl_error_set(reterr, PL_CORRUPT, "a worker's layout is of version %llu, expected %d",
                            (unsigned long long)head->version, VERSION);
    }
    if (!has_length(head, left)) {
        return pl_error_set(
            reterr, PL_CORRUPT,
            "a worker's layout of %zu bytes cannot hold %llu pieces, %llu tables and %llu bytes of text", layout->bytes,
            (unsigned long long)head->pieces, (unsigned long long)head->tables, (unsigned long long)head->lines_bytes);
    }
    layout->pieces = (const struct pl_server_range *)(const void *)(head + 1);
    layout->tables = (const struct pl_table *)(const void *)(layout->pieces + head->pieces);
    layout->lines = (const char *)(layout->tables + head->tables);
    if (layout->lines[head->lines_bytes - 1] != '\n' || memchr(layout->lines, '\0', head->lines_bytes)) {
        return pl_error_set(reterr, PL_CORRUPT, "the text of a worker's layout has a NUL, or no newline at its end");
    }
    if (!are_pieces_whole(layout)) {
        return pl_error_set(reterr, PL_CORRUPT, "the pieces of a worker's layout do not cover its %llu elements",
                            (unsigned long long)head->elems);
    }
    if (head->staleness < PL_SERVER_NO_BOUND || head->kind > PL_ADAGRAD || head->nesterov > 1 ||
        !pl_compress_name(head->wire)) {
        return pl_error_set(reterr, PL_CORRUPT, "a worker's layout has staleness %lld, optimizer %llu, wire type %u",
                            (long long)head->staleness, (unsigned long long)head->kind, head->wire);
    }
    for (uint64_t t = 0; t < head->tables; t++) {
        PL_TRY(pl_table_check(&layout->tables[t], reterr));
    }
    options = pl_server_layout_optimizer(layout);
    return pl_optimizer_rule_check(&options, reterr);
}

enum pl_status pl_server_layout_read(char *data, size_t bytes, struct pl_server_layout *ret_layout,
                                     struct pl_error *reterr)
{
    struct pl_server_layout layout = {.bytes = bytes, .data = data};
    enum pl_status status;

    layout.head = (const struct pl_server_layout_head *)(const void *)data;
    status = bytes >= sizeof(*layout.head)
                 ? check(&layout, reterr)
                 : pl_error_set(reterr, PL_CORRUPT, "a worker's layout has %zu bytes, expected at least %zu", bytes,
                                sizeof(*layout.head));
    if (status != PL_OK) {
        free(data);
        return status;
    }
    *ret_layout = layout;
    return PL_OK;
}

void pl_server_layout_done(struct pl_server_layout *layout)
{
    free(layout->data);
    *layout = (struct pl_server_layout){0};
}

struct pl_optimizer_options pl_server_layout_optimizer(const struct pl_server_layout *layout)
{
    const struct pl_server_layout_head *head = layout->head;

    return (struct pl_optimizer_options){
        .kind = (enum pl_optimizer_kind)head->kind,
        .momentum = head->momentum,
        .nesterov = head->nesterov != 0,
        .weight_decay = head->weight_decay,
        .beta1 = head->beta1,
        .beta2 = head->beta2,
        .epsilon = head->epsilon,
    };
}

enum pl_status pl_server_layout_compare(const struct pl_server_layout *a, const char *whose_a,
                                        const struct pl_server_layout *b, const char *whose_b, struct pl_error *reterr)
{
    const char *at_a = a->lines, *at_b = b->lines;
    const char *end_a = at_a + a->head->lines_bytes, *end_b = at_b + b->head->lines_bytes;

    if (a->bytes == b->bytes && memcmp(a->data, b->data, a->bytes) == 0) {
        return PL_OK;
    }
    while (at_a < end_a && at_b < end_b) {
        size_t length_a = (size_t)((const char *)memchr(at_a, '\n', (size_t)(end_a - at_a)) - at_a);
        size_t length_b = (size_t)((const char *)memchr(at_b, '\n', (size_t)(end_b - at_b)) - at_b);

        if (length_a != length_b || memcmp(at_a, at_b, length_a) != 0) {
            return pl_error_set(reterr, PL_MISMATCH, "%s registered %.*s, and %s %.*s", whose_a, (int)length_a, at_a,
                                whose_b, (int)length_b, at_b);
        }
        at_a += length_a + 1;
        at_b += length_b + 1;
    }
    if (at_a < end_a || at_b < end_b) {
        return pl_error_set(reterr, PL_MISMATCH, "%s registered more tensors or tables than %s",
                            at_a < end_a ? whose_a : whose_b, at_a < end_a ? whose_b : whose_a);
    }
    return pl_error_set(
        reterr, PL_MISMATCH,
        "%s and %s have the same tensors and tables, but cut into other pieces (bucket_bytes) or with an option that "
        "differs in its last digits",
        whose_a, whose_b);
}

static bool is_name(const char *name, size_t length)
{
    if (length == 0 || length >= PL_SERVER_TABLE_NAME_BYTES || name[0] == '.') {
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        char c = name[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
              c == '.')) {
            return false;
        }
    }
    return true;
}

enum pl_status pl_table_make(const struct pl_server_table *options, struct pl_table *ret_table, struct pl_error *reterr)
{
    struct pl_table table = {.columns = options->columns,
                             .initial = options->initial,
                             .seed = options->seed,
                             .kind = options->kind,
                             .bound = options->initial == PL_SERVER_UNIFORM ? options->bound : 0.0,
                             .rate = options->rate,
                             .epsilon = options->kind != PL_ADAGRAD ? 0.0
                                        : options->epsilon != 0.0   ? options->epsilon
                                                                    : 1e-8};
    size_t length = options->name ? strlen(options->name) : 0;

    if (!is_name(options->name, length)) {
        return pl_error_set(
            reterr, PL_INVALID,
            "a table's name is '%s', expected 1 to %d letters, digits, '_', '-' and '.', and no '.' at its beginning",
            options->name ? options->name : "", PL_SERVER_TABLE_NAME_BYTES - 1);
    }
    memcpy(table.name, options->name, length);
    PL_TRY(pl_table_check(&table, reterr));
    *ret_table = table;
    return PL_OK;
}

enum pl_status pl_table_check(const struct pl_table *table, struct pl_error *reterr)
{
    size_t length = strnlen(table->name, sizeof(table->name));
    const struct {
        const char *name;
        double value, least;
    } numbers[] = {{"bound", table->bound, 0.0}, {"rate", table->rate, -FLT_MAX}, {"epsilon", table->epsilon, 0.0}};

    if (!is_name(table->name, length)) {
        return pl_error_set(reterr, PL_INVALID, "a table has no name, or a name that is not allowed");
    }
    for (size_t i = length; i < sizeof(table->name); i++) {
        if (table->name[i] != '\0') {
            return pl_error_set(reterr, PL_INVALID, "table '%s' has something after its name", table->name);
        }
    }
    if (table->columns < 1 || table->columns > PL_SERVER_MOST_COLUMNS) {
        return pl_error_set(reterr, PL_INVALID, "table '%s' has %llu columns, expected 1 to %d", table->name,
                            (unsigned long long)table->columns, PL_SERVER_MOST_COLUMNS);
    }
    if (table->kind != PL_SGD && table->kind != PL_ADAGRAD) {
        return pl_error_set(
            reterr, PL_UNSUPPORTED,
            "table '%s' has optimizer %llu: expected SGD or Adagrad, which do not change rows that are not pushed",
            table->name, (unsigned long long)table->kind);
    }
    if (table->initial > PL_SERVER_UNIFORM) {
        return pl_error_set(reterr, PL_INVALID, "table '%s' has initial values of the unknown kind %llu", table->name,
                            (unsigned long long)table->initial);
    }
    for (size_t i = 0; i < PL_ARRAY_ITEMS(numbers); i++) {
        if (!(numbers[i].value >= numbers[i].least && numbers[i].value <= (double)FLT_MAX)) {
            return pl_error_set(reterr, PL_INVALID, "table '%s': %s is %g, expected a number from %g to %g",
                                table->name, numbers[i].name, numbers[i].value, numbers[i].least, (double)FLT_MAX);
        }
    }
    return PL_OK;
}

struct pl_optimizer_options pl_table_optimizer(const struct pl_table *table)
{
    return (struct pl_optimizer_options){.kind = (enum pl_optimizer_kind)table->kind, .epsilon = table->epsilon};
}
