/* SPDX-License-Identifier: Apache-2.0 */
/* Finds Elastic Fabric Adapters in /sys, and reads their counters. */
#include "base/efa.h"

#include "base/file.h"
#include "base/memory.h"

#include <dirent.h>
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

static void add(const char *device, const char *name, struct pl_efa *efa)
{
    efa->count++;
    if (efa->name[0] == '\0' || strcmp(name, efa->name) < 0) {
        snprintf(efa->name, sizeof(efa->name), "%.31s", name);
    }
    efa->sent_bytes += number_of(device, "ports/1/hw_counters/tx_bytes");
    efa->received_bytes += number_of(device, "ports/1/hw_counters/rx_bytes");
}

/* Whether the folder has a file whose name begins with `prefix`. */
static bool has_file(const char *folder, const char *prefix)
{
    PL_AUTO_DIRECTORY DIR *dir = opendir(folder);
    const struct dirent *entry;
    bool found = false;

    while (dir && !found && (entry = readdir(dir))) {
        found = strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
    }
    return found;
}

void pl_efa_read(const char *root, struct pl_efa *ret_efa)
{
    char folder[PATH_BYTES], device[PATH_BYTES];
    const struct dirent *entry;
    PL_AUTO_DIRECTORY DIR *dir = NULL;

    *ret_efa = (struct pl_efa){.count = 0};
    snprintf(folder, sizeof(folder), "%s/sys/class/infiniband", root);
    dir = opendir(folder);
    while (dir && (entry = readdir(dir))) {
        int length = snprintf(device, sizeof(device), "%s/%s", folder, entry->d_name);

        if (entry->d_name[0] != '.' && length < (int)sizeof(device) && is_efa(device)) {
            add(device, entry->d_name, ret_efa);
        }
    }
    snprintf(folder, sizeof(folder), "%s/dev/infiniband", root);
    ret_efa->usable = ret_efa->count > 0 && has_file(folder, "uverbs");
}
