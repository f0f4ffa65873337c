/* SPDX-License-Identifier: Apache-2.0 */
/* Covers device/device_cuda.c, device/load_cuda.c, device/memory_cuda.c, device/stream_cuda.c. */
/* One device: memory, streams, events, other processes, and every fault that a driver can be ordered to have. */
#include <cuda.h>

#include "device/device_private.h"
#include "device/load_cuda.h"
#include "tests/support/device.h"
#include "tests/unit/device/gpu.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#if CUDA_VERSION >= 13000 /* earlier ones have no name for some of the errors */
#define SAME_VALUE(name, value) _Static_assert((int)(name) == (value), #name " is the toolkit's");
PL_CUDA_CONSTANTS(SAME_VALUE)
#endif
#define SAME_TYPE(name, ...)                                                                                           \
    _Static_assert(__builtin_types_compatible_p(__typeof__(name), CUresult(__VA_ARGS__)), #name " is the toolkit's");
PL_CUDA_LIST(SAME_TYPE)
_Static_assert(sizeof(CUdevice) == 4 && sizeof(CUdeviceptr) == 8 && sizeof(CUresult) == 4 && sizeof(CUuuid) == 16 &&
                   sizeof(CUipcMemHandle) == 64,
               "the types of load_cuda.h have these sizes");

#define ck_assert_says(error, text)                                                                                    \
    ck_assert_msg(strstr((error).cause, (text)), "'%s' lacks '%s'", (error).cause, (text))

static void order(const char *orders)
{
    ck_assert_int_eq(setenv("FAKE_CUDA", orders, 1), 0);
}

static enum pl_status free_bytes(struct pl_device *device, uint64_t *ret_bytes, struct pl_error *reterr)
{
    size_t total;

    PL_TRY(pl_device_enter(device, reterr));
    PL_CUDA_TRY(device, cuMemGetInfo_v2(ret_bytes, &total), reterr, "cannot ask for free memory");
    return PL_OK;
}

/* ---- what there is ---- */

TEST(devices_are_counted_and_described)
{
    AUTO_DEVICE struct pl_device *device = open_gpu("devices=3,driver=13010,arch=86,mps=80,memory=24GiB,leaks");
    const struct pl_device_info *info = pl_device_info(device);
    struct pl_device *none = NULL;
    int count = 0;

    ck_ok(pl_device_count, &count);
    ck_assert_int_eq(count, 3);
    ck_assert_int_eq(info->ordinal, 0);
    ck_assert_str_eq(info->name, "Fake GPU 0");
    ck_assert_str_eq(info->uuid, "GPU-fa000000-0000-0000-0000-000000000000");
    ck_assert_str_eq(info->pci, "0000:1a:00.0");
    ck_assert_int_eq(info->compute_major * 10 + info->compute_minor, 86);
    ck_assert_int_eq(info->multiprocessors, 80);
    ck_assert_uint_eq(info->memory_bytes, UINT64_C(24) << 30);
    ck_assert_int_eq(info->driver_version, 13010);
    ck_fails_as(PL_INVALID, "there is no device 3: this process sees 3", pl_device_open, 3, &none);
    ck_fails(PL_INVALID, "", pl_device_open, -1, &none);
}

TEST(what_is_visible_is_numbered_from_0_and_a_mig_instance_is_called_one)
{
    AUTO_DEVICE struct pl_device *device = NULL;

    order("devices=8,mig");
    ck_assert_int_eq(setenv("CUDA_VISIBLE_DEVICES", "5,2", 1), 0);
    ck_ok(pl_device_open, 1, &device);
    ck_assert_str_eq(pl_device_info(device)->name, "Fake GPU 2 MIG 1g.10gb");
    ck_assert_str_eq(pl_device_info(device)->uuid, "MIG-fa000000-0000-0000-0000-000000000002");
}

/* ---- why there are none ---- */

static void check_none(const char *orders, const char *says)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_device *device = NULL;
    int count = -1;

    order(orders);
    ck_assert_int_eq(pl_device_count(&count, &error), PL_UNSUPPORTED);
    ck_assert_int_eq(count, -1);
    ck_assert_says(error, says);
    ck_assert_ptr_null(strchr(error.cause, '\n'));
    ck_fails(PL_UNSUPPORTED, says, pl_device_open, 0, &device);
}

