/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Runs a fuzz target without a fuzzer: each seed unchanged, then a fixed number of damaged copies, the same ones in
 * every run.
 *
 *   fuzz_NAME SEED_FILE_OR_DIRECTORY...
 */
#include "base/file.h"
#include "base/memory.h"
#include "tests/support/fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { DAMAGED_COPIES = 300, MAX_SEED_BYTES = 1 << 20 };

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* The target gets exactly as much heap memory as it has input, so that a sanitizer sees a read of the first byte
 * beyond. */
static void feed(const char *data, size_t bytes)
{
    PL_AUTO_FREE uint8_t *exact = pl_memory_new(bytes, 1, NULL);

    PL_BUG_IF(!exact);
    if (bytes > 0) {
        memcpy(exact, data, bytes);
    }
    LLVMFuzzerTestOneInput(exact, bytes);
}

/* Makes one small change: a bit, a byte, a cut, a repeated or a removed piece. Returns the new size, at most twice
 * the old one. */
static size_t damage(char *data, size_t bytes, uint64_t *state)
{
    static const char marks[] = "\0\"\\{}[]:,/=- \n\x7f\x80\xff\xfe\x01"
                                "09";
    size_t at, length;

    if (bytes == 0) {
        data[0] = marks[next_random(state) % (sizeof(marks) - 1)];
        return 1;
    }
    at = next_random(state) % bytes;
    length = 1 + next_random(state) % (bytes - at);
    switch (next_random(state) % 5) {
    case 0:
        data[at] = (char)(data[at] ^ (char)(1 << next_random(state) % 8));
        return bytes;
    case 1:
        data[at] = marks[next_random(state) % (sizeof(marks) - 1)];
        return bytes;
    case 2:
        return at;
    case 3:
        memmove(data + at + length, data + at, bytes - at);
        return bytes + length;
    default:
        memmove(data + at, data + at + length, bytes - at - length);
        return bytes - length;
    }
}

static void replay_file(const char *path)
{
    PL_AUTO_FREE char *seed = NULL;
    PL_AUTO_FREE char *copy = NULL;
    struct pl_error error = PL_ERROR_NONE;
    size_t bytes = 0;
    uint64_t state = UINT64_C(88172645463325252);

    if (pl_file_read(path, MAX_SEED_BYTES, &seed, &bytes, &error) != PL_OK) {
        fprintf(stderr, "%s\n", error.cause);
        exit(EXIT_FAILURE);
    }
    feed(seed, bytes);
    copy = pl_memory_new(4 * bytes + 4, 1, &error);
    PL_BUG_IF(!copy);
    for (int i = 0; i < DAMAGED_COPIES; i++) {
        size_t size;

        memcpy(copy, seed, bytes);
        size = damage(copy, bytes, &state);
        if (i % 3 == 0) {
            size = damage(copy, size, &state);
        }
        feed(copy, size);
    }
}

static int replay(const char *path)
{
    struct dirent **entries = NULL;
    struct stat info;
    int count, replayed = 0;

    if (stat(path, &info) == 0 && S_ISREG(info.st_mode)) {
        replay_file(path);
        return 1;
    }
    count = scandir(path, &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        char below[4096];

        if (entries[i]->d_name[0] != '.' &&
            snprintf(below, sizeof(below), "%s/%s", path, entries[i]->d_name) < (int)sizeof(below)) {
            replayed += replay(below);
        }
        free(entries[i]);
    }
    free(entries);
    return replayed;
}

int main(int argc, char **argv)
{
    int replayed = 0;

    for (int i = 1; i < argc; i++) {
        replayed += replay(argv[i]);
    }
    printf("%d seeds, each with %d damaged copies\n", replayed, DAMAGED_COPIES);
    return replayed > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
