/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/named/device.c, runtime/named/device_world.c, runtime/named/service_device.c. */
/*
 * Each call of the driver and of NCCL fails once, in turn, while two ranks do what Horovod's module does: operations of
 * all kinds and several types through the service, which opens the device for the first one. Each time every rank has
 * right values or an error with names, the fake driver finds nothing left, and nothing hangs.
 */
#include "base/clock.h"
#include "base/memory.h"
#include "runtime/service.h"
#include "tests/support/device.h"
#include "tests/support/ranks.h"
#include "tests/support/unit.h"

#include <signal.h>
#include <unistd.h>

enum { RANKS = 2, STEPS = 2, ROWS = 300, MOST_MEMBERS = 3, HANGS_S = 120, MOST_CALLS = 5000 };

/* The operations of a step, in the order of their submission; those of one group follow each other. */
static const struct kind {
    const char *name;
    enum pl_kind kind;
    enum pl_dtype dtype;
    enum pl_op op;
    int group; /* 0: none */
    bool scaled;
} kinds[] = {
    {"sum a", PL_ALLREDUCE, PL_FLOAT32, PL_SUM, 0, false},
    {"sum b", PL_ALLREDUCE, PL_FLOAT32, PL_SUM, 0, false},
    {"whole", PL_ALLREDUCE, PL_INT64, PL_SUM, 0, false},
    {"double", PL_ALLREDUCE, PL_FLOAT64, PL_SUM, 0, false},
    {"least", PL_ALLREDUCE, PL_FLOAT32, PL_MIN, 0, false},
    {"scaled", PL_ALLREDUCE, PL_FLOAT32, PL_SUM, 0, true},
    {"weights", PL_BROADCAST, PL_FLOAT64, PL_SUM, 0, false},
    {"group", PL_ALLREDUCE, PL_FLOAT32, PL_SUM, 1, false},
    {"group", PL_ALLREDUCE, PL_FLOAT64, PL_SUM, 1, false},
    {"group", PL_ALLREDUCE, PL_INT64, PL_SUM, 1, false},
    {"scatter", PL_REDUCE_SCATTER, PL_FLOAT32, PL_SUM, 0, false},
    {"gather", PL_ALLGATHER, PL_INT64, PL_SUM, 0, false},
    {"exchange", PL_ALLTOALL, PL_FLOAT32, PL_SUM, 0, false},
};

enum { OPS = PL_ARRAY_ITEMS(kinds) };

struct rank {
    struct pl_device *device;
    void *stream;
    void *memory[2]; /* what it gives, and what it gets */
    void *send[STEPS][OPS], *recv[STEPS][OPS];
    enum pl_status status[STEPS][OPS]; /* how each ended */
    struct pl_error error;             /* the first one */
    const char *failed;                /* what had it */
    bool operates;                     /* that was an operation, for which the device was open */
};

struct fault {
    const char *name;
    long number;
    int devices;
    bool come;
    pthread_barrier_t meet;
    struct rank ranks[RANKS];
};

static char trial[96];

/* Says which call has failed when the fake driver aborts, or nothing has ended for long. */
static void say_trial(int signal_number)
{
    (void)!write(STDERR_FILENO, trial, strlen(trial));
    signal(SIGABRT, SIG_DFL);
    if (signal_number == SIGALRM) {
        static const char hangs[] = "a rank hangs\n";

        (void)!write(STDERR_FILENO, hangs, sizeof(hangs) - 1);
        abort();
    }
}

static void set(void *data, enum pl_dtype dtype, size_t e, int value)
{
    if (dtype == PL_FLOAT32) {
        ((float *)data)[e] = (float)value;
    } else if (dtype == PL_FLOAT64) {
        ((double *)data)[e] = value;
    } else {
        ((int64_t *)data)[e] = value;
    }
}

static int given(size_t op, size_t e, int rank, int step)
{
    return (int)((e * 3 + op + (size_t)step * 5 + (size_t)rank * 7) % 11) - 5;
}