UNIT_TEST(no_device_is_said, check_none("no_device", "finds no device for this process"))

UNIT_TEST(a_driver_that_is_too_old_is_said_with_both_versions,
          check_none("driver=11040", "the driver supports CUDA 11.4, and this program's kernels, built with CUDA "))

UNIT_TEST(the_toolkits_stub_is_no_driver, check_none("stub", "stub"))

TEST(a_driver_that_does_not_start_is_a_failure_with_the_drivers_words)
{
    struct pl_error error = PL_ERROR_NONE;
    int count;

    order("fail=cuInit:1:802");
    ck_assert_int_eq(pl_device_count(&count, &error), PL_LIBRARY);
    ck_assert_int_eq(error.domain, PL_DOMAIN_CUDA);
    ck_assert_int_eq(error.code, 802);
    ck_assert_str_eq(error.cause,
                     "the CUDA driver does not start: CUDA_ERROR_SYSTEM_NOT_READY (802): system not yet initialized");
}

/* The library path lacks the fake driver: the program is started again without it. */
TEST(no_driver_is_said_in_one_line)
{
    const char *again = getenv("PL_TEST_NO_DRIVER");
    struct pl_error error = PL_ERROR_NONE;
    int count;

    if (again) {
        enum pl_status status = pl_device_count(&count, &error);

        _exit(status == PL_UNSUPPORTED && strstr(error.cause, "no GPU is used: no NVIDIA driver (libcuda.so.1") ? 42
              : status == PL_OK                                                                                 ? 43
                                                                                                                : 44);
    } else {
        pid_t child = fork();
        int status;

        ck_assert_int_ge(child, 0);
        if (child == 0) {
            setenv("PL_TEST_NO_DRIVER", "1", 1);
            setenv("CK_RUN_CASE", "no_driver_is_said_in_one_line", 1);
            setenv("CK_FORK", "no", 1);
            unsetenv("LD_LIBRARY_PATH");
            execl("/proc/self/exe", "test_device", NULL);
            _exit(1);
        }
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert_int_eq(WIFEXITED(status), 1);
        /* 43: there is a real driver */
        ck_assert_msg(WEXITSTATUS(status) == 42 || WEXITSTATUS(status) == 43, "exit code %d", WEXITSTATUS(status));
    }
}

/* ---- memory ---- */

TEST(new_memory_is_zero_and_copies_go_both_ways)
{
    AUTO_DEVICE struct pl_device *device = open_gpu("leaks");
    unsigned char host[1000];
    unsigned char got[1000];
    void *memory;
    void *pinned;

    for (size_t i = 0; i < sizeof(host); i++) {
        host[i] = (unsigned char)(i * 7);
    }
    ck_ok(pl_device_alloc, device, sizeof(host), &memory);
    ck_assert_uint_eq((uintptr_t)memory % 256, 0);
    from_gpu(device, got, memory, sizeof(got));
    for (size_t i = 0; i < sizeof(got); i++) {
        ck_assert_uint_eq(got[i], 0);
    }
    ck_ok(pl_device_alloc_pinned, device, sizeof(host), &pinned);
    ck_assert_uint_eq(((unsigned char *)pinned)[999], 0);
    memcpy(pinned, host, sizeof(host));
    ck_ok(pl_device_copy, device, memory, pinned, sizeof(host), NULL);
    ck_ok(pl_device_fill, device, (char *)memory + 10, 0xff, 5, NULL);
    from_gpu(device, got, memory, sizeof(got));
    memset(host + 10, 0xff, 5);
    ck_assert_mem_eq(got, host, sizeof(host));
    ck_assert(pl_device_owns(device, memory));
    ck_assert(pl_device_owns(device, (char *)memory + 999));
    ck_assert(!pl_device_owns(device, pinned));
    ck_assert(!pl_device_owns(device, host));
    ck_assert(!pl_device_owns(device, NULL));
    pl_device_release_pinned(device, pinned);
    pl_device_release(device, memory);
    pl_device_release(device, NULL);
    ck_ok(pl_device_alloc, device, 0, &memory); /* an empty list has an address too */
    pl_device_release(device, memory);
}

