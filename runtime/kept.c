/* SPDX-License-Identifier: Apache-2.0 */
/* Two alternating places for copies in a memory file of process 1 of the job: state that outlives the ranks. */
#include "runtime/kept.h"

#include "base/checksum.h"
#include "base/environment.h"
#include "base/file.h"
#include "base/kept_head.h"
#include "base/memory.h"
#include "base/number.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE = 65536 }; /* a multiple of the page size of every machine */

struct pl_kept {
    int fd;
    struct pl_kept_page *page; /* the file's first page */
    unsigned char *map[2];     /* mapping of each place; NULL: not mapped yet */
    uint64_t capacity[2];      /* size of each place, from the head's offset; 0: the place does not exist yet */
    unsigned next;             /* index of the place for the next copy, or for the copy that is being written */
    uint64_t sequence;         /* number of the newest copy */
};

static bool is_within(const struct pl_kept_head *head, uint64_t file_bytes)
{
    return head->bytes > 0 && head->offset >= PAGE && head->offset % PAGE == 0 && head->offset <= file_bytes &&
           head->bytes <= file_bytes - head->offset;
}

static enum pl_status map_place(struct pl_kept *kept, unsigned place, struct pl_error *reterr)
{
    void *map = mmap(NULL, kept->capacity[place], PROT_READ | PROT_WRITE, MAP_SHARED, kept->fd,
                     (off_t)kept->page->heads[place].offset);

    if (map == MAP_FAILED) {
        return pl_error_errno(reterr, "map %llu bytes of the kept memory", (unsigned long long)kept->capacity[place]);
    }
    kept->map[place] = map;
    return PL_OK;
}

static void unmap_place(struct pl_kept *kept, unsigned place)
{
    if (kept->map[place]) {
        munmap(kept->map[place], kept->capacity[place]);
        kept->map[place] = NULL;
    }
}

/* Maps the file's first page and the existing copies. */
static enum pl_status open_places(struct pl_kept *kept, struct pl_error *reterr)
{
    struct stat info;

    if (fstat(kept->fd, &info) != 0 || (info.st_size < PAGE && ftruncate(kept->fd, info.st_size = PAGE) != 0)) {
        return pl_error_errno(reterr, "read the size of the kept memory");
    }
    kept->page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, kept->fd, 0);
    if (kept->page == MAP_FAILED) {
        kept->page = NULL;
        return pl_error_errno(reterr, "map the kept memory");
    }
    for (unsigned place = 0; place < 2; place++) {
        const struct pl_kept_head *head = &kept->page->heads[place];

        if (!pl_kept_head_is_marked(head) || !is_within(head, (uint64_t)info.st_size)) {
            continue;
        }
        kept->capacity[place] = head->bytes;
        PL_TRY(map_place(kept, place, reterr));
        if (head->sequence > kept->sequence) {
            kept->sequence = head->sequence;
            kept->next = 1 - place;
        }
    }
    return PL_OK;
}

enum pl_status pl_kept_open(struct pl_kept **ret_kept, struct pl_error *reterr)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    const char *path;
    struct pl_kept *kept;
    enum pl_status status;

    *ret_kept = NULL;
    PL_TRY(pl_environment_new(&environment, reterr));
    path = pl_environment_get_or(environment, PL_KEPT_VARIABLE, NULL);
    if (!path) {
        return PL_OK;
    }
    PL_TRY(pl_memory_alloc(&kept, 1, sizeof(*kept), reterr));
    kept->fd = open(path, O_RDWR | O_CLOEXEC);
    if (kept->fd < 0) {
        status = pl_error_errno(reterr, "open the kept memory '%s' (PACELINE_KEPT)", path);
    } else if (fcntl(kept->fd, F_GET_SEALS) != 0) { /* in another PID namespace the path leads elsewhere */
        status = pl_error_set(reterr, PL_SYSTEM, "'%s' (PACELINE_KEPT) is not a memory file of process 1", path);
    } else if (flock(kept->fd, LOCK_EX | LOCK_NB) != 0) {
        status =
            pl_error_set(reterr, PL_INVALID, "the kept memory '%s' is in use: one part of a job may keep state", path);
    } else {
        status = open_places(kept, reterr);
    }
    if (status != PL_OK) {
        pl_kept_close(kept);
        return status;
    }
    *ret_kept = kept;
    return PL_OK;
}

static bool is_whole(const struct pl_kept *kept, unsigned place)
{
    const struct pl_kept_head *head = &kept->page->heads[place];

    return kept->map[place] && head->bytes <= kept->capacity[place] && pl_kept_head_is_marked(head) &&
           pl_checksum_crc32c(0, kept->map[place], head->bytes) == head->data_crc32c;
}