/* What `rank` gets. Returns the number of elements. */
static size_t expect(void *data, size_t op, int rank, int step)
{
    const struct kind *kind = &kinds[op];
    size_t count = kind->kind == PL_ALLGATHER        ? (size_t)RANKS * ROWS
                   : kind->kind == PL_REDUCE_SCATTER ? ROWS / RANKS
                                                     : ROWS;

    for (size_t e = 0; e < count; e++) {
        size_t half = ROWS / RANKS, other = (size_t)rank * half + e;
        int a = given(op, kind->kind == PL_REDUCE_SCATTER ? other : e, 0, step);
        int b = given(op, kind->kind == PL_REDUCE_SCATTER ? other : e, 1, step);
        int value = kind->op == PL_MIN ? (a < b ? a : b) : (kind->scaled ? 2 : 1) * (a + b);

        if (kind->kind == PL_BROADCAST) {
            value = b;
        } else if (kind->kind == PL_ALLGATHER) {
            value = given(op, e % ROWS, (int)(e / ROWS), step);
        } else if (kind->kind == PL_ALLTOALL) {
            value = given(op, (size_t)rank * half + e % half, (int)(e / half), step);
        }
        set(data, kind->dtype, e, value);
    }
    return count;
}

static enum pl_status prepare(struct rank *own, int ordinal, int rank, struct pl_error *reterr)
{
    enum { PLACE_BYTES = RANKS * ROWS * 8, ALL_BYTES = STEPS * OPS * PLACE_BYTES };
    PL_AUTO_FREE char *values = pl_memory_new(ALL_BYTES, 1, reterr);

    if (!values) {
        return PL_MEMORY;
    }
    PL_TRY(pl_device_open(ordinal, &own->device, reterr));
    PL_TRY(pl_device_stream_new(own->device, &own->stream, reterr));
    PL_TRY(pl_device_alloc(own->device, ALL_BYTES, &own->memory[0], reterr));
    PL_TRY(pl_device_alloc(own->device, ALL_BYTES, &own->memory[1], reterr));
    for (int step = 0; step < STEPS; step++) {
        for (size_t op = 0; op < OPS; op++) {
            size_t at = ((size_t)step * OPS + op) * PLACE_BYTES;

            own->status[step][op] = PL_CANCELLED;
            own->send[step][op] = (char *)own->memory[0] + at;
            own->recv[step][op] = (char *)own->memory[1] + at;
            for (size_t e = 0; e < ROWS; e++) {
                set(values + at, kinds[op].dtype, e, given(op, e, rank, step));
            }
        }
    }
    return device_move(own->device, own->memory[0], values, ALL_BYTES, reterr);
}

static void release(struct rank *own)
{
    pl_device_release(own->device, own->memory[0]);
    pl_device_release(own->device, own->memory[1]);
    pl_device_stream_free(own->device, own->stream);
    pl_device_close(own->device);
}

/* ---- a rank's program ---- */

static void note(struct rank *own, const char *what, const struct pl_error *error)
{
    if (!own->failed) {
        own->failed = what;
        own->error = *error;
        for (size_t op = 0; op < OPS; op++) {
            own->operates = own->operates || what == kinds[op].name;
        }
    }
}

/*
 * Whether the error names a rank with its host and, of an operation, the device and one that was under way. A rank
 * whose device cannot be opened, or whose submission fails, shuts down, and the other one reports that.
 */
static bool has_names(const struct rank *own, const char *text)
{
    bool has = strstr(text, "rank 0 on host ") || strstr(text, "rank 1 on host "), named = false;

    for (size_t op = 0; op < OPS && !named; op++) {
        char name[40];

        snprintf(name, sizeof(name), "'%s", kinds[op].name); /* of a group: 'group.0of3' */
        named = strstr(text, name);
    }
    return has && (!own->operates || strstr(text, " shut the named tensors down") ||
                   (named && strstr(text, ", device ") && strstr(text, "GPU-")));
}

