/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts in namespaces: their network, their mounts, and their first process. */
#include "programs/local/local.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/thread.h"
#include "entrypoint/proc/mounts.h"
#include "entrypoint/supervise/process.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define BRIDGE "sw0"
#define MACHINE "/run/machine" /* path of a folder of the machine while a new folder covers it */

#define START_NS (60 * PL_NS_PER_S)

enum { MESSAGE_BYTES = 512, ANSWER_BYTES = 4096, EXIT_UNREPORTED = 3 };

/* ---- the network: rtnetlink(7), linux/if_link.h (veth), linux/if_bridge.h ---- */

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

static void close_attribute(const struct message *message, struct rtattr *attribute)
{
    attribute->rta_len = (unsigned short)(message->bytes + message->header.nlmsg_len - (const char *)attribute);
}

/* Describes a cable: the end `name` is here, plugged into the bridge and up; eth0 is in the network of `pid`. */
static void describe_cable(struct message *message, const char *name, unsigned bridge, unsigned pid)
{
    const struct ifinfomsg none = {.ifi_family = AF_UNSPEC},
                           up = {.ifi_family = AF_UNSPEC, .ifi_flags = IFF_UP, .ifi_change = IFF_UP};
    struct rtattr *info, *data, *peer;

    memset(message, 0, sizeof(*message));
    memcpy(NLMSG_DATA(&message->header), &up, sizeof(up));
    message->header.nlmsg_len = NLMSG_LENGTH(sizeof(up));
    message->header.nlmsg_type = RTM_NEWLINK;
    message->header.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
    add(message, IFLA_IFNAME, name, strlen(name) + 1);
    add(message, IFLA_MASTER, &bridge, sizeof(bridge));
    info = add(message, IFLA_LINKINFO, NULL, 0);
    add(message, IFLA_INFO_KIND, "veth", sizeof("veth") - 1);
    data = add(message, IFLA_INFO_DATA, NULL, 0);
    peer = add(message, VETH_INFO_PEER, &none, sizeof(none));
    add(message, IFLA_IFNAME, "eth0", sizeof("eth0"));
    add(message, IFLA_NET_NS_PID, &pid, sizeof(pid));
    close_attribute(message, peer);
    close_attribute(message, data);
    close_attribute(message, info);
}

static enum pl_status send_message(int fd, const struct message *message, struct pl_error *reterr)
{
    struct {
        struct nlmsghdr header;
        struct nlmsgerr error;
        char rest[ANSWER_BYTES];
    } answer;
    ssize_t bytes;

