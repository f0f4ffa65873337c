/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fake driver's memory: shared files in one range of addresses, which the host cannot access while the device is
 * idle. Nobody can access gaps between two pieces and released memory: these belong to a file without content (SIGBUS).
 */
#include "tests/fakes/fake_cuda_private.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum kind { DEVICE, IMPORTED, PINNED, REGISTERED };

struct piece {
    struct piece *next;
    struct CUctx_st *context;
    char *at;
    size_t bytes; /* requested size */
    enum kind kind;
    int fd;
};

/* Content of a handle, 64 bytes. */
struct ticket {
    uint64_t magic;
    pid_t pid;
    int fd;
    uint64_t bytes;
};

static const uint64_t ticket_magic = 0x66616b6563756461;
static const size_t range_bytes = (size_t)16 << 30;
static struct piece *pieces;
static char *range;
static size_t range_first, range_used; /* all pieces lie between: what was released is not protected again and again */
static int nothing = -1;               /* a file without content */
static int opened;

enum { PAGE = 4096, ANYTHING = 0xA5 /* byte value of new memory */ };

static size_t whole_pages(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static int protection(void)
{
    return fake.unguarded || opened ? PROT_READ | PROT_WRITE : PROT_NONE;
}

void fake_memory_open(void)
{
    if (opened++ == 0 && !fake.unguarded && range_used > range_first) {
        mprotect(range + range_first, range_used - range_first, PROT_READ | PROT_WRITE);
    }
}

void fake_memory_close(void)
{
    if (--opened == 0 && !fake.unguarded && range_used > range_first) {
        mprotect(range + range_first, range_used - range_first, PROT_NONE);
    }
}

/* The piece that has any of these bytes. */
static struct piece *find(const void *at, size_t bytes)
{
    struct piece *piece = pieces;

    while (piece && ((const char *)at + bytes <= piece->at || (const char *)at >= piece->at + piece->bytes)) {
        piece = piece->next;
    }
    return piece;
}

/* The piece of that kind that begins at `at`. */
static struct piece *find_start(const void *at, enum kind kind)
{
    struct piece *piece = find(at, 1);

    return piece && piece->kind == kind && piece->at == at ? piece : NULL;
}

static void remember(struct CUctx_st *context, void *at, size_t bytes, enum kind kind, int fd)
{
    struct piece *piece = malloc(sizeof(*piece));

    *piece = (struct piece){.next = pieces, .context = context, .at = at, .bytes = bytes, .kind = kind, .fd = fd};
    pieces = piece;
    context->allocations++;
}

static void forget(struct piece *gone)
{
    struct piece **at = &pieces;
    size_t first;

    while (*at != gone) {
        at = &(*at)->next;
    }
    *at = gone->next;
    gone->context->allocations--;
    free(gone);
    first = range_first;
    range_first = range_used;
    for (const struct piece *piece = pieces; piece; piece = piece->next) {
        if ((piece->kind == DEVICE || piece->kind == IMPORTED) && (size_t)(piece->at - range) < range_first) {
            range_first = (size_t)(piece->at - range);
        }
    }
    if (range_first > first) { /* the device too finds there that the memory was released (SIGBUS) */
        mprotect(range + first, range_first - first, PROT_READ | PROT_WRITE);
    }
}

static bool close_off(char *at, size_t bytes)
{
    /* With this offset the kernel can merge neighbours. */
    return mmap(at, bytes, protection(), MAP_SHARED | MAP_FIXED | MAP_NORESERVE, nothing, (off_t)(at - range)) !=
           MAP_FAILED;
}

/* Maps memory. Addresses are not used twice, so that a stale pointer is found; an unmapped page follows each
 * allocation. */
static void *map(int fd, size_t bytes)
{
    char *at;

    if (!range) {
        range = mmap(NULL, range_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (range == MAP_FAILED) {
            range = NULL;
            return NULL;
        }
        nothing = memfd_create("fake_cuda_nothing", MFD_CLOEXEC);
    }
    if (range_used + bytes + PAGE > range_bytes) {
        return NULL;
    }
    at = mmap(range + range_used, bytes, protection(), MAP_SHARED | MAP_FIXED, fd, 0);
    if (at == MAP_FAILED || !close_off(at + bytes, PAGE)) {
        return NULL;
    }
    range_used += bytes + PAGE;
    return at;
}

/* Checks that nothing was written after the end of the requested size. */
static void check_end(const struct piece *piece)
{
    unsigned char rest[PAGE];
    ssize_t got = pread(piece->fd, rest, whole_pages(piece->bytes) - piece->bytes, (off_t)piece->bytes);

    for (ssize_t i = 0; i < got; i++) {
        if (rest[i] != ANYTHING) {
            fprintf(stderr, "fake_cuda: device memory of %zu bytes was written at byte %zu\n", piece->bytes,
                    piece->bytes + (size_t)i);
            abort();
        }
    }
}

CUresult CUDAAPI cuMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    ENTER(__func__)
    *free_bytes = fake.memory_bytes - context->used_bytes;
    *total_bytes = fake.memory_bytes;
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemAlloc(CUdeviceptr *memory, size_t bytes)
{
    size_t whole = whole_pages(bytes);
    void *at;
    int fd;

    ENTER(__func__)
    if (fake_beside_captures(context) != CUDA_SUCCESS) {
        LEAVE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    if (bytes == 0) {
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    }
    if (whole > fake.memory_bytes - context->used_bytes) {
        LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
    }
    fd = memfd_create("fake_cuda", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)whole) != 0 || !(at = map(fd, whole))) {
        LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
    }
    fake_memory_open();
    memset(at, ANYTHING, whole);
    fake_memory_close();
    context->used_bytes += whole;
    remember(context, at, bytes, DEVICE, fd);
    *memory = (CUdeviceptr)at;
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemFree(CUdeviceptr memory)
{
    struct piece *piece;

    ENTER_RELEASE(__func__)
    fake_wait_for_device(context, __func__);
    piece = find_start((void *)memory, DEVICE);
    if (!piece) {
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    }
    check_end(piece);
    piece->context->used_bytes -= whole_pages(piece->bytes);
    close_off(piece->at, whole_pages(piece->bytes));
    close(piece->fd);
    forget(piece);
    LEAVE_RELEASED();
}

CUresult CUDAAPI cuMemHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    ENTER(__func__)
    if (bytes == 0 ||
        (flags & ~(unsigned)(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED))) {
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    }
    *memory = aligned_alloc(PAGE, whole_pages(bytes));
    if (!*memory) {
        LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
    }
    memset(*memory, ANYTHING, bytes);
    remember(context, *memory, bytes, PINNED, -1);
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemFreeHost(void *memory)
{
    struct piece *piece;

    ENTER_RELEASE(__func__)
    fake_wait_for_device(context, __func__);
    piece = find_start(memory, PINNED);
    if (!piece) {
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    }
    forget(piece);
    free(memory);
    LEAVE_RELEASED();
}

CUresult CUDAAPI cuMemHostRegister(void *memory, size_t bytes, unsigned flags)
{
    char *first = (char *)memory - (uintptr_t)memory % PAGE; /* memory is pinned in whole pages */

    ENTER(__func__)
    if (!memory || bytes == 0 || (flags & ~(unsigned)(CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP))) {
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    }
    if (find(first, whole_pages((size_t)((char *)memory + bytes - first)))) {
        LEAVE(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    }
    remember(context, memory, bytes, REGISTERED, -1);
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemHostUnregister(void *memory)
{
    struct piece *piece;

    ENTER_RELEASE(__func__)
    fake_wait_for_device(context, __func__);
    piece = find_start(memory, REGISTERED);
    if (!piece) {
        LEAVE(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    }
    forget(piece);
    LEAVE_RELEASED();
}

CUresult CUDAAPI cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr memory)
{
    const struct piece *piece;

    ENTER(__func__)
    piece = find((void *)memory, 1);
    if (!piece || attribute != CU_POINTER_ATTRIBUTE_MEMORY_TYPE) {
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    }
    *(unsigned *)data = piece->kind == DEVICE || piece->kind == IMPORTED ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
    LEAVE(CUDA_SUCCESS);
}

/* ---- copies ---- */

struct copy {
    void *to;
    const void *from;
    size_t bytes;
    unsigned char byte;
};

static void run_copy(void *argument)
{
    struct copy *copy = argument;

    memmove(copy->to, copy->from, copy->bytes);
}

static void run_fill(void *argument)
{
    struct copy *copy = argument;

    memset(copy->to, copy->byte, copy->bytes);
}

/* Whether the bytes are in one piece, or outside all pieces: pageable memory. */
static bool inside(const void *at, size_t bytes)
{
    const struct piece *piece = find(at, bytes);

    return !piece || ((const char *)at >= piece->at && (const char *)at + bytes <= piece->at + piece->bytes);
}

static bool on_device(const void *at)
{
    const struct piece *piece = find(at, 1);

    return piece && (piece->kind == DEVICE || piece->kind == IMPORTED);
}

static _Atomic uint64_t host_bytes;

uint64_t fake_cuda_host_bytes(void)
{
    return host_bytes;
}

static bool is_down(const void *to, const void *from)
{
    const struct piece *to_piece = find(to, 1);

    return to_piece && to_piece->kind == PINNED && on_device(from);
}

/* All copies run in the stream's order. With pageable memory the driver may or may not copy before the call returns.
 * A program must not rely on either, nor on a return if earlier work never ends, which ends the test here. */
CUresult CUDAAPI cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    struct work work;
    struct copy *copy;
    CUresult result;

    ENTER(__func__)
    if (!inside((void *)to, bytes) || !inside((void *)from, bytes)) {
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    }
    host_bytes += on_device((void *)to) != on_device((void *)from) ? bytes : 0;
    copy = malloc(sizeof(*copy));
    *copy = (struct copy){.to = (void *)to, .from = (void *)from, .bytes = bytes};
    work = (struct work){.run = run_copy, .argument = copy, .owned = true, .down = is_down((void *)to, (void *)from)};
    result = fake_add(context, stream, &work);
    stream = fake_stream(context, stream);
    if ((stream->stuck || stream->hangs) && (!find((void *)from, bytes) || !find((void *)to, bytes))) {
        fprintf(stderr, "fake_cuda: %s of pageable memory waits without end for earlier work\n", __func__);
        abort();
    }
    LEAVE(result);
}

CUresult CUDAAPI cuMemsetD8Async(CUdeviceptr memory, unsigned char byte, size_t bytes, CUstream stream)
{
    struct copy *copy;

    ENTER(__func__)
    if (!find((void *)memory, bytes) || !inside((void *)memory, bytes)) {
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    }
    if (context->fill_hangs) {
        context->fill_hangs = false;
        context->hangs = true;
        LEAVE(fake_add(context, stream, &(struct work){.run = NULL}));
    }
    copy = malloc(sizeof(*copy));
    *copy = (struct copy){.to = (void *)memory, .bytes = bytes, .byte = byte};
    LEAVE(fake_add(context, stream, &(struct work){.run = run_fill, .argument = copy, .owned = true}));
}

/* ---- between processes ---- */

CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr memory)
{
    struct ticket ticket = {.magic = ticket_magic, .pid = getpid()};
    const struct piece *piece;

    ENTER(__func__)
    piece = find_start((void *)memory, DEVICE);
    if (!piece) {
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    }
    ticket.fd = piece->fd;
    ticket.bytes = piece->bytes;
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, &ticket, sizeof(ticket));
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuIpcOpenMemHandle(CUdeviceptr *memory, CUipcMemHandle handle, unsigned flags)
{
    struct ticket ticket;
    struct stat status;
    char path[64];
    void *at;
    int fd;

    ENTER(__func__)
    memcpy(&ticket, &handle, sizeof(ticket));
    if (ticket.magic != ticket_magic || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) {
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    }
    if (ticket.pid == getpid()) {
        LEAVE(CUDA_ERROR_INVALID_CONTEXT);
    }
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)ticket.pid, ticket.fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) != 0 || (uint64_t)status.st_size != whole_pages(ticket.bytes)) {
        LEAVE(CUDA_ERROR_INVALID_HANDLE);
    }
    at = map(fd, whole_pages(ticket.bytes));
    close(fd);
    if (!at) {
        LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
    }
    remember(context, at, ticket.bytes, IMPORTED, -1);
    *memory = (CUdeviceptr)at;
    LEAVE(CUDA_SUCCESS);
}

CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr memory)
{
    struct piece *piece;

    ENTER_RELEASE(__func__)
    fake_wait_for_device(context, __func__);
    piece = find_start((void *)memory, IMPORTED);
    if (!piece) {
        LEAVE(CUDA_ERROR_INVALID_VALUE);
    }
    close_off(piece->at, whole_pages(piece->bytes));
    forget(piece);
    LEAVE_RELEASED();
}
