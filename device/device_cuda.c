/* SPDX-License-Identifier: Apache-2.0 */
/* Lists the devices, and opens one. */
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "device/choose.h"
#include "device/device_private.h"
#include "device/load_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t LAST_WAIT_NS = PL_NS_PER_S; /* wait at the close for work that missed its deadline */

enum pl_status pl_device_count(int *ret_count, struct pl_error *reterr)
{
    struct pl_cuda cuda;
    enum pl_status status = PL_OK;
    int count = 0;
    CUresult result;

    PL_TRY(pl_device_cuda_load(&cuda, reterr));
    result = cuda.cuDeviceGetCount(&count);
    if (result != CUDA_SUCCESS) {
        status = pl_device_cuda_raise(&cuda, NULL, result, reterr, "cannot count the devices");
    }
    pl_device_cuda_unload(&cuda);
    if (status == PL_OK) {
        *ret_count = count;
    }
    return status;
}

/* Prints "GPU-00112233-4455-...", as the driver's tools and CUDA_VISIBLE_DEVICES do. A MIG instance is recognised by
 * its name. */
static void print_uuid(const CUuuid *uuid, bool mig, char *text, size_t text_bytes)
{
    static const char digits[] = "0123456789abcdef";
    char hex[37];
    size_t at = 0;

    for (size_t i = 0; i < 16; i++) {
        unsigned char byte = (unsigned char)uuid->bytes[i];

        if (i == 4 || i == 6 || i == 8 || i == 10) {
            hex[at++] = '-';
        }
        hex[at++] = digits[byte >> 4];
        hex[at++] = digits[byte & 15];
    }
    hex[at] = '\0';
    snprintf(text, text_bytes, "%s-%s", mig ? "MIG" : "GPU", hex);
}

/* Reads names and UUIDs, which needs no context. */
static enum pl_status read_device(const struct pl_cuda *cuda, struct pl_device_list *list, struct pl_error *reterr)
{
    int count = 0;
    CUresult result = cuda->cuDeviceGetCount(&count);

    for (int o = 0; result == CUDA_SUCCESS && o < count && o < PL_DEVICE_LIST_MAX; o++) {
        CUdevice number = 0;
        char name[96] = "";
        CUuuid uuid;

        result = cuda->cuDeviceGet(&number, o);
        result = result == CUDA_SUCCESS ? cuda->cuDeviceGetName(name, sizeof(name), number) : result;
        result = result == CUDA_SUCCESS ? cuda->cuDeviceGetUuid_v2(&uuid, number) : result;
        if (result == CUDA_SUCCESS) {
            print_uuid(&uuid, strstr(name, " MIG "), list->uuid[o], sizeof(list->uuid[o]));
            list->count = o + 1;
        }
    }
    return result == CUDA_SUCCESS ? PL_OK
                                  : pl_device_cuda_raise(cuda, NULL, result, reterr, "cannot look at the devices");
}

void pl_device_list_read(struct pl_device_list *ret_device_list)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_cuda cuda;
    enum pl_status status;

    memset(ret_device_list, 0, sizeof(*ret_device_list));
    status = pl_device_cuda_load(&cuda, &error);
    if (status == PL_OK) {
        status = read_device(&cuda, ret_device_list, &error);
        pl_device_cuda_unload(&cuda);
    }
    if (status != PL_OK) {
        ret_device_list->count = 0;
        ret_device_list->status = (int32_t)status;
        memcpy(ret_device_list->reason, error.cause, sizeof(ret_device_list->reason) - 1);
    }
}

