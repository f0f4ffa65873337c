/* SPDX-License-Identifier: Apache-2.0 */
/* Configures the private sshd of a worker and the master's ssh client. */
#include "entrypoint/ssh/sshd.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "entrypoint/launch/companion.h"
#include "entrypoint/launch/needs.h"

#include <errno.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <pwd.h>
#include <shadow.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KEY_MAX_BYTES = 16 * 1024, STATUS_MAX_BYTES = 64 * 1024, HOSTS_MAX_BYTES = 4 * 1024 * 1024 };

static const char hosts_file[] = "hosts";

/* The client's name for every host's key: all hosts of an image have the same key, but different names. */
#define HOST_KEY_ALIAS "paceline"

/* Explain why the key file, or its directory, exists but cannot be read by this user: the keys of an image belong to
 * root. */
static enum pl_status refuse_unreadable(const char *directory, const char *path, struct pl_error *reterr)
{
    const struct passwd *owner;
    struct stat info;
    char number[16];

    if (stat(path, &info) != 0 && stat(directory, &info) != 0) {
        return pl_error_errno(reterr, "read the ssh key '%.200s' as user %u", path, (unsigned)geteuid());
    }
    owner = getpwuid(info.st_uid);
    snprintf(number, sizeof(number), "%u", (unsigned)info.st_uid);
    return pl_error_set(reterr, PL_SYSTEM,
                        "the ssh key '%.200s' belongs to user %.32s, and this job's user %u cannot read it: run the "
                        "container as that user, or name a directory with keys of this user in PACELINE_SSH_DIR",
                        path, owner ? owner->pw_name : number, (unsigned)geteuid());
}

static enum pl_status key_path(const char *directory, const char *name, char **ret_path, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    PL_TRY(pl_text_set(&path, reterr, "%s/%s", directory, name));
    if (access(pl_text_string(&path), R_OK) != 0) {
        if (errno == EACCES) {
            return refuse_unreadable(directory, pl_text_string(&path), reterr);
        }
        return pl_needs_keys_missing(pl_text_string(&path), reterr);
    }
    return pl_text_take(&path, ret_path, reterr);
}

enum pl_status pl_sshd_plan_keys(const struct pl_job *job, const struct pl_rundir *rundir,
                                 struct pl_launch_plan_step *ret_step, struct pl_error *reterr)
{
    const char *secret = job->settings.ssh_secret;
    PL_AUTO_FREE char *companion = NULL;

    *ret_step = (struct pl_launch_plan_step){.what = NULL};
    if (!secret) {
        return PL_OK;
    }
    PL_TRY(pl_companion_find(job->self_path, "paceline-keys", &companion, reterr));
    ret_step->what = "making ssh keys from the job's secret";
    pl_strv_add(&ret_step->argv, companion, secret, job->job_name ? job->job_name : "", rundir->path);
    return pl_strv_check(&ret_step->argv, reterr);
}

/* sshd refuses a user whose password begins with '!' where it can read that: in /etc/passwd, or, as root or with a
 * readable file, in /etc/shadow. */
static bool is_locked(const struct passwd *user)
{
    const struct spwd *shadow = getspnam(user->pw_name);

    return (shadow ? shadow->sp_pwdp : user->pw_passwd)[0] == '!';
}

enum pl_status pl_sshd_check_user(struct pl_error *reterr)
{
    const struct passwd *user = getpwuid(geteuid());
    const char *shell = user && *user->pw_shell != '\0' ? user->pw_shell : "/bin/sh";
    const char *name = basename(shell);

    if (!user) {
        return pl_error_set(reterr, PL_INVALID,
                            "a job on several hosts needs ssh, and ssh needs a user with a name: /etc/passwd has no "
                            "user %u; add the user in the Dockerfile",
                            (unsigned)geteuid());
    }
    if (strcmp(name, "nologin") == 0 || strcmp(name, "false") == 0 || access(shell, X_OK) != 0) {
        return pl_error_set(reterr, PL_INVALID,
                            "a job on several hosts needs sshd, which runs commands by the user's login shell: "
                            "expected a shell such as /bin/sh for '%.100s' in /etc/passwd, found '%.200s'",
                            user->pw_name, shell);
    }
    return is_locked(user)
               ? pl_error_set(reterr, PL_INVALID,
                              "a job on several hosts needs sshd, which refuses a user whose password is locked: "
                              "that of '%.100s' begins with '!'; root changes it by usermod -p '*' %.100s",
                              user->pw_name, user->pw_name)
               : PL_OK;
}

