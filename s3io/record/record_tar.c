/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tar archives: ustar, GNU's long names, pax headers; and their members grouped to samples as WebDataset does it: files
 * that follow each other and have the same name before the first dot. Source: POSIX.1-2017, "pax"; GNU tar's manual,
 * "Basic Tar Format".
 */
#include "base/memory.h"
#include "base/number.h"
#include "s3io/record/record_formats.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    BLOCK_BYTES = 512,
    NAME_BYTES = 100,
    SIZE_AT = 124,
    SIZE_BYTES = 12,
    SUM_AT = 148,
    SUM_BYTES = 8,
    TYPE_AT = 156,
    MAGIC_AT = 257,
    PREFIX_AT = 345,
    PREFIX_BYTES = 155,
    MOST_EXTENDED_BYTES = 1 << 20, /* limit for a header that extends another one */
    MOST_EXTENDED = 8,             /* limit for the number of such headers before one member */
    MOST_MEMBERS = 1024,           /* limit for a sample: each extension is compared with all before it */
};

/* The longest member: a longer one must be a mistake, and sums of sizes stay far from overflow. */
#define MOST_MEMBER_BYTES (UINT64_C(1) << 60)

/* The headers of one member. */
struct headers {
    const unsigned char *data;
    uint64_t offset_bytes; /* offset of `data` in the source */
    size_t at;             /* offset of the present header in `data` */
    struct pl_record_tar_member *member;
    bool has_name, has_bytes, is_sparse; /* whether a pax or GNU header has set this */
    uint64_t bytes;
};

/* Sets an error that tells where the header is. */
static enum pl_status wrong(const struct headers *headers, struct pl_error *reterr, const char *format, ...)
    PL_PRINTF(3, 4);

static enum pl_status wrong(const struct headers *headers, struct pl_error *reterr, const char *format, ...)
{
    char what[160];
    va_list args;

    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    return pl_error_set(reterr, PL_CORRUPT, "the tar header at byte %llu %s",
                        (unsigned long long)(headers->offset_bytes + headers->at), what);
}

/* Reads a number in octal digits, or in binary with the first bit set, as GNU tar writes large ones. */
static bool read_number(const unsigned char *at, size_t bytes, uint64_t *ret_number)
{
    size_t i = 0, first;
    uint64_t value = 0;

    if (at[0] == 0x80) {
        for (i = 1; i < bytes && value <= MOST_MEMBER_BYTES; i++) {
            value = value << 8 | at[i];
        }
        *ret_number = value;
        return i == bytes && value <= MOST_MEMBER_BYTES;
    }
    while (i < bytes && at[i] == ' ') {
        i++;
    }
    for (first = i; i < bytes && at[i] >= '0' && at[i] <= '7'; i++) {
        value = value << 3 | (unsigned)(at[i] - '0');
    }
    *ret_number = value;
    return i > first && (i == bytes || at[i] == ' ' || at[i] == '\0');
}

static bool is_zero(const unsigned char *block)
{
    return block[0] == 0 && memcmp(block, block + 1, BLOCK_BYTES - 1) == 0;
}

/* The sum of the header's bytes, with spaces for the sum itself. Some old writers added signed bytes. */
static bool sum_is_good(const unsigned char *block)
{
    unsigned sum = SUM_BYTES * ' ', high = 0;
    uint64_t stored;

    for (size_t i = 0; i < BLOCK_BYTES; i++) {
        bool in_sum = i >= SUM_AT && i < SUM_AT + SUM_BYTES;

        sum += in_sum ? 0 : block[i];
        high += in_sum ? 0 : block[i] >> 7;
    }
    return read_number(block + SUM_AT, SUM_BYTES, &stored) && (stored == sum || stored + 256 * high == sum);
}

static enum pl_status set_name(struct headers *headers, const char *folder, size_t folder_bytes, const char *name,
                               size_t bytes, struct pl_error *reterr)
{
    char *to = headers->member->name;

    if (folder_bytes + 1 + bytes >= PL_RECORD_TAR_NAME_BYTES) {
        return pl_error_set(reterr, PL_LIMIT, "the member at byte %llu has a name of more than %d bytes",
                            (unsigned long long)(headers->offset_bytes + headers->at), PL_RECORD_TAR_NAME_BYTES - 2);
    }
    if (folder_bytes) {
        memcpy(to, folder, folder_bytes);
        to += folder_bytes;
        *to++ = '/';
    }
    memcpy(to, name, bytes);
    to[bytes] = '\0';
    return PL_OK;
}

