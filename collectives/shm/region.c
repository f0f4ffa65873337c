/* SPDX-License-Identifier: Apache-2.0 */
/* One memfd mapped by all ranks of a host: made by rank 0, sent over a Unix socket, allocated rank by rank. */
#include "collectives/shm/region.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/memory.h"
#include "collectives/bootstrap.h"
#include "collectives/bootstrap/bootstrap_private.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/sysinfo.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

enum {
    HUGE_BYTES = 2 << 20,
    NONCE_BYTES = 16,
    REPORT_TEXT_BYTES = 240,
};

/* Record that rank 0 sends to the others and, at the end, every rank to all. */
struct region_record {
    unsigned char nonce[NONCE_BYTES];
    char *base; /* start of the mapping, if ranks are threads */
    bool huge_pages;
    enum pl_status status;
    char text[REPORT_TEXT_BYTES];
};

/* The page size: 4 KiB on x86-64; 4, 16 or 64 KiB on 64-bit ARM, by the kernel's configuration. */
static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static size_t alignment_of(size_t bytes)
{
    return bytes >= HUGE_BYTES ? HUGE_BYTES : page_bytes();
}

static void describe_failure(struct region_record *region_record, enum pl_status status, const struct pl_error *error)
{
    region_record->status = status;
    pl_error_text(error, region_record->text, sizeof(region_record->text));
}

static socklen_t name_socket(const unsigned char nonce[NONCE_BYTES], struct sockaddr_un *address)
{
    int length;

    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    length = snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "paceline-");
    for (int i = 0; i < NONCE_BYTES; i++) {
        length +=
            snprintf(address->sun_path + 1 + length, sizeof(address->sun_path) - 1 - (size_t)length, "%02x", nonce[i]);
    }
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static enum pl_status wait_readable(int fd, int64_t deadline_ns, const char *what, struct pl_error *reterr)
{
    int ready = pl_file_poll(fd, POLLIN, deadline_ns);

    if (ready < 0) {
        return pl_error_errno(reterr, "poll for %s", what);
    }
    return ready > 0 ? PL_OK : pl_error_set(reterr, PL_TIMEOUT, "%s did not come before the deadline", what);
}

static enum pl_status open_socket(int *ret_fd, struct pl_error *reterr)
{
    *ret_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return *ret_fd >= 0 ? PL_OK : pl_error_errno(reterr, "open a unix socket for the shared memory's descriptor");
}

static enum pl_status listen_here(const unsigned char nonce[NONCE_BYTES], int *ret_fd, struct pl_error *reterr)
{
    struct sockaddr_un address;
    socklen_t length = name_socket(nonce, &address);

    PL_TRY(open_socket(ret_fd, reterr));
    if (bind(*ret_fd, (struct sockaddr *)&address, length) != 0 || listen(*ret_fd, SOMAXCONN) != 0) {
        return pl_error_errno(reterr, "listen on a unix socket for the shared memory's descriptor");
    }
    return PL_OK;
}

/* Rank 0 sends `fd` to every other rank. A connection of another user gets nothing and does not count. */
static enum pl_status hand_out(int listen_fd, int fd, int others, int64_t deadline_ns, struct pl_error *reterr)
{
    while (others > 0) {
        PL_AUTO_CLOSE int accepted_fd = -1;

        PL_TRY(wait_readable(listen_fd, deadline_ns, "a rank that fetches the shared memory", reterr));
        accepted_fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
        if (accepted_fd < 0 && (errno == EINTR || errno == ECONNABORTED)) {
            continue;
        }
        if (accepted_fd < 0) {
            return pl_error_errno(reterr, "accept a connection on the shared memory's socket");
        }
        if (!pl_fd_peer_is_same_user(accepted_fd)) {
            continue;
        }
        if (pl_fd_send(accepted_fd, &fd, 1) != 0) {
            return pl_error_errno(reterr, "send the shared memory's descriptor");
        }
        others--;
    }
    return PL_OK;
}

static enum pl_status fetch(int socket_fd, const unsigned char nonce[NONCE_BYTES], int64_t deadline_ns, int *ret_fd,
                            struct pl_error *reterr)
{
    struct sockaddr_un address;
    socklen_t length = name_socket(nonce, &address);
    int got;

