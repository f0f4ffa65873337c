/* SPDX-License-Identifier: Apache-2.0 */
/* Matches the ranks of a host to its devices, and parses the setting `device`. */
#include "device/choose.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

/* A bipartite graph of ranks and devices. Each device takes `capacity` ranks. */
struct match {
    const struct pl_device_list *lists;
    int ranks;
    int devices;  /* number of different devices that the ranks see */
    int capacity; /* most ranks per device */
    int *number;  /* [ranks][PL_DEVICE_LIST_MAX]: number of the device that each ordinal of a rank means */
    int *taken;   /* [ranks]: ordinal of the device that the rank has; -1: none yet */
    int *load;    /* [devices]: number of ranks that use the device */
    bool *tried;  /* [devices]: whether this search has tried the device */
};

/* Parses one or two digits as the ordinal. Returns -1 for any other text. */
static int parse_ordinal(const char *digits)
{
    size_t length = strspn(digits, "0123456789");

    if (digits[length] || length < 1 || length > 2) {
        return -1;
    }
    return length == 1 ? digits[0] - '0' : (digits[0] - '0') * 10 + digits[1] - '0';
}

enum pl_status pl_device_request_parse(const char *text, struct pl_device_request *ret_wanted, struct pl_error *reterr)
{
    static const char *const names[] = {[PL_DEVICE_AUTO] = "auto", [PL_DEVICE_OFF] = "off", [PL_DEVICE_ON] = "on"};

    for (size_t i = 0; i < PL_ARRAY_ITEMS(names); i++) {
        if (strcmp(text, names[i]) == 0) {
            *ret_wanted = (struct pl_device_request){.use = (enum pl_device_use)i};
            return PL_OK;
        }
    }
    if (strncmp(text, "cuda:", 5) == 0 && parse_ordinal(text + 5) >= 0) {
        *ret_wanted = (struct pl_device_request){.use = PL_DEVICE_NUMBERED, .ordinal = parse_ordinal(text + 5)};
        return PL_OK;
    }
    return pl_error_set(reterr, PL_INVALID, "the setting device is '%s': expected auto, on, off or cuda:N", text);
}

static int number_of(const struct match *match, int rank, int ordinal)
{
    return match->number[rank * PL_DEVICE_LIST_MAX + ordinal];
}

/* Numbers the devices in the order of their first appearance. */
static void number_devices(struct match *match)
{
    for (int r = 0; r < match->ranks; r++) {
        for (int o = 0; o < match->lists[r].count; o++) {
            int known = -1;

            for (int q = 0; q <= r && known < 0; q++) {
                for (int p = 0; p < (q < r ? match->lists[q].count : o) && known < 0; p++) {
                    known = strcmp(match->lists[q].uuid[p], match->lists[r].uuid[o]) == 0 ? number_of(match, q, p) : -1;
                }
            }
            match->number[r * PL_DEVICE_LIST_MAX + o] = known < 0 ? match->devices++ : known;
        }
    }
}

/* Finds a device for `rank`: a free one, or one whose rank can use a different device. */
static bool assign(struct match *match, int rank)
{
    for (int o = 0; o < match->lists[rank].count; o++) {
        int device = number_of(match, rank, o);

        if (match->load[device] < match->capacity) {
            match->load[device]++;
            match->taken[rank] = o;
            return true;
        }
    }
    for (int o = 0; o < match->lists[rank].count; o++) {
        int device = number_of(match, rank, o);

        if (match->tried[device]) {
            continue;
        }
        match->tried[device] = true;
        for (int other = 0; other < match->ranks; other++) {
            if (match->taken[other] >= 0 && other != rank && number_of(match, other, match->taken[other]) == device &&
                assign(match, other)) {
                /* the other rank has a different device now; the load of this device is unchanged */
                match->taken[rank] = o;
                return true;
            }
        }
    }
    return false;
}