/* Takes one keyword of a pax header. If its value is empty, the value in the member's own header counts. */
static enum pl_status take_keyword(struct headers *headers, bool is_global, const char *keyword, size_t keyword_bytes,
                                   const char *value, size_t bytes, struct pl_error *reterr)
{
    static const char sparse[] = "GNU.sparse.";
    bool is_path = keyword_bytes == 4 && memcmp(keyword, "path", 4) == 0;
    bool is_size = keyword_bytes == 4 && memcmp(keyword, "size", 4) == 0;

    headers->is_sparse |= keyword_bytes >= sizeof(sparse) - 1 && memcmp(keyword, sparse, sizeof(sparse) - 1) == 0;
    if ((!is_path && !is_size) || bytes == 0) {
        return PL_OK;
    }
    if (is_global) {
        return pl_error_set(reterr, PL_UNSUPPORTED, "the global tar header at byte %llu sets the %s of all members",
                            (unsigned long long)(headers->offset_bytes + headers->at), is_path ? "path" : "size");
    }
    if (is_path) {
        headers->has_name = true;
        return memchr(value, '\0', bytes) ? wrong(headers, reterr, "has a path with a NUL byte")
                                          : set_name(headers, NULL, 0, value, bytes, reterr);
    }
    headers->has_bytes = true;
    headers->bytes = 0;
    for (size_t i = 0; i < bytes; i++) {
        if (value[i] < '0' || value[i] > '9' || headers->bytes > MOST_MEMBER_BYTES / 10) {
            return wrong(headers, reterr, "has the size '%.*s'", (int)pl_number_min(bytes, 40), value);
        }
        headers->bytes = headers->bytes * 10 + (unsigned)(value[i] - '0');
    }
    return PL_OK;
}

/* Reads the keywords of a pax header, each "LENGTH KEYWORD=VALUE\n". */
static enum pl_status read_pax(struct headers *headers, bool is_global, const char *at, size_t bytes,
                               struct pl_error *reterr)
{
    const char *end = at + bytes;

    while (at < end) {
        const char *keyword = at, *equals, *stop;
        size_t length = 0;

        for (; keyword < end && *keyword >= '0' && *keyword <= '9' && length <= bytes; keyword++) {
            length = length * 10 + (unsigned)(*keyword - '0');
        }
        stop = length > 0 && length <= (size_t)(end - at) ? at + length - 1 : at;
        if (stop <= keyword || *keyword != ' ' || *stop != '\n' ||
            !(equals = memchr(keyword, '=', (size_t)(stop - keyword)))) {
            return wrong(headers, reterr, "is followed by a pax keyword that is not \"LENGTH KEYWORD=VALUE\"");
        }
        keyword++;
        PL_TRY(take_keyword(headers, is_global, keyword, (size_t)(equals - keyword), equals + 1,
                            (size_t)(stop - equals - 1), reterr));
        at = stop + 1;
    }
    return PL_OK;
}

/* Describes a file or directory by the header that was just read, its own. */
static enum pl_status describe(struct headers *headers, struct pl_error *reterr)
{
    static const struct {
        char type;
        const char *what;
    } refused[] = {{'1', "a hard link"}, {'2', "a symbolic link"}, {'3', "a device"},        {'4', "a device"},
                   {'6', "a FIFO"},      {'S', "a sparse file"},   {0, "of an unknown type"}};
    struct pl_record_tar_member *member = headers->member;
    const unsigned char *block = headers->data + headers->at;
    const char *name = (const char *)block, *prefix = name + PREFIX_AT, *base, *dot;
    bool has_prefix = memcmp(block + MAGIC_AT, "ustar", 6) == 0;
    char type = headers->is_sparse ? 'S' : (char)block[TYPE_AT];
    size_t i = 0;

