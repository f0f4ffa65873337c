/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A long cable between hosts of a test, for kernels without netem: delay_link DEVICE DELAY_MS OWN=HOST OTHER=HOST...
 *
 * Attaches to the TUN device DEVICE of this host, whose address is OWN. A packet to the address OTHER is held for
 * DELAY_MS. Then UDP carries it to HOST, that host's other address, where another delay_link puts it on its device at
 * once. So a round trip takes twice DELAY_MS plus the time of the link below, which also sets the rate. Packets that
 * the link does not take at once wait here, in order; if there is no room to wait, they are dropped. A signal ends the
 * program.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PORT = 5999, PACKET_BYTES = 9216, PACKETS = 8192, HOSTS = 16, DESTINATION_AT = 16 /* in an IPv4 header */ };

struct packet {
    int64_t due_ns;
    size_t bytes;
    struct sockaddr_in to;
    unsigned char data[PACKET_BYTES];
};

static struct packet *queue; /* a ring: packet number n is at n % PACKETS */
static uint64_t first, end;

static struct {
    in_addr_t address;
    struct sockaddr_in host;
} routes[HOSTS];
static int route_count;

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void fail(const char *what)
{
    fprintf(stderr, "delay_link: %s: %s\n", what, strerror(errno));
    exit(1);
}

static bool add_route(char *text)
{
    char *host = strchr(text, '=');

    if (!host || route_count == HOSTS) {
        return false;
    }
    *host++ = '\0';
    routes[route_count].host.sin_family = AF_INET;
    routes[route_count].host.sin_port = htons(PORT);
    return inet_pton(AF_INET, text, &routes[route_count].address) == 1 &&
           inet_pton(AF_INET, host, &routes[route_count++].host.sin_addr) == 1;
}

static int open_device(const char *name)
{
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);

    snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
    if (fd < 0 || ioctl(fd, TUNSETIFF, &request) != 0) {
        fail(name);
    }
    return fd;
}

static int open_socket(void)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int room = 8 << 20; /* for packets that arrive while this program does not run */

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room)) != 0 ||
        bind(fd, (struct sockaddr *)&routes[0].host, sizeof(routes[0].host)) != 0) {
        fail("UDP socket");
    }
    return fd;
}

/* Takes all packets that the host sends to the end of the queue. */
static void take(int device, int64_t delay_ns)
{
    static unsigned char dropped[PACKET_BYTES];

    for (;;) {
        bool full = end - first == PACKETS;
        struct packet *packet = &queue[end % PACKETS];
        unsigned char *data = full ? dropped : packet->data;
        ssize_t got = read(device, data, PACKET_BYTES);
        in_addr_t to;

        if (got < 0) {
            return;
        }
        if (full || got < DESTINATION_AT + 4 || data[0] >> 4 != 4) {
            continue;
        }
        memcpy(&to, data + DESTINATION_AT, sizeof(to));
        for (int i = 1; i < route_count; i++) {
            if (routes[i].address == to) {
                packet->to = routes[i].host;
                packet->bytes = (size_t)got;
                packet->due_ns = now_ns() + delay_ns;
                end++;
                break;
            }
        }
    }
}

/* Sends the packets that are due. False if the link takes no more now. */
static bool give(int socket_fd)
{
    for (; first < end && queue[first % PACKETS].due_ns <= now_ns(); first++) {
        struct packet *packet = &queue[first % PACKETS];

        if (sendto(socket_fd, packet->data, packet->bytes, 0, (struct sockaddr *)&packet->to, sizeof(packet->to)) < 0 &&
            (errno == EAGAIN || errno == ENOBUFS)) {
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    static unsigned char arrived[PACKET_BYTES];
    int64_t delay_ns = argc > 4 ? (int64_t)(atof(argv[2]) * 1e6) : -1;
    bool good = delay_ns >= 0;
    int device;
    int socket_fd;

    for (int i = 3; good && i < argc; i++) {
        good = add_route(argv[i]);
    }
    if (!good) {
        fprintf(stderr, "usage: delay_link DEVICE DELAY_MS OWN=HOST OTHER=HOST...\n");
        return 2;
    }
    queue = calloc(PACKETS, sizeof(*queue));
    if (!queue) {
        fail("memory");
    }
    device = open_device(argv[1]);
    socket_fd = open_socket();
    for (;;) {
        bool flows = give(socket_fd);
        struct pollfd polls[2] = {{.fd = device, .events = POLLIN},
                                  {.fd = socket_fd, .events = (short)(POLLIN | (flows ? 0 : POLLOUT))}};
        int64_t wait_ns = first < end && flows ? queue[first % PACKETS].due_ns - now_ns() : 1000000000;
        struct timespec timeout = {.tv_sec = wait_ns / 1000000000, .tv_nsec = wait_ns > 0 ? wait_ns % 1000000000 : 0};
        ssize_t got;

        ppoll(polls, 2, &timeout, NULL);
        take(device, delay_ns);
        while ((got = recv(socket_fd, arrived, sizeof(arrived), 0)) > 0) {
            if (write(device, arrived, (size_t)got) < 0 && errno != EAGAIN && errno != ENOBUFS) {
                fail("write to the device");
            }
        }
    }
}
