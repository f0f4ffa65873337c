/* SPDX-License-Identifier: Apache-2.0 */
/* Asks Python's faulthandler for stacks, and parses what it writes. */
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "entrypoint/proc/proc.h"
#include "entrypoint/supervise/watch.h"
#include "programs/stacks/stacks.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WRITE_NS (2 * PL_NS_PER_S)   /* longest wait for a handler to begin */
#define QUIET_NS (50 * PL_NS_PER_MS) /* the handler is done when it has written nothing for so long */
#define LOOK_NS (5 * PL_NS_PER_MS)

enum {
    MOST_FRAMES = 100, /* limit of faulthandler for one thread */
    /* the innermost function tells how the thread waits; the functions around it tell for what it waits */
    PLACE_FRAMES = 3,
};

static const char frame_start[] = "  File \"", line_start[] = "\", line ", function_start[] = " in ";

static off_t size_of(int fd)
{
    struct stat info;

    return fstat(fd, &info) == 0 ? info.st_size : 0;
}

/* Waits until the text that is written after `before` bytes is complete. Returns where it ends. */
static off_t await_text(int fd, off_t before, int64_t deadline_ns)
{
    int64_t end_ns = pl_deadline_after_ns(WRITE_NS), grown_ns = 0;
    off_t size = before;

    while (!pl_deadline_passed(end_ns) && !pl_deadline_passed(deadline_ns)) {
        off_t now = size_of(fd);

        if (now != size) {
            size = now;
            grown_ns = pl_clock_now_ns();
        } else if (size > before && pl_clock_now_ns() - grown_ns > QUIET_NS) {
            break;
        }
        pl_clock_nap(LOOK_NS, deadline_ns);
    }
    return size;
}

static void read_text(int fd, off_t before, off_t after, char *ret_text, size_t text_bytes)
{
    size_t wanted = (size_t)(after - before) < text_bytes - 1 ? (size_t)(after - before) : text_bytes - 1;
    ssize_t got = pread(fd, ret_text, wanted, before);
    size_t length = got > 0 ? (size_t)got : 0;

    ret_text[length] = '\0';
    length = strlen(ret_text);
    if ((size_t)(after - before) > text_bytes - 1) { /* the text was cut: drop its incomplete last line */
        const char *last = strrchr(ret_text, '\n');

        length = last ? (size_t)(last + 1 - ret_text) : 0;
        ret_text[length] = '\0';
    }
    pl_text_mask(ret_text, length);
}

void pl_python_collect(struct pl_stacks_program *program, int64_t deadline_ns)
{
    PL_AUTO_FREE char *folder = pl_proc_variable(program->pid, PL_WATCH_PYTHON_VARIABLE);
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    PL_AUTO_CLOSE int fd = -1;
    struct pl_proc_stat stat;
    off_t before, after;

    program->python[0] = '\0';
    if (!folder || !pl_proc_catches(program->pid, PL_PYTHON_SIGNAL) ||
        pl_proc_read_stat(program->pid, 0, &stat, NULL) != PL_OK || stat.state == 'T' || stat.state == 't') {
        return;
    }
    pl_text_printf(&path, "%s/%d", folder, (int)program->pid);
    fd = open(pl_text_string(&path), O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return;
    }
    before = size_of(fd);
    /* Send the signal to the main thread, so that faulthandler calls its stack the current one. */
    if (syscall(SYS_tgkill, program->pid, program->pid, PL_PYTHON_SIGNAL) != 0) {
        return;
    }
    after = await_text(fd, before, deadline_ns);
    if (after > before) {
        read_text(fd, before, after, program->python, sizeof(program->python));
    }
}

/* Finds the frames of the main thread, the innermost first, and returns their number. */
static size_t find_main_frames(const char *stacks, const char *frames[MOST_FRAMES])
{
    const char *at = strncmp(stacks, "Current thread ", 15) == 0 ? stacks : strstr(stacks, "\nCurrent thread ");
    size_t count = 0;

    if (!at) {
        return 0;
    }
    at += at[0] == '\n';
    for (at = strchr(at, '\n'); at && count < MOST_FRAMES; at = strchr(at + 1, '\n')) {
        if (strncmp(at + 1, frame_start, sizeof(frame_start) - 1) != 0) {
            break;
        }
        frames[count++] = at + 1;
    }
    return count;
}

void pl_python_append_key(const char *stacks, struct pl_text *text)
{
    const char *frames[MOST_FRAMES];

    for (size_t i = find_main_frames(stacks, frames); i > 0; i--) {
        pl_text_append_n(text, frames[i - 1], strcspn(frames[i - 1], "\n"));
        pl_text_append_char(text, '\n');
    }
}

size_t pl_python_append_report(const char *stacks, size_t most_lines, struct pl_text *text)
{
    size_t lines = 0;

    for (const char *at = stacks; *at != '\0'; at += strcspn(at, "\n"), at += *at == '\n') {
        if (*at == '\n') {
            continue;
        }
        if (lines + 1 >= most_lines) {
            pl_text_append(text, "  ... more of Python's stacks\n");
            return lines + 1;
        }
        pl_text_append(text, *at == ' ' ? "  " : "  Python: ");
        pl_text_append_n(text, at, strcspn(at, "\n"));
        pl_text_append_char(text, '\n');
        lines++;
    }
    return lines;
}

/* Parses "  File "PATH", line N in FUNCTION" and appends it as "FUNCTION (NAME line N)". */
static bool append_frame(const char *frame, struct pl_text *text)
{
    const char *file = frame + sizeof(frame_start) - 1, *end = file + strcspn(file, "\n");
    const char *line = strstr(file, line_start), *function = line ? strstr(line, function_start) : NULL;
    const char *name = file;

    if (!line || !function || function > end) {
        return false;
    }
    for (const char *at = file; at < line; at++) {
        name = *at == '/' ? at + 1 : name;
    }
    function += sizeof(function_start) - 1;
    line += sizeof(line_start) - 1;
    pl_text_append_n(text, function, (size_t)(end - function));
    pl_text_append(text, " (");
    pl_text_append_n(text, name, (size_t)(strchr(name, '"') - name));
    pl_text_append(text, " line ");
    pl_text_append_n(text, line, strspn(line, "0123456789"));
    pl_text_append(text, ")");
    return true;
}

bool pl_python_append_place(const char *stacks, struct pl_text *text)
{
    const char *frames[MOST_FRAMES];
    size_t count = find_main_frames(stacks, frames);

    if (count == 0 || !append_frame(frames[0], text)) {
        return false;
    }
    for (size_t i = 1; i < count && i < PLACE_FRAMES; i++) {
        PL_AUTO_TEXT struct pl_text next = PL_TEXT_NONE;

        if (append_frame(frames[i], &next)) {
            pl_text_printf(text, ", called by %s", pl_text_string(&next));
        }
    }
    return true;
}
