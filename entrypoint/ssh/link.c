/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes and decodes the frames of the control link, and buffers them over a non-blocking socket. */
#include "entrypoint/ssh/link.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char frame_magic[2] = {'P', 'L'};

const char *pl_link_frame_name(enum pl_frame_type type)
{
    static const char *const names[] = {
#define PL_FRAME_NAME(name, fields) #name,
        PL_FRAME_LIST(PL_FRAME_NAME)
#undef PL_FRAME_NAME
    };

    return (unsigned)type < PL_FRAME_TYPES ? names[type] : "UNKNOWN";
}

enum pl_status pl_link_frame_decode(const char *data, size_t bytes, struct pl_frame *frame, size_t *ret_used,
                                    struct pl_error *reterr)
{
    const unsigned char *head = (const unsigned char *)data;
    size_t payload_bytes;

    *ret_used = 0;
    for (size_t i = 0; i < sizeof(frame_magic) && i < bytes; i++) {
        if (data[i] != frame_magic[i]) {
            return pl_error_set(reterr, PL_CORRUPT, "control link: received bytes that are not a frame");
        }
    }
    if (bytes < PL_FRAME_HEAD_BYTES) {
        return PL_OK;
    }
    if (head[2] != PL_FRAME_VERSION) {
        return pl_error_set(
            reterr, PL_CORRUPT,
            "control link: the peer uses version %d, this host version %d: use the same image on all hosts", head[2],
            PL_FRAME_VERSION);
    }
    if (head[3] >= PL_FRAME_TYPES) {
        return pl_error_set(reterr, PL_CORRUPT, "control link: frame type %d is unknown", head[3]);
    }
    payload_bytes = (size_t)head[4] | (size_t)head[5] << 8 | (size_t)head[6] << 16 | (size_t)head[7] << 24;
    if (payload_bytes > PL_FRAME_MAX_BYTES) {
        return pl_error_set(reterr, PL_CORRUPT, "control link: a frame of %zu bytes, at most %d are allowed",
                            payload_bytes, PL_FRAME_MAX_BYTES);
    }
    if (bytes < PL_FRAME_HEAD_BYTES + payload_bytes) {
        return PL_OK;
    }
    frame->type = (enum pl_frame_type)head[3];
    frame->count = 0;
    for (size_t at = 0; at < payload_bytes;) {
        const char *field = data + PL_FRAME_HEAD_BYTES + at;
        const char *end = memchr(field, '\0', payload_bytes - at);

        if (!end || frame->count == PL_FRAME_MAX_FIELDS) {
            return pl_error_set(reterr, PL_CORRUPT, "control link: the fields of a %s frame do not end",
                                pl_link_frame_name(frame->type));
        }
        frame->fields[frame->count++] = field;
        at += (size_t)(end - field) + 1;
    }
    *ret_used = PL_FRAME_HEAD_BYTES + payload_bytes;
    return PL_OK;
}

enum pl_status pl_link_frame_encode(struct pl_text *text, enum pl_frame_type type, const char *const *fields,
                                    size_t count, struct pl_error *reterr)
{
    size_t payload_bytes = 0;
    char head[PL_FRAME_HEAD_BYTES] = {frame_magic[0], frame_magic[1], PL_FRAME_VERSION, (char)type};

    PL_BUG_IF(count > PL_FRAME_MAX_FIELDS);
    for (size_t i = 0; i < count; i++) {
        payload_bytes += strlen(fields[i]) + 1;
    }
    if (payload_bytes > PL_FRAME_MAX_BYTES) {
        return pl_error_set(reterr, PL_LIMIT, "control link: a %s frame of %zu bytes, at most %d are allowed",
                            pl_link_frame_name(type), payload_bytes, PL_FRAME_MAX_BYTES);
    }
    for (size_t i = 0; i < 4; i++) {
        head[4 + i] = (char)(unsigned char)(payload_bytes >> (8 * i));
    }
    pl_text_append_n(text, head, sizeof(head));
    for (size_t i = 0; i < count; i++) {
        pl_text_append_n(text, fields[i], strlen(fields[i]) + 1);
    }
    return pl_text_check(text, reterr);
}

enum pl_status pl_link_frame_number(const struct pl_frame *frame, size_t index, int64_t low, int64_t high,
                                    int64_t *ret_value, struct pl_error *reterr)
{
    char *end = NULL;
    long long value;

    errno = 0;
    if (index < frame->count && frame->fields[index][0] != '\0') {
        value = strtoll(frame->fields[index], &end, 10);
        if (*end == '\0' && errno == 0 && value >= low && value <= high) {
            *ret_value = value;
            return PL_OK;
        }
    }
    return pl_error_set(reterr, PL_CORRUPT, "control link: field %zu of a %s frame is not a number in its range", index,
                        pl_link_frame_name(frame->type));
}

enum pl_status pl_link_open(struct pl_link *link, int fd, struct pl_error *reterr)
{
    PL_TRY(pl_file_set_nonblock(fd, true, reterr));
    *link = PL_LINK_NONE;
    link->fd = fd;
    link->received_ns = pl_clock_now_ns();
    link->events = POLLIN;
    return PL_OK;
}