TEST(memory_that_exists_is_pinned_once)
{
    AUTO_DEVICE struct pl_device *device = open_gpu("leaks");
    char *memory = aligned_alloc(4096, 8192);

    ck_ok(pl_device_pin, device, memory, 8192);
    ck_fails(PL_LIBRARY, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", pl_device_pin, device, memory, 8192);
    pl_device_unpin(device, memory);
    ck_ok(pl_device_pin, device, memory, 8192);
    pl_device_unpin(device, memory);
    free(memory);
}

TEST(when_memory_is_out_the_message_says_how_much_there_is)
{
    AUTO_DEVICE struct pl_device *device = open_gpu("memory=64MiB,leaks");
    struct pl_error error = PL_ERROR_NONE;
    void *memory;
    void *more = NULL;
    uint64_t left = 0;

    ck_ok(pl_device_alloc, device, 48 << 20, &memory);
    ck_ok(free_bytes, device, &left);
    ck_assert_uint_eq(left, 16 << 20);
    ck_assert_int_eq(pl_device_alloc(device, 32 << 20, &more, &error), PL_MEMORY);
    ck_assert_int_eq(error.status, PL_MEMORY);
    ck_assert_ptr_null(more);
    ck_assert_str_eq(error.cause, "cannot allocate 33554432 bytes of device memory: CUDA_ERROR_OUT_OF_MEMORY (2): out "
                                  "of memory (device 0, Fake GPU 0, 0000:1a:00.0)");
    ck_assert_str_eq(error.context, "16777216 of the device's 67108864 bytes are free");
    ck_assert_int_eq(pl_device_failure(device, &error), PL_OK); /* the device still works */
    pl_device_release(device, memory);
    ck_ok(pl_device_alloc, device, 32 << 20, &more);
    pl_device_release(device, more);
}

TEST(pinned_memory_can_be_out_too)
{
    AUTO_DEVICE struct pl_device *device = open_gpu("fail=cuMemHostAlloc:1");
    void *memory;

    ck_fails(PL_MEMORY, "cannot allocate 4096 bytes of pinned host memory", pl_device_alloc_pinned, device, 4096,
             &memory);
}

/* ---- streams and events ---- */

TEST(a_stream_waits_for_another_ones_event)
{
    AUTO_DEVICE struct pl_device *device = open_gpu("delay_us=3000,leaks");
    uint32_t last = 0;
    void *streams[2];
    void *events[2];
    char *memory;
    void *base;

    memory = on_gpu(device, NULL, 64, 0, &base);
    for (int s = 0; s < 2; s++) {
        ck_ok(pl_device_stream_new, device, &streams[s]);
        ck_ok(pl_device_event_new, device, false, &events[s]);
    }
    for (int round = 0; round < 20; round++) { /* the two streams write in turn */
        int s = round % 2;

        ck_ok(pl_device_stream_wait, device, streams[s], events[!s]);
        ck_ok(pl_device_fill, device, memory, round, 4, streams[s]);
        ck_ok(pl_device_event_record, device, events[s], streams[s]);
    }
    ck_ok(pl_device_event_finish, device, events[1], pl_deadline_after_ns(20 * PL_NS_PER_S));
    from_gpu(device, &last, memory, sizeof(last));
    ck_assert_uint_eq(last, 0x13131313);
    for (int s = 0; s < 2; s++) {
        pl_device_stream_free(device, streams[s]);
        pl_device_event_free(device, events[s]);
    }
    pl_device_release(device, base);
}

TEST(events_say_when_work_is_done_and_how_long_it_took)
{
    AUTO_DEVICE struct pl_device *device = open_gpu("delay_us=200,leaks");
    bool done = true;
    double ms = -1.0;
    void *stream;
    void *from;
    void *to;
    void *untimed;
    void *pinned;
    void *base;
    void *memory = on_gpu(device, NULL, 64, 0, &base);

    ck_ok(pl_device_alloc_pinned, device, 64, &pinned);
    ck_ok(pl_device_stream_new, device, &stream);
    ck_ok(pl_device_event_new, device, true, &from);
    ck_ok(pl_device_event_new, device, true, &to);
    ck_ok(pl_device_event_new, device, false, &untimed);
    ck_ok(pl_device_event_done, device, to, &done);
    ck_assert(done); /* nothing was recorded before */
    ck_ok(pl_device_event_record, device, from, stream);
    device_order("hold_copies");
    ck_ok(pl_device_copy, device, pinned, memory, 64, stream);
    ck_ok(pl_device_event_record, device, to, stream);
    ck_ok(pl_device_event_record, device, untimed, stream);
    ck_ok(pl_device_event_done, device, to, &done);
    ck_assert(!done); /* the copy comes before it in the stream */
    ck_fails(PL_LIBRARY, "CUDA_ERROR_NOT_READY", pl_device_event_ms, device, from, to, &ms);
    device_order("let_copies_go");
    finish(device, stream);
    ck_ok(pl_device_event_done, device, to, &done);
    ck_assert(done);
    ck_ok(pl_device_event_ms, device, from, to, &ms);
    ck_assert(ms > 0.0 && ms < 20000.0);
    ck_fails(PL_LIBRARY, "", pl_device_event_ms, device, from, untimed, &ms);
    pl_device_event_free(device, from);
    pl_device_event_free(device, to);
    pl_device_event_free(device, untimed);
    pl_device_stream_free(device, stream);
    pl_device_release_pinned(device, pinned);
    pl_device_release(device, base);
}

/* ---- kernels that fail, hang, and devices that are lost ---- */

TEST(a_failing_kernel_is_reported_by_the_next_call_and_stays)
{
    AUTO_DEVICE struct pl_device *device = open_gpu("launch_error=2");
    struct pl_error error = PL_ERROR_NONE;
    void *base;
    float *memory = on_gpu(device, NULL, 64, 0, &base);
    const char *wanted =
        "work on a stream failed: CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was encountered "
        "(device 0, Fake GPU 0, 0000:1a:00.0)";

    ck_ok(pl_device_scale, device, memory, PL_FLOAT32, memory, PL_FLOAT32, 16, 2.0, NULL);
    finish(device, NULL);
    ck_ok(pl_device_scale, device, memory, PL_FLOAT32, memory, PL_FLOAT32, 16, 2.0, NULL);
    ck_assert_int_eq(pl_device_failure(device, &error), PL_OK); /* no call has asked yet */
    ck_assert_int_eq(pl_device_stream_finish(device, NULL, pl_deadline_after_ns(PL_NS_PER_S), &error), PL_LIBRARY);
    ck_assert_str_eq(error.cause, wanted);
    ck_assert_int_eq(error.domain, PL_DOMAIN_CUDA);
    ck_assert_int_eq(error.code, 700);
    ck_fails_as(PL_LIBRARY, wanted, pl_device_failure, device);
    ck_fails_as(PL_LIBRARY, wanted, pl_device_scale, device, memory, PL_FLOAT32, memory, PL_FLOAT32, 16, 2.0,
                NULL); /* the first cause, not a consequence */
    pl_device_release(device, base);
}

TEST(a_kernel_that_hangs_ends_at_the_deadline)
{
    AUTO_DEVICE struct pl_device *device = open_gpu("hang=1");
    struct pl_error error = PL_ERROR_NONE;
    int64_t begin_ns = pl_clock_now_ns();
    void *base;
    float *memory = on_gpu(device, NULL, 64, 0, &base);

    ck_ok(pl_device_scale, device, memory, PL_FLOAT32, memory, PL_FLOAT32, 16, 2.0, NULL);
    ck_assert_int_eq(pl_device_stream_finish(device, NULL, pl_deadline_after_ns(100 * PL_NS_PER_MS), &error),
                     PL_TIMEOUT);
    ck_assert_says(error, "work on a stream has not ended after ");
    ck_assert_says(error, " s (device 0, Fake GPU 0, 0000:1a:00.0)");
    ck_assert(pl_clock_now_ns() - begin_ns < 20 * PL_NS_PER_S);
    pl_device_release(device, base);
}

TEST(pageable_memory_is_copied_by_the_deadline)
{
    AUTO_DEVICE struct pl_device *device = open_gpu("hang=1");
    float value = 1.0F;
    void *base;
    float *memory = on_gpu(device, NULL, 64, 0, &base);

    ck_ok(pl_device_scale, device, memory, PL_FLOAT32, memory, PL_FLOAT32, 16, 2.0, NULL);
    ck_fails(PL_TIMEOUT, "work on a stream has not ended after ", pl_device_copy_now, device, &value, memory, 4, NULL,
             pl_deadline_after_ns(20 * PL_NS_PER_MS));
    ck_fails(PL_TIMEOUT, "", pl_device_copy_now, device, memory, &value, 4, NULL,
             pl_deadline_after_ns(20 * PL_NS_PER_MS));
    pl_device_release(device, base);
}

/* The driver would wait without end to free it, and the owner of a stream cannot be found after the stream is gone. */
TEST(new_memory_that_is_not_filled_in_time_is_left)
{
    AUTO_DEVICE struct pl_device *device = open_gpu("");
    void *memory;

    device->service_timeout_ns = 20 * PL_NS_PER_MS;
    device_order("fill_hangs=0");
    ck_fails(PL_TIMEOUT, "work on a stream has not ended after ", pl_device_alloc, device, 4096, &memory);
}

/* Leaves a copy to pinned memory under way that has missed its deadline. */
static void be_late(struct pl_device *device, void *pinned, void *memory, void *stream)
{
    device_order("hold_copies");
    ck_ok(pl_device_copy, device, pinned, memory, 64, stream);
    /* a query, which does not wait */
    ck_fails(PL_TIMEOUT, "", pl_device_stream_finish, device, stream, pl_clock_now_ns());
    ck_fails(PL_TIMEOUT, "", pl_device_stream_finish, device, stream, pl_deadline_after_ns(20 * PL_NS_PER_MS));
}

/* By the next release, or when the device is closed. */
TEST(what_is_released_while_work_is_late_is_released_once_it_has_ended)
{
    AUTO_DEVICE struct pl_device *device = open_gpu("delay_us=1,leaks");
    uint64_t before_bytes, late_bytes, after_bytes;
    void *base[3], *pinned, *stream;

    ck_ok(pl_device_stream_new, device, &stream);
    ck_ok(free_bytes, device, &before_bytes);
    ck_ok(pl_device_alloc_pinned, device, 64, &pinned);
    for (int i = 0; i < 3; i++) {
        on_gpu(device, NULL, 64, 0, &base[i]);
    }
    be_late(device, pinned, base[0], stream);
    ck_ok(free_bytes, device, &late_bytes);
    pl_device_release(device, base[0]);
    pl_device_release(device, base[1]);
    ck_ok(free_bytes, device, &after_bytes);
    ck_assert_uint_eq(after_bytes, late_bytes);
    device_order("let_copies_go");
    finish(device, stream);
    pl_device_release(device, base[2]);
    ck_ok(free_bytes, device, &after_bytes);
    ck_assert_uint_eq(after_bytes, before_bytes);
    on_gpu(device, NULL, 64, 0, &base[0]);
    be_late(device, pinned, base[0], stream);
    pl_device_release_pinned(device, pinned);
    pl_device_release(device, base[0]);
    device_order("let_copies_go");
    finish(device, stream);
    pl_device_stream_free(device, stream);
}

TEST(errors_that_only_newer_toolkits_name_stay_too)
{
    struct pl_device *devices[4];
    uint64_t bytes;

    devices[0] = open_gpu(
        "fail=cuMemGetInfo_v2:1:226,fail=cuMemGetInfo_v2:1:721,fail=cuMemGetInfo_v2:1:810,fail=cuMemGetInfo_v2:1:911");
    for (int i = 0; i < 4; i++) {
        if (i > 0) {
            ck_ok(pl_device_open, 0, &devices[i]);
        }
        ck_fails(PL_LIBRARY, "", free_bytes, devices[i], &bytes);
        ck_fails(PL_LIBRARY, "", pl_device_failure, devices[i]);
    }
    for (int i = 0; i < 4; i++) {
        pl_device_close(devices[i]);
    }
}

/* Every call that finds the device lost reports that, and closing returns. */
TEST(a_lost_device_is_said_by_every_call)
{
    for (int after = 20; after < 120; after += 3) {
        pid_t child = fork();
        int status;

        if (child == 0) {
            struct pl_error error = PL_ERROR_NONE;
            struct pl_device *device = NULL;
            enum pl_status last;
            char orders[32];
            void *memory = NULL;

            snprintf(orders, sizeof(orders), "lost_after=%d", after);
            order(orders);
            last = pl_device_open(0, &device, &error);
            if (last == PL_OK) {
                last = pl_device_alloc(device, 4096, &memory, &error);
            }
            for (int i = 0; last == PL_OK && i < 100; i++) {
                last = pl_device_scale(device, memory, PL_FLOAT32, memory, PL_FLOAT32, 16, 2.0, NULL, &error);
                if (last == PL_OK) {
                    last = pl_device_stream_finish(device, NULL, pl_deadline_after_ns(PL_NS_PER_S), &error);
                }
            }
            if (last != PL_LIBRARY || error.code != 999 || !strstr(error.cause, "CUDA_ERROR_UNKNOWN")) {
                fprintf(stderr, "lost after %d calls: %s: %s\n", after, pl_status_name(last), error.cause);
                _exit(1);
            }
            if (device) {
                pl_device_release(device, memory);
                pl_device_close(device);
            }
            _exit(0);
        }
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert_msg(status == 0, "lost after %d calls: status %d", after, status);
    }
}

TEST(a_device_without_code_among_the_kernels_is_said)
{
    AUTO_DEVICE struct pl_device *device = open_gpu("fail=cuModuleLoadData:1:209,arch=52,leaks");
    struct pl_error error = PL_ERROR_NONE;
    void *base;
    float *memory = on_gpu(device, NULL, 64, 0, &base);

    ck_assert_int_eq(pl_device_scale(device, memory, PL_FLOAT32, memory, PL_FLOAT32, 16, 2.0, NULL, &error),
                     PL_LIBRARY);
    ck_assert_says(error, "cannot load the kernels: CUDA_ERROR_NO_BINARY_FOR_GPU");
    ck_has(error.context, "the device's architecture is sm_52");
    pl_device_release(device, base);
}

TEST(what_was_begun_is_undone_when_opening_fails)
{
    static const char *const orders[] = {"leaks,fail=cuStreamCreateWithPriority:1",
                                         "leaks,fail=cuDevicePrimaryCtxRetain:1", "leaks,fail=cuDeviceGetName:1"};

    for (size_t i = 0; i < 3; i++) {
        pid_t child = fork();
        int status;

        if (child == 0) {
            struct pl_error error = PL_ERROR_NONE;
            struct pl_device *device = NULL;

            order(orders[i]);
            _exit(pl_device_open(0, &device, &error) == PL_LIBRARY && !device &&
                          pl_device_open(0, &device, &error) == PL_OK
                      ? 0
                      : 1);
        }
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert_msg(status == 0, "%s: status %d", orders[i], status);
    }
}

/* ---- other processes ---- */

TEST(another_process_opens_the_memory_and_writes_to_it)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_device_handle handle;
    struct pl_device *device = NULL;
    char got[8] = "";
    void *memory;
    void *own;
    int to_child[2];
    pid_t child;
    int status;

    ck_assert_int_eq(pipe(to_child), 0);
    child = fork();
    if (child == 0) {
        device = open_gpu("leaks");
        (void)!read(to_child[0], &handle, sizeof(handle));
        if (pl_device_import(device, &handle, &memory, &error) == PL_OK && pl_device_owns(device, memory) &&
            pl_device_copy(device, memory, "child", 6, NULL, &error) == PL_OK) {
            finish(device, NULL);
            pl_device_unimport(device, memory);
            pl_device_close(device);
            _exit(0);
        }
        _exit(1);
    }
    device = open_gpu("leaks");
    ck_ok(pl_device_alloc, device, 4096, &memory);
    ck_ok(pl_device_export, device, memory, &handle);
    ck_assert_int_eq((int)write(to_child[1], &handle, sizeof(handle)), (int)sizeof(handle));
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    from_gpu(device, got, memory, 6);
    ck_assert_str_eq(got, "child");
    ck_fails(PL_LIBRARY, "", pl_device_import, device, &handle, &own);
    memset(&handle, 0, sizeof(handle));
    ck_fails(PL_LIBRARY, "", pl_device_import, device, &handle, &own);
    pl_device_release(device, memory);
    pl_device_close(device);
}