enum pl_status pl_sshd_open(struct pl_sshd *sshd, const struct pl_job *job, const struct pl_rundir *rundir,
                            struct pl_error *reterr)
{
    const char *named = job->settings.ssh_dir ? job->settings.ssh_dir : PL_NEEDS_KEYS_DIR;
    const char *directory = job->settings.ssh_secret ? rundir->path : named;
    const struct passwd *user;

    PL_TRY(pl_sshd_check_user(reterr));
    sshd->port = (int)job->settings.ssh_port;
    user = getpwuid(geteuid());
    sshd->user_name = user ? pl_memory_string(user->pw_name, reterr) : NULL;
    if (!sshd->user_name) {
        return user ? PL_MEMORY : pl_error_errno(reterr, "read the user's name again");
    }
    PL_TRY(key_path(directory, "id_ed25519", &sshd->user_key, reterr));
    return key_path(directory, "host_ed25519", &sshd->host_key, reterr);
}

void pl_sshd_close(struct pl_sshd *sshd)
{
    free(sshd->user_key);
    free(sshd->host_key);
    free(sshd->user_name);
    *sshd = PL_SSHD_NONE;
}

/* Read the public half of the key file `private_path`: one line, without its newline. */
static enum pl_status read_public(const char *private_path, char **ret_line, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    PL_TRY(pl_text_set(&path, reterr, "%s.pub", private_path));
    PL_TRY(pl_file_read(pl_text_string(&path), KEY_MAX_BYTES, ret_line, NULL, reterr));
    (*ret_line)[strcspn(*ret_line, "\r\n")] = '\0';
    return PL_OK;
}

int pl_sshd_listen(int port)
{
    const struct sockaddr_in6 six = {
        .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = IN6ADDR_ANY_INIT};
    const struct sockaddr_in four = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr = {.s_addr = htonl(INADDR_ANY)}};
    const struct sockaddr *const addresses[] = {(const struct sockaddr *)&six, (const struct sockaddr *)&four};
    const socklen_t sizes[] = {sizeof(six), sizeof(four)};
    const int on = 1, off = 0;

    for (size_t i = 0; i < PL_ARRAY_ITEMS(addresses); i++) {
        int fd = socket(addresses[i]->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

        if (fd < 0) {
            continue; /* this host does not have this kind of address */
        }
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)); /* one socket for both kinds */
        if (bind(fd, addresses[i], sizes[i]) == 0 && listen(fd, SOMAXCONN) == 0) {
            return fd;
        }
        pl_file_close_at(&fd);
        if (errno != EADDRNOTAVAIL) {
            break;
        }
    }
    return -1;
}

/* Check that the port is free. sshd reports a port that is in use only in its own log, but the failure file must name
 * it. */
static enum pl_status probe_port(int port, struct pl_error *reterr)
{
    PL_AUTO_CLOSE int fd = pl_sshd_listen(port);

    return fd >= 0 ? PL_OK
                   : pl_error_errno(reterr,
                                    "use port %d for the sshd that the other hosts need (set PACELINE_SSH_PORT or the "
                                    "hyperparameter paceline_ssh_port to another port, the same on all hosts)",
                                    port);
}

/* Returns the capabilities in effect, or all if /proc does not say. */
static uint64_t capabilities_in_effect(void)
{
    PL_AUTO_FREE char *status = NULL;

    return pl_file_read("/proc/self/status", STATUS_MAX_BYTES, &status, NULL, NULL) == PL_OK
               ? pl_text_field_number(status, "CapEff", 16, UINT64_MAX)
               : UINT64_MAX;
}

/* Check the capabilities: sshd as root moves its unprivileged part into /run/sshd, as another user. Without the right
 * to do so it closes every session at once, and the master would wait until its timeout. */
static enum pl_status check_capabilities(struct pl_error *reterr)
{
    static const struct {
        unsigned number;
        const char *name;
    } needed[] = {{CAP_SETGID, "SETGID"}, {CAP_SETUID, "SETUID"}, {CAP_SYS_CHROOT, "SYS_CHROOT"}};
    PL_AUTO_TEXT struct pl_text missing = PL_TEXT_NONE;
    uint64_t have;