    if (send(fd, message->bytes, message->header.nlmsg_len, 0) < 0) {
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

static enum pl_status plug(const struct pl_local *local, unsigned number, pid_t pid, struct pl_error *reterr)
{
    struct message message;
    char name[IFNAMSIZ];

    name_cable(number, name);
    describe_cable(&message, name, local->network.bridge, (unsigned)pid);
    return send_message(local->network.link_fd, &message, reterr);
}

struct making {
    struct pl_local_network *network;
    struct pl_error error;
};

/* Makes the network. A socket belongs to the network in which it was made, whichever process uses it. */
static void *make_network(void *making_at)
{
    struct making *making = making_at;
    struct pl_local_network *network = making->network;

    if (unshare(CLONE_NEWNET) != 0) {
        pl_error_errno(&making->error, "make a network namespace");
        return NULL;
    }
    network->flags_fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    network->link_fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (network->flags_fd < 0 || network->link_fd < 0) {
        pl_error_errno(&making->error, "open a socket");
    } else if (ioctl(network->flags_fd, SIOCBRADDBR, BRIDGE) != 0) {
        pl_error_errno(&making->error, "make a bridge between the hosts");
    } else {
        making->error.status = set_up(network->flags_fd, BRIDGE, &making->error);
        network->bridge = if_nametoindex(BRIDGE);
    }
    return NULL;
}

enum pl_status pl_local_network_open(struct pl_local *local, struct pl_error *reterr)
{
    struct making making = {.network = &local->network, .error = PL_ERROR_NONE};
    pthread_t thread;

    /* in a thread of its own, which only calls the kernel: unless root, a thread cannot leave the network again */
    PL_TRY(pl_thread_start(&thread, make_network, &making, "the thread that makes a network", reterr));
    pthread_join(thread, NULL);
    if (making.error.status != PL_OK) {
        *reterr = making.error;
    }
    return making.error.status;
}

void pl_local_network_close(struct pl_local *local)
{
    pl_file_close_at(&local->network.flags_fd);
    pl_file_close_at(&local->network.link_fd);
}

enum pl_status pl_local_network_set_cable(const struct pl_local *local, unsigned number, bool is_in,
                                          struct pl_error *reterr)
{
    char name[IFNAMSIZ];

    name_cable(number, name);
    return set_flags(local->network.flags_fd, name, is_in ? IFF_UP | IFF_RUNNING : 0, reterr);
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

/* Runs in the host: sets lo and eth0 up. */
static enum pl_status set_up_host(unsigned number, struct pl_error *reterr)
{
    PL_AUTO_CLOSE int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    char address[32];

    PL_TRY(fd >= 0 ? PL_OK : pl_error_errno(reterr, "open a socket"));
    PL_TRY(set_up(fd, "lo", reterr));
    snprintf(address, sizeof(address), "10.78.0.%u", number);
    PL_TRY(set_address(fd, SIOCSIFADDR, address, reterr));
    PL_TRY(set_address(fd, SIOCSIFNETMASK, "255.255.255.0", reterr));
    return set_up(fd, "eth0", reterr);
}

/* ---- the inside of a host ---- */

/* Makes `to` the same as `from`, which is in the covered folder: a link is copied, all else is mounted. */
static enum pl_status show(const char *from, const char *to, struct pl_error *reterr)
{
    char link[PATH_MAX];
    struct stat info;
    ssize_t length;

    if (lstat(from, &info) != 0) {
        return pl_error_errno(reterr, "read '%s'", from);
    }
    if (S_ISLNK(info.st_mode)) {
        length = readlink(from, link, sizeof(link) - 1);
        link[length > 0 ? length : 0] = '\0';
        return symlink(link, to) == 0 || errno == EEXIST ? PL_OK : pl_error_errno(reterr, "make the link '%s'", to);
    }
    if (S_ISDIR(info.st_mode)) {
        PL_TRY(pl_file_make_dirs(to, PL_LOCAL_FOLDER_MODE, reterr));
    } else {
        PL_AUTO_CLOSE int fd = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, PL_LOCAL_FILE_MODE);

        if (fd < 0) {
            return pl_error_errno(reterr, "make '%s'", to);
        }
    }
    return pl_mounts_bind(from, to, reterr);
}

/* Shows in the new /tmp the entry of the machine's /tmp with this absolute path, unless it is shown already. */
static enum pl_status show_path(const char *path, size_t length, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text top = PL_TEXT_NONE, from = PL_TEXT_NONE;
    const char *name = path + sizeof("/tmp/") - 1;
    size_t bytes;
    struct stat info;

    if (length < sizeof("/tmp/") || strncmp(path, "/tmp/", sizeof("/tmp/") - 1) != 0) {
        return PL_OK;
    }
    bytes = strcspn(name, "/:");
    PL_TRY(pl_text_set(&top, reterr, "/tmp/%.*s", (int)bytes, name));
    PL_TRY(pl_text_set(&from, reterr, MACHINE "/%.*s", (int)bytes, name));
    return lstat(top.data, &info) == 0 || lstat(from.data, &info) != 0 ? PL_OK : show(from.data, top.data, reterr);
}

static enum pl_status show_list(const char *list, struct pl_error *reterr)
{
    while (list && *list != '\0') {
        const size_t length = strcspn(list, ":");

        PL_TRY(show_path(list, length, reterr));
        list += length + (list[length] == ':');
    }
    return PL_OK;
}

/* Libraries for communication keep files in /tmp under the names of host and process, which hosts of other jobs have
 * too: the host has a new /tmp, with those folders of the machine's that the job names. */
static enum pl_status cover_tmp(const struct pl_local *local, const char *const *argv, struct pl_error *reterr)
{
    static const char *const lists[] = {"PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV"};

    PL_TRY(pl_file_make_dirs(MACHINE, PL_LOCAL_FOLDER_MODE, reterr));
    PL_TRY(pl_mounts_bind("/tmp", MACHINE, reterr));
    PL_TRY(pl_mounts_memory("/tmp", "mode=1777", reterr));
    PL_TRY(show_list(local->cwd, reterr));
    PL_TRY(show_list(local->folder, reterr));
    PL_TRY(show_list(local->paceline, reterr));
    for (size_t i = 0; i < PL_ARRAY_ITEMS(lists); i++) {
        PL_TRY(show_list(pl_environment_get(local->environment, lists[i]), reterr));
    }
    for (size_t i = 0; argv[i]; i++) {
        PL_TRY(show_list(argv[i], reterr));
    }
    for (size_t i = 0; i < local->job->hyperparameters.count; i++) {
        PL_TRY(show_list(local->job->hyperparameters.items[i].value, reterr));
    }
    return PL_OK;
}

/* The folders of the machine that a host sees, opened before new ones cover /run, /dev/shm, /tmp and /opt/ml. */
struct opened {
    int fds[PL_LOCAL_MOST_ITEMS + 3]; /* the channels, and /opt/ml, its code and the checkpoints */
    size_t count, shown;
};

static enum pl_status open_mount(void *opened_at, const char *from, const char *to, bool read_only,
                                 struct pl_error *reterr)
{
    struct opened *opened = opened_at;
    const int fd = open(from, O_PATH | O_DIRECTORY | O_CLOEXEC);

    (void)to;
    (void)read_only;
    PL_BUG_IF(opened->count == PL_ARRAY_ITEMS(opened->fds));
    if (fd < 0) {
        return pl_error_errno(reterr, "open '%s'", from);
    }
    opened->fds[opened->count++] = fd; /* closed with this process, or by its execve() */
    return PL_OK;
}

/* Mounts the folder that open_mount() has opened at the same place of the order. */
static enum pl_status show_mount(void *opened_at, const char *from, const char *to, bool read_only,
                                 struct pl_error *reterr)
{
    struct opened *opened = opened_at;
    char path[32];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", opened->fds[opened->shown++]);
    PL_TRY(pl_file_make_dirs(to, PL_LOCAL_FOLDER_MODE, reterr));
    if (pl_mounts_bind(path, to, reterr) != PL_OK) {
        pl_error_context(reterr, "showing '%s'", from);
        return PL_SYSTEM;
    }
    return read_only ? pl_mounts_make_read_only(to, reterr) : PL_OK;
}

/* If /opt/ml is missing, makes a new /opt with the contents of the machine's and with the mount point. */
static enum pl_status make_mount_point(struct pl_error *reterr)
{
    PL_AUTO_DIRECTORY DIR *directory = NULL;
    PL_AUTO_TEXT struct pl_text from = PL_TEXT_NONE, to = PL_TEXT_NONE;
    const struct dirent *entry;

    if (access("/opt/ml", F_OK) == 0) {
        return PL_OK;
    }
    PL_TRY(pl_file_make_dirs("/run/opt", PL_LOCAL_FOLDER_MODE, reterr));
    PL_TRY(pl_mounts_bind("/opt", "/run/opt", reterr));
    PL_TRY(pl_mounts_memory("/opt", "mode=0755", reterr));
    directory = opendir("/run/opt");
    if (!directory) {
        return pl_error_errno(reterr, "read '/opt'");
    }
    while ((entry = readdir(directory))) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            PL_TRY(pl_text_set(&from, reterr, "/run/opt/%s", entry->d_name));
            PL_TRY(pl_text_set(&to, reterr, "/opt/%s", entry->d_name));
            PL_TRY(show(from.data, to.data, reterr));
        }
    }
    umount2("/run/opt", MNT_DETACH);
    return pl_file_make_dirs("/opt/ml", PL_LOCAL_FOLDER_MODE, reterr);
}