    if (connect(socket_fd, (struct sockaddr *)&address, length) != 0) {
        return pl_error_errno(reterr, "connect to rank 0's socket for shared memory");
    }
    PL_TRY(wait_readable(socket_fd, deadline_ns, "the shared memory's descriptor", reterr));
    got = pl_fd_receive(socket_fd, 1, ret_fd);
    if (got < 0) {
        return pl_error_errno(reterr, "receive the shared memory's descriptor");
    }
    return got > 0 ? PL_OK : pl_error_set(reterr, PL_SYSTEM, "rank 0 did not send the shared memory's descriptor");
}

/* Maps the region at an address aligned for huge pages: reserves more address space, then maps the aligned part. */
static enum pl_status map(int fd, struct pl_shm_region *region, struct pl_error *reterr)
{
    size_t align = alignment_of(region->bytes);
    char *reserved = mmap(NULL, region->bytes + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    char *aligned;

    if (reserved == MAP_FAILED) {
        return pl_error_errno(reterr, "reserve %zu bytes of address space", region->bytes);
    }
    aligned = (char *)(((uintptr_t)reserved + align - 1) & ~(uintptr_t)(align - 1));
    if (mmap(aligned, region->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        enum pl_status status = pl_error_errno(reterr, "map %zu bytes of shared memory", region->bytes);

        munmap(reserved, region->bytes + align);
        return status;
    }
    if (aligned > reserved) {
        munmap(reserved, (size_t)(aligned - reserved));
    }
    munmap(aligned + region->bytes, (size_t)(reserved + align - aligned));
    region->base = aligned;
    madvise(region->base, region->bytes, MADV_DONTFORK);
    return PL_OK;
}

/*
 * Allocates this rank's piece. It asks for huge pages twice: by advice, and by collapsing, which also works if the
 * system does not give them to shared memory by default. Both may be refused.
 */
static enum pl_status allocate(int fd, struct pl_shm_region *region, int rank, struct pl_error *reterr)
{
    size_t offset = (size_t)rank * region->piece_bytes;
    int code;

    madvise(region->base, region->bytes, MADV_HUGEPAGE);
    code = pl_file_allocate(fd, (off_t)offset, (off_t)region->piece_bytes);
    if (code != 0) {
        return pl_error_raise(
            reterr, code == ENOSPC || code == ENOMEM ? PL_MEMORY : PL_SYSTEM, PL_DOMAIN_ERRNO, code,
            "cannot allocate %zu bytes of shared memory: start fewer ranks on this host, or give the container more "
            "memory",
            region->piece_bytes);
    }
    if (region->piece_bytes % HUGE_BYTES == 0) {
        region->huge_pages = madvise(region->base + offset, region->piece_bytes, MADV_COLLAPSE) == 0;
    }
    return PL_OK;
}

/* The counter of users, in the page after the pieces. */
static _Atomic int *users_of(const struct pl_shm_region *region)
{
    return (_Atomic int *)(void *)(region->base + region->bytes - page_bytes());
}

static enum pl_status open_memory(struct pl_bootstrap *bootstrap, bool one_process, struct pl_shm_region *region,
                                  int *ret_fd, int *ret_listen_fd, struct region_record *region_record,
                                  struct pl_error *reterr)
{
    PL_AUTO_CLOSE int fd = -1;
    struct sysinfo machine;

    /* The kernel makes a memory file of any size, and would kill processes for lack of memory later. */
    if (sysinfo(&machine) == 0 && region->bytes / machine.mem_unit > machine.totalram + machine.totalswap) {
        return pl_error_set(reterr, PL_MEMORY,
                            "%zu bytes of shared memory are more than this machine has: start fewer ranks on this host",
                            region->bytes);
    }
    fd = pl_fd_new_memory("paceline", region->bytes);
    if (fd < 0) {
        return pl_error_errno(reterr, "make shared memory of %zu bytes", region->bytes);
    }
    pl_fd_seal_size(fd);
    if (one_process) {
        PL_TRY(map(fd, region, reterr));
        region->users = users_of(region);
        atomic_store(region->users, bootstrap->size);
        region_record->base = region->base;
    } else {
        if (getrandom(region_record->nonce, NONCE_BYTES, 0) != NONCE_BYTES) {
            return pl_error_errno(reterr, "get random bytes");
        }
        PL_TRY(listen_here(region_record->nonce, ret_listen_fd, reterr));
    }
    *ret_fd = fd;
    fd = -1;
    return PL_OK;
}

/* Sends this rank's status to all; the lowest rank that failed decides the result of all. */
static enum pl_status vote_status(struct pl_bootstrap *bootstrap, const struct region_record *mine,
                                  struct region_record *all, int64_t deadline_ns, struct pl_error *reterr)
{
    PL_TRY(pl_bootstrap_allgather(bootstrap, mine, all, sizeof(*mine), deadline_ns, reterr));
    for (int rank = 0; rank < bootstrap->size; rank++) {
        if (all[rank].status != PL_OK) {
            return pl_error_set(reterr, all[rank].status, "rank %d: %s",
                                bootstrap->transport ? pl_transport_global_rank(bootstrap->transport, rank) : rank,
                                all[rank].text);
        }
    }
    return PL_OK;
}

static enum pl_status attach(struct pl_bootstrap *bootstrap, bool one_process, const struct region_record *root,
                             int socket_fd, int64_t deadline_ns, int *fd, struct pl_shm_region *region,
                             struct pl_error *reterr)
{
    if (one_process) {
        region->base = root->base;
        region->users = users_of(region);
        if (bootstrap->rank == 0) {
            for (int rank = 0; rank < bootstrap->size; rank++) {
                PL_TRY(allocate(*fd, region, rank, reterr));
            }
        }
        return PL_OK;
    }
    if (bootstrap->rank == 0) {
        PL_TRY(hand_out(socket_fd, *fd, bootstrap->size - 1, deadline_ns, reterr));
    } else {
        PL_TRY(fetch(socket_fd, root->nonce, deadline_ns, fd, reterr));
    }
    PL_TRY(map(*fd, region, reterr));
    return allocate(*fd, region, bootstrap->rank, reterr);
}

enum pl_status pl_shm_region_new(struct pl_bootstrap *bootstrap, bool one_process, size_t piece_bytes,
                                 int64_t deadline_ns, struct pl_shm_region *ret_region, struct pl_error *reterr)
{
    size_t align = alignment_of(piece_bytes);
    struct pl_shm_region region = {.piece_bytes = (piece_bytes + align - 1) / align * align};
    PL_AUTO_CLOSE int fd = -1;
    PL_AUTO_CLOSE int socket_fd = -1; /* rank 0 listens on it; other ranks open theirs before rank 0 waits for them to
                                       * connect */
    PL_AUTO_FREE struct region_record *all = NULL;
    struct region_record mine;
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status = PL_OK;

    memset(&mine, 0, sizeof(mine));
    all = pl_memory_new((size_t)bootstrap->size, sizeof(*all), reterr);
    if (!all) {
        return pl_bootstrap_abort_collective(bootstrap, PL_MEMORY, reterr, deadline_ns);
    }
    if (region.piece_bytes < piece_bytes ||
        __builtin_mul_overflow(region.piece_bytes, (size_t)bootstrap->size, &region.bytes) ||
        __builtin_add_overflow(region.bytes, page_bytes(), &region.bytes)) {
        return pl_error_set(reterr, PL_MEMORY, "%zu bytes for each of %d ranks exceed the address space", piece_bytes,
                            bootstrap->size);
    }
    if (bootstrap->rank == 0) {
        status = open_memory(bootstrap, one_process, &region, &fd, &socket_fd, &mine, &error);
    } else if (!one_process) {
        status = open_socket(&socket_fd, &error);
    }
    if (status != PL_OK) {
        describe_failure(&mine, status, &error);
    }
    status = vote_status(bootstrap, &mine, all, deadline_ns, reterr);
    if (status == PL_OK) {
        status = attach(bootstrap, one_process, &all[0], socket_fd, deadline_ns, &fd, &region, &error);
        pl_file_close_at(&socket_fd); /* if rank 0 could not serve all ranks, the others see the end of the
                                       * connection */
        if (status != PL_OK) {
            describe_failure(&mine, status, &error);
        }
        mine.huge_pages = region.huge_pages;
        status = vote_status(bootstrap, &mine, all, deadline_ns, reterr);
    }
    if (status != PL_OK) {
        pl_shm_region_free(&region);
        return status;
    }
    region.huge_pages = all[0].huge_pages;
    if (!one_process || bootstrap->rank == 0) {
        madvise(region.base, region.bytes, MADV_POPULATE_WRITE); /* otherwise pages are mapped at first touch */
    }
    *ret_region = region;
    return PL_OK;
}

void pl_shm_region_free(struct pl_shm_region *region)
{
    bool last = !region->users || atomic_fetch_sub(region->users, 1) == 1;

    if (last && region->base) {
        munmap(region->base, region->bytes);
    }
    memset(region, 0, sizeof(*region));
}
