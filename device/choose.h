/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Which of a host's devices each of its ranks uses, decided by every rank alike from what all of them see.
 *
 *   1. each rank lists its devices: pl_device_list_read()
 *   2. the ranks of a host gather their lists (the caller's allgather)
 *   3. each rank chooses:           pl_device_choose()
 *
 * Devices are distinguished by UUID, so that it does not matter whether the launcher gave every rank its own
 * CUDA_VISIBLE_DEVICES, all of them the same, or none; a MIG instance is a device like others.
 *
 * Test  tests/unit/device/test_choose.c
 */
#ifndef PL_DEVICE_CHOOSE_H
#define PL_DEVICE_CHOOSE_H

#include "base/status.h"

enum { PL_DEVICE_LIST_MAX = 32, PL_DEVICE_UUID_BYTES = 48 };

/** The devices that one process sees. Without pointers: can be sent byte by byte. */
struct pl_device_list {
    int32_t status; /* enum pl_status: PL_OK, PL_UNSUPPORTED (there are none) or what went wrong */
    int32_t count;
    char uuid[PL_DEVICE_LIST_MAX][PL_DEVICE_UUID_BYTES];
    char reason[256]; /* in words, when there are none */
};

/** List the devices without using one: no context is made. */
void pl_device_list_read(struct pl_device_list *ret_device_list);

enum pl_device_use {
    PL_DEVICE_AUTO, /* devices if there are any */
    PL_DEVICE_OFF,
    PL_DEVICE_ON,       /* without devices: an error */
    PL_DEVICE_NUMBERED, /* every rank uses its device `ordinal`, which ranks may share */
};

/** The setting `device`. */
struct pl_device_request {
    enum pl_device_use use;
    int ordinal; /* of PL_DEVICE_NUMBERED */
};

/** "auto", "off", "on" or "cuda:N"; PL_INVALID otherwise. */
enum pl_status pl_device_request_parse(const char *text, struct pl_device_request *ret_wanted,
                                       struct pl_error *reterr) PL_MUST_CHECK;

/**
 * The ordinal, in rank `rank`'s own numbering, of the device that it is to use, -1: none is used (wanted off, or no
 * rank of the host has one). As few ranks a device as possible; among equals, ranks take devices in their order and
 * neighbours share.
 *
 * Shapes  lists: [ranks], of the ranks of one host in the order of their local ranks; the same on all of them.
 * Errors  PL_INVALID: fewer devices than ranks, and `share` is off; or no device of the number wanted. PL_MISMATCH:
 *         some ranks see devices and others do not. PL_UNSUPPORTED: wanted, and there are none. A driver's error is
 *         returned, also with PL_DEVICE_AUTO: training on the CPU without a word would be wrong then.
 */
enum pl_status pl_device_choose(const struct pl_device_list *lists, int ranks, int rank,
                                struct pl_device_request wanted_device, bool share, int *ret_ordinal,
                                struct pl_error *reterr) PL_MUST_CHECK;

#endif
