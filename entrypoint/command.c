/* SPDX-License-Identifier: Apache-2.0 */
#include "entrypoint/command.h"

#include "base/memory.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

struct reader {
    const char *at;
    struct pl_text word;
};

enum piece { PIECE_WORD, PIECE_SEMICOLON, PIECE_END };

static bool is_blank(char byte)
{
    return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

/* Reads the next word into `reader->word`, or the ';' or end that comes first. */
static enum pl_status read_piece(struct reader *reader, enum piece *ret_piece, struct pl_error *reterr)
{
    char quote = '\0';

    pl_text_clear(&reader->word);
    while (is_blank(*reader->at)) {
        reader->at++;
    }
    if (*reader->at == '\0' || *reader->at == ';') {
        *ret_piece = *reader->at == ';' ? PIECE_SEMICOLON : PIECE_END;
        reader->at += *reader->at == ';';
        return PL_OK;
    }
    for (; *reader->at != '\0'; reader->at++) {
        char byte = *reader->at;

        if (quote != '\0') {
            if (byte == quote) {
                quote = '\0';
            } else if (quote == '"' && byte == '\\' && reader->at[1] != '\0' && strchr("\\\"$`", reader->at[1]) != NULL) {
                pl_text_append_char(&reader->word, *++reader->at);
            } else {
                pl_text_append_char(&reader->word, byte);
            }
        } else if (is_blank(byte) || byte == ';') {
            break;
        } else if (byte == '\'' || byte == '"') {
            quote = byte;
        } else if (byte == '\\') {
            if (reader->at[1] == '\0') {
                return pl_error_set(reterr, PL_INVALID, "launch command: it ends in a backslash");
            }
            pl_text_append_char(&reader->word, *++reader->at);
        } else if (strchr("&|<>()`", byte) != NULL) {
            return pl_error_set(reterr, PL_INVALID, "launch command: '%c' is not allowed", byte);
        } else {
            pl_text_append_char(&reader->word, byte);
        }
    }
    if (quote != '\0') {
        return pl_error_set(reterr, PL_INVALID, "launch command: a %c has no partner", quote);
    }
    *ret_piece = PIECE_WORD;
    return pl_text_check(&reader->word, reterr);
}

/* NAME=... with a shell's rules for NAME. */
static bool is_assignment(const char *word)
{
    size_t length = 0;

    while ((word[length] >= 'A' && word[length] <= 'Z') || (word[length] >= 'a' && word[length] <= 'z') || word[length] == '_' ||
           (length > 0 && word[length] >= '0' && word[length] <= '9')) {
        length++;
    }
    return length > 0 && word[length] == '=';
}

static enum pl_status add_word(struct pl_command *command, size_t *capacity, const char *word, struct pl_error *reterr)
{
    if (command->count == PL_COMMAND_MAX_WORDS) {
        return pl_error_set(reterr, PL_LIMIT, "launch command: more than %d words", PL_COMMAND_MAX_WORDS);
    }
    PL_TRY(pl_memory_grow(&command->words, capacity, command->count + 2, sizeof(char *), reterr));
    command->words[command->count] = pl_memory_string(word, reterr);
    if (command->words[command->count] == NULL) {
        return PL_MEMORY;
    }
    command->words[++command->count] = NULL;
    return PL_OK;
}

static void forget_words(struct pl_command *command)
{
    for (size_t i = 0; i < command->count; i++) {
        free(command->words[i]);
    }
    command->count = 0;
}

static enum pl_status collect(struct reader *reader, struct pl_command *command, struct pl_error *reterr)
{
    size_t capacity = 0;
    bool finished = false; /* a ';' came behind the command */
    enum piece piece = PIECE_END;

    for (;;) {
        PL_TRY(read_piece(reader, &piece, reterr));
        if (piece == PIECE_END) {
            return PL_OK;
        }
        if (piece == PIECE_SEMICOLON) {
            if (command->count > 0 && strcmp(command->words[0], "export") == 0) {
                forget_words(command);
            }
            finished = command->count > 0;
            continue;
        }
        if (finished) {
            return pl_error_set(reterr, PL_INVALID, "launch command: a second command '%.100s'", pl_text_string(&reader->word));
        }
        if (command->count == 0 && is_assignment(pl_text_string(&reader->word))) {
            continue;
        }
        if (strcmp(pl_text_string(&reader->word), "--daemonize") != 0) {
            PL_TRY(add_word(command, &capacity, pl_text_string(&reader->word), reterr));
        }
    }
}

enum pl_status pl_command_split_daemon(const char *text, struct pl_command *command, struct pl_error *reterr)
{
    struct reader reader = {.at = text};
    const char *name;
    enum pl_status status;

    *command = PL_COMMAND_NONE;
    status = collect(&reader, command, reterr);
    pl_text_done(&reader.word);
    if (status == PL_OK && command->count == 0) {
        status = pl_error_set(reterr, PL_INVALID, "launch command: it is empty");
    }
    if (status == PL_OK) {
        name = strrchr(command->words[0], '/');
        name = name != NULL ? name + 1 : command->words[0];
        if (strcmp(name, "orted") != 0 && strcmp(name, "prted") != 0) {
            status = pl_error_set(reterr, PL_INVALID, "launch command: only orted and prted may be started, not '%.100s'", command->words[0]);
        }
    }
    if (status != PL_OK) {
        pl_command_done(command);
    }
    return status;
}

void pl_command_done(struct pl_command *command)
{
    forget_words(command);
    free(command->words);
    *command = PL_COMMAND_NONE;
}
