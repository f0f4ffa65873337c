/* SPDX-License-Identifier: Apache-2.0 */
/* The network of hosts in namespaces. */
#include "programs/local/network.h"

#include "base/clock.h"
#include "base/file.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define BRIDGE "sw0"

#define WORK_NS (30 * PL_NS_PER_S)

enum { MESSAGE_BYTES = 512, ANSWER_BYTES = 4096 };

static enum pl_status open_socket(int *ret_fd, struct pl_error *reterr)
{
    *ret_fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    return *ret_fd >= 0 ? PL_OK : pl_error_errno(reterr, "open a socket");
}

static enum pl_status set_flags(int fd, const char *name, short flags, struct pl_error *reterr)
{
    struct ifreq request = {.ifr_flags = flags};

    snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
    return ioctl(fd, SIOCSIFFLAGS, &request) == 0
               ? PL_OK
               : pl_error_errno(reterr, "set the interface %s %s", name, flags != 0 ? "up" : "down");
}

static enum pl_status set_up(int fd, const char *name, struct pl_error *reterr)
{
    return set_flags(fd, name, IFF_UP | IFF_RUNNING, reterr);
}

static enum pl_status make_bridge(struct pl_error *reterr)
{
    PL_AUTO_CLOSE int fd = -1;

    PL_TRY(open_socket(&fd, reterr));
    if (ioctl(fd, SIOCBRADDBR, BRIDGE) != 0) {
        return pl_error_errno(reterr, "make a bridge between the hosts");
    }
    return set_up(fd, BRIDGE, reterr);
}

struct message {
    union {
        struct nlmsghdr header;
        char bytes[MESSAGE_BYTES];
    };
};

/* Adds an attribute and returns it; `bytes` may be 0 for one that holds others. */
static struct rtattr *add(struct message *message, unsigned short type, const void *data, size_t bytes)
{
    struct rtattr *attribute = (struct rtattr *)(void *)(message->bytes + NLMSG_ALIGN(message->header.nlmsg_len));

    PL_BUG_IF(NLMSG_ALIGN(message->header.nlmsg_len) + RTA_SPACE(bytes) > MESSAGE_BYTES);
    attribute->rta_type = type;
    attribute->rta_len = (unsigned short)RTA_LENGTH(bytes);
    if (bytes > 0) {
        memcpy(RTA_DATA(attribute), data, bytes);
    }
    message->header.nlmsg_len = (unsigned)(NLMSG_ALIGN(message->header.nlmsg_len) + RTA_SPACE(bytes));
    return attribute;
}

static void end(const struct message *message, struct rtattr *attribute)
{
    attribute->rta_len = (unsigned short)(message->bytes + message->header.nlmsg_len - (const char *)attribute);
}

/* A cable: the end `name` here, the end eth0 in the network of `pid`. */
static void describe_cable(struct message *message, const char *name, unsigned pid)
{
    const struct ifinfomsg none = {.ifi_family = AF_UNSPEC};
    struct rtattr *info, *data, *peer;

    memset(message, 0, sizeof(*message));
    message->header.nlmsg_len = NLMSG_LENGTH(sizeof(none));
    message->header.nlmsg_type = RTM_NEWLINK;
    message->header.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
    add(message, IFLA_IFNAME, name, strlen(name) + 1);
    info = add(message, IFLA_LINKINFO, NULL, 0);
    add(message, IFLA_INFO_KIND, "veth", sizeof("veth") - 1);
    data = add(message, IFLA_INFO_DATA, NULL, 0);
    peer = add(message, VETH_INFO_PEER, &none, sizeof(none));
    add(message, IFLA_IFNAME, "eth0", sizeof("eth0"));
    add(message, IFLA_NET_NS_PID, &pid, sizeof(pid));
    end(message, peer);
    end(message, data);
    end(message, info);
}

static enum pl_status send_message(const struct message *message, struct pl_error *reterr)
{
    PL_AUTO_CLOSE int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    struct {
        struct nlmsghdr header;
        struct nlmsgerr error;
        char rest[ANSWER_BYTES];
    } answer;
    ssize_t bytes;

    if (fd < 0 || send(fd, message->bytes, message->header.nlmsg_len, 0) < 0) {
        return pl_error_errno(reterr, "ask the kernel for a network interface");
    }
    bytes = recv(fd, &answer, sizeof(answer), 0); /* the kernel has answered within send() */
    if (bytes < (ssize_t)(sizeof(answer.header) + sizeof(answer.error.error)) ||
        answer.header.nlmsg_type != NLMSG_ERROR) {
        return pl_error_set(reterr, PL_SYSTEM, "the kernel's answer to a request for a network interface is too short");
    }
    errno = -answer.error.error;
    return answer.error.error == 0 ? PL_OK : pl_error_errno(reterr, "make the network interface of a host");
}

static void name_cable(unsigned number, char text[static IFNAMSIZ])
{
    snprintf(text, IFNAMSIZ, "p%u", number);
}

