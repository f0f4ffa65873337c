/* SPDX-License-Identifier: Apache-2.0 */
/* Divides a host's devices into slots. */
#include "programs/sweep/slots.h"

#include "base/cpus.h"
#include "base/file.h"
#include "base/memory.h"
#include "entrypoint/job/devices.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* These ports are below those that Linux gives to connections (net.ipv4.ip_local_port_range). Two sweeps on one machine
 * begin at different ports. */
enum { PORT_FIRST = 20000, PORTS = 12000, PORT_STEP = 37 };

static int count_words(const char *list)
{
    int count = 0;

    for (const char *at = list; *at != '\0'; at += strcspn(at, ","), at += *at == ',') {
        count += strcspn(at, ",") > 0;
    }
    return count;
}

struct pl_slots_machine pl_slots_look(const char *host, int gpus, const char *visible)
{
    struct pl_slots_machine machine = {.host = host, .gpus = gpus};
    const int limit = pl_devices_cpu_limit("");
    struct pl_cpus cpus;

    machine.cpus =
        sched_getaffinity(0, sizeof(cpus), cpus.sets) == 0 ? CPU_COUNT_S(sizeof(cpus), cpus.sets) : pl_devices_cpus();
    machine.cpus = limit > 0 && limit < machine.cpus ? limit : machine.cpus;
    if (gpus > 0 && visible) {
        machine.visible = visible;
        machine.gpus = count_words(visible);
    }
    return machine;
}

enum pl_status pl_slots_cut(const struct pl_slots_machine *machine, int processes, int wanted,
                            struct pl_slots *ret_slots, struct pl_error *reterr)
{
    const int devices = machine->gpus > 0 ? machine->gpus : machine->cpus;
    struct pl_slots slots = {.machine = *machine, .processes = processes};

    slots.count = wanted > 0 ? wanted : devices / processes;
    if (slots.count == 0) {
        return pl_error_set(reterr, PL_INVALID,
                            "the sweep has %d processes per trial, and host %.200s has %d %s: expected at most %d "
                            "processes, or the number of slots in \"slots\"",
                            processes, machine->host, devices, machine->gpus > 0 ? "GPUs" : "CPUs", devices);
    }
    slots.cpus = machine->cpus / slots.count > 0 ? machine->cpus / slots.count : 1;
    slots.gpus = machine->gpus / slots.count > 0 ? machine->gpus / slots.count : machine->gpus > 0;
    if (slots.gpus > 0 && slots.gpus < processes) {
        slots.gpus = processes < machine->gpus ? processes : machine->gpus; /* slots share these GPUs */
    }
    *ret_slots = slots;
    return PL_OK;
}

enum pl_status pl_slots_of_job(const struct pl_job *job, const struct pl_sweep_space *space, struct pl_slots *ret_slots,
                               struct pl_error *reterr)
{
    const struct pl_slots_machine machine =
        pl_slots_look(job->current_host, job->gpus, pl_environment_get(job->process, "CUDA_VISIBLE_DEVICES"));

    return pl_slots_cut(&machine, space->processes, space->slots, ret_slots, reterr);
}

static bool is_free(int port)
{
    const struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    PL_AUTO_CLOSE int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    return fd >= 0 && bind(fd, (const struct sockaddr *)&address, sizeof(address)) == 0;
}

enum pl_status pl_slots_find_ports(int count, int **ret_ports, struct pl_error *reterr)
{
    PL_AUTO_FREE int *ports = pl_memory_new((size_t)count, sizeof(*ports), reterr);
    int found = 0;

    if (!ports) {
        return PL_MEMORY;
    }
    for (int i = 0; i < PORTS && found < count; i++) {
        const int port = PORT_FIRST + (int)(((int64_t)getpid() * PORT_STEP + i) % PORTS);

        if (is_free(port)) {
            ports[found++] = port;
        }
    }
    if (found < count) {
        return pl_error_set(reterr, PL_LIMIT,
                            "the sweep needs %d free ports, one per slot, from %d to %d, and found only %d", count,
                            PORT_FIRST, PORT_FIRST + PORTS - 1, found);
    }
    *ret_ports = PL_TAKE(ports);
    return PL_OK;
}

/* Appends item number `index` of the list, or the index itself if there is no list. */
static void append_device(const char *list, int index, struct pl_text *text)
{
    if (!list) {
        pl_text_printf(text, "%d", index);
        return;
    }
    for (; index > 0; list += strcspn(list, ","), list += *list == ',') {
        index -= strcspn(list, ",") > 0;
    }
    list += strspn(list, ",");
    pl_text_append_n(text, list, strcspn(list, ","));
}

void pl_slots_visible(const struct pl_slots *slots, int slot, struct pl_text *text)
{
    for (int i = 0; i < slots->gpus; i++) {
        pl_text_append(text, i > 0 ? "," : "");
        append_device(slots->machine.visible, (slot * slots->gpus + i) % slots->machine.gpus, text);
    }
}
