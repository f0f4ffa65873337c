/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which processes of a program get a signal, and when. */
#include "entrypoint/proc/delivery.h"

#include "base/clock.h"
#include "base/memory.h"
#include "entrypoint/proc/proc.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How long a waiting process may take to end by itself (a Python wrapper that unloads torch: WRAPPER_END_NS), and run
 * something else until it counts as going on, since a script's last command may be short. */
#define END_NS (2 * PL_NS_PER_S)
#define WRAPPER_END_NS (20 * PL_NS_PER_S)
#define GOES_ON_NS (PL_NS_PER_S / 10)

/* A process that has got the signal, or waits for it. */
struct pl_delivery_known {
    pid_t pid;
    uint64_t start_ticks; /* distinguishes it from a later process with the same number */
    bool got;
    bool caught;     /* the process handled the signal when it got it; a handler may begin with ignoring the next one */
    int64_t free_ns; /* time since which no process that it waits for is left; 0: one is left */
    int64_t wraps_ns;   /* time at which it was last seen as a wrapper, or waiting for one; 0: never */
    int64_t goes_on_ns; /* time since which it also runs something that did not get the signal; 0: it does not */
};

/* Bits of a process below this one, in its present state. The parent of a child of this process is not listed. */
enum { CATCHES = 1, CATCHING_BELOW = 2 /* a descendant catches */ };

struct members {
    struct pl_proc_entry *items;
    size_t count;
};

static void free_members(struct members *members)
{
    free(members->items);
}

static bool catches(const struct pl_proc_entry *member)
{
    return member->is & CATCHES;
}

/* Whether its children get the signal too, although it has a handler. Our parameter server relays no signal. */
static bool shares_signals(const struct pl_proc_entry *member)
{
    char file[64];

    pl_proc_file_name(member->pid, file, sizeof(file));
    return strcmp(file, "paceline-server") == 0 || pl_proc_is_shell(member->pid, member->stat.name);
}

/*
 * Whether the process handles a signal only to pass it on, or to end its children, or itself. `timeout` would send the
 * signal twice, also to a program's workers; `su`, `runuser` and `script` kill their child 2 s later, agents of torch
 * and deepspeed after 30 s; `uv` passes it on to a shell that dies of it; Xvfb would leave its clients.
 */
