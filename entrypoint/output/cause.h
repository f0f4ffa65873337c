/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Finds the line of a stream that says why a Python program failed: the line of the last exception, pip's message about
 * its last attempt to connect, or uv's error with its reasons. The line is kept while the stream passes, because output
 * of any length may follow it. An exception has a place: the innermost line of its traceback in the program's own
 * folder. If there is none, the place is the innermost line outside of packages and of Python, otherwise the innermost.
 *
 * The line of an exception is the first line after "Traceback (most recent call last):" that is not indented. Without a
 * traceback (a SyntaxError) it begins with a name such as ValueError and a colon. "Exception ignored" does not count.
 * Of chained exceptions the last one is kept, of an exception group its first one.
 *
 * Several processes may write to one stream. Their lines are told apart by the tags of torch, torchrun, mpirun and
 * Paceline ("[rank1]: ", "[default1]:", "[1,1]<stderr>:", "[rank 1] "). Among ranks with torch's own tag the first
 * exception is kept, because torch tags no exception that a program handles. If tracebacks without tags are mixed, the
 * exception has no place.
 *
 * Test  tests/unit/entrypoint/output/test_cause.c, tests/fuzz/fuzz_output.c
 */
#ifndef PL_ENTRYPOINT_OUTPUT_CAUSE_H
#define PL_ENTRYPOINT_OUTPUT_CAUSE_H

#include <stdbool.h>
#include <stddef.h>

enum {
    PL_CAUSE_LINE_BYTES = 1024,      /* the beginning of a longer line is kept */
    PL_CAUSE_OLD_BYTES = 256 * 1024, /* an exception with more output than this after it did not end the program */
    /* ranks that fail because another one has failed print their exceptions within this many bytes */
    PL_CAUSE_FIRST_BYTES = 64 * 1024,
    PL_CAUSE_TAG_BYTES = 48,
    PL_CAUSE_PLACE_BYTES = 160, /* the end of a longer path is kept */
    PL_CAUSE_WRITERS = 8,       /* writers without a tag count as one */
};

/** The folder of a traceback line's code: Python's or a package's, another one, or the program's own. */
enum pl_cause_nearness { PL_CAUSE_LIBRARY, PL_CAUSE_ELSEWHERE, PL_CAUSE_OWN };

/** The lines to search. Those with a tag may have been searched by the shim of their writer already. */
enum pl_cause_lines { PL_CAUSE_ALL, PL_CAUSE_UNTAGGED, PL_CAUSE_NONE };

/** The state of one writer. */
struct pl_cause_writer {
    char tag[PL_CAUSE_TAG_BYTES];
    int open;        /* number of tracebacks that have begun and whose exception has not come */
    bool is_mixed;   /* several tracebacks were open at the same time */
    bool in_frames;  /* the writer's last line was one of a traceback, before the exception's line */
    bool is_ignored; /* the next exception is one that Python has ignored */
    bool is_syntax;  /* `place` is the line that a SyntaxError of the program itself names */
    /* WAITS: its first exception has not come; FOUND: one raised from it may follow; OVER: the group has ended */
    enum { PL_CAUSE_NO_GROUP, PL_CAUSE_GROUP_WAITS, PL_CAUSE_GROUP_FOUND, PL_CAUSE_GROUP_OVER } group;
    enum pl_cause_nearness nearness;  /* nearness of `place` */
    char place[PL_CAUSE_PLACE_BYTES]; /* "train.py:31": the innermost line of the nearest code; "": none */
};

/** Zero-initialise; holds no resources. */
struct pl_cause {
    enum pl_cause_lines lines;
    const char *folders[2];             /* absolute paths of the folder with the program's own files; NULL: unknown */
    char line[PL_CAUSE_LINE_BYTES + 1]; /* the beginning of the line that is read now, with a NUL */
    size_t line_bytes;
    struct pl_cause_writer writers[PL_CAUSE_WRITERS]; /* the first has no tag */
    size_t writers_used;
    char error[PL_CAUSE_LINE_BYTES + 1]; /* uv's error, with its reasons so far; "" after another line */
    char found[PL_CAUSE_LINE_BYTES + 1];
    char found_place[PL_CAUSE_PLACE_BYTES];
    char found_tag[PL_CAUSE_TAG_BYTES];
    size_t later_bytes; /* number of bytes printed since `found` */
};

void pl_cause_add(struct pl_cause *cause, const char *bytes, size_t count);

/** Returns the line as it was printed, without its tag, even if it has no end yet. "" if there is none. */
const char *pl_cause_text(struct pl_cause *cause);

/** Returns where the exception that pl_cause_text() last returned was raised: "train.py:31"; "": not known. */
const char *pl_cause_place(const struct pl_cause *cause);

/** Returns the rank that a tag of torch or Paceline before that line names; -1: none. */
int pl_cause_rank(const struct pl_cause *cause);

#endif