static enum pl_status describe(struct pl_device *device, struct pl_error *reterr)
{
    static const struct {
        CUdevice_attribute attribute;
        size_t offset;
    } numbers[] = {
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, offsetof(struct pl_device_info, compute_major)},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, offsetof(struct pl_device_info, compute_minor)},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, offsetof(struct pl_device_info, multiprocessors)},
    };
    struct pl_device_info *info = &device->info;
    size_t memory_bytes = 0;
    CUuuid uuid;

    PL_CUDA_TRY(device, cuDeviceGetName(info->name, sizeof(info->name), device->number), reterr,
                "cannot ask for the device's name");
    PL_CUDA_TRY(device, cuDeviceGetPCIBusId(info->pci, sizeof(info->pci), device->number), reterr,
                "cannot ask for the device's address");
    for (char *c = info->pci; *c; c++) { /* in lower case, as in /sys */
        *c = (char)(*c >= 'A' && *c <= 'F' ? *c - 'A' + 'a' : *c);
    }
    PL_CUDA_TRY(device, cuDeviceGetUuid_v2(&uuid, device->number), reterr, "cannot ask for the device's UUID");
    print_uuid(&uuid, strstr(info->name, " MIG "), info->uuid, sizeof(info->uuid));
    for (size_t i = 0; i < PL_ARRAY_ITEMS(numbers); i++) {
        PL_CUDA_TRY(device,
                    cuDeviceGetAttribute((int *)(void *)((char *)info + numbers[i].offset), numbers[i].attribute,
                                         device->number),
                    reterr, "cannot ask for the device's attribute %d", (int)numbers[i].attribute);
    }
    PL_CUDA_TRY(device, cuDeviceTotalMem_v2(&memory_bytes, device->number), reterr,
                "cannot ask for the device's memory");
    info->memory_bytes = memory_bytes;
    PL_CUDA_TRY(device, cuDriverGetVersion(&info->driver_version), reterr, "cannot ask for the driver's version");
    return PL_OK;
}

static enum pl_status open_device(struct pl_device *device, struct pl_error *reterr)
{
    int count = 0, least;

    PL_TRY(pl_device_cuda_load(&device->cuda, reterr));
    PL_CUDA_TRY(device, cuDeviceGetCount(&count), reterr, "cannot count the devices");
    if (device->info.ordinal < 0 || device->info.ordinal >= count) {
        return pl_error_set(reterr, PL_INVALID, "there is no device %d: this process sees %d", device->info.ordinal,
                            count);
    }
    PL_CUDA_TRY(device, cuDeviceGet(&device->number, device->info.ordinal), reterr, "cannot find the device");
    PL_TRY(describe(device, reterr));
    PL_CUDA_TRY(device, cuDevicePrimaryCtxRetain(&device->context, device->number), reterr, "cannot use the device");
    PL_TRY(pl_device_enter(device, reterr));
    PL_CUDA_TRY(device, cuCtxGetStreamPriorityRange(&least, &device->urgent), reterr,
                "cannot ask for the priorities of streams");
    PL_CUDA_TRY(device, cuStreamCreateWithPriority(&device->service, CU_STREAM_NON_BLOCKING, 0), reterr,
                "cannot make a stream");
    return PL_OK;
}

enum pl_status pl_device_open(int ordinal, struct pl_device **ret_device, struct pl_error *reterr)
{
    struct pl_device *device;
    enum pl_status status;

    PL_TRY(pl_memory_alloc(&device, 1, sizeof(*device), reterr));
    PL_BUG_IF(pthread_mutex_init(&device->lock, NULL) != 0 || pthread_mutex_init(&device->loading, NULL) != 0 ||
              pthread_mutex_init(&device->order, NULL) != 0);
    device->info.ordinal = ordinal;
    device->service_timeout_ns = 60 * PL_NS_PER_S;
    status = open_device(device, reterr);
    if (status != PL_OK) {
        pl_device_close(device);
        return status;
    }
    *ret_device = device;
    return PL_OK;
}

void pl_device_close(struct pl_device *device)
{
    if (!device) {
        return;
    }
    if (device->context) {
        int64_t deadline_ns = pl_deadline_after_ns(LAST_WAIT_NS);
        bool is_late;

        PL_CUDA_LET(device, cuCtxSetCurrent(device->context), "closing a device");
        pl_device_events_free(device);
        pl_device_stream_free(device, device->service);
        while ((is_late = pl_device_cuda_is_late(device)) && !pl_deadline_passed(deadline_ns)) {
            pl_clock_nap(PL_NS_PER_MS, deadline_ns);
        }
        pl_device_release_deferred(device, is_late);
        pl_device_kernels_free(device, is_late);
        if (!is_late) {
            PL_CUDA_LET(device, cuDevicePrimaryCtxRelease_v2(device->number), "closing a device");
        }
    }
    pl_device_cuda_unload(&device->cuda);
    pthread_mutex_destroy(&device->lock);
    pthread_mutex_destroy(&device->loading);
    pthread_mutex_destroy(&device->order);
    free(device);
}

const struct pl_device_info *pl_device_info(const struct pl_device *device)
{
    return &device->info;
}
