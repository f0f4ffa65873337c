/* SPDX-License-Identifier: Apache-2.0 */
/* Finds Elastic Fabric Adapters in /sys, and reads their counters. */
#include "base/efa.h"

#include "base/file.h"
#include "base/memory.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 512 };

/* Returns the number in a file of the device, decimal, octal or hexadecimal as in C; 0 if there is none. */
static uint64_t number_of(const char *device, const char *file)
{
    char path[2 * PATH_BYTES];
    PL_AUTO_FREE char *text = NULL;

    snprintf(path, sizeof(path), "%s/%s", device, file);
    return pl_file_read(path, 64, &text, NULL, NULL) == PL_OK ? strtoull(text, NULL, 0) : 0;
}

/* Whether Amazon made the device. EFA is Amazon's only such device. */
static bool is_efa(const char *device)
{
    enum { AMAZON = 0x1d0f };

    return number_of(device, "device/vendor") == AMAZON;
}

static void add(const char *device, struct pl_efa *efa)
{
    if (efa->count++ == 0) {
        snprintf(efa->name, sizeof(efa->name), "%.31s", basename(device));
    }
    efa->sent_bytes += number_of(device, "ports/1/hw_counters/tx_bytes");
    efa->received_bytes += number_of(device, "ports/1/hw_counters/rx_bytes");
}

void pl_efa_read(const char *root, struct pl_efa *ret_efa)
{
    char pattern[PATH_BYTES];
    glob_t found = {.gl_pathc = 0};

    *ret_efa = (struct pl_efa){.count = 0};
    snprintf(pattern, sizeof(pattern), "%s/sys/class/infiniband/*", root);
    glob(pattern, 0, NULL, &found); /* in alphabetical order */
    for (size_t i = 0; i < found.gl_pathc; i++) {
        if (is_efa(found.gl_pathv[i])) {
            add(found.gl_pathv[i], ret_efa);
        }
    }
    globfree(&found);
    snprintf(pattern, sizeof(pattern), "%s/dev/infiniband/uverbs*", root);
    ret_efa->usable = ret_efa->count > 0 && glob(pattern, 0, NULL, &found) == 0;
    globfree(&found);
}