    if (!headers->has_name) {
        PL_TRY(set_name(headers, prefix, has_prefix ? strnlen(prefix, PREFIX_BYTES) : 0, name,
                        strnlen(name, NAME_BYTES), reterr));
    }
    base = strrchr(member->name, '/');
    base = base ? base + 1 : member->name;
    if (type == '5' || (type == '\0' && base > member->name && !*base)) {
        return PL_OK; /* a directory: no bytes follow */
    }
    if (type != '0' && type != '\0' && type != '7') { /* 7: a contiguous file, read as any other */
        while (refused[i].type && refused[i].type != type) {
            i++;
        }
        return pl_error_set(reterr, PL_UNSUPPORTED, "'%s' at byte %llu is %s: expected files and directories",
                            member->name, (unsigned long long)(headers->offset_bytes + headers->at), refused[i].what);
    }
    member->bytes = headers->bytes;
    if (!headers->has_bytes && !read_number(block + SIZE_AT, SIZE_BYTES, &member->bytes)) {
        return wrong(headers, reterr, "has a size that is not a number");
    }
    member->end = member->data_at + (size_t)pl_number_round_up(member->bytes, BLOCK_BYTES);
    dot = strchr(base, '.');
    member->key_bytes = dot && dot > base ? (size_t)(dot - member->name) : 0;
    return PL_OK;
}

enum pl_status pl_record_tar_next(const unsigned char *data, size_t available, size_t at, uint64_t offset_bytes,
                                  struct pl_record_tar_member *member, struct pl_error *reterr)
{
    struct headers headers = {.data = data, .offset_bytes = offset_bytes, .at = at, .member = member};

    member->name[0] = '\0';
    member->bytes = 0;
    member->key_bytes = 0;
    for (int extended = 0; extended <= MOST_EXTENDED; extended++) {
        const unsigned char *block = data + headers.at;
        const char *text = (const char *)block + BLOCK_BYTES;
        char type;
        uint64_t bytes;

        member->data_at = member->end = member->want = headers.at + BLOCK_BYTES;
        if (available < member->want) {
            return PL_OK;
        }
        member->is_zero = is_zero(block);
        if (member->is_zero && extended == 0) {
            return PL_OK;
        }
        if (!sum_is_good(block)) {
            return wrong(&headers, reterr,
                         "has a wrong checksum: the file is damaged or not a tar archive; upload it again, or name its "
                         "real format");
        }
        type = (char)block[TYPE_AT];
        if (!type || !strchr("LKxXg", type)) {
            return describe(&headers, reterr);
        }
        if (!read_number(block + SIZE_AT, SIZE_BYTES, &bytes) || bytes > MOST_EXTENDED_BYTES) {
            return wrong(&headers, reterr, "extends the next one, and has no size, or one of more than 1 MiB");
        }
        member->end = member->want = headers.at + BLOCK_BYTES + (size_t)pl_number_round_up(bytes, BLOCK_BYTES);
        if (available < member->want) {
            return PL_OK;
        }
        if (type == 'L') {
            headers.has_name = true;
            PL_TRY(set_name(&headers, NULL, 0, text, strnlen(text, (size_t)bytes), reterr));
        } else if (type != 'K') { /* K is a link's target */
            PL_TRY(read_pax(&headers, type == 'g', text, (size_t)bytes, reterr));
        }
        if (type == 'g' && extended == 0) {
            return PL_OK;
        }
        headers.at = member->end;
    }
    return wrong(&headers, reterr, "comes after %d headers that extend it", MOST_EXTENDED);
}

/* Describes the member at `at`. Returns PL_END after the last one. */
static enum pl_status next_member(struct pl_record_reader *reader, size_t at, int64_t deadline_ns,
                                  struct pl_record_tar_member *member, struct pl_error *reterr)
{
    struct pl_window *window = &reader->window;

    for (;;) {
        enum pl_status status =
            pl_record_tar_next(window->data, window->available, at, window->offset_bytes, member, reterr);

        if (status != PL_OK) {
            pl_error_context(reterr, "'%s': record %llu", reader->source->name, (unsigned long long)reader->next_index);
            return status;
        }
        if (member->want <= window->available) {
            return PL_OK;
        }
        PL_TRY(pl_window_need(window, member->want, deadline_ns, reterr));
        if (window->available == at) {
            return PL_END;
        }
        if (window->available < member->want) {
            return pl_record_corrupt(reader, reterr, "the input ends inside a tar header, at byte %llu",
                                     (unsigned long long)(window->offset_bytes + window->available));
        }
    }
}