static bool assign_all(struct match *match)
{
    memset(match->load, 0, (size_t)match->devices * sizeof(*match->load));
    for (int r = 0; r < match->ranks; r++) {
        match->taken[r] = -1;
    }
    for (int r = 0; r < match->ranks; r++) {
        memset(match->tried, 0, (size_t)match->devices * sizeof(*match->tried));
        if (!assign(match, r)) {
            return false;
        }
    }
    return true;
}

static enum pl_status match_all(const struct pl_device_list *lists, int ranks, int rank, bool share, int *ret_ordinal,
                                struct pl_error *reterr)
{
    size_t seen = (size_t)ranks * PL_DEVICE_LIST_MAX;
    PL_AUTO_FREE int *number = pl_memory_new(seen, sizeof(*number), reterr);
    PL_AUTO_FREE int *taken = pl_memory_new((size_t)ranks, sizeof(*taken), reterr);
    PL_AUTO_FREE int *load = pl_memory_new(seen, sizeof(*load), reterr);
    PL_AUTO_FREE bool *tried = pl_memory_new(seen, sizeof(*tried), reterr);
    struct match match = {
        .lists = lists, .ranks = ranks, .number = number, .taken = taken, .load = load, .tried = tried};

    if (!number || !taken || !load || !tried) {
        return PL_MEMORY;
    }
    number_devices(&match);
    do {
        match.capacity++;
    } while (!assign_all(&match)); /* ends: each rank sees a device, and `ranks` ranks fit on one */
    if (match.capacity > 1 && !share) {
        return pl_error_set(reterr, PL_INVALID,
                            "%d ranks of this host would share %d GPU%s: start %d of them, let ranks share GPUs with "
                            "PACELINE_SHARE_DEVICE=1, or "
                            "train on the CPU with PACELINE_DEVICE=off",
                            ranks, match.devices, match.devices == 1 ? "" : "s", match.devices);
    }
    *ret_ordinal = taken[rank];
    return PL_OK;
}

enum pl_status pl_device_choose(const struct pl_device_list *lists, int ranks, int rank,
                                struct pl_device_request wanted_device, bool share, int *ret_ordinal,
                                struct pl_error *reterr)
{
    int with = -1;
    int without = -1;

    PL_BUG_IF(rank < 0 || rank >= ranks);
    if (wanted_device.use == PL_DEVICE_OFF) {
        *ret_ordinal = -1;
        return PL_OK;
    }
    for (int r = ranks - 1; r >= 0; r--) {
        if (lists[r].status != PL_OK && lists[r].status != PL_UNSUPPORTED) {
            return pl_error_set(reterr, (enum pl_status)lists[r].status, "local rank %d: %s", r, lists[r].reason);
        }
        *(lists[r].count > 0 ? &with : &without) = r;
    }
    if (with >= 0 && without >= 0) {
        return pl_error_set(reterr, PL_MISMATCH,
                            "local rank %d sees %d GPU%s, and local rank %d none (%s): give all ranks of a host GPUs",
                            with, lists[with].count, lists[with].count == 1 ? "" : "s", without, lists[without].reason);
    }
    if (with < 0 && wanted_device.use != PL_DEVICE_AUTO) {
        return pl_error_set(reterr, PL_UNSUPPORTED, "the setting device asks for GPUs: %s", lists[rank].reason);
    }
    if (with < 0) {
        *ret_ordinal = -1;
        return PL_OK;
    }
    if (wanted_device.use == PL_DEVICE_NUMBERED) {
        for (int r = 0; r < ranks; r++) {
            if (wanted_device.ordinal >= lists[r].count) {
                return pl_error_set(reterr, PL_INVALID, "the setting device asks for GPU %d, and local rank %d sees %d",
                                    wanted_device.ordinal, r, lists[r].count);
            }
        }
        *ret_ordinal = wanted_device.ordinal;
        return PL_OK;
    }
    return match_all(lists, ranks, rank, share, ret_ordinal, reterr);
}
