/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums 16 floats by name again and again on all ranks, as Horovod's modules do below hvd.allreduce():
 * tests/support/count_way.py counts the way of one call of sum().
 */
#include "runtime/paceline.h"
#include "runtime/service.h"

#include <stdio.h>

enum { SUMS = 500 };

static enum pl_status sum(struct pl_service *service, struct pl_error *reterr)
{
    float values[16] = {1};
    struct pl_completion completion = {0};
    const struct pl_named_op op = {.name = "w",
                                   .kind = PL_ALLREDUCE,
                                   .dtype = PL_FLOAT32,
                                   .op = PL_SUM,
                                   .dims = 1,
                                   .shape = {16},
                                   .send = values,
                                   .recv = values};

    PL_TRY(pl_service_submit(service, 0, &op, &completion, reterr));
    return pl_service_wait(service, &completion, reterr);
}

static enum pl_status run(struct pl_runtime *runtime, struct pl_error *reterr)
{
    struct pl_service *service;

    PL_TRY(pl_service_new(pl_runtime_world(runtime), NULL, &service, reterr));
    for (int i = 0; i < SUMS; i++) {
        PL_TRY(sum(service, reterr));
    }
    PL_TRY(pl_service_shutdown(service, reterr));
    pl_service_free(service);
    return PL_OK;
}

int main(void)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_runtime *runtime = NULL;
    enum pl_status status = pl_runtime_start(&runtime, &error);

    status = status == PL_OK ? run(runtime, &error) : status;
    if (status != PL_OK) {
        fprintf(stderr, "sum_way: %s\n", error.cause);
    }
    pl_runtime_stop(runtime);
    return status != PL_OK;
}