/* Appends a sample's key, or one of its extensions, to the `*used` bytes noted so far. */
static enum pl_status note(struct pl_record_reader *reader, size_t *used, const char *text, size_t bytes,
                           struct pl_error *reterr)
{
    PL_TRY(pl_memory_grow(&reader->joined, &reader->joined_capacity, *used + bytes + 1, 1, reterr));
    memcpy(reader->joined + *used, text, bytes);
    reader->joined[*used + bytes] = '\0';
    *used += bytes + 1;
    return PL_OK;
}

/* Notes that the sample has this member. */
static enum pl_status add_member(struct pl_record_reader *reader, const struct pl_record_tar_member *member,
                                 size_t members, size_t *used, struct pl_error *reterr)
{
    const char *extension = member->name + member->key_bytes + 1;

    if (members == 0) {
        PL_TRY(note(reader, used, member->name, member->key_bytes, reterr));
    }
    for (size_t at = member->key_bytes + 1; at < *used; at += strlen((const char *)reader->joined + at) + 1) {
        if (strcmp((const char *)reader->joined + at, extension) == 0) {
            return pl_record_corrupt(reader, reterr, "the sample has two members '%s'", member->name);
        }
    }
    if (members == MOST_MEMBERS) {
        return pl_record_corrupt(reader, reterr, "the sample has more than %d members", MOST_MEMBERS);
    }
    return note(reader, used, extension, strlen(extension), reterr);
}

/* Passes over a block of zeros at the beginning of the window. Two of them end an archive; more may follow, and then
 * the end of the source or another archive. */
static enum pl_status pass_zeros(struct pl_record_reader *reader, int64_t deadline_ns, struct pl_error *reterr)
{
    struct pl_window *window = &reader->window;

    if (!reader->archive_ended) {
        PL_TRY(pl_window_need(window, 2 * (size_t)BLOCK_BYTES, deadline_ns, reterr));
        if (window->available >= 2 * (size_t)BLOCK_BYTES && !is_zero(window->data + BLOCK_BYTES)) {
            return pl_record_corrupt(reader, reterr, "a block of zeros, but not two: the archive is damaged");
        }
    }
    reader->archive_ended = true;
    pl_window_consume(window, BLOCK_BYTES);
    return PL_OK;
}

enum pl_status pl_record_find_tar(struct pl_record_reader *reader, bool check, int64_t deadline_ns,
                                  struct pl_record *ret_record, uint64_t *ret_framed_bytes, struct pl_error *reterr)
{
    struct pl_window *window = &reader->window;
    size_t at = 0, end = 0, members = 0, used = 0;
    struct pl_record_tar_member member;

    (void)check;
    for (;;) {
        enum pl_status status = next_member(reader, at, deadline_ns, &member, reterr);

        if (status == PL_END ? members > 0 : status == PL_OK && members > 0 && member.is_zero) {
            break;
        }
        if (status != PL_OK) {
            return status;
        }
        if (member.is_zero) {
            PL_TRY(pass_zeros(reader, deadline_ns, reterr));
            continue;
        }
        if (members > 0 && member.key_bytes > 0 &&
            (strncmp((const char *)reader->joined, member.name, member.key_bytes) != 0 ||
             reader->joined[member.key_bytes] != '\0')) {
            break;
        }
        reader->archive_ended = false;
        PL_TRY(pl_record_check_length(reader, member.end, reterr));
        PL_TRY(pl_window_need(window, member.end, deadline_ns, reterr));
        if (window->available < member.end) {
            return pl_record_corrupt(reader, reterr, "the input ends inside the member '%s', at byte %llu", member.name,
                                     (unsigned long long)(window->offset_bytes + window->available));
        }
        at = member.end;
        if (member.key_bytes > 0) {
            PL_TRY(add_member(reader, &member, members++, &used, reterr));
            end = at;
        } else if (members == 0) {
            pl_window_consume(window, at);
            at = 0;
        }
    }
    ret_record->data = window->data;
    ret_record->bytes = end;
    *ret_framed_bytes = end;
    return PL_OK;
}