/* Returns the signal that ends a child which runs `what` on 100 bytes of device memory. */
static int signal_of(void (*what)(struct pl_device *device, char *memory))
{
    pid_t child = fork();
    int status;

    if (child == 0) {
        struct pl_device *device = open_gpu("");
        void *base;

        signal(SIGSEGV, SIG_DFL);
        signal(SIGBUS, SIG_DFL);
        signal(SIGABRT, SIG_DFL);
        what(device, on_gpu(device, NULL, 100, 0, &base));
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status);
}

static void read_on_the_host(struct pl_device *device, char *memory)
{
    _exit(*(volatile char *)memory);
}

static void scale_in_place(struct pl_device *device, char *memory, uint64_t count)
{
    ck_ok(pl_device_scale, device, memory, PL_FLOAT32, memory, PL_FLOAT32, count, 2.0, NULL);
}

static void scale_all(struct pl_device *device, char *memory)
{
    scale_in_place(device, memory, 25);
    pl_device_release(device, memory);
}

static void scale_one_more(struct pl_device *device, char *memory)
{
    scale_in_place(device, memory, 26);
    pl_device_release(device, memory);
}

static void scale_what_is_far_away(struct pl_device *device, char *memory)
{
    scale_in_place(device, memory + 4096, 1);
}

