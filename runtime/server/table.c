/* SPDX-License-Identifier: Apache-2.0 */
/* A table's name and options: their ranges, and their text. */
#include "runtime/server/layout.h"

#include "base/memory.h"
#include "runtime/gradient/optimizer_rule.h"

#include <float.h>
#include <math.h>
#include <string.h>

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

void pl_table_print(const struct pl_table *table, struct pl_text *text)
{
    pl_text_printf(
        text, "table '%s' [%llu columns] initial=%s bound=%g seed=%llu optimizer=%s rate=%g epsilon=%g", table->name,
        (unsigned long long)table->columns, table->initial == PL_SERVER_UNIFORM ? "uniform" : "zeros", table->bound,
        (unsigned long long)table->seed, table->kind == PL_ADAGRAD ? "adagrad" : "sgd", table->rate, table->epsilon);
}

struct pl_optimizer_options pl_table_optimizer(const struct pl_table *table)
{
    return (struct pl_optimizer_options){.kind = (enum pl_optimizer_kind)table->kind, .epsilon = table->epsilon};
}