static enum pl_status name_hosts(const struct pl_local *local, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    pl_text_append(&text, "127.0.0.1 localhost\n");
    for (size_t i = 0; i < local->job->hosts; i++) {
        const bool alone = local->job->hosts == 1;

        pl_text_printf(&text, "%s%zu %s\n", alone ? "127.0.0." : "10.78.0.", i + 1, local->hosts[i].name);
    }
    PL_TRY(pl_text_check(&text, reterr));
    PL_TRY(pl_file_write_atomic("/run/hosts", text.data, text.length, PL_LOCAL_FILE_MODE, reterr));
    return pl_mounts_bind("/run/hosts", "/etc/hosts", reterr);
}

static enum pl_status make_mounts(const struct pl_local *local, size_t index, const char *const *argv,
                                  struct pl_error *reterr)
{
    struct opened opened = {.count = 0};

    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
        return pl_error_errno(reterr, "make this host's mounts its own");
    }
    PL_TRY(pl_local_channels_show(local, index, open_mount, &opened, reterr));
    PL_TRY(pl_mounts_memory("/run", "mode=0755", reterr));
    if (local->job->hosts > 1) {
        PL_TRY(pl_file_write_atomic(PL_LOCAL_SECRET_PATH, local->secret, sizeof(local->secret), PL_LOCAL_SECRET_MODE,
                                    reterr));
    }
    PL_TRY(pl_mounts_memory("/dev/shm", "mode=1777", reterr));
    PL_TRY(cover_tmp(local, argv, reterr));
    PL_TRY(make_mount_point(reterr));
    PL_TRY(pl_local_channels_show(local, index, show_mount, &opened, reterr));
    PL_TRY(pl_file_make_dirs("/opt/ml/code", PL_LOCAL_FOLDER_MODE, reterr));
    PL_TRY(name_hosts(local, reterr));
    umount2(MACHINE, MNT_DETACH);
    rmdir(MACHINE);
    return mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0
               ? PL_OK
               : pl_error_errno(reterr, "mount a /proc of this host's own");
}

