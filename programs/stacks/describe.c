/* SPDX-License-Identifier: Apache-2.0 */
/* Describes a program and its threads for a report, as /proc shows them. */
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "entrypoint/proc/proc.h"
#include "programs/stacks/stacks.h"

#include <ctype.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 96, WAIT_BYTES = 4096, WORDS_BYTES = 4 << 20, MAPS_BYTES = 16 << 20 };

const char *pl_describe_state(char state)
{
    switch (state) {
    case 'R':
        return "running";
    case 'S':
        return "sleeping";
    case 'D':
        return "uninterruptible";
    case 'T':
        return "stopped";
    case 't':
        return "stopped by a tracer";
    case 'Z':
        return "zombie";
    case 'I':
        return "idle";
    case 0:
    case 'X':
        return "ended";
    default:
        return "in an unknown state";
    }
}

static bool is_python_name(const char *name)
{
    return strncmp(name, "python", strlen("python")) == 0 || strncmp(name, "pypy", strlen("pypy")) == 0;
}

/*
 * Finds the argument that names the script or module that an interpreter runs. `*ret_option` is "-m " for a module.
 * NULL if there is none.
 */
static const char *find_script(const char *words, const char *end, bool is_python, const char **ret_option)
{
    const char *word = pl_proc_next_word(words, end);

    *ret_option = "";
    while (is_python && word && word[0] == '-' && word[1] != '\0') {
        if (strcmp(word, "-m") == 0) {
            *ret_option = "-m ";
            return pl_proc_next_word(word, end);
        }
        if (word[1] == 'c') { /* the text of a program is not shown */
            return NULL;
        }
        if (strcmp(word, "-W") == 0 || strcmp(word, "-X") == 0) {
            word = pl_proc_next_word(word, end);
        }
        word = word ? pl_proc_next_word(word, end) : NULL;
    }
    return word && word[0] != '-' ? word : NULL;
}

void pl_describe_name(const char *words, size_t bytes, char *ret_name, size_t name_bytes)
{
    static const char *const shells[] = {"sh", "bash", "dash"};
    PL_AUTO_TEXT struct pl_text copy = PL_TEXT_NONE;
    PL_AUTO_TEXT struct pl_text name = PL_TEXT_NONE;
    const char *first, *script, *option;
    bool is_shell = false;

    pl_text_append_n(&copy, words, bytes);
    first = pl_text_string(&copy);
    for (size_t i = 0; i < PL_ARRAY_ITEMS(shells); i++) {
        is_shell = is_shell || strcmp(basename(first), shells[i]) == 0;
    }
    pl_text_append(&name, first);
    if (is_shell || is_python_name(basename(first))) {
        script = find_script(first, first + copy.length, !is_shell, &option);
        pl_text_printf(&name, "%s%s%s", script ? " " : "", script ? option : "", script ? script : "");
    }
    pl_proc_copy_text(pl_text_string(&name), ret_name, name_bytes);
}

/* Returns the rank that the launcher of `pid` gave it; -1 if there is none. */
static int find_rank(pid_t pid)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "RANK"};

    for (size_t i = 0; i < PL_ARRAY_ITEMS(names); i++) {
        PL_AUTO_FREE char *value = pl_proc_variable(pid, names[i]);

        if (value && isdigit((unsigned char)value[0])) {
            return (int)strtol(value, NULL, 10);
        }
    }
    return -1;
}

static void describe_thread(pid_t pid, struct pl_stacks_thread *thread)
{
    PL_AUTO_FREE char *wait = NULL;
    struct pl_proc_stat stat;
    char name[PATH_BYTES / 2];
    size_t bytes;

    if (pl_proc_read_stat(pid, thread->tid, &stat, NULL) != PL_OK) {
        return;
    }
    thread->state = stat.state;
    memcpy(thread->name, stat.name, sizeof(thread->name));
    snprintf(name, sizeof(name), "task/%d/wchan", (int)thread->tid);
    wait = pl_proc_read(pid, name, WAIT_BYTES, &bytes);
    if (wait && strcmp(wait, "0") != 0) {
        pl_proc_copy_text(wait, thread->wait, sizeof(thread->wait));
    }
}

static void describe_threads(struct pl_stacks_program *program)
{
    PL_AUTO_DIRECTORY DIR *directory = NULL;
    const struct dirent *entry;
    char path[PATH_BYTES];

    program->threads[0].tid = program->pid;
    describe_thread(program->pid, &program->threads[0]);
    program->thread_count = 1;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)program->pid);
    directory = opendir(path);
    while (directory && (entry = readdir(directory))) {
        pid_t tid = (pid_t)strtol(entry->d_name, NULL, 10);

        if (tid <= 0 || tid == program->pid) {
            continue;
        }
        if (program->thread_count == PL_STACKS_MOST_THREADS) {
            program->threads_left_out++;
            continue;
        }
        program->threads[program->thread_count].tid = tid;
        describe_thread(program->pid, &program->threads[program->thread_count]);
        program->thread_count += program->threads[program->thread_count].state != 0;
    }
}

void pl_describe_program(struct pl_stacks_program *program)
{
    PL_AUTO_FREE char *words = NULL;
    PL_AUTO_FREE char *maps = NULL;
    size_t bytes;

    program->handles_usr1 = pl_proc_catches(program->pid, SIGUSR1);
    describe_threads(program);
    pl_proc_file_name(program->pid, program->name, sizeof(program->name));
    program->is_python = is_python_name(program->name);
    words = pl_proc_read(program->pid, "cmdline", WORDS_BYTES, &bytes);
    if (words && bytes > 0) {
        pl_describe_name(words, bytes, program->name, sizeof(program->name));
    }
    if (program->name[0] == '\0') { /* a zombie, or a process of another user */
        snprintf(program->name, sizeof(program->name), "%s", program->threads[0].name);
    }
    program->rank = find_rank(program->pid);
    maps = pl_proc_read(program->pid, "maps", MAPS_BYTES, &bytes);
    program->is_python = program->is_python || (maps && strstr(maps, "/libpython"));
}