static struct pl_named_op describe(struct rank *own, int step, size_t op, const uint64_t *splits)
{
    const struct kind *kind = &kinds[op];

    return (struct pl_named_op){.name = kind->group ? NULL : kind->name,
                                .kind = kind->kind,
                                .dtype = kind->dtype,
                                .op = kind->op,
                                .root = 1,
                                .scaled = kind->scaled,
                                .prescale = 1,
                                .postscale = 2,
                                .dims = 1,
                                .shape = {ROWS},
                                .memory = PL_MEMORY_DEVICE,
                                .splits = kind->kind == PL_ALLTOALL ? splits : NULL,
                                .send = own->send[step][op],
                                .recv = own->recv[step][op],
                                .stream = own->stream};
}

struct submission {
    struct pl_completion completion;
    struct pl_named_result results[MOST_MEMBERS];
    size_t first, count;
};

/* Waits, and lets the stream copy what the engine has made, as torch's module does. */
static void take(struct pl_service *service, struct rank *own, int step, struct submission *submission)
{
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status = pl_service_wait(service, &submission->completion, &error);
    enum pl_kind kind = kinds[submission->first].kind;

    if (status == PL_OK && (kind == PL_ALLGATHER || kind == PL_ALLTOALL)) {
        status = pl_named_result_move(&submission->results[0], own->recv[step][submission->first], own->stream, &error);
    }
    if (status != PL_OK) {
        note(own, kinds[submission->first].name, &error);
    }
    pl_named_result_done(&submission->results[0]);
    for (size_t i = 0; i < submission->count; i++) {
        own->status[step][submission->first + i] = status;
    }
}

/* Submits a step's operations, and waits for those that were taken. A program ends at its first error. */
static void run_step(struct pl_service *service, struct rank *own, int step)
{
    static const uint64_t splits[RANKS] = {ROWS / RANKS, ROWS / RANKS};
    struct submission submissions[OPS] = {0};
    size_t count = 0;

    for (size_t op = 0; op < OPS && !own->failed; op += submissions[count++].count) {
        struct submission *next = &submissions[count];
        struct pl_error error = PL_ERROR_NONE;
        struct pl_named_op ops[MOST_MEMBERS];
        enum pl_status status;

        next->first = op;
        while (next->count < MOST_MEMBERS && op + next->count < OPS &&
               (next->count == 0 || (kinds[op].group && kinds[op + next->count].group == kinds[op].group))) {
            ops[next->count] = describe(own, step, op + next->count, splits);
            next->count++;
        }
        next->completion.results = next->results;
        status = next->count > 1
                     ? pl_service_submit_group(service, 0, kinds[op].name, ops, next->count, &next->completion, &error)
                     : pl_service_submit(service, 0, ops, &next->completion, &error);
        if (status != PL_OK) {
            note(own, kinds[op].name, &error);
            break;
        }
    }
    for (size_t i = 0; i < count; i++) {
        take(service, own, step, &submissions[i]);
    }
}

/* Between submissions of a step and its end nothing here asks the driver for anything. */
static void run_program(struct pl_world *world, struct rank *own, int ordinal)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_completion joined = {0};
    struct pl_service *service;

    if (pl_service_new(world, NULL, &service, &error) != PL_OK) {
        note(own, "service", &error);
        return;
    }
    if (pl_service_use_device(service, ordinal, &error) != PL_OK) {
        note(own, "device", &error);
    }
    for (int step = 0; step < STEPS && !own->failed; step++) {
        run_step(service, own, step);
    }
    if (!own->failed && (pl_service_submit_join(service, &joined, &error) != PL_OK ||
                         pl_service_wait(service, &joined, &error) != PL_OK)) {
        note(own, "join", &error);
    }
    if (pl_service_shutdown(service, &error) != PL_OK) {
        note(own, "shutdown", &error);
    }
    pl_service_free(service);
}

/* ---- trials ---- */