static void scale_what_was_released(struct pl_device *device, char *memory)
{
    pl_device_release(device, memory);
    scale_in_place(device, memory, 25);
}

static void pin_a_page_twice(struct pl_device *device, char *memory)
{
    char *host = aligned_alloc(4096, 4096);

    ck_ok(pl_device_pin, device, host, 100);
    ck_fails(PL_LIBRARY, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", pl_device_pin, device, host + 200, 100);
}

static void record_a_released_event(struct pl_device *device, char *memory)
{
    struct pl_error error = PL_ERROR_NONE;
    void *event = NULL;

    ck_ok(pl_device_event_new, device, false, &event);
    pl_device_event_free(device, event);
    (void)!pl_device_event_record(device, event, NULL, &error);
}

TEST(the_fake_finds_what_is_not_there)
{
    ck_assert_int_eq(signal_of(read_on_the_host), SIGSEGV);
    ck_assert_int_eq(signal_of(scale_all), 0);
    ck_assert_int_eq(signal_of(scale_one_more), SIGABRT);
    ck_assert_int_eq(signal_of(scale_what_is_far_away), SIGBUS);
    ck_assert_int_eq(signal_of(scale_what_was_released), SIGBUS);
    ck_assert_int_eq(signal_of(record_a_released_event), SIGABRT);
    ck_assert_int_eq(signal_of(pin_a_page_twice), 0);
}

UNIT_MAIN("device/device")
