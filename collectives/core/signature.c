/* SPDX-License-Identifier: Apache-2.0 */
/* Signatures of collectives: comparing them, and the text that shows how two ranks' calls differ. */
#include "collectives/core/backend.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const kinds[PL_KIND_COUNT] = {
#define PL_KIND_ROW(name, text) [PL_##name] = text,
    PL_KIND_LIST(PL_KIND_ROW)
#undef PL_KIND_ROW
};

const char *pl_kind_text(enum pl_kind kind)
{
    return (unsigned)kind < PL_KIND_COUNT ? kinds[kind] : "unknown collective";
}

_Static_assert(sizeof(struct pl_signature) == 6 * sizeof(uint64_t) + 16,
               "compared byte by byte: padding could make equal ones differ");

bool pl_signature_equal(const struct pl_signature *a, const struct pl_signature *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

/* Writes for example "number 7, allreduce of 10 float32 by sum, 'grad'". */
static void describe(const struct pl_signature *signature, char *text, size_t text_bytes)
{
    enum pl_kind kind = (enum pl_kind)(signature->what & 0xff);
    enum pl_dtype dtype = (enum pl_dtype)(signature->what >> 8 & 0xff);
    enum pl_op op = (enum pl_op)(signature->what >> 16 & 0xff);
    bool reduces = pl_kind_reduces(kind);
    bool rooted = kind == PL_REDUCE || kind == PL_BROADCAST;
    char name[sizeof(signature->name) + 4] = "";
    char root[32] = "";

    if (signature->name[0]) {
        snprintf(name, sizeof(name), " '%.*s'", (int)sizeof(signature->name), signature->name);
    }
    if (rooted) {
        snprintf(root, sizeof(root), ", root %d", (int)(signature->what >> 32));
    }
    if (kind == PL_BARRIER) {
        snprintf(text, text_bytes, "barrier%s", name);
        return;
    }
    snprintf(text, text_bytes, "%s%s of %" PRIu64 " %s%s%s%s%s", pl_kind_text(kind), name, signature->count,
             pl_dtype_text(dtype), reduces ? ", " : "", reduces ? pl_op_text(op) : "", root,
             signature->scale_hash ? ", scaled" : "");
}

/* The difference between two signatures with equal descriptions. */
static const char *hidden_difference(const struct pl_signature *a, const struct pl_signature *b)
{
    if (a->sequence != b->sequence) {
        return "; they are at different positions in the order of calls";
    }
    if (a->counts_hash != b->counts_hash) {
        return "; the lists of counts differ";
    }
    if (a->scale_hash != b->scale_hash) {
        return "; the scale factors or divisors differ";
    }
    if (a->name_hash != b->name_hash) {
        return "; the names differ";
    }
    if (a->what != b->what) {
        return "; the options differ";
    }
    return "";
}

enum pl_status pl_signature_mismatch(const struct pl_signature *a, int a_rank, const struct pl_signature *b, int b_rank,
                                     struct pl_error *reterr)
{
    char a_text[160];
    char b_text[160];

    if (a_rank > b_rank) {
        return pl_signature_mismatch(b, b_rank, a, a_rank, reterr);
    }
    describe(a, a_text, sizeof(a_text));
    describe(b, b_text, sizeof(b_text));
    return pl_error_set(reterr, PL_MISMATCH,
                        "ranks disagree about collective number %" PRIu64 ": rank %d calls %s; rank %d calls %s%s",
                        a->sequence, a_rank, a_text, b_rank, b_text, hidden_difference(a, b));
}