static void fails(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct fault *fault = argument;
    int rank = pl_world_rank(world), ordinal = rank % fault->devices;
    struct rank *own = &fault->ranks[rank];
    bool (*has_come)(void) = NULL;
    void *found = device_fake("fake_cuda_has_come");
    int64_t got[RANKS * ROWS], wanted[RANKS * ROWS];

    memcpy(&has_come, &found, sizeof(has_come));
    RANKS_OK(prepare(own, ordinal, rank, &error));
    pthread_barrier_wait(&fault->meet);
    if (rank == 0) {
        char order[64];

        snprintf(order, sizeof(order), "fail=%s:%ld", fault->name, fault->number);
        device_order(order);
    }
    pthread_barrier_wait(&fault->meet);
    run_program(world, own, ordinal);
    pthread_barrier_wait(&fault->meet);
    if (rank == 0) {
        fault->come = has_come();
        device_order("fail=none:1");
    }
    pthread_barrier_wait(&fault->meet);
    for (int step = 0; step < STEPS; step++) {
        for (size_t op = 0; op < OPS; op++) {
            size_t bytes = expect(wanted, op, rank, step) * pl_dtype_bytes(kinds[op].dtype);

            if (own->status[step][op] == PL_OK) {
                RANKS_OK(pl_device_copy(own->device, got, own->recv[step][op], bytes, own->stream, &error));
                RANKS_OK(pl_device_stream_finish(own->device, own->stream, PL_DEADLINE_NEVER, &error));
                RANKS_NEED(memcmp(got, wanted, bytes) == 0, "step %d: '%s' has other values", step, kinds[op].name);
            }
        }
    }
    release(own);
}

/* Runs the program with a call that fails. Returns false if the call has not come. */
static bool try_fault(const char *name, long number, int devices, long *said)
{
    struct fault fault = {.name = name, .number = number, .devices = devices};

    snprintf(trial, sizeof(trial), "call %ld of %s fails, %d devices: ", number, name, devices);
    pthread_barrier_init(&fault.meet, NULL, RANKS);
    alarm(HANGS_S);
    ck_assert_ranks_on(RANKS, 0, NULL, fails, &fault);
    alarm(0);
    pthread_barrier_destroy(&fault.meet);
    for (int r = 0; r < RANKS; r++) {
        const struct rank *rank = &fault.ranks[r];
        char text[2048];

        pl_error_text(&rank->error, text, sizeof(text));
        ck_assert_msg(!rank->failed || has_names(rank, text),
                      "%sthe error of '%s' on rank %d does not name rank, host, device and operation: %s", trial,
                      rank->failed, r, text);
        ck_assert_msg(!rank->failed || fault.come, "%snot yet, but rank %d, '%s': %s", trial, r, rank->failed, text);
        *said += rank->failed ? 1 : 0;
    }
    return fault.come;
}

static void try_all(const char *name, long stride, int devices)
{
    const char *all = getenv("PACELINE_TEST_ALL");
    long number = all ? atol(all) : 1, said = 0;

    if (!device_fake("fake_cuda_order")) {
        return;
    }
    signal(SIGABRT, say_trial);
    signal(SIGALRM, say_trial);
    while (number < MOST_CALLS && try_fault(name, number, devices, &said)) {
        number += stride;
    }
    fprintf(stderr, "on %d devices each %ld. call up to %ld has failed in turn\n", devices, stride, number - stride);
    ck_assert_msg(said > 0, "no rank has said that a call fails");
}

/* PACELINE_TEST_ALL is the number of the first call: 1, or where a run of all calls is to go on. */
static long stride(void)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    return 160;
#else
    return getenv("PACELINE_TEST_ALL") ? 1 : 32;
#endif
}

TEST(a_call_that_fails_is_an_error_with_names_on_every_rank)
{
    try_all("any", stride(), 2);
}

TEST(it_is_so_for_ranks_that_share_a_device)
{
    try_all("any", stride(), 1);
}

UNIT_MAIN_AFTER("runtime/device_faults", device_prepare())