enum pl_status pl_link_send(struct pl_link *link, enum pl_frame_type type, const char *const *fields, size_t count,
                            struct pl_error *reterr)
{
    if (link->fd < 0 || link->ended) {
        return PL_OK;
    }
    if (link->out.length - link->sent_bytes > PL_LINK_MAX_WAITING_BYTES) {
        return pl_error_set(reterr, PL_PEER, "control link: the peer does not read");
    }
    PL_TRY(pl_link_frame_encode(&link->out, type, fields, count, reterr));
    pl_link_flush(link);
    return PL_OK;
}

enum pl_status pl_link_send_fds(struct pl_link *link, enum pl_frame_type type, const char *const *fields, size_t count,
                                const int *fds, size_t fds_count, struct pl_error *reterr)
{
    PL_BUG_IF(fds_count == 0 || fds_count > PL_LINK_MAX_FDS || link->sent_bytes < link->out.length);
    PL_TRY(pl_link_frame_encode(&link->out, type, fields, count, reterr));
    /* the descriptors arrive with the frame's first byte */
    if (pl_fd_send_with(link->fd, link->out.data, 1, fds, fds_count) != 0) {
        return pl_error_errno(reterr, "send descriptors on the control link");
    }
    link->sent_bytes = 1;
    pl_link_flush(link);
    return PL_OK;
}

void pl_link_flush(struct pl_link *link)
{
    while (link->fd >= 0 && link->sent_bytes < link->out.length) {
        ssize_t sent = send(link->fd, link->out.data + link->sent_bytes, link->out.length - link->sent_bytes,
                            MSG_NOSIGNAL | MSG_DONTWAIT);

        if (sent < 0) {
            if (errno == EINTR) {
                continue;
            }
            if (errno != EAGAIN && errno != EWOULDBLOCK) {
                link->sent_bytes = link->out.length; /* the reading side finds out that the peer has gone */
            }
            break;
        }
        link->sent_bytes += (size_t)sent;
    }
    if (link->sent_bytes == link->out.length) {
        pl_text_clear(&link->out);
        link->sent_bytes = 0;
    }
    link->events = (short)((link->ended ? 0 : POLLIN) | (link->sent_bytes < link->out.length ? POLLOUT : 0));
}

void pl_link_drain(struct pl_link *link, int64_t deadline_ns)
{
    pl_link_flush(link);
    while (link->fd >= 0 && link->sent_bytes < link->out.length && pl_file_poll(link->fd, POLLOUT, deadline_ns) > 0) {
        pl_link_flush(link);
    }
}

/* Call recv(), and keep the descriptors that arrive with the bytes. */
static ssize_t receive(struct pl_link *link, void *data, size_t bytes)
{
    int fds[PL_FD_MOST_PASSED];
    size_t count;
    const ssize_t received = pl_fd_receive_with(link->fd, data, bytes, fds, &count);

    for (size_t i = 0; i < count; i++) {
        if (link->fds_count < PL_LINK_MAX_FDS) {
            link->fds[link->fds_count++] = fds[i];
        } else {
            close(fds[i]);
        }
    }
    return received;
}

enum pl_status pl_link_read(struct pl_link *link, struct pl_error *reterr)
{
    char chunk[16384];

    while (link->fd >= 0 && !link->ended && link->in.length <= (size_t)PL_FRAME_MAX_BYTES * 2) {
        ssize_t bytes = receive(link, chunk, sizeof(chunk));

        if (bytes > 0) {
            link->received_ns = pl_clock_now_ns();
            pl_text_append_n(&link->in, chunk, (size_t)bytes);
            PL_TRY(pl_text_check(&link->in, reterr));
        } else if (bytes == 0) {
            link->ended = true;
            link->events &= (short)~POLLIN;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return PL_OK;
        } else if (errno != EINTR) {
            link->ended = true;
            link->events &=
                (short)~POLLIN; /* a reset is an end like any other: bytes that arrived before it still count */
        }
    }
    return PL_OK;
}

enum pl_status pl_link_next(struct pl_link *link, struct pl_frame *frame, struct pl_error *reterr)
{
    size_t used;

    if (link->consumed_bytes > 0) {
        link->in.length -= link->consumed_bytes;
        memmove(link->in.data, link->in.data + link->consumed_bytes, link->in.length);
        link->consumed_bytes = 0;
    }
    if (link->in.length > 0) {
        PL_TRY(pl_link_frame_decode(link->in.data, link->in.length, frame, &used, reterr));
        if (used > 0) {
            link->consumed_bytes = used;
            return PL_OK;
        }
    }
    return link->ended ? PL_PEER : PL_END;
}

enum pl_status pl_link_await(struct pl_link *link, int64_t deadline_ns, struct pl_frame *frame, struct pl_error *reterr)
{
    for (;;) {
        enum pl_status status = pl_link_next(link, frame, reterr);
        int ready;

        if (status != PL_END) {
            return status;
        }
        ready = pl_file_poll(link->fd, link->events, deadline_ns);
        if (ready <= 0) {
            return ready == 0 ? PL_TIMEOUT : pl_error_errno(reterr, "wait for process 1");
        }
        pl_link_flush(link);
        PL_TRY(pl_link_read(link, reterr));
    }
}

void pl_link_close(struct pl_link *link)
{
    pl_file_close_at(&link->fd);
    pl_text_done(&link->in);
    pl_text_done(&link->out);
    while (link->fds_count > 0) {
        close(link->fds[--link->fds_count]);
    }
    *link = PL_LINK_NONE;
}