static void free_port_22(void)
{
    const int fd = open("/proc/sys/net/ipv4/ip_unprivileged_port_start", O_WRONLY | O_CLOEXEC);

    if (fd >= 0) {
        if (write(fd, "22", 2) != 2) { /* if this fails, sshd reports the port that it cannot have */
            errno = 0;
        }
        close(fd);
    }
}

/* ---- the first process of a host ---- */

struct inside {
    const struct pl_local *local;
    size_t index;
    const char *const *argv;
    char *const *environment;
    int output_fd;
    int ends[2]; /* [0]: this program's end, which sends a byte; [1]: the host's end, which sends an error */
};

/* Makes the insides of the namespaces and becomes the program. Returns only an error. */
static enum pl_status become(const struct inside *inside, struct pl_error *reterr)
{
    const struct pl_local *local = inside->local;
    const struct pl_local_host *host = &local->hosts[inside->index];

    if (sethostname(host->name, strlen(host->name)) != 0) {
        return pl_error_errno(reterr, "set the host name");
    }
    if (local->job->hosts > 1) {
        PL_TRY(set_up_host((unsigned)inside->index + 1, reterr));
        free_port_22();
    }
    PL_TRY(make_mounts(local, inside->index, inside->argv, reterr));
    if (chdir("/opt/ml/code") != 0) {
        return pl_error_errno(reterr, "enter '/opt/ml/code'");
    }
    pl_signals_restore_files(&local->signals);
    pl_signals_restore(&local->signals);
    execve(inside->argv[0], (char *const *)(uintptr_t)inside->argv, inside->environment);
    return pl_error_errno(reterr, "start '%s'", inside->argv[0]);
}

