/* SPDX-License-Identifier: Apache-2.0 */
/** The functions of the fake NCCL, and the room that devices have for its groups. Internal to fake_nccl.c. */
#ifndef PL_TESTS_FAKES_FAKE_NCCL_ROOM_H
#define PL_TESTS_FAKES_FAKE_NCCL_ROOM_H

#include "collectives/gpu/library_nccl.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#define API __attribute__((visibility("default")))

#define DECLARE(type, name, ...) type nccl##name(__VA_ARGS__);
PL_NCCL_FUNCTIONS(DECLARE)
#undef DECLARE

enum { FAKE_NCCL_MOST_DEVICES = 16 };

static _Atomic int fake_nccl_running[FAKE_NCCL_MOST_DEVICES], fake_nccl_started[FAKE_NCCL_MOST_DEVICES];

int fake_nccl_begun(int device);

/** How many groups have begun on the device. */
API int fake_nccl_begun(int device)
{
    return atomic_load(&fake_nccl_started[device]);
}

/** How many groups run on a device at the same time; 0: any number. */
static int fake_nccl_room(void)
{
    const char *room = getenv("FAKE_NCCL_ROOM");

    return room ? atoi(room) : 0;
}

/** Waits until fewer than `room` groups run on the device; 0: any number may. False if aborted. */
static bool fake_nccl_find_room(int device, int room, _Atomic bool *aborted)
{
    int others = atomic_load(&fake_nccl_running[device]);

    while ((room && others >= room) || !atomic_compare_exchange_weak(&fake_nccl_running[device], &others, others + 1)) {
        if (atomic_load(aborted)) {
            return false;
        }
        sched_yield();
        others = atomic_load(&fake_nccl_running[device]);
    }
    atomic_fetch_add(&fake_nccl_started[device], 1);
    return true;
}

static void fake_nccl_give_room(int device, bool has_room)
{
    atomic_fetch_sub(&fake_nccl_running[device], has_room);
}

#endif