static enum pl_status set_cable(unsigned number, bool is_in, struct pl_error *reterr)
{
    PL_AUTO_CLOSE int fd = -1;
    char name[IFNAMSIZ];

    name_cable(number, name);
    PL_TRY(open_socket(&fd, reterr));
    return set_flags(fd, name, is_in ? IFF_UP | IFF_RUNNING : 0, reterr);
}

static enum pl_status plug(unsigned number, pid_t pid, struct pl_error *reterr)
{
    struct ifreq request = {.ifr_ifindex = 0};
    PL_AUTO_CLOSE int fd = -1;
    struct message message;
    char name[IFNAMSIZ];

    name_cable(number, name);
    describe_cable(&message, name, (unsigned)pid);
    PL_TRY(send_message(&message, reterr));
    PL_TRY(open_socket(&fd, reterr));
    snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", BRIDGE);
    request.ifr_ifindex = (int)if_nametoindex(name);
    if (request.ifr_ifindex == 0 || ioctl(fd, SIOCBRADDIF, &request) != 0) {
        return pl_error_errno(reterr, "plug the cable %s into the bridge", name);
    }
    return set_up(fd, name, reterr);
}

/* What the process in the network is asked for. */
struct task {
    enum { PLUG, PULL_OUT, PLUG_IN_AGAIN } what;
    unsigned number;
    pid_t pid; /* of the host to plug in */
};

/* Lives in the network, which ends with its last process; does what it is asked for, until nobody can ask any more. */
_Noreturn static void serve(int fd)
{
    struct pl_error error = PL_ERROR_NONE;
    struct task task;

    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    error.status =
        unshare(CLONE_NEWNET) == 0 ? make_bridge(&error) : pl_error_errno(&error, "make a network namespace");
    while (pl_file_write_fd(fd, &error, sizeof(error), "a report", NULL) == PL_OK &&
           read(fd, &task, sizeof(task)) == (ssize_t)sizeof(task)) {
        error = PL_ERROR_NONE;
        error.status = task.what == PLUG ? plug(task.number, task.pid, &error)
                                         : set_cable(task.number, task.what == PLUG_IN_AGAIN, &error);
    }
    _exit(EXIT_SUCCESS);
}

static enum pl_status read_report(int fd, struct pl_error *reterr)
{
    struct pl_error error;
    size_t bytes;

    PL_TRY(pl_file_read_some(fd, &error, sizeof(error), pl_deadline_after_ns(WORK_NS), "the report of a network",
                             &bytes, reterr));
    if (bytes != sizeof(error)) {
        return pl_error_set(reterr, PL_FAILED, "the process that makes the network of the hosts ended");
    }
    if (error.status != PL_OK && reterr) {
        *reterr = error;
    }
    return error.status;
}

static enum pl_status ask(int network_fd, const struct task *task, struct pl_error *reterr)
{
    PL_TRY(pl_file_write_fd(network_fd, task, sizeof(*task), "a task", reterr));
    return read_report(network_fd, reterr);
}

enum pl_status pl_local_network_new(int *ret_fd, struct pl_error *reterr)
{
    int ends[2];
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        return pl_error_errno(reterr, "make a socket");
    }
    pid = fork(); /* this process could not come back from there unless it is root */
    if (pid == 0) {
        close(ends[0]);
        serve(ends[1]);
    }
    close(ends[1]);
    *ret_fd = ends[0];
    return pid < 0 ? pl_error_errno(reterr, "start a process") : read_report(ends[0], reterr);
}

enum pl_status pl_local_network_plug(int network_fd, unsigned number, pid_t pid, struct pl_error *reterr)
{
    return ask(network_fd, &(struct task){.what = PLUG, .number = number, .pid = pid}, reterr);
}

enum pl_status pl_local_network_set_cable(int network_fd, unsigned number, bool is_in, struct pl_error *reterr)
{
    return ask(network_fd, &(struct task){.what = is_in ? PLUG_IN_AGAIN : PULL_OUT, .number = number}, reterr);
}

static enum pl_status set_address(int fd, unsigned long what, const char *text, struct pl_error *reterr)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    struct ifreq request = {.ifr_ifindex = 0};

    snprintf(request.ifr_name, sizeof(request.ifr_name), "eth0");
    inet_pton(AF_INET, text, &address.sin_addr);
    memcpy(&request.ifr_addr, &address, sizeof(address));
    return ioctl(fd, what, &request) == 0 ? PL_OK : pl_error_errno(reterr, "give eth0 the address %s", text);
}

enum pl_status pl_local_network_set_up(unsigned number, struct pl_error *reterr)
{
    PL_AUTO_CLOSE int fd = -1;
    char address[32];

    PL_TRY(open_socket(&fd, reterr));
    PL_TRY(set_up(fd, "lo", reterr));
    snprintf(address, sizeof(address), "10.78.0.%u", number);
    PL_TRY(set_address(fd, SIOCSIFADDR, address, reterr));
    PL_TRY(set_address(fd, SIOCSIFNETMASK, "255.255.255.0", reterr));
    return set_up(fd, "eth0", reterr);
}