static int enter(void *inside_at)
{
    const struct inside *inside = inside_at;
    const int fd = inside->ends[1], null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    struct pl_error error = PL_ERROR_NONE;
    char go;

    close(inside->ends[0]);
    setsid();
    if (read(fd, &go, 1) != 1 || dup2(null_fd, STDIN_FILENO) < 0 || dup2(inside->output_fd, STDOUT_FILENO) < 0 ||
        dup2(inside->output_fd, STDERR_FILENO) < 0) {
        return EXIT_FAILURE; /* this program ended before the host was plugged in */
    }
    become(inside, &error);
    return pl_file_write_fd(fd, &error, sizeof(error), "the report", NULL) == PL_OK ? EXIT_FAILURE : EXIT_UNREPORTED;
}

static int namespaces_of(const struct pl_local *local)
{
    return CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUTS | CLONE_NEWIPC | (local->job->hosts > 1 ? CLONE_NEWNET : 0);
}

/* A security module may let a user make the namespace and forbid everything in it. */
static int try_namespaces(void *namespaces)
{
    return unshare(*(const int *)namespaces) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
                   mount("tmpfs", "/run", "tmpfs", 0, NULL) == 0
               ? 0
               : errno;
}

int pl_local_namespaces_try(const struct pl_local *local)
{
    int namespaces = namespaces_of(local) | (geteuid() == 0 ? 0 : CLONE_NEWUSER), status;
    struct pl_error error = PL_ERROR_NONE;
    pid_t pid;

    if (pl_process_start(0, try_namespaces, &namespaces, &pid, &error) != PL_OK) {
        return (int)error.code;
    }
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR) {
            return errno;
        }
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : EPERM;
}

enum pl_status pl_local_namespaces_start(struct pl_local *local, size_t index, const char *const *argv,
                                         char *const *environment, int output_fd, struct pl_error *reterr)
{
    struct inside inside = {
        .local = local, .index = index, .argv = argv, .environment = environment, .output_fd = output_fd};
    struct pl_local_host *host = &local->hosts[index];
    PL_AUTO_CLOSE int own_fd = -1, host_fd = -1;
    struct pl_error error;
    enum pl_status status;
    size_t bytes = 0;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, inside.ends) != 0) {
        return pl_error_errno(reterr, "make a socket");
    }
    own_fd = inside.ends[0];
    host_fd = inside.ends[1];
    if (pl_process_start(namespaces_of(local), enter, &inside, &host->pid, reterr) != PL_OK) {
        pl_error_context(reterr, "making the namespaces of %s", host->name);
        return PL_SYSTEM;
    }
    pl_file_close_at(&host_fd);
    if (local->job->hosts > 1) {
        PL_TRY(plug(local, (unsigned)index + 1, host->pid, reterr));
    }
    PL_TRY(pl_file_write_fd(own_fd, "", 1, "the start of a host", reterr));
    /* The start of the program closes the host's end, so the end of the data means success. */
    status = pl_file_read_some(own_fd, &error, sizeof(error), pl_deadline_after_ns(START_NS), "the report of a host",
                               &bytes, reterr);
    if (status == PL_TIMEOUT) {
        return pl_error_set(reterr, PL_TIMEOUT, "%s did not have its mounts within %d s: does a file system hang?",
                            host->name, (int)(START_NS / PL_NS_PER_S));
    }
    if (status != PL_OK || bytes == 0) {
        return status;
    }
    if (bytes == sizeof(error) && reterr) {
        *reterr = error;
    }
    pl_error_context(reterr, "starting %s", host->name);
    return PL_SYSTEM;
}
