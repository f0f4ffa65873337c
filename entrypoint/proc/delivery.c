/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which processes of a program get a signal, and when. */
#include "entrypoint/proc/delivery.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "entrypoint/proc/proc.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* How long a process that has waited has to end by itself, and how long it may run something else before it counts as
 * one that goes on: the last command of a script may be short. */
#define END_NS (2 * PL_NS_PER_S)
#define GOES_ON_NS (PL_NS_PER_S / 10)

/* A process that has got the signal, or waits for it. */
struct pl_delivery_known {
    pid_t pid;
    uint64_t start_ticks; /* tells it from another process that gets its number later */
    bool got;
    int64_t free_ns;    /* since when nobody that it waits for is left; 0: somebody is */
    int64_t goes_on_ns; /* since when it has also run something that did not get the signal; 0: it has not */
};

/* A process of the group, as it is now. */
struct member {
    pid_t pid;
    struct pl_proc_stat stat;
    struct member *parent; /* NULL: not of this group */
    bool catches;
    bool catching_below; /* whether a descendant catches */
};

struct members {
    struct member *items;
    size_t count;
};

static void free_members(struct members *members)
{
    free(members->items);
}

/* Whether its children get the signal too, although it has a handler. Our parameter server relays no signal. */
static bool shares_signals(const struct member *member)
{
    char file[64];

    pl_proc_file_name(member->pid, file, sizeof(file));
    return strcmp(file, "paceline-server") == 0 || pl_proc_is_shell(member->pid, member->stat.name);
}

/* Whether it looks like a worker of torch's DataLoader: it runs its parent's file, and has handlers for all signals
 * that torch's workers handle, each of which ends the worker. */
static bool is_loader(const struct member *member, int number)
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

static struct member *find_member(const struct members *members, pid_t pid)
{
    for (size_t i = 0; i < members->count; i++) {
        if (members->items[i].pid == pid) {
            return &members->items[i];
        }
    }
    return NULL;
}

static bool list_group(pid_t group, struct members *members)
{
    PL_AUTO_DIRECTORY DIR *directory = opendir("/proc");
    struct member member = {.pid = 0};
    size_t capacity = 0;

    if (!directory) {
        return false;
    }
    while ((member.pid = pl_proc_next(directory)) > 0) {
        if (pl_proc_read_stat(member.pid, 0, &member.stat, NULL) == PL_OK && member.stat.group == group) {
            if (pl_memory_grow(&members->items, &capacity, members->count + 1, sizeof(member), NULL) != PL_OK) {
                return false;
            }
            members->items[members->count++] = member;
        }
    }
    return members->count > 0;
}

/* List the processes of the group. Returns false if /proc cannot be read. */
static bool read_members(pid_t group, int number, struct members *members)
{
    if (!list_group(group, members)) {
        return false;
    }
    for (size_t i = 0; i < members->count; i++) {
        struct member *member = &members->items[i];

        member->parent = find_member(members, member->stat.parent);
        /* a process that has ended still has its handlers here until its parent has asked for its end */
        member->catches = member->stat.state != 'Z' && pl_proc_catches(member->pid, number);
    }
    for (size_t i = 0; i < members->count; i++) {
        struct member *member = &members->items[i];

        if (member->catches && member->parent && !member->parent->catches && is_loader(member, number)) {
            member->catches = false;
        }
    }
    for (size_t i = 0; i < members->count; i++) {
        struct member *above = members->items[i].catches ? members->items[i].parent : NULL;

        for (size_t depth = 0; above && depth < members->count; depth++) {
            above->catching_below = true;
            above = above->parent;
        }
    }
    return true;
}

static bool has_catching(const struct members *members)
{
    for (size_t i = 0; i < members->count; i++) {
        if (members->items[i].catches) {
            return true;
        }
    }
    return false;
}

bool pl_delivery_catches(pid_t group, int number)
{
    __attribute__((cleanup(free_members))) struct members members = {NULL, 0};

    return read_members(group, number, &members) && has_catching(&members);
}

/* Whether `member` is below `ancestor`. */
static bool is_below(const struct members *members, const struct member *member, const struct member *ancestor)
{
    const struct member *above = member->parent;

    for (size_t depth = 0; above && above != ancestor && depth < members->count; depth++) {
        above = above->parent;
    }
    return above == ancestor;
}

static struct pl_delivery_known *find_known(const struct pl_delivery *delivery, const struct member *member)
{
    for (size_t i = 0; i < delivery->known_count; i++) {
        if (delivery->known[i].pid == member->pid && delivery->known[i].start_ticks == member->stat.start_ticks) {
            return &delivery->known[i];
        }
    }
    return NULL;
}

/* Returns what is known of `member`, or NULL if there is no memory. */
static struct pl_delivery_known *know(struct pl_delivery *delivery, const struct member *member)
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