    if (geteuid() != 0) {
        return PL_OK; /* an sshd of an ordinary user has no such part */
    }
    have = capabilities_in_effect();
    for (size_t i = 0; i < PL_ARRAY_ITEMS(needed); i++) {
        if ((have >> needed[i].number & 1) == 0) {
            pl_text_printf(&missing, "%s%s", missing.length > 0 ? ", " : "", needed[i].name);
        }
    }
    PL_TRY(pl_text_check(&missing, reterr));
    return missing.length == 0 ? PL_OK
                               : pl_error_set(reterr, PL_UNSUPPORTED,
                                              "sshd for the other hosts needs the capabilities SETGID, SETUID and "
                                              "SYS_CHROOT, but this container lacks %s: start it with docker run "
                                              "--cap-add, or as an ordinary user",
                                              pl_text_string(&missing));
}

static void append_config(const struct pl_sshd *sshd, const struct pl_job *job, const struct pl_rundir *rundir,
                          struct pl_text *text)
{
    pl_text_printf(text, "Port %d\n", sshd->port);
    pl_text_printf(text, "HostKey %s/host_key\n", rundir->path);
    pl_text_printf(text, "AuthorizedKeysFile %s/authorized_keys\n", rundir->path);
    pl_text_printf(text, "AllowUsers %s\n", sshd->user_name);
    pl_text_printf(text, "ForceCommand %s relay %s\n", job->self_path, rundir->path);
    pl_text_append(text, "PubkeyAuthentication yes\n"
                         "AuthenticationMethods publickey\n"
                         "PasswordAuthentication no\n"
                         "KbdInteractiveAuthentication no\n"
                         "PermitRootLogin forced-commands-only\n"
                         "UsePAM no\n"
                         "UseDNS no\n"
                         "PidFile none\n"
                         /* The directory belongs to us alone; this check would only refuse /tmp because everybody can
                          * write there. */
                         "StrictModes no\n"
                         "LoginGraceTime 20\n"
                         "MaxAuthTries 2\n"
                         "MaxSessions 1\n"
                         "PermitTTY no\n"
                         "PermitUserRC no\n"
                         "PermitUserEnvironment no\n"
                         "PermitTunnel no\n"
                         "AllowTcpForwarding no\n"
                         "AllowStreamLocalForwarding no\n"
                         "AllowAgentForwarding no\n"
                         "X11Forwarding no\n"
                         "GatewayPorts no\n"
                         "PrintMotd no\n"
                         "PrintLastLog no\n"
                         "TCPKeepAlive yes\n"
                         /* with it bash acts as the child of a shell: it does not read ~/.bashrc, which might print
                          * something or wait */
                         "SetEnv SHLVL=1\n"
                         "LogLevel ERROR\n");
}

static enum pl_status copy_key(const struct pl_rundir *rundir, const char *from, const char *name,
                               struct pl_error *reterr)
{
    PL_AUTO_FREE char *key = NULL;
    enum pl_status status;
    size_t bytes;

    PL_TRY(pl_file_read(from, KEY_MAX_BYTES, &key, &bytes, reterr));
    status = pl_rundir_write(rundir, name, key, bytes, reterr);
    explicit_bzero(key, bytes);
    return status;
}

enum pl_status pl_sshd_server(const struct pl_sshd *sshd, const struct pl_job *job, const struct pl_rundir *rundir,
                              struct pl_strv *argv, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    PL_AUTO_FREE char *program = NULL;
    PL_AUTO_FREE char *public_key = NULL;

    PL_TRY(check_capabilities(reterr));
    PL_TRY(probe_port(sshd->port, reterr));
    PL_TRY(pl_file_find_program("sshd", PL_NEEDS_SSHD_PATH, &program, reterr));
    if (geteuid() == 0 && mkdir("/run/sshd", 0755) != 0 && errno != EEXIST) {
        return pl_error_errno(reterr, "make '/run/sshd' for sshd's unprivileged part");
    }
    PL_TRY(read_public(sshd->user_key, &public_key, reterr));
    append_config(sshd, job, rundir, &text);
    PL_TRY(pl_text_check(&text, reterr));
    PL_TRY(pl_rundir_write(rundir, "sshd_config", text.data, text.length, reterr));
    PL_TRY(
        pl_text_set(&text, reterr, "restrict,command=\"%s relay %s\" %s\n", job->self_path, rundir->path, public_key));
    PL_TRY(pl_rundir_write(rundir, "authorized_keys", text.data, text.length, reterr));
    PL_TRY(copy_key(rundir, sshd->host_key, "host_key", reterr));
    pl_strv_add(argv, program, "-D", "-e", "-f");
    pl_strv_printf(argv, "%s/sshd_config", rundir->path);
    return pl_strv_check(argv, reterr);
}