void pl_kept_read(struct pl_kept *kept, uint64_t *ret_step, const void **ret_data, size_t *ret_bytes)
{
    *ret_data = NULL;
    for (unsigned i = 0; i < 2 && !*ret_data; i++) {
        unsigned place = i == 0 ? 1 - kept->next : kept->next;

        if (is_whole(kept, place)) {
            *ret_step = kept->page->heads[place].step;
            *ret_data = kept->map[place];
            *ret_bytes = kept->page->heads[place].bytes;
            kept->next = 1 - place; /* an incomplete newer copy is replaced first */
        }
    }
}

/* Returns the end of the other place's data in the file. */
static uint64_t end_of(const struct pl_kept *kept, unsigned place)
{
    return kept->page->heads[place].offset + pl_number_round_up(kept->capacity[place], PAGE);
}

/*
 * Gives the next place `bytes` bytes of the file that do not overlap the other place. Memory that neither place uses is
 * freed. Reserves some more bytes, because the next copy may be larger; they cost nothing until written.
 */
static enum pl_status move_place(struct pl_kept *kept, uint64_t bytes, struct pl_error *reterr)
{
    const unsigned place = kept->next, other = 1 - place;
    const uint64_t capacity = pl_number_round_up(bytes + bytes / 4, PAGE),
                   other_begin = kept->page->heads[other].offset;
    const uint64_t other_end = kept->capacity[other] > 0 ? end_of(kept, other) : PAGE;
    const bool is_before = kept->capacity[other] > 0 && other_begin >= PAGE + capacity;
    const uint64_t offset = is_before ? PAGE : other_end;
    const int64_t room = pl_memory_room("");
    struct stat info;

    if (fstat(kept->fd, &info) != 0) {
        return pl_error_errno(reterr, "read the size of the kept memory");
    }
    if (room >= 0 && 2 * bytes > (uint64_t)room + (uint64_t)info.st_blocks * 512) {
        return pl_error_set(reterr, PL_LIMIT, "two kept copies of %llu MiB do not fit in memory: %llu MiB are free",
                            (unsigned long long)(bytes >> 20), (unsigned long long)room >> 20);
    }
    unmap_place(kept, place);
    kept->capacity[place] = 0;
    if (ftruncate(kept->fd, (off_t)other_end) != 0 ||
        ftruncate(kept->fd, (off_t)(is_before ? other_end : offset + capacity)) != 0) {
        return pl_error_errno(reterr, "change the size of the kept memory");
    }
    if (other_end > PAGE && other_begin > PAGE) { /* frees the unused range before the other place */
        PL_TRY(fallocate(kept->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, PAGE, (off_t)other_begin - PAGE) == 0
                   ? PL_OK
                   : pl_error_errno(reterr, "free a part of the kept memory"));
    }
    kept->page->heads[place].offset = offset;
    kept->capacity[place] = capacity;
    return map_place(kept, place, reterr);
}

enum pl_status pl_kept_begin(struct pl_kept *kept, size_t bytes, void **ret_place, struct pl_error *reterr)
{
    struct pl_kept_head *head = &kept->page->heads[kept->next];

    if (bytes == 0 || bytes > INT64_MAX / 4) {
        return pl_error_set(reterr, PL_INVALID, "a kept copy cannot have %zu bytes", bytes);
    }
    atomic_store_explicit(&head->mark, 0, memory_order_relaxed);
    head->sequence = 0;
    atomic_signal_fence(memory_order_seq_cst);
    if (!kept->map[kept->next] || bytes > kept->capacity[kept->next]) {
        PL_TRY(move_place(kept, bytes, reterr));
    }
    head->bytes = bytes;
    *ret_place = kept->map[kept->next];
    return PL_OK;
}

void pl_kept_end(struct pl_kept *kept, uint64_t step)
{
    struct pl_kept_head *head = &kept->page->heads[kept->next];

    head->data_crc32c = pl_checksum_crc32c(0, kept->map[kept->next], head->bytes);
    head->step = step;
    head->sequence = ++kept->sequence;
    atomic_store_explicit(&head->mark, pl_kept_head_mark(head), memory_order_release);
    kept->next = 1 - kept->next;
}

enum pl_status pl_kept_write(struct pl_kept *kept, uint64_t step, const void *data, size_t bytes,
                             struct pl_error *reterr)
{
    void *place;

    PL_TRY(pl_kept_begin(kept, bytes, &place, reterr));
    memcpy(place, data, bytes);
    pl_kept_end(kept, step);
    return PL_OK;
}

void pl_kept_note(struct pl_kept *kept, uint64_t step)
{
    atomic_store_explicit(&kept->page->reached, step, memory_order_relaxed);
}

void pl_kept_close(struct pl_kept *kept)
{
    if (!kept) {
        return;
    }
    unmap_place(kept, 0);
    unmap_place(kept, 1);
    if (kept->page) {
        munmap(kept->page, PAGE);
    }
    pl_file_close_at(&kept->fd);
    free(kept);
}
