/* SPDX-License-Identifier: Apache-2.0 */
/** Makes a system call fail from now on, for this thread and the processes and threads that it makes. */
#ifndef PL_TESTS_SUPPORT_REFUSE_CALL_H
#define PL_TESTS_SUPPORT_REFUSE_CALL_H

#include "tests/support/unit.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/** Let `call` fail with EPERM; if `first` is not NULL, only with this first argument. */
static inline void refuse_call(uint32_t call, const uint32_t *first)
{
    struct sock_filter words[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, first ? UINT32_MAX : 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, first ? *first : 0, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(words) / sizeof(words[0]), .filter = words};

    ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

#endif