enum pl_status pl_sshd_prepare_client(const struct pl_sshd *sshd, const struct pl_rundir *rundir,
                                      struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    PL_AUTO_FREE char *public_key = NULL;

    PL_TRY(read_public(sshd->host_key, &public_key, reterr));
    PL_TRY(pl_text_set(&text, reterr, HOST_KEY_ALIAS " %s\n", public_key));
    PL_TRY(pl_rundir_write(rundir, "known_hosts", text.data, text.length, reterr));
    return copy_key(rundir, sshd->user_key, "user_key", reterr);
}

enum pl_status pl_sshd_client(const struct pl_sshd *sshd, const char *run_dir, const char *host, const char *command,
                              struct pl_strv *argv, struct pl_error *reterr)
{
    static const char *const options[] = {"BatchMode=yes",
                                          "StrictHostKeyChecking=yes",
                                          "HostKeyAlias=" HOST_KEY_ALIAS,
                                          "GlobalKnownHostsFile=/dev/null",
                                          "IdentitiesOnly=yes",
                                          "IdentityAgent=none",
                                          "ConnectTimeout=5",
                                          "PreferredAuthentications=publickey",
                                          "HostKeyAlgorithms=ssh-ed25519",
                                          "UpdateHostKeys=no",
                                          "LogLevel=ERROR",
                                          "ClearAllForwardings=yes",
                                          "ControlPath=none",
                                          "EscapeChar=none",
                                          NULL};

    pl_strv_add(argv, "ssh", "-F", "none", "-T");
    for (size_t i = 0; options[i]; i++) {
        pl_strv_add(argv, "-o", options[i]);
    }
    pl_strv_add(argv, "-o");
    pl_strv_printf(argv, "UserKnownHostsFile=%s/known_hosts", run_dir);
    pl_strv_add(argv, "-i");
    pl_strv_printf(argv, "%s/user_key", run_dir);
    pl_strv_add(argv, "-p");
    pl_strv_printf(argv, "%d", sshd->port);
    pl_strv_add(argv, "-l", sshd->user_name, "--", host, command);
    return pl_strv_check(argv, reterr);
}

enum pl_status pl_sshd_save_hosts(const struct pl_sshd *sshd, const struct pl_rundir *rundir, const char *current_host,
                                  const struct pl_strv *hosts, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    pl_text_printf(&text, "%d%c%s%c%s%c", sshd->port, '\0', sshd->user_name, '\0', current_host, '\0');
    for (size_t i = 0; i < hosts->count; i++) {
        pl_text_append_n(&text, hosts->items[i], strlen(hosts->items[i]) + 1);
    }
    PL_TRY(pl_text_check(&text, reterr));
    return pl_rundir_write(rundir, hosts_file, text.data, text.length, reterr);
}

enum pl_status pl_sshd_load_hosts(const char *run_dir, struct pl_sshd *sshd, char **ret_current_host,
                                  struct pl_strv *hosts, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    PL_AUTO_STRV struct pl_strv fields = PL_STRV_NONE;
    PL_AUTO_FREE char *data = NULL;
    size_t bytes;

    PL_TRY(pl_text_set(&path, reterr, "%s/%s", run_dir, hosts_file));
    PL_TRY(pl_file_read(pl_text_string(&path), HOSTS_MAX_BYTES, &data, &bytes, reterr));
    for (const char *at = data; at < data + bytes; at += strlen(at) + 1) {
        pl_strv_add(&fields, at);
    }
    PL_TRY(pl_strv_check(&fields, reterr));
    if (fields.count < 4) {
        return pl_error_set(reterr, PL_CORRUPT, "'%.200s': expected port, user, host and hosts", pl_text_string(&path));
    }
    sshd->port = (int)strtol(fields.items[0], NULL, 10);
    sshd->user_name = pl_memory_string(fields.items[1], reterr);
    PL_TRY(sshd->user_name ? PL_OK : PL_MEMORY);
    pl_strv_add_list(hosts, (const char *const *)fields.items + 3);
    PL_TRY(pl_strv_check(hosts, reterr));
    *ret_current_host = pl_memory_string(fields.items[2], reterr);
    return *ret_current_host ? PL_OK : PL_MEMORY;
}