static bool is_wrapper(const struct pl_proc_entry *member)
{
    static const char *const names[] = {
        "timeout",    "su",
        "runuser",    "script",
        "sudo",       "uv",
        "conda",      "Xvfb",
        "torchrun",   "torch.distributed.run",
        "accelerate", "accelerate.commands.launch",
        "deepspeed",  "deepspeed.launcher.launch",
    };
    char name[64];

    pl_proc_command_name(member->pid, name, sizeof(name));
    for (size_t i = 0; i < PL_ARRAY_ITEMS(names); i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Whether the process looks like a worker of torch's DataLoader: it runs its parent's file, and has handlers for all
 * signals that torch's workers handle, each of which ends the worker. */
static bool is_loader(const struct pl_proc_entry *member, int number)
{
    static const int faults[] = {SIGBUS, SIGSEGV, SIGFPE};
    char name[64], parent_name[64];

    if (number != SIGTERM) {
        return false;
    }
    for (size_t i = 0; i < PL_ARRAY_ITEMS(faults); i++) {
        if (!pl_proc_catches(member->pid, faults[i])) {
            return false;
        }
    }
    pl_proc_file_name(member->pid, name, sizeof(name));
    pl_proc_file_name(member->parent->pid, parent_name, sizeof(parent_name));
    return name[0] != '\0' && strcmp(name, parent_name) == 0;
}

static struct pl_delivery_known *find_known(const struct pl_delivery *delivery, const struct pl_proc_entry *member)
{
    for (size_t i = 0; i < delivery->known_count; i++) {
        if (delivery->known[i].pid == member->pid && delivery->known[i].start_ticks == member->stat.start_ticks) {
            return &delivery->known[i];
        }
    }
    return NULL;
}

static bool has_caught(const struct pl_delivery *delivery, const struct pl_proc_entry *member)
{
    const struct pl_delivery_known *known = find_known(delivery, member);

    return known && known->caught;
}

/* List the processes below this one. Returns false if /proc cannot be read. */
static bool read_members(const struct pl_delivery *delivery, struct members *members)
{
    const int number = delivery->number;

    if (pl_proc_list(getpid(), &members->items, &members->count, NULL) != PL_OK) {
        return false;
    }
    for (size_t i = 0; i < members->count; i++) {
        struct pl_proc_entry *member = &members->items[i];

        /* a process that has ended still has its handlers here until its parent has waited for it */
        if (member->stat.state != 'Z' && number != SIGKILL &&
            (has_caught(delivery, member) ||
             ((pl_proc_catches(member->pid, number) || pl_proc_awaits(member->pid, number)) && !is_wrapper(member)))) {
            member->is = CATCHES;
        }
    }
    for (size_t i = 0; i < members->count; i++) {
        struct pl_proc_entry *member = &members->items[i];

        if (catches(member) && member->parent && !catches(member->parent) && is_loader(member, number)) {
            member->is = 0;
        }
    }
    for (size_t i = 0; i < members->count; i++) {
        struct pl_proc_entry *above = catches(&members->items[i]) ? members->items[i].parent : NULL;

        for (; above; above = above->parent) {
            above->is |= CATCHING_BELOW;
        }
    }
    return true;
}

static size_t count_catching(const struct members *members)
{
    size_t count = 0;

    for (size_t i = 0; i < members->count; i++) {
        count += catches(&members->items[i]);
    }
    return count;
}

/* Returns the entry of `member` in the list of known processes; NULL if memory is out. */
static struct pl_delivery_known *know(struct pl_delivery *delivery, const struct pl_proc_entry *member)
{
    struct pl_delivery_known *known = find_known(delivery, member);

    if (known) {
        return known;
    }
    if (pl_memory_grow(&delivery->known, &delivery->known_capacity, delivery->known_count + 1, sizeof(*known), NULL) !=
        PL_OK) {
        return NULL;
    }
    known = &delivery->known[delivery->known_count++];
    *known = (struct pl_delivery_known){.pid = member->pid, .start_ticks = member->stat.start_ticks};
    return known;
}

static void send_to(struct pl_delivery *delivery, const struct pl_proc_entry *member)
{
    struct pl_delivery_known *known = know(delivery, member);

    if (!known || !known->got) {
        kill(member->pid, delivery->number);
        kill(member->pid, SIGCONT); /* a stopped process could not handle the signal */
    }
    if (known) {
        known->caught = known->caught || (!known->got && catches(member));
        known->got = true;
    }
}

static void send_to_all_below(struct pl_delivery *delivery, const struct members *members,
                              const struct pl_proc_entry *top)
{
    send_to(delivery, top); /* a parent gets it first, so that it cannot go on and start something else */
    for (size_t i = 0; i < members->count; i++) {
        if (members->items[i].parent == top) {
            send_to_all_below(delivery, members, &members->items[i]);
        }
    }
}

/* Whether a process without a handler waits: for its descendants; for all descendants of a process above it, if that
 * one waits too or is a shell with a trap; or, if no process above it has a handler, for all processes. */
static bool must_wait(const struct pl_delivery *delivery, const struct pl_proc_entry *member)
{
    for (const struct pl_proc_entry *at = member; at; at = at->parent) {
        if (at->is != 0) {
            return (at->is & CATCHING_BELOW) && !catches(member);
        }
    }
    return delivery->handling > 0;
}

static void deliver(struct pl_delivery *delivery, const struct members *members, const struct pl_proc_entry *member);

static void deliver_to_children(struct pl_delivery *delivery, const struct members *members,
                                const struct pl_proc_entry *parent)
{
    for (size_t i = 0; i < members->count; i++) {
        if (members->items[i].parent == parent) {
            deliver(delivery, members, &members->items[i]);
        }
    }
}

/* Deliver the signal to a process that is not known yet, and to the processes below it. */
static void deliver(struct pl_delivery *delivery, const struct members *members, const struct pl_proc_entry *member)
{
    if (catches(member)) {
        send_to(delivery, member);
        if (shares_signals(member)) {
            deliver_to_children(delivery, members, member);
        }
    } else if (must_wait(delivery, member) && know(delivery, member)) {
        deliver_to_children(delivery, members, member);
    } else {
        send_to_all_below(delivery, members, member);
    }
}

/* Whether a process that waits for no other one any more is to get the signal now. */
static bool is_due(const struct pl_delivery *delivery, const struct members *members,
                   const struct pl_proc_entry *member, struct pl_delivery_known *known)
{
    const int64_t now_ns = pl_clock_now_ns();
    bool goes_on = false, wraps = is_wrapper(member);

    for (size_t i = 0; i < members->count; i++) {
        const struct pl_proc_entry *other = &members->items[i];

        if (other->stat.state != 'Z' && pl_proc_is_below(other, member->pid)) {
            goes_on = goes_on || !find_known(delivery, other);
            wraps = wraps || is_wrapper(other); /* a script waits for it, whatever it runs as it ends */
        }
    }
    known->free_ns = known->free_ns == 0 ? now_ns : known->free_ns;
    known->wraps_ns = wraps ? now_ns : known->wraps_ns; /* a wrapper that exits has no command line any more */
    known->goes_on_ns = !goes_on || wraps ? 0 : known->goes_on_ns == 0 ? now_ns : known->goes_on_ns;
    return (wraps ? now_ns - known->free_ns >= WRAPPER_END_NS
                  : now_ns - known->free_ns >= END_NS && now_ns - known->wraps_ns >= END_NS) ||
           (known->goes_on_ns != 0 && now_ns - known->goes_on_ns >= GOES_ON_NS);
}

/* Look at a process that waits. A new child gets the signal if it has a handler, and otherwise waits too. Below a
 * process that has got the signal, no new process gets it: a trap may have started that one. */
static void look_again(struct pl_delivery *delivery, const struct members *members, const struct pl_proc_entry *member)
{
    struct pl_delivery_known *known = find_known(delivery, member);

    if (catches(member)) {
        deliver(delivery, members, member);
    } else if (must_wait(delivery, member)) {
        known->free_ns = known->goes_on_ns = 0;
        for (size_t i = 0; i < members->count; i++) {
            if (members->items[i].parent == member && !find_known(delivery, &members->items[i])) {
                deliver(delivery, members, &members->items[i]);
            }
        }
    } else if (is_due(delivery, members, member, known)) {
        send_to_all_below(delivery, members, member);
    }
}

static void count_members(struct pl_delivery *delivery, const struct members *members)
{
    delivery->waiting = delivery->handling = 0;
    for (size_t i = 0; i < members->count; i++) {
        const struct pl_delivery_known *known = find_known(delivery, &members->items[i]);

        delivery->waiting += known && !known->got;
        delivery->handling += known && known->caught && members->items[i].stat.state != 'Z';
    }
}

/* Deliver the signal to the processes that were found. Those that wait for an earlier signal are forgotten. */
static void begin(struct pl_delivery *delivery, int number, const struct members *members)
{
    delivery->number = number;
    delivery->waiting = delivery->known_count = 0;
    delivery->handling = count_catching(members);
    for (size_t i = 0; i < members->count; i++) {
        if (!members->items[i].parent) {
            deliver(delivery, members, &members->items[i]);
        }
    }
    for (size_t i = 0; i < members->count; i++) {
        kill(members->items[i].pid, SIGCONT);
    }
    count_members(delivery, members);
}

void pl_delivery_begin(struct pl_delivery *delivery, pid_t program, int number)
{
    __attribute__((cleanup(free_members))) struct members members = {NULL, 0};
    const struct pl_delivery none = {.number = number};

    if (read_members(&none, &members)) {
        begin(delivery, number, &members);
    } else {
        delivery->waiting = delivery->known_count = 0;
        kill(-program, number);
        kill(-program, SIGCONT);
    }
}

bool pl_delivery_begin_if_caught(struct pl_delivery *delivery, int number)
{
    __attribute__((cleanup(free_members))) struct members members = {NULL, 0};
    const struct pl_delivery none = {.number = number};

    if (!read_members(&none, &members) || count_catching(&members) == 0) {
        return false;
    }
    begin(delivery, number, &members);
    return true;
}

void pl_delivery_go_on(struct pl_delivery *delivery)
{
    __attribute__((cleanup(free_members))) struct members members = {NULL, 0};

    if (!read_members(delivery, &members)) {
        return; /* the next look may succeed */
    }
    count_members(delivery, &members);
    for (size_t i = 0; i < members.count; i++) {
        const struct pl_delivery_known *known = find_known(delivery, &members.items[i]);

        if (known && !known->got) {
            look_again(delivery, &members, &members.items[i]);
        }
    }
    count_members(delivery, &members);
}

void pl_delivery_done(struct pl_delivery *delivery)
{
    free(delivery->known);
    *delivery = (struct pl_delivery){.waiting = 0};
}