static void send_to(struct pl_delivery *delivery, const struct member *member)
{
    struct pl_delivery_known *known = know(delivery, member);

    if (!known || !known->got) {
        kill(member->pid, delivery->number);
    }
    if (known) {
        known->got = true;
    }
}

static void send_to_all_below(struct pl_delivery *delivery, const struct members *members, const struct member *top)
{
    send_to(delivery, top);
    for (size_t i = 0; i < members->count; i++) {
        if (is_below(members, &members->items[i], top)) {
            send_to(delivery, &members->items[i]);
        }
    }
}

/* Whether a process without a handler waits for others: for descendants, or for those that a process above it, which
 * waits too or is a shell with a trap, has as descendants. */
static bool must_wait(const struct members *members, const struct member *member)
{
    const struct member *at = member;

    for (size_t depth = 0; at && depth < members->count; depth++) {
        if (at->catching_below) {
            return !member->catches;
        }
        at = at->catches ? NULL : at->parent;
    }
    return false;
}

static void deliver(struct pl_delivery *delivery, const struct members *members, const struct member *member);

static void deliver_to_children(struct pl_delivery *delivery, const struct members *members,
                                const struct member *parent)
{
    for (size_t i = 0; i < members->count; i++) {
        if (members->items[i].parent == parent) {
            deliver(delivery, members, &members->items[i]);
        }
    }
}

/* Deliver the signal to a process that nothing is known of, and to those below it. */
static void deliver(struct pl_delivery *delivery, const struct members *members, const struct member *member)
{
    if (member->catches) {
        send_to(delivery, member);
        if (shares_signals(member)) {
            deliver_to_children(delivery, members, member);
        }
    } else if (must_wait(members, member) && know(delivery, member)) {
        deliver_to_children(delivery, members, member);
    } else {
        send_to_all_below(delivery, members, member);
    }
}

/* Whether a process that waits for nobody any more is to get the signal now. */
static bool is_due(const struct pl_delivery *delivery, const struct members *members, const struct member *member,
                   struct pl_delivery_known *known)
{
    const int64_t now_ns = pl_clock_now_ns();
    bool goes_on = false;

    for (size_t i = 0; i < members->count; i++) {
        const struct member *other = &members->items[i];

        goes_on =
            goes_on || (is_below(members, other, member) && other->stat.state != 'Z' && !find_known(delivery, other));
    }
    known->free_ns = known->free_ns == 0 ? now_ns : known->free_ns;
    known->goes_on_ns = !goes_on ? 0 : known->goes_on_ns == 0 ? now_ns : known->goes_on_ns;
    return now_ns - known->free_ns >= END_NS || (goes_on && now_ns - known->goes_on_ns >= GOES_ON_NS);
}

/* Look at a process that waits. What it has started since the last look gets the signal if it has a handler, and waits
 * with it otherwise. Below a process that has the signal nothing new gets it: a trap may have started it. */
static void look_again(struct pl_delivery *delivery, const struct members *members, const struct member *member)
{
    struct pl_delivery_known *known = find_known(delivery, member);

    if (member->catches) {
        deliver(delivery, members, member);
    } else if (must_wait(members, member)) {
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

static void count_waiting(struct pl_delivery *delivery, const struct members *members)
{
    delivery->waiting = 0;
    for (size_t i = 0; i < members->count; i++) {
        const struct pl_delivery_known *known = find_known(delivery, &members->items[i]);

        delivery->waiting += known && !known->got;
    }
}

static size_t count_got(const struct pl_delivery *delivery)
{
    size_t count = 0;

    for (size_t i = 0; i < delivery->known_count; i++) {
        count += delivery->known[i].got;
    }
    return count;
}

void pl_delivery_begin(struct pl_delivery *delivery, pid_t group, int number)
{
    __attribute__((cleanup(free_members))) struct members members = {NULL, 0};

    delivery->group = group;
    delivery->number = number;
    delivery->waiting = delivery->known_count = 0;
    if (!read_members(group, number, &members) || !has_catching(&members)) {
        kill(-group, number); /* at once, so that no process can be forked in between */
        return;
    }
    for (size_t i = 0; i < members.count; i++) {
        if (!members.items[i].parent) {
            deliver(delivery, &members, &members.items[i]);
        }
    }
    count_waiting(delivery, &members);
}

bool pl_delivery_go_on(struct pl_delivery *delivery)
{
    __attribute__((cleanup(free_members))) struct members members = {NULL, 0};
    const size_t got_before = count_got(delivery);

    if (!read_members(delivery->group, delivery->number, &members)) {
        return false; /* the next look may succeed */
    }
    for (size_t i = 0; i < members.count; i++) {
        const struct pl_delivery_known *known = find_known(delivery, &members.items[i]);

        if (known && !known->got) {
            look_again(delivery, &members, &members.items[i]);
        }
    }
    count_waiting(delivery, &members);
    return count_got(delivery) > got_before;
}

void pl_delivery_done(struct pl_delivery *delivery)
{
    free(delivery->known);
    *delivery = (struct pl_delivery){.waiting = 0};
}
